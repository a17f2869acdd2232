//! Who may do what, and what an installation leaves alone.

use leasehold::{
    Kind,
    fence::{
        NotAdmitted,
        postgres::{PostgresFence, script},
    },
};

use super::{Base, arguments};
use crate::table::pass;

#[tokio::test]
async fn a_role_that_writes_can_ask_and_cannot_tamper() {
    let base = Base::new().await;
    let role = format!("writer \"{}\"", base.name);
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    base.psql(&format!("CREATE ROLE {quoted} LOGIN; GRANT ALL ON account TO {quoted}")).unwrap();
    let as_role = |sql: &str| base.psql(&format!("SET ROLE {quoted}; {sql}"));
    let seal = format!("SELECT leasehold.fence_seal({})", arguments(&pass("r", 10, 1)));
    assert!(as_role(&seal).unwrap_err().contains("permission denied"));
    base.psql(&script("leasehold", false, &[&role]).unwrap()).unwrap();
    as_role(&seal).unwrap();
    as_role(&format!("SELECT leasehold.fence_check({})", arguments(&pass("r", 10, 1)))).unwrap();
    assert!(
        as_role(&format!("SELECT leasehold.fence_check({})", arguments(&pass("r", 9, 2))))
            .unwrap_err()
            .contains("stale")
    );
    assert_eq!(as_role("SELECT token FROM leasehold.fence_show('r')").unwrap(), "10");
    assert_eq!(as_role("SELECT leasehold.fence_refused()").unwrap(), "1");
    for tampering in [
        "SELECT leasehold.fence_raise('r', 99)",
        "SELECT leasehold.fence_table('account', 'balance')",
        "DELETE FROM leasehold.fence",
        "UPDATE leasehold.fence SET token = 99",
        "SELECT setval('leasehold.stale_write_rejected_total', 1)",
    ] {
        let told = as_role(tampering).unwrap_err();
        assert!(told.contains("permission denied"), "{tampering}: {told}");
    }
    // Objects of the caller's own must not be taken for the fence's.
    as_role("CREATE TEMP TABLE fence (namespace text, resource text, token bigint, lease_id uuid, op_seq bigint, holder text)").unwrap();
    let shadowed = format!(
        "CREATE TEMP TABLE fence AS SELECT 'default'::text AS namespace, 'r'::text AS resource, 9::bigint AS token; SET search_path = \
         pg_temp, public; SELECT leasehold.fence_check({})",
        arguments(&pass("r", 9, 2))
    );
    assert!(as_role(&shadowed).unwrap_err().contains("reason=stale"));
    base.psql(&format!("DROP OWNED BY {quoted}; DROP ROLE {quoted}")).unwrap();
}

#[tokio::test]
async fn a_fence_may_be_installed_again_and_keeps_what_it_knows() {
    let base = Base::new().await;
    let (fence, mut client) = (PostgresFence::default(), base.client().await);
    fence.seal(&mut client, &pass("r", 20, 1)).await.unwrap();
    fence.install(&mut client, false).await.unwrap();
    assert!(fence.seal(&mut client, &pass("r", 10, 2)).await.unwrap_err().is_stale());
    assert!(base.psql("UPDATE leasehold.fence SET token = 1").unwrap_err().contains("would go back"));
}

#[tokio::test]
async fn a_database_without_the_fence_is_told_how_to_get_it() {
    let base = Base::new().await;
    let (fence, mut client) =
        (PostgresFence::new(leasehold::fence::Policy::default(), "else where"), base.client().await);
    let NotAdmitted::Failed(error) = fence.seal(&mut client, &pass("r", 10, 1)).await.unwrap_err() else {
        panic!()
    };
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("leasehold fence install"), "{error}");
    fence.install(&mut client, false).await.unwrap();
    fence.seal(&mut client, &pass("r", 10, 1)).await.unwrap();
    let tx = client.build_transaction().read_only(true).start().await.unwrap();
    let NotAdmitted::Failed(error) = fence.check(&tx, &pass("r", 10, 1)).await.unwrap_err() else { panic!() };
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
}

#[test]
fn a_schema_that_would_break_out_of_its_quotes_is_refused() {
    for bad in ["", "it's", "a\"b", "50%", "a$$b", "a\\b"] {
        script(bad, true, &[]).unwrap_err();
    }
    let script = script("ok", false, &["r\"; DROP TABLE x; --", "it's"]).unwrap();
    assert!(script.contains("TO \"r\"\"; DROP TABLE x; --\";") && script.contains("'\"it''s\"'"));
}
