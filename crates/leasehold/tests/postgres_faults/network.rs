//! The way to the server: lost answers, cuts, stalls, poolers, and sessions that are ended by force.

use std::time::Duration;

use leasehold_core::{
    Kind,
    record::{Acquired, Renewed},
};
use leasehold_testkit::{
    clock::Stopwatch,
    process::wait_until,
    server::{Direction, Passage, PgBouncer, Postgres, Proxy},
};

use super::scene::{
    PATIENCE, again, claim, connect, granted, holder, ready, release, renewed, shared, until, until_granted,
    until_renewed, url,
};

/// The commit happened, its answer did not come: nobody knows, and asking again under the same lease id finds out.
#[tokio::test]
async fn an_answer_lost_after_the_commit_is_unknown_and_the_same_claim_adopts_the_grant() {
    let database = shared().database().unwrap();
    let proxy = Proxy::start(shared().address()).unwrap();
    let watcher = ready(&shared().url(&database)).await;
    let client = connect(&url(proxy.address(), &database)).await;
    client.inspect(claim("r").resource).await.unwrap();

    let claim = claim("r");
    proxy.set(Direction::ToClient, Passage::Lost);
    let before = proxy.bytes(Direction::ToClient);
    let asked = tokio::spawn({
        let (client, claim) = (client.clone(), claim.clone());
        async move { client.acquire(claim).await }
    });
    until("the grant", async || (holder(&watcher, &claim).await == Some(claim.lease_id)).then_some(())).await;
    wait_until("the lost answer", PATIENCE, || (proxy.bytes(Direction::ToClient) > before).then_some(()))
        .unwrap();
    proxy.cut();
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    proxy.set(Direction::ToClient, Passage::Open);

    let grant = until_granted(&client, &claim).await;
    assert!(grant.adopted, "{grant:?}");
    assert!(matches!(client.acquire(again(&claim)).await.unwrap(), Acquired::Busy(_)));
}

/// A connection that has died without a word costs its holder one renewal, not the lease.
#[tokio::test]
async fn a_half_open_connection_is_replaced_before_the_lease_is_lost() {
    let database = shared().database().unwrap();
    let proxy = Proxy::start(shared().address()).unwrap();
    let client = ready(&url(proxy.address(), &database)).await;
    let claim = leasehold_core::request::Claim { ttl: super::scene::ms(20_000), ..claim("r") };
    let token = granted(&client, &claim).await.token;
    let accepted = proxy.accepted();

    proxy.set_both(Passage::Lost);
    let since = Stopwatch::start();
    let error = renewed(&client, &claim, token).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    assert!(since.elapsed() < Duration::from_secs(15), "noticed after {:?}", since.elapsed());
    // What was lost stays lost, but a new connection works.
    proxy.set_both(Passage::Open);
    assert_eq!(renewed(&client, &claim, token).await.unwrap(), Renewed::Extended { ttl: claim.ttl });
    assert!(proxy.accepted() > accepted, "a connection that gave no answer is not used again");
}

/// Requests arrive, answers are held back: the lease is renewed although nobody knows.
#[tokio::test]
async fn a_one_way_stall_is_unknown_and_heals() {
    let database = shared().database().unwrap();
    let proxy = Proxy::start(shared().address()).unwrap();
    let client = ready(&url(proxy.address(), &database)).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    proxy.set(Direction::ToClient, Passage::Stalled);
    let error = client.release(release(&claim, Some(token))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    proxy.set(Direction::ToClient, Passage::Open);
    until("an answer", async || client.inspect(claim.resource.clone()).await.ok()).await;
    granted(&client, &again(&claim)).await;
}

/// A connection that is known to be gone was not written to.
#[tokio::test]
async fn an_unreachable_server_is_unavailable_and_nothing_was_changed() {
    let database = shared().database().unwrap();
    let proxy = Proxy::start(shared().address()).unwrap();
    let client = ready(&url(proxy.address(), &database)).await;
    proxy.refuse(true);
    proxy.cut();
    let error =
        until("the end of the connection", async || client.inspect(claim("r").resource).await.err()).await;
    assert_eq!(error.kind(), Kind::Unavailable, "a look changes nothing: {error}");
    let error = client.acquire(claim("r")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    proxy.refuse(false);
    until_granted(&client, &claim("r")).await;
}

/// A session that is ended by force may have committed.
#[tokio::test]
async fn a_terminated_session_is_unknown_and_replaced() {
    let server = shared();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    // Its row is locked, so that the renewal is under way when the session ends.
    let _lock = server
        .psql_session(&database, "BEGIN; SELECT 1 FROM leasehold.slot FOR UPDATE; SELECT pg_sleep(60)")
        .unwrap();
    until_locked(server, &database).await;
    let asked = tokio::spawn({
        let (client, claim) = (client.clone(), claim.clone());
        async move {
            loop {
                match renewed(&client, &claim, token).await {
                    // On a busy machine the wait for the row may be over first.
                    Err(error) if error.kind() == Kind::Unavailable => {}
                    outcome => return outcome,
                }
            }
        }
    });
    // Whichever session waits for the row at the moment.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold' AND \
               wait_event_type = 'Lock' AND datname = current_database()";
    until("the end of the session", async || {
        server.psql(&database, end).unwrap();
        asked.is_finished().then_some(())
    })
    .await;
    let error = asked.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    let sleepers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    server.psql(&database, sleepers).unwrap();
    until_renewed(&client, &claim, token).await;
    assert_eq!(holder(&client, &claim).await, Some(claim.lease_id));
}

pub(crate) async fn until_locked(server: &Postgres, database: &str) {
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    until("the lock", async || (server.psql(database, sql).unwrap() != "0").then_some(())).await;
}

/// Behind a pooler nothing hangs on a session, and its restart is a lost connection like any other.
#[tokio::test]
async fn a_pooler_may_restart_under_a_held_lease() {
    let server = shared();
    let database = server.database().unwrap();
    let bouncer = PgBouncer::start(server, 2).unwrap();
    bouncer.warm(&database).unwrap();
    let client = ready(&bouncer.url(&database)).await;
    assert!(!client.profile().capabilities.wakes, "nobody can be woken through a pooler");
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    bouncer.crash().unwrap();
    until_renewed(&client, &claim, token).await;
    let other = connect(&bouncer.url(&database)).await;
    assert!(matches!(other.acquire(again(&claim)).await.unwrap(), Acquired::Busy(_)));
}

/// Behind a pooler, a direct address is listened at.
#[tokio::test]
async fn a_waiter_behind_a_pooler_is_woken_through_a_direct_address() {
    let server = shared();
    let database = server.database().unwrap();
    let bouncer = PgBouncer::start(server, 2).unwrap();
    bouncer.warm(&database).unwrap();
    let holder = ready(&bouncer.url(&database)).await;
    let direct = server.url(&database).replace(':', "%3A").replace('@', "%40");
    let waiter = connect(&format!("{}?listen_url={direct}", bouncer.url(&database))).await;
    assert!(waiter.profile().capabilities.wakes);
    let claim = claim("r");
    let token = granted(&holder, &claim).await.token;
    let waits = leasehold_core::request::Claim { queue: true, ..again(&claim) };
    let listening =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let _ = waiter.acquire(waits.clone()).await.unwrap();
    until("listening", async || (server.psql(&database, listening).unwrap() != "0").then_some(())).await;
    let _ = holder.release(release(&claim, Some(token))).await.unwrap();
    let woken =
        async { while waiter.next_wake().await != leasehold_core::record::Wake::Lease(waits.lease_id) {} };
    tokio::time::timeout(PATIENCE, woken).await.unwrap();
}

/// A listener that was cut off says so, because something may have been missed, and listens again.
#[tokio::test]
async fn a_broken_listener_wakes_everybody_and_listens_again() {
    let database = shared().database().unwrap();
    let proxy = Proxy::start(shared().address()).unwrap();
    let holding = ready(&shared().url(&database)).await;
    let waiting = connect(&url(proxy.address(), &database)).await;
    let claim = claim("r");
    let token = granted(&holding, &claim).await.token;
    let waits = leasehold_core::request::Claim { queue: true, ..again(&claim) };
    let _ = waiting.acquire(waits.clone()).await.unwrap();
    proxy.cut();
    let woken = tokio::time::timeout(PATIENCE, waiting.next_wake()).await.unwrap();
    assert_eq!(woken, leasehold_core::record::Wake::All);
    let _ = until("a new place", async || waiting.acquire(waits.clone()).await.ok()).await;
    let _ = holding.release(release(&claim, Some(token))).await.unwrap();
    let woken =
        async { while waiting.next_wake().await != leasehold_core::record::Wake::Lease(waits.lease_id) {} };
    tokio::time::timeout(PATIENCE, woken).await.unwrap();
}

/// Whoever takes a connection and closes it at once is asked again and again, and not without a pause.
#[tokio::test]
async fn a_server_that_closes_every_connection_is_not_besieged() {
    let database = shared().database().unwrap();
    let proxy = Proxy::start(shared().address()).unwrap();
    drop(ready(&shared().url(&database)).await);
    let client = connect(&url(proxy.address(), &database)).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    proxy.refuse(true);
    proxy.cut();
    let (before, since) = (proxy.accepted(), Stopwatch::start());
    while since.elapsed() < Duration::from_secs(2) {
        let _fails = renewed(&client, &claim, token).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (attempts, whole) = (proxy.accepted() - before, since.elapsed());
    assert!(attempts > 0, "nobody tries again");
    // We ask ten times a second; a loop without a pause makes thousands.
    let most = 100 * (whole.as_secs() + 1);
    assert!(attempts < most, "{attempts} connections in {whole:?}");
    proxy.refuse(false);
    until_renewed(&client, &claim, token).await;
}

/// Leases take no connections: many are held, renewed and waited for on the client's own, and none is a user's.
#[tokio::test]
async fn leases_without_number_need_no_connection_each() {
    let database = shared().database().unwrap();
    let client = ready(&shared().url(&database)).await;
    let mut held = Vec::new();
    for at in 0..50 {
        let one = claim(&format!("r{at}"));
        let token = granted(&client, &one).await.token;
        let waits = leasehold_core::request::Claim { queue: true, ..again(&one) };
        assert!(matches!(client.acquire(waits).await.unwrap(), Acquired::Busy(_)));
        held.push((one, token));
    }
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    );
    let connections: u32 = shared().psql(&database, &count).unwrap().parse().unwrap();
    assert!(connections <= 2, "{connections} connections for 50 leases and 50 waiters");
    for (one, token) in &held {
        assert!(matches!(renewed(&client, one, *token).await.unwrap(), Renewed::Extended { .. }));
    }
}
