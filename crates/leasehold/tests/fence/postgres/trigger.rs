//! An existing table that is fenced by its resource column: statements need not know.

use super::{Base, arguments};
use crate::table::pass;

const SEALED: &str = "CREATE TABLE orders (id int PRIMARY KEY, state text); INSERT INTO orders VALUES (42, 'new'), (43, 'new');
    SELECT leasehold.fence_table('orders', 'id', 'orders/')";

async fn base() -> Base {
    let base = Base::new().await;
    base.psql(SEALED).unwrap();
    for order in ["orders/42", "orders/43"] {
        base.psql(&format!("SELECT leasehold.fence_seal({})", arguments(&pass(order, 10, 1)))).unwrap();
    }
    base
}

fn present(resource: &str, token: u64, grant: u8) -> String {
    format!("SELECT leasehold.fence_present({})", arguments(&pass(resource, token, grant)))
}

fn states(base: &Base) -> String {
    base.psql("SELECT string_agg(id || '=' || state, ' ' ORDER BY id) FROM orders").unwrap()
}

#[tokio::test]
async fn every_row_needs_the_token_of_its_resource() {
    let base = base().await;
    let refuse = |sql: &str| {
        let told = base.psql(&format!("BEGIN; {sql}; COMMIT")).unwrap_err();
        assert!(told.contains("reason="), "{told}");
        assert_eq!(states(&base), "42=new 43=new");
        told
    };
    refuse("UPDATE orders SET state = 'paid' WHERE id = 42");
    refuse("DELETE FROM orders WHERE id = 42");
    refuse("INSERT INTO orders VALUES (44, 'new')");
    let mine = present("orders/42", 10, 1);
    refuse(&format!("{mine}; UPDATE orders SET state = 'paid'"));
    refuse(&format!("{mine}; UPDATE orders SET id = 44 WHERE id = 42"));
    refuse(&format!("{mine}; UPDATE orders SET id = 44 WHERE id = 43"));
    assert!(base.psql("TRUNCATE orders").unwrap_err().contains("names no resource"));
    base.psql(&format!("BEGIN; {mine}; UPDATE orders SET state = 'paid' WHERE id = 42; COMMIT")).unwrap();
    assert_eq!(states(&base), "42=paid 43=new");
    let both = format!("{mine}; {}", present("orders/43", 10, 1));
    base.psql(&format!("BEGIN; {both}; UPDATE orders SET state = 'sent'; COMMIT")).unwrap();
    assert_eq!(states(&base), "42=sent 43=sent");
}

#[tokio::test]
async fn a_stale_token_is_refused_and_an_unfenced_table_is_free_again() {
    let base = base().await;
    base.psql(&format!("SELECT leasehold.fence_seal({})", arguments(&pass("orders/42", 20, 2)))).unwrap();
    let old = present("orders/42", 10, 1);
    let told = base
        .psql(&format!("BEGIN; {old}; UPDATE orders SET state = 'paid' WHERE id = 42; COMMIT"))
        .unwrap_err();
    assert!(told.contains("reason=stale"), "{told}");
    assert_eq!(states(&base), "42=new 43=new");
    base.psql("SELECT leasehold.unfence_table('orders'); UPDATE orders SET state = 'free'").unwrap();
    assert_eq!(states(&base), "42=free 43=free");
    assert!(base.psql("SELECT leasehold.fence_table('orders', 'no')").unwrap_err().contains("no column"));
}

/// What was shown counts for its transaction and its savepoint, whoever sets what by hand.
#[tokio::test]
async fn what_was_shown_ends_with_its_transaction_and_its_savepoint() {
    let base = base().await;
    let mine = present("orders/42", 10, 1);
    let write = "UPDATE orders SET state = 'paid' WHERE id = 42";
    for sql in [
        format!("BEGIN; {mine}; COMMIT; BEGIN; {write}; COMMIT"),
        format!("BEGIN; SAVEPOINT a; {mine}; ROLLBACK TO a; {write}; COMMIT"),
        format!(
            "BEGIN; {mine}; SELECT set_config('leasehold.shown', current_setting('leasehold.shown'), false); COMMIT; BEGIN; {write}; COMMIT"
        ),
        format!("SET leasehold.shown = '{{\"default/orders/42\": true}}'; {write}"),
    ] {
        let told = base.psql(&sql).unwrap_err();
        assert!(told.contains("reason=missing_token"), "{sql}: {told}");
        assert_eq!(states(&base), "42=new 43=new");
    }
    base.psql(&format!("BEGIN; SAVEPOINT a; {mine}; RELEASE a; {write}; COMMIT")).unwrap();
    assert_eq!(states(&base), "42=paid 43=new");
}
