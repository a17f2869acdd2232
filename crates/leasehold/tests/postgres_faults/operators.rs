//! What people do to a database while leases are held in it.

use std::time::Duration;

use leasehold_core::{
    Kind,
    record::{Acquired, Renewed},
    request::{Claim, Listing, Preparation},
};
use leasehold_testkit::{clock::Stopwatch, server::Postgres};

use super::{
    network::until_locked,
    scene::{
        PATIENCE, again, claim, connect, granted, holder, ms, ready, release, renewed, shared, try_connect,
        until, until_granted, until_renewed,
    },
};

/// Somebody looks at the table with FOR UPDATE and goes for coffee.
#[tokio::test]
async fn a_locked_row_costs_its_own_resource_a_while_and_no_other_anything() {
    let server = shared();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let (locked, free) = (claim("locked"), claim("free"));
    let (locked_token, free_token) =
        (granted(&client, &locked).await.token, granted(&client, &free).await.token);
    let sql = "BEGIN; SELECT 1 FROM leasehold.slot WHERE resource = 'locked' FOR UPDATE; SELECT pg_sleep(60)";
    let lock = server.psql_session(&database, sql).unwrap();
    until_locked(server, &database).await;

    let both = vec![super::scene::renewal(&locked, locked_token), super::scene::renewal(&free, free_token)];
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.renew(both).await }
    });
    // The other lease is renewed all the time.
    for _ in 0..20 {
        let since = Stopwatch::start();
        assert!(matches!(renewed(&client, &free, free_token).await, Ok(Renewed::Extended { .. })));
        assert!(since.elapsed() < Duration::from_secs(3), "held up for {:?}", since.elapsed());
    }
    let answers = asked.await.unwrap().unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), Kind::Unavailable, "{answers:?}");
    assert!(matches!(answers[1], Ok(Renewed::Extended { .. })), "{answers:?}");
    // A contender does not need the lock to learn that it is held.
    assert!(matches!(client.acquire(again(&locked)).await.unwrap(), Acquired::Busy(_)));
    drop(lock);
    let sleepers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    server.psql(&database, sleepers).unwrap();
    until_renewed(&client, &locked, locked_token).await;
    assert_eq!(holder(&client, &locked).await, Some(locked.lease_id));
}

/// A new password counts from the next login: the connection goes on, and a new one is refused by name.
#[tokio::test]
async fn a_changed_password_ends_no_lease_and_is_told_at_the_next_login() {
    let server = shared();
    let database = server.database().unwrap();
    let owner = ready(&server.url(&database)).await;
    server
        .psql(
            &database,
            "CREATE ROLE with_password; CREATE ROLE app LOGIN PASSWORD 'first' IN ROLE with_password; \
             GRANT USAGE ON SCHEMA leasehold TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app; \
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold TO app",
        )
        .unwrap();
    let url = format!("postgres://app:first@{}/{database}", server.address());
    let client = connect(&url).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    server.psql(&database, "ALTER ROLE app PASSWORD 'second'").unwrap();
    assert!(renewed(&client, &claim, token).await.is_ok());
    server
        .psql(&database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        .unwrap();
    let error = until("the refusal", async || {
        renewed(&client, &claim, token).await.err().filter(|error| error.kind() == Kind::Denied)
    })
    .await;
    assert!(!error.to_string().contains("first"), "{error}");
    assert!(matches!(owner.acquire(again(&claim)).await.unwrap(), Acquired::Busy(_)));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pgpass");
    leasehold_testkit::server::write_private(&file, "*:*:*:app:second\n").unwrap();
    let url = format!("postgres://app@{}/{database}?passfile={}", server.address(), file.display());
    assert!(renewed(&connect(&url).await, &claim, token).await.is_ok());
}

/// A schema that is dropped takes its leases with it. Nobody makes it again behind anybody's back, and when it is made again
/// it grants nothing until the forgotten leases have ended.
#[tokio::test]
async fn a_dropped_schema_is_a_loud_failure_and_then_a_quarantine() {
    let server = shared();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let claim = claim("r");
    let grant = granted(&client, &claim).await;
    server.psql(&database, "DROP SCHEMA leasehold CASCADE").unwrap();
    for _ in 0..2 {
        let error = client.acquire(again(&claim)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("leasehold init"), "{error}");
    }
    let there = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    assert_eq!(server.psql(&database, there).unwrap(), "0", "never made again by a client that had it");
    // Another one comes and makes it.
    let second = connect(&format!("{}?max_ttl=2s", server.url(&database))).await;
    let claim = Claim { ttl: ms(1_000), ..claim };
    assert!(matches!(second.acquire(again(&claim)).await.unwrap(), Acquired::Quarantined { .. }));
    let next = until_granted(&second, &again(&claim)).await;
    assert!(next.token > grant.token, "{next:?} after {grant:?}");
}

/// Two clients find no schema at the same moment.
#[tokio::test]
async fn two_clients_that_make_the_schema_at_once_both_find_it_made() {
    let database = shared().database().unwrap();
    let url = shared().url(&database);
    let clients = tokio::join!(try_connect(&url), try_connect(&url), try_connect(&url), try_connect(&url));
    for client in [clients.0, clients.1, clients.2, clients.3] {
        client.unwrap().inspect(claim("r").resource).await.unwrap();
    }
}

/// Who may not make the schema is told what to run; who may not use it, too. Running it is enough.
#[tokio::test]
async fn a_role_without_rights_is_told_what_to_run() {
    let server = shared();
    let database = server.database().unwrap();
    server.psql(&database, "CREATE ROLE poor LOGIN").unwrap();
    let url = format!("postgres://poor@{}/{database}", server.address());
    let error = try_connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert!(error.to_string().contains("CREATE SCHEMA \"leasehold\" AUTHORIZATION \"poor\""), "{error}");

    drop(ready(&server.url(&database)).await);
    let error = try_connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    let told = error.to_string();
    let (_, grants) = told.split_once("owner run: ").unwrap();
    server.psql(&database, grants).unwrap();
    granted(&connect(&url).await, &claim("r")).await;
}

/// The role's defaults are all against us: serializable, no waiting for disks, no warnings, no sequential scans.
#[tokio::test]
async fn a_roles_defaults_do_not_weaken_anything() {
    let server = shared();
    let database = server.database().unwrap();
    drop(ready(&server.url(&database)).await);
    server
        .psql(
            &database,
            &format!(
                "ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'; \
                 ALTER DATABASE {database} SET synchronous_commit = 'off'; \
                 ALTER DATABASE {database} SET client_min_messages = 'error'; \
                 ALTER DATABASE {database} SET search_path = 'pg_temp'"
            ),
        )
        .unwrap();
    let client = connect(&server.url(&database)).await;
    let claim = claim("r");
    let token = granted(&client, &claim).await.token;
    let mut contenders = Vec::new();
    for _ in 0..8 {
        let client = connect(&server.url(&database)).await;
        let claim = again(&claim);
        contenders.push(tokio::spawn(async move { client.acquire(claim).await }));
    }
    for contender in contenders {
        assert!(matches!(contender.await.unwrap().unwrap(), Acquired::Busy(_)));
    }
    assert!(renewed(&client, &claim, token).await.is_ok());
    // What the functions set holds for the commit.
    let sql = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT leasehold.begin_1(100); \
               SELECT current_setting('synchronous_commit') || ' ' || current_setting('client_min_messages'); COMMIT";
    assert!(server.psql(&database, sql).unwrap().ends_with("on warning"));
}

/// A renewal changes a row in place: no index is touched, and the table does not grow.
#[tokio::test]
async fn renewals_are_hot_updates() {
    // Its own: an old transaction of anybody else keeps dead rows, and so the room on their pages.
    let server = Postgres::start().unwrap();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let mut renewals = Vec::new();
    for at in 0..200 {
        let claim = claim(&format!("orders/{at}"));
        renewals.push(super::scene::renewal(&claim, granted(&client, &claim).await.token));
    }
    let count = "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'slot'";
    let read = || {
        let text = server.psql(&database, &format!("SELECT pg_stat_force_next_flush(); {count}")).unwrap();
        let last = text.lines().last().unwrap_or_default().to_owned();
        let (all, hot) = last.split_once(' ').unwrap();
        (all.parse::<u64>().unwrap(), hot.parse::<u64>().unwrap())
    };
    // A snapshot that somebody else keeps for a moment (an ANALYZE, say) keeps old versions alive for as long; an index in the
    // way would do so every time.
    until("a round of HOT updates", async || {
        let before = read();
        for _ in 0..30 {
            assert!(client.renew(renewals.clone()).await.unwrap().iter().all(Result::is_ok));
        }
        until("the statistics", async || (read().0 >= before.0 + 6_000).then_some(())).await;
        let (all, hot) = (read().0 - before.0, read().1 - before.1);
        (hot * 100 >= all * 95).then_some(())
    })
    .await;
}

/// The clock of the server is set back: a lease does not last for ever. Somebody who has watched it for long enough takes it.
#[tokio::test]
async fn a_lease_with_more_left_than_it_can_have_is_watched_instead() {
    let server = shared();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let first = Claim { ttl: ms(600), ..claim("r") };
    let token = granted(&client, &first).await.token;
    // As an hour's step back looks from the row.
    server.psql(&database, "UPDATE leasehold.slot SET at_us = at_us + 3600000000").unwrap();
    let since = Stopwatch::start();
    let watcher = connect(&server.url(&database)).await;
    let next = until_granted(&watcher, &again(&first)).await;
    assert!(since.elapsed() >= Duration::from_millis(600), "watched for {:?} only", since.elapsed());
    assert!(next.token > token);
}

/// Watchers that came late in a grant find its end long after the server's clock would have. The first in line is still
/// waited for from then on: what nobody could have known before has not been free before.
#[tokio::test]
async fn an_end_that_only_watching_finds_is_reserved_for_the_first_in_line() {
    let server = shared();
    let database = server.database().unwrap();
    let url = format!("{}?expiry=observed", server.url(&database));
    let (holder, first, second) = (ready(&url).await, connect(&url).await, connect(&url).await);
    let held = Claim { ttl: ms(1_000), ..claim("r") };
    granted(&holder, &held).await;
    let (first_claim, second_claim) =
        (Claim { queue: true, ..again(&held) }, Claim { queue: true, ..again(&held) });
    // As a grant of an hour ago looks from the row.
    server.psql(&database, "UPDATE leasehold.slot SET at_us = at_us - 3600000000").unwrap();
    for (client, claim) in [(&first, &first_claim), (&second, &second_claim)] {
        let answer = client.acquire(claim.clone()).await.unwrap();
        assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    }
    let since = Stopwatch::start();
    let found = loop {
        match second.acquire(second_claim.clone()).await.unwrap() {
            Acquired::Busy(_) if since.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => break other,
        }
    };
    assert!(matches!(found, Acquired::Queued(_)), "the second in line came first: {found:?}");
    until_granted(&first, &first_claim).await;
}

/// What nobody has used for a week is forgotten, and its token is not.
#[tokio::test]
async fn idle_resources_are_forgotten_and_their_tokens_are_not() {
    let server = shared();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let ahead =
        Claim { floor: Some(leasehold_core::Token::new(unix_us() + 500_000_000).unwrap()), ..claim("old") };
    let old = granted(&client, &ahead).await.token;
    let _ = client.release(release(&ahead, Some(old))).await.unwrap();
    let kept = claim("kept");
    granted(&client, &kept).await;
    server
        .psql(&database, "UPDATE leasehold.slot SET at_us = at_us - 8 * 86400000000 WHERE resource = 'old'")
        .unwrap();
    let both = "SELECT leasehold.purge_1('default', '', 7 * 86400000000, 1000)";
    server.psql(&database, both).unwrap();
    let page = client.list(Listing { free_too: true, ..Listing::new() }).await.unwrap();
    let names: Vec<&str> = page.items.iter().map(|item| item.resource.as_str()).collect();
    assert_eq!(names, ["kept"]);
    let next = granted(&client, &again(&ahead_without_floor(&ahead))).await;
    assert!(next.token > old, "{next:?} after {old}");
}

fn ahead_without_floor(claim: &Claim) -> Claim {
    Claim { floor: None, ..claim.clone() }
}

fn unix_us() -> u64 {
    leasehold::clock::unix_us()
}

/// A namespace belongs to one way of judging expiry.
#[tokio::test]
async fn a_client_of_another_mode_or_bound_is_refused() {
    let server = shared();
    let database = server.database().unwrap();
    let client = ready(&server.url(&database)).await;
    let error = try_connect(&format!("{}?expiry=observed", server.url(&database))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("expiry=server_clock"), "{error}");
    let _ = client.prepare(Preparation { fresh: false, max_ttl: Some(ms(600_000)) }).await.unwrap();
    let error = client.acquire(claim("r")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("max_ttl=600000ms"), "{error}");
    let told = connect(&format!("{}?max_ttl=10m", server.url(&database))).await;
    granted(&told, &Claim { ttl: ms(500_000), ..claim("r") }).await;
}

/// A Unix socket is an address like any other.
#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let server = Postgres::start().unwrap();
    let folder = server.socket_folder().to_string_lossy().replace('/', "%2F");
    let url = format!("postgres://postgres@{folder}:{}/postgres", server.address().port());
    let client = ready(&url).await;
    granted(&client, &claim("r")).await;
    assert!(client.profile().capabilities.wakes);
}
