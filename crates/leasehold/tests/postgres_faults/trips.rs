//! What the server counts: how many statements, answers and notifications a client costs it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold::{Leases, Resource};
use leasehold_core::{
    Coordinator,
    record::{Acquired, Renewed, Wake},
    request::{Claim, Listing, Purge, Revocation},
};
use leasehold_testkit::server::Postgres;

use super::scene::{PATIENCE, again, claim, connect, granted, ready, release, renewal, until, until_renewed};

/// A database of a server that counts statements, those inside functions as well.
pub(crate) struct Counting {
    server: &'static Postgres,
    database: String,
}

impl Counting {
    pub(crate) fn start() -> Self {
        static SERVER: OnceLock<Postgres> = OnceLock::new();
        let settings =
            [("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.track", "all")];
        let server = SERVER.get_or_init(|| Postgres::start_with(&settings).unwrap());
        let database = server.database().unwrap();
        server.psql(&database, "CREATE EXTENSION pg_stat_statements SCHEMA public").unwrap();
        Self { server, database }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.database)
    }

    /// The sum of a column over the statements that contain this.
    pub(crate) fn sum(&self, column: &str, part: &str) -> u64 {
        let sql = format!(
            "SELECT coalesce(sum({column}), 0)::bigint FROM public.pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid \
             WHERE d.datname = current_database() AND strpos(query, '{part}') > 0 AND strpos(query, 'strpos') = 0 \
             AND strpos(query, 'CREATE FUNCTION') = 0"
        );
        self.server.psql(&self.database, &sql).unwrap().parse().unwrap()
    }

    fn notified(&self) -> u64 {
        self.sum("calls", "pg_notify(")
    }

    fn listened(&self) -> u64 {
        self.sum("calls", "LISTEN leasehold_")
    }
}

async fn takes_many(client: &Arc<dyn Coordinator>, many: usize) -> Vec<(Claim, leasehold_core::Token)> {
    let take = |at| {
        let (client, claim) = (Arc::clone(client), claim(&format!("orders/{at}")));
        tokio::spawn(async move {
            let token = granted(&client, &claim).await.token;
            (claim, token)
        })
    };
    let mut taken = Vec::new();
    for one in (0..many).map(take).collect::<Vec<_>>() {
        taken.push(one.await.unwrap());
    }
    taken
}

/// Hundreds of renewals are one statement, and so one round trip and one commit.
#[tokio::test]
async fn hundreds_of_renewals_are_one_statement() {
    const MANY: usize = 500;
    let counting = Counting::start();
    let client = ready(&counting.url()).await;
    let taken = takes_many(&client, MANY).await;
    let (calls, answers) = (counting.sum("calls", ".renew_1("), counting.sum("rows", ".renew_1("));
    let renewals = taken.iter().map(|(claim, token)| renewal(claim, *token)).collect();
    let renewed = client.renew(renewals).await.unwrap();
    assert!(renewed.iter().all(|answer| matches!(answer, Ok(Renewed::Extended { .. }))), "{renewed:?}");
    let (calls, answers) =
        (counting.sum("calls", ".renew_1(") - calls, counting.sum("rows", ".renew_1(") - answers);
    assert!(answers >= MANY as u64, "all were answered by this statement: {answers}");
    // One; a row that somebody had locked at the moment is asked for again.
    assert!((1..=5).contains(&calls), "{calls} statements for {MANY} renewals");
}

/// The driver of a client gathers what is due: its leases are renewed by few statements, round after round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_renews_its_leases_together() {
    const MANY: u64 = 200;
    const ROUNDS: u64 = 3;
    let counting = Counting::start();
    drop(ready(&counting.url()).await);
    let leases = Leases::connect(&counting.url()).await.unwrap();
    let take = |at| {
        let request = leases.lease(&format!("orders/{at}")).ttl(Duration::from_secs(12));
        tokio::spawn(async move { request.acquire().await.unwrap() })
    };
    let mut held = Vec::new();
    for one in (0..MANY).map(take).collect::<Vec<_>>() {
        held.push(one.await.unwrap());
    }
    let before = counting.sum("calls", ".renew_1(");
    for _ in 0..ROUNDS {
        let closes: Vec<_> = held.iter().map(|lease| lease.closes()).collect();
        for (lease, before) in held.iter().zip(closes) {
            let renewed = tokio::time::timeout(PATIENCE, lease.closes_after(before)).await;
            assert!(renewed.unwrap().is_some(), "it was lost: {:?}", lease.check());
        }
    }
    let calls = counting.sum("calls", ".renew_1(") - before;
    assert!(calls < MANY * ROUNDS / 4, "{calls} statements for {ROUNDS} rounds of {MANY} renewals");
}

/// Nobody is notified but who waits, or whose grant is revoked.
#[tokio::test]
async fn a_release_that_nobody_waits_for_notifies_nobody() {
    let counting = Counting::start();
    let (client, other) = (ready(&counting.url()).await, connect(&counting.url()).await);
    let held = claim("r");
    for _ in 0..20 {
        let claim = again(&held);
        let token = granted(&client, &claim).await.token;
        until_renewed(&client, &claim, token).await;
        assert!(matches!(other.acquire(again(&held)).await.unwrap(), Acquired::Busy(_)));
        let _ended = client.release(release(&claim, Some(token))).await.unwrap();
    }
    assert_eq!(counting.notified(), 0, "nobody waits");
    let token = granted(&client, &held).await.token;
    let waiter = Claim { queue: true, ..again(&held) };
    assert!(matches!(other.acquire(waiter.clone()).await.unwrap(), Acquired::Busy(_)));
    assert_eq!(counting.notified(), 0, "nothing has become free");
    let _ended = client.release(release(&held, Some(token))).await.unwrap();
    assert_eq!(counting.notified(), 1, "the one that waits");
    let woken = async { while other.next_wake().await != Wake::Lease(waiter.lease_id) {} };
    tokio::time::timeout(PATIENCE, woken).await.unwrap();
    let token = granted(&other, &waiter).await.token;
    let (by, reason) = (waiter.label.clone(), waiter.label.clone());
    let revocation = Revocation { resource: waiter.resource.clone(), token, by, reason, now: false };
    let _revoked = client.revoke(revocation).await.unwrap();
    assert_eq!(counting.notified(), 2, "the one whose grant was revoked");
}

/// Notifications concern who waits and who holds, so whoever only looks does not listen. The first claim does, once.
#[tokio::test]
async fn who_claims_nothing_does_not_listen() {
    let counting = Counting::start();
    let client = ready(&counting.url()).await;
    let claim = claim("r");
    for _ in 0..5 {
        client.inspect(claim.resource.clone()).await.unwrap();
        client.list(Listing::new()).await.unwrap();
        client.history(claim.resource.clone()).await.unwrap();
        client.purge(Purge { after: None, dry_run: true }).await.unwrap();
    }
    assert_eq!(counting.listened(), 0, "it has claimed nothing");
    let token = granted(&client, &claim).await.token;
    until("listening", async || (counting.listened() == 1).then_some(())).await;
    let _ended = client.release(release(&claim, Some(token))).await.unwrap();
    granted(&client, &again(&claim)).await;
    assert_eq!(counting.listened(), 1, "once for a connection");
}

/// However many wait, a release wakes one, and it alone asks again: the cost of handing over does not grow with the line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handing_over_costs_the_same_however_many_wait() {
    const WAITERS: u32 = 220;
    let counting = Counting::start();
    drop(ready(&counting.url()).await);
    let connected = async || Leases::connect(&counting.url()).await.unwrap();
    let (holder, waiters) = (connected().await, connected().await);
    let held = holder.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let wait = |_| {
        let request = waiters.lease("r").ttl(Duration::from_secs(60)).wait(4 * PATIENCE);
        tokio::spawn(async move { request.acquire().await.unwrap().release().await.map(drop) })
    };
    let waiting: Vec<_> = (0..WAITERS).map(wait).collect();
    let resource = Resource::new("r").unwrap();
    until("the line", async || (holder.inspect(&resource).await.unwrap().waiting == WAITERS).then_some(()))
        .await;
    let (notified, claimed) = (counting.notified(), counting.sum("rows", ".acquire_1("));
    let _ended = held.release().await.unwrap();
    for one in waiting {
        tokio::time::timeout(4 * PATIENCE, one).await.unwrap().unwrap().unwrap();
    }
    let notified = counting.notified() - notified;
    let claimed = counting.sum("rows", ".acquire_1(") - claimed;
    let handed_over = u64::from(WAITERS);
    println!("{handed_over} handed over: {notified} notifications, {claimed} claims");
    assert!(notified >= handed_over - 1, "each of them was woken: {notified}");
    // The first in line is woken again where it was too slow. Were all of them woken each time, it would be WAITERS² / 2.
    assert!(notified <= 3 * handed_over, "{notified} notifications for {handed_over} hand-overs");
    // The two in front look again each second, the others every fifteen.
    assert!(claimed <= 10 * handed_over, "{claimed} claims for {handed_over} hand-overs");
}

/// A wake that never comes costs a second, not the lease: the first in line looks again by the clock.
#[tokio::test]
async fn a_waiter_whose_wake_is_lost_is_admitted_by_its_own_look() {
    let counting = Counting::start();
    drop(ready(&counting.url()).await);
    let silent = "CREATE OR REPLACE FUNCTION leasehold.wake_1(p_wake bigint, p_lease_id uuid) RETURNS void LANGUAGE plpgsql AS \
                  $$ BEGIN END $$";
    counting.server.psql(&counting.database, silent).unwrap();
    let connected = async || Leases::connect(&counting.url()).await.unwrap();
    let (holder, waiter) = (connected().await, connected().await);
    let held = holder.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let first = held.token();
    let request = waiter.lease("r").ttl(Duration::from_secs(60)).wait(PATIENCE);
    let waiting = tokio::spawn(async move { request.acquire().await.unwrap().token() });
    let resource = Resource::new("r").unwrap();
    until("the line", async || (holder.inspect(&resource).await.unwrap().waiting == 1).then_some(())).await;
    let _ended = held.release().await.unwrap();
    // Long before the TTL of the holder would have let it in.
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(next > first);
    assert_eq!(counting.notified(), 0, "no wake was sent");
}
