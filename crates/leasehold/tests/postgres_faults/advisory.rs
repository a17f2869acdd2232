//! Sessions as the proof of life.

use leasehold_core::{
    Kind, LeaseId,
    record::{Acquired, Gone, Renewed},
    request::Claim,
};
use leasehold_testkit::{
    clock::Stopwatch,
    random,
    server::{Direction, Passage, PgBouncer, Proxy},
};

use super::scene::{
    again, claim, connect, granted, holder, ms, ready, release, renewed, shared, try_connect, until,
    until_granted, until_renewed,
};

const LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = \
                     (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The holder's process is gone: the lease is free long before its TTL, under a higher token.
#[tokio::test]
async fn a_lease_is_free_when_its_session_ends() {
    let server = shared();
    let database = server.database().unwrap();
    let url = format!("{}?mode=advisory", server.url(&database));
    let (holder, other) = (ready(&url).await, connect(&url).await);
    let claim = leasehold_core::request::Claim { ttl: super::scene::ms(60_000), ..claim("r") };
    let token = granted(&holder, &claim).await.token;
    assert_eq!(server.psql(&database, LOCKS).unwrap(), "1");
    assert!(matches!(other.acquire(again(&claim)).await.unwrap(), Acquired::Busy(_)), "its session lives");
    let since = Stopwatch::start();
    drop(holder);
    let next = until_granted(&other, &again(&claim)).await;
    assert!(since.elapsed() < claim.ttl.as_duration(), "after {:?}", since.elapsed());
    assert!(next.token > token);
    assert!(next.after_lapse, "nobody released it: its holder ended uncleanly");
}

/// A second claim of the same process finds the first in its way, although its session could have every lock again.
#[tokio::test]
async fn a_session_does_not_pass_itself() {
    let database = shared().database().unwrap();
    let client = ready(&format!("{}?mode=advisory", shared().url(&database))).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    for _ in 0..3 {
        assert!(matches!(client.acquire(again(&claim)).await.unwrap(), Acquired::Busy(_)));
    }
    let _ = client.release(release(&claim, Some(token))).await.unwrap();
    let second = again(&claim);
    let token = granted(&client, &second).await.token;
    let _ = client.release(release(&second, Some(token))).await.unwrap();
    until("no lock", async || (shared().psql(&database, LOCKS).unwrap() == "0").then_some(())).await;
}

/// The session is ended by force: either somebody takes the lease and the holder is told at its next renewal, or nobody did
/// and it goes on with another session.
#[tokio::test]
async fn a_holder_learns_of_its_sessions_end_at_the_next_heartbeat() {
    let server = shared();
    let database = server.database().unwrap();
    let url = format!("{}?mode=advisory", server.url(&database));
    let (holder, other) = (ready(&url).await, connect(&url).await);
    let (kept, lost) = (claim("kept"), Claim { ttl: ms(30_000), ..claim("lost") });
    let (kept_token, lost_token) = (granted(&holder, &kept).await.token, granted(&holder, &lost).await.token);
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = \
                (SELECT oid FROM pg_database WHERE datname = current_database())";
    // Somebody may be quicker than the new session.
    let taken = loop {
        server.psql(&database, kill).unwrap();
        if let Acquired::Granted(grant) = other.acquire(again(&lost)).await.unwrap() {
            break grant;
        }
        until("the locks", async || (server.psql(&database, LOCKS).unwrap() != "0").then_some(())).await;
    };
    assert!(taken.token > lost_token);
    assert_eq!(
        renewed(&holder, &lost, lost_token).await.unwrap(),
        Renewed::Gone(Gone::Superseded { token: taken.token })
    );
    until_renewed(&holder, &kept, kept_token).await;
    until("the lock again", async || {
        matches!(other.acquire(again(&kept)).await.unwrap(), Acquired::Busy(_)).then_some(())
    })
    .await;
}

/// Sessions that are lent out prove nothing.
#[tokio::test]
async fn a_pooler_is_refused() {
    let database = shared().database().unwrap();
    let bouncer = PgBouncer::start(shared(), 2).unwrap();
    let error = try_connect(&format!("{}?mode=advisory", bouncer.url(&database))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert!(error.to_string().contains("pooler"), "{error}");
}

/// Leases without sessions look dead to those who go by sessions: a namespace is one or the other.
#[tokio::test]
async fn a_namespace_goes_by_sessions_or_not() {
    let database = shared().database().unwrap();
    let plain = shared().url(&database);
    let client = ready(&format!("{plain}?mode=advisory")).await;
    granted(&client, &claim("r")).await;
    let error = try_connect(&plain).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("mode=advisory"), "{error}");
    let label = client.profile().guarantee.windows.to_string();
    assert!(label.starts_with("no, until the holder's next heartbeat"), "{label}");
}

/// A lease id with the number of another: the first half is what the lock is on.
fn colliding(other: LeaseId) -> LeaseId {
    let mut bytes = *random::lease_id().as_bytes();
    bytes[..8].copy_from_slice(&other.as_bytes()[..8]);
    LeaseId::from_bytes(bytes)
}

/// Two grants of one client share a number. The end of one takes nothing from the other.
#[tokio::test]
async fn two_grants_of_one_client_with_one_number_are_kept_apart() {
    let database = shared().database().unwrap();
    let address = format!("{}?mode=advisory", shared().url(&database));
    let (client, other) = (ready(&address).await, connect(&address).await);
    let first = claim("first");
    let second = Claim { lease_id: colliding(first.lease_id), ..claim("second") };
    let token = granted(&client, &first).await.token;
    let kept = granted(&client, &second).await.token;
    assert_eq!(shared().psql(&database, LOCKS).unwrap(), "1", "one number");
    let _ = client.release(release(&first, Some(token))).await.unwrap();
    // The keeper does one thing after the other: what the release asked of it is done when this is granted.
    granted(&client, &claim("third")).await;
    let answer = other.acquire(again(&second)).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "a living holder was buried: {answer:?}");
    assert!(renewed(&client, &second, kept).await.is_ok());

    // The last of them gives it back.
    let _ = client.release(release(&second, Some(kept))).await.unwrap();
    until("one lock", async || (shared().psql(&database, LOCKS).unwrap() == "1").then_some(())).await;
}

/// The same claim once more, which the server refuses for a moment, does not cost the grant its lock.
#[tokio::test]
async fn a_claim_that_is_refused_again_does_not_cost_its_grant_the_lock() {
    let database = shared().database().unwrap();
    let address = format!("{}?mode=advisory", shared().url(&database));
    let (client, other) = (ready(&address).await, connect(&address).await);
    let held = claim("r");
    let token = granted(&client, &held).await.token;
    let lock = "BEGIN; SELECT 1 FROM leasehold.slot WHERE resource = 'r' FOR UPDATE; SELECT pg_sleep(60)";
    let session = shared().psql_session(&database, lock).unwrap();
    super::network::until_locked(shared(), &database).await;
    let refused = Claim { ttl: ms(1_000), ..held.clone() };
    let error = client.acquire(refused).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    // The psql is gone, and its session goes on sleeping.
    drop(session);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND wait_event = 'PgSleep'";
    shared().psql(&database, end).unwrap();
    assert_eq!(shared().psql(&database, LOCKS).unwrap(), "1", "the grant's");
    let next = until("an answer", async || other.acquire(again(&held)).await.ok()).await;
    assert!(matches!(next, Acquired::Busy(_)), "a living holder was buried: {next:?}");
    until_renewed(&client, &held, token).await;
}

/// Two clients have grants with one number. The end of one, or of its session, takes nothing from the other.
#[tokio::test]
async fn two_clients_with_one_number_are_kept_apart() {
    let database = shared().database().unwrap();
    let address = format!("{}?mode=advisory", shared().url(&database));
    let (client, other, third) = (ready(&address).await, connect(&address).await, connect(&address).await);
    let first = claim("first");
    let token = granted(&client, &first).await.token;
    let second = Claim { lease_id: colliding(first.lease_id), ..claim("second") };
    let kept = granted(&other, &second).await.token;
    assert_eq!(shared().psql(&database, LOCKS).unwrap(), "2", "one number, two sessions");
    let _ = client.release(release(&first, Some(token))).await.unwrap();
    // What the release asked of the keeper is done when this is granted.
    granted(&client, &claim("last")).await;
    let buried = third.acquire(again(&second)).await.unwrap();
    assert!(matches!(buried, Acquired::Busy(_)), "a living holder was buried: {buried:?}");
    assert!(renewed(&other, &second, kept).await.is_ok());

    // The other way round: the session of one ends, and the lease of the other stands.
    let again_first = Claim { lease_id: colliding(second.lease_id), ..claim("first") };
    granted(&client, &again_first).await;
    drop(client);
    until("one lock", async || (shared().psql(&database, LOCKS).unwrap() == "1").then_some(())).await;
    let buried = third.acquire(again(&second)).await.unwrap();
    assert!(matches!(buried, Acquired::Busy(_)), "a living holder was buried: {buried:?}");
    assert!(renewed(&other, &second, kept).await.is_ok());
}

/// A program has locked the number for itself. A grant without the lock could be buried when it is given back, so there is none.
#[tokio::test]
async fn a_number_that_somebody_keeps_to_himself_is_refused_and_claims_nothing() {
    let database = shared().database().unwrap();
    let address = format!("{}?mode=advisory", shared().url(&database));
    let (client, other) = (ready(&address).await, connect(&address).await);
    let wanted = claim("r");
    let number = i64::from_be_bytes(wanted.lease_id.as_bytes()[..8].try_into().unwrap());
    let program = shared()
        .psql_session(&database, &format!("SELECT pg_advisory_lock({number}), pg_sleep(600)"))
        .unwrap();
    super::network::until_locked(shared(), &database).await;
    let error = client.acquire(wanted.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().contains("collides") && error.to_string().contains("new lease id"), "{error}");
    assert_eq!(holder(&other, &wanted).await, None, "nothing was claimed");
    granted(&client, &again(&wanted)).await;
    drop(program);
}

/// The network goes silent, and the client makes another session. The one before still has the locks, as far as the server knows: it
/// is ended by force, so that it does not hide the holder's end for as long as TCP believes in it.
#[tokio::test]
async fn a_session_that_was_given_up_does_not_keep_the_locks() {
    let database = shared().database().unwrap();
    let direct = format!("{}?mode=advisory", shared().url(&database));
    let other = ready(&direct).await;
    // The first way goes silent and stays so, without an end; the second one is as good.
    let (first, second) =
        (Proxy::start(shared().address()).unwrap(), Proxy::start(shared().address()).unwrap());
    let both = format!("postgres://postgres@{},{}/{database}", first.address(), second.address());
    let client = connect(&format!("{both}?mode=advisory")).await;
    let held = claim("r");
    let token = granted(&client, &held).await.token;
    let pids = "SELECT string_agg(DISTINCT pid::text, ',') FROM pg_locks WHERE locktype = 'advisory' AND database = \
                (SELECT oid FROM pg_database WHERE datname = current_database())";
    let before = shared().psql(&database, pids).unwrap();
    first.refuse(true);
    first.set(Direction::ToServer, Passage::Stalled);
    let error = client.acquire(claim("silent")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    until("the locks of another session", async || {
        let now = shared().psql(&database, pids).unwrap();
        (!now.is_empty() && now != before && !now.contains(',')).then_some(())
    })
    .await;
    until_renewed(&client, &held, token).await;
    assert!(matches!(other.acquire(again(&held)).await.unwrap(), Acquired::Busy(_)));
}
