//! Crashes, and servers that take the place of others.

use std::time::Duration;

use leasehold_core::{
    Kind,
    record::{Acquired, Gone, Renewed},
    request::{Claim, Preparation},
};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Direction, Passage, Postgres, Proxy},
};

use super::scene::{
    again, claim, connect, granted, holder, ms, ready, release, renewed, until, until_granted, until_renewed,
};

/// `kill -9` of the whole server while leases are held, released and revoked.
#[tokio::test]
async fn what_was_answered_survives_a_crash_of_the_server() {
    let server = Postgres::start().unwrap();
    let client = ready(&server.url("postgres")).await;
    let (held, released) = (claim("held"), claim("released"));
    let token = granted(&client, &held).await.token;
    let old = granted(&client, &released).await.token;
    let _ = client.release(release(&released, Some(old))).await.unwrap();
    server.crash().unwrap();
    until_renewed(&client, &held, token).await;
    assert_eq!(renewed(&client, &released, old).await.unwrap(), Renewed::Gone(Gone::Released));
    assert!(matches!(client.acquire(again(&held)).await.unwrap(), Acquired::Busy(_)));
    assert!(granted(&client, &again(&released)).await.token > old);
}

/// The standby was cut off, the primary went on granting, and then the standby took its place: it knows nothing of the last
/// grant, and so it makes none until that must have ended.
#[tokio::test]
async fn a_standby_promoted_without_the_last_commits_is_quarantined() {
    let primary = Postgres::start().unwrap();
    let proxy = Proxy::start(primary.address()).unwrap();
    let url = format!("{}?max_ttl=3s", primary.url("postgres"));
    let client = ready(&url).await;
    let short = |name: &str| Claim { ttl: ms(2_500), ..claim(name) };
    let before = granted(&client, &short("seen")).await;
    let _ = client.release(release(&short("nothing"), None)).await.unwrap();
    let standby = primary.standby("cut", Some(proxy.address())).unwrap();
    let seen = "SELECT count(*) FROM leasehold.slot";
    until("the copy", async || (standby.psql("postgres", seen).ok()? == "1").then_some(())).await;
    assert!(
        connect(&url).await.profile().guarantee.windows.to_string().contains("A4"),
        "the label knows of the standby"
    );

    proxy.set(Direction::ToClient, Passage::Lost);
    let forgotten = short("forgotten");
    let since = Stopwatch::start();
    let grant = granted(&client, &forgotten).await;
    primary.kill().unwrap();
    standby.promote().unwrap();
    let moved = connect(&format!("{}?max_ttl=3s", standby.url("postgres"))).await;
    assert_eq!(holder(&moved, &forgotten).await, None, "the grant is forgotten");
    assert!(matches!(moved.acquire(again(&forgotten)).await.unwrap(), Acquired::Quarantined { .. }));
    let next = until_granted(&moved, &again(&forgotten)).await;
    assert!(since.elapsed() >= Duration::from_millis(2_500), "granted while the forgotten grant ran");
    assert!(next.token > grant.token && next.token > before.token);
}

/// The database goes back to a moment at which a claim had its grant. Since then that grant has ended and another holds: the
/// claim, repeated by whoever does not know its outcome, gets nothing before all that was forgotten must have ended.
#[tokio::test]
async fn a_claim_repeated_after_a_rollback_is_granted_nothing_in_quarantine() {
    for mode in ["", "?expiry=observed"] {
        let primary = Postgres::start().unwrap();
        let proxy = Proxy::start(primary.address()).unwrap();
        let client = ready(&format!("{}{mode}", primary.url("postgres"))).await;
        let old = claim("r");
        let token = granted(&client, &old).await.token;
        let standby = primary.standby("cut", Some(proxy.address())).unwrap();
        let there = "SELECT count(*) FROM leasehold.slot WHERE lease_id IS NOT NULL";
        until("the copy", async || (standby.psql("postgres", there).ok()? == "1").then_some(())).await;

        proxy.set(Direction::ToClient, Passage::Lost);
        let _ = client.release(release(&old, Some(token))).await.unwrap();
        let next = again(&old);
        assert!(granted(&client, &next).await.token > token);
        primary.kill().unwrap();
        standby.promote().unwrap();
        let moved = connect(&format!("{}{mode}", standby.url("postgres"))).await;
        assert_eq!(
            holder(&moved, &old).await,
            Some(old.lease_id),
            "{mode}: the end of the grant is forgotten"
        );
        let answer = moved.acquire(old.clone()).await.unwrap();
        assert!(
            matches!(answer, Acquired::Quarantined { .. }),
            "{mode}: {} holds, and an earlier claim was answered {answer:?}",
            next.lease_id
        );
        assert!(matches!(moved.acquire(next).await.unwrap(), Acquired::Busy(_)), "{mode}");
    }
}

/// One URL with both servers finds the primary, before and after.
#[tokio::test]
async fn a_url_of_several_hosts_finds_the_primary() {
    let primary = Postgres::start().unwrap();
    drop(ready(&primary.url("postgres")).await);
    let standby = primary.standby("other", None).unwrap();
    let both = format!("postgres://postgres@{},{}/postgres", standby.address(), primary.address());
    let client = connect(&both).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    let alone = super::scene::try_connect(&standby.url("postgres")).await.unwrap_err();
    assert!(matches!(alone.kind(), Kind::Unavailable | Kind::Denied), "{alone}");
    assert!(alone.to_string().contains("standby"), "{alone}");
    let there = "SELECT count(*) FROM leasehold.slot WHERE lease_id IS NOT NULL";
    until("the copy", async || (standby.psql("postgres", there).ok()? == "1").then_some(())).await;
    primary.kill().unwrap();
    standby.promote().unwrap();
    // The lease survived, so it is renewed; nothing new is granted for a while.
    until_renewed(&client, &claim, token).await;
    assert!(matches!(client.acquire(again(&claim)).await.unwrap(), Acquired::Busy(_)));
    assert!(matches!(
        client.acquire(super::scene::claim("other")).await.unwrap(),
        Acquired::Quarantined { .. }
    ));
}

/// The commit waits for a standby that does not answer, and an operator cancels the wait: the server says success, with a
/// warning. It may be lost in a failover, so it is no grant.
#[tokio::test]
async fn a_cancelled_wait_for_the_standby_is_no_grant() {
    let primary = Postgres::start().unwrap();
    let client = ready(&primary.url("postgres")).await;
    primary.psql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'missing'").unwrap();
    primary.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    until("the setting", async || {
        (primary.psql("postgres", "SHOW synchronous_standby_names").ok()? == "missing").then_some(())
    })
    .await;
    let claim = claim("r");
    let asked = tokio::spawn({
        let (client, claim) = (client.clone(), claim.clone());
        async move { client.acquire(claim).await }
    });
    let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let pid =
        until("the wait", async || primary.psql("postgres", waits).ok().filter(|pid| !pid.is_empty())).await;
    primary.psql("postgres", &format!("SELECT pg_cancel_backend({pid})")).unwrap();
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    assert!(error.to_string().contains("standby"), "{error}");
    // It is there on this server all the same, and the same claim finds it once commits are answered again.
    primary.psql("postgres", "ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    primary.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    assert!(until_granted(&client, &claim).await.adopted);
}

/// With a standby that must have everything, a failover loses nothing that was answered.
#[tokio::test]
async fn a_synchronous_standby_has_every_grant() {
    let primary = Postgres::start().unwrap();
    drop(ready(&primary.url("postgres")).await);
    let standby = primary.standby("sync", None).unwrap();
    primary.psql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'sync'").unwrap();
    primary.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    let state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until("synchrony", async || (primary.psql("postgres", state).ok()? == "1").then_some(())).await;
    let client = connect(&primary.url("postgres")).await;
    assert_eq!(client.profile().guarantee.windows.to_string(), "yes (A1, A2)");
    let claim = claim("r");
    let grant = granted(&client, &claim).await;
    primary.kill().unwrap();
    standby.promote().unwrap();
    let moved = connect(&standby.url("postgres")).await;
    assert_eq!(holder(&moved, &claim).await, Some(claim.lease_id));
    assert!(renewed(&moved, &claim, grant.token).await.is_ok());
}

/// A dump that is restored into another server is another server's memory.
#[tokio::test]
async fn another_server_with_the_same_tables_is_quarantined() {
    let server = Postgres::start().unwrap();
    let client = ready(&server.url("postgres")).await;
    let _ = client.prepare(Preparation::default()).await.unwrap();
    server
        .psql("postgres", "UPDATE leasehold.space SET incarnation = split_part(incarnation, '-', 1) || '-1'")
        .unwrap();
    assert!(matches!(client.acquire(claim("r")).await.unwrap(), Acquired::Quarantined { .. }));
}
