//! Faults on real etcd servers: members that die and come back, answers that are lost, streams that are cut, snapshots that are
//! restored, a database that is full.
#![cfg(feature = "etcd")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Error, Kind, Leases,
    address::Address,
    coordinator::etcd::{Options, connect, examine},
    doctor::Verdict,
};
use leasehold_core::{
    Coordinator, HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    record::{Acquired, Busy, EndReason, Gone, Grant, Released, Renewed, Wake},
    request::{Claim, Preparation, Release, Renewal, Revocation},
    window::Margin,
};
use leasehold_testkit::{
    check::{Event, History, What},
    clock::{Stopwatch, boot_ns},
    random::{self, Choices},
    server::{Cut, Direction, Etcd, Passage, Proxy, Setup},
};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

type Client = Arc<dyn Coordinator>;

async fn open(hosts: &str, rest: &str) -> Result<Client, Error> {
    let address = Address::parse("etcd", &format!("//{hosts}{rest}"))?;
    connect(Options::read(&address)?, Namespace::default()).await
}

/// A client of a namespace that grants.
async fn ready(etcd: &Etcd) -> Client {
    let client = open(&etcd.hosts(), "").await.unwrap();
    let _ = client.prepare(Preparation { fresh: true, max_ttl: None }).await;
    client
}

fn seconds(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

fn claim(resource: &str, ttl: Ttl) -> Claim {
    Claim {
        resource: Resource::new(resource).unwrap(),
        lease_id: random::lease_id(),
        holder_id: HolderId::from_bytes([7; 16]),
        label: Label::from_lossy("host-1:4711:job"),
        ttl,
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

fn again(claim: &Claim) -> Claim {
    Claim { lease_id: random::lease_id(), ..claim.clone() }
}

async fn take(client: &Client, claim: &Claim) -> Grant {
    match client.acquire(claim.clone()).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("it should be granted: got {other:?}"),
    }
}

async fn busy(client: &Client, claim: &Claim) -> Busy {
    match client.acquire(claim.clone()).await.unwrap() {
        Acquired::Busy(busy) => busy,
        other => panic!("it should be busy: got {other:?}"),
    }
}

/// Asks until it is granted, whatever fails in between.
async fn until_granted(client: &Client, claim: &Claim) -> Grant {
    let since = Stopwatch::start();
    loop {
        let answer = client.acquire(claim.clone()).await;
        if let Ok(Acquired::Granted(grant)) = answer {
            return grant;
        }
        assert!(since.elapsed() < PATIENCE, "not granted within {PATIENCE:?}: {answer:?}");
        tokio::time::sleep(GLANCE).await;
    }
}

fn renewal(claim: &Claim, token: Token) -> Renewal {
    let Claim { resource, lease_id, ttl, lock_delay, .. } = claim.clone();
    Renewal { resource, lease_id, token, ttl, lock_delay }
}

async fn renew(client: &Client, claim: &Claim, token: Token) -> Result<Renewed, Error> {
    client.renew(vec![renewal(claim, token)]).await.and_then(|mut answers| answers.pop().unwrap())
}

async fn extended(client: &Client, claim: &Claim, token: Token) {
    let answer = renew(client, claim, token).await;
    assert!(matches!(answer, Ok(Renewed::Extended { .. })), "it should be extended: got {answer:?}");
}

fn release(claim: &Claim, token: Option<Token>) -> Release {
    Release { resource: claim.resource.clone(), lease_id: claim.lease_id, token, succeeded: false }
}

fn revocation(claim: &Claim, token: Token) -> Revocation {
    let (by, reason) = (Label::from_lossy("operator"), Label::from_lossy("moving"));
    Revocation { resource: claim.resource.clone(), token, by, reason, now: false }
}

async fn end(client: &Client, claim: &Claim, token: Token) {
    assert_eq!(client.release(release(claim, Some(token))).await.unwrap(), Released::Ended);
}

async fn revoke(client: &Client, claim: &Claim, token: Token) {
    let answer = client.revoke(revocation(claim, token)).await.unwrap();
    assert!(matches!(answer, leasehold_core::record::Revoked::Ended { .. }), "got {answer:?}");
}

/// Waits for a wake of this lease id.
async fn woken(client: &Client, lease_id: LeaseId) {
    let wait = async { while client.next_wake().await != Wake::Lease(lease_id) {} };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "no wake came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_kill_9_of_the_only_member_and_is_lengthened_at_most() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(6));
    let sent = Stopwatch::start();
    let grant = take(&client, &held).await;
    etcd.kill(0).unwrap();
    let error = client.acquire(again(&held)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    etcd.restart(0).unwrap();
    assert_eq!(busy(&client, &again(&held)).await.holder.token, grant.token);
    extended(&client, &held, grant.token).await;
    let next = until_granted(&client, &again(&held)).await;
    assert!(sent.elapsed() >= grant.ttl.as_duration() && next.after_lapse && next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_lease_and_a_waiter_is_served_when_the_leader_dies() {
    let etcd = Etcd::start(3).unwrap();
    ready(&etcd).await;
    let url = format!("etcd://{}", etcd.hosts());
    let (holder, waiter) = (Leases::connect(&url).await.unwrap(), Leases::connect(&url).await.unwrap());
    let lease = holder.lease("r").ttl(Duration::from_secs(8)).acquire().await.unwrap();
    let first = lease.token();
    let waiting = tokio::spawn(async move {
        let lease = waiter.lease("r").ttl(Duration::from_secs(8)).wait(PATIENCE).acquire().await.unwrap();
        let token = lease.token();
        let _ended = lease.release().await.unwrap();
        token
    });
    // The one that both are connected to as well, wherever the leader is.
    for at in [etcd.leader().unwrap(), 0] {
        let before = lease.closes();
        etcd.kill(at).unwrap();
        let closes = lease.closes_after(before).await.expect("the lease is kept");
        assert!(closes != before);
        lease.check().unwrap();
        etcd.restart(at).unwrap();
    }
    let _ended = lease.release().await.unwrap();
    let second = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(second > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_member_is_left_for_another() {
    let etcd = Etcd::start(3).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(20));
    let grant = take(&client, &held).await;
    etcd.pause(0).unwrap();
    let since = Stopwatch::start();
    while !matches!(renew(&client, &held, grant.token).await, Ok(Renewed::Extended { .. })) {
        assert!(since.elapsed() < grant.ttl.as_duration(), "it was not renewed in time");
    }
    until_granted(&client, &claim("other", seconds(20))).await;
    etcd.resume(0).unwrap();
    extended(&client, &held, grant.token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_not_there_costs_no_more_than_a_try() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let silent = Proxy::start(etcd.address(0)).unwrap();
    silent.set_both(Passage::Stalled);
    let free = leasehold_testkit::server::free_port(0).unwrap();
    let client = open(&format!("127.0.0.1:{free},{},{}", silent.address(), etcd.hosts()), "").await.unwrap();
    take(&client, &claim("r", seconds(5))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_majority_takes_nothing_and_says_so() {
    let etcd = Etcd::start(3).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(30));
    let grant = take(&client, &held).await;
    etcd.kill(1).unwrap();
    etcd.kill(2).unwrap();
    let error = client.acquire(claim("other", seconds(5))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(renew(&client, &held, grant.token).await.unwrap_err().is_transient());
    etcd.restart(1).unwrap();
    until_granted(&client, &claim("other", seconds(5))).await;
    extended(&client, &held, grant.token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_effect_is_unknown_and_the_claim_is_adopted() {
    let etcd = Etcd::start(1).unwrap();
    let direct = ready(&etcd).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    let lossy = open(&cut.address().to_string(), "").await.unwrap();
    let wanted = claim("r", seconds(10));
    let error = lossy.acquire(wanted.clone()).await.unwrap_err();
    assert_eq!((error.kind(), cut.cuts()), (Kind::Unknown, 1), "{error}");
    let holder = direct.inspect(wanted.resource.clone()).await.unwrap().record.unwrap();
    assert_eq!(holder.lease_id, wanted.lease_id, "it took effect");
    cut.set(false);
    let grant = take(&lossy, &wanted).await;
    assert!(grant.adopted && grant.token == holder.token);
    cut.set(true);
    let error = renew(&lossy, &wanted, grant.token).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    let error = lossy.release(release(&wanted, Some(grant.token))).await.unwrap_err();
    assert_eq!((error.kind(), cut.cuts()), (Kind::Unknown, 3), "{error}");
    cut.set(false);
    let answer = lossy.release(release(&wanted, Some(grant.token))).await.unwrap();
    assert_eq!(answer, Released::NotHeld(Gone::Released), "it had taken effect");
    assert!(take(&direct, &again(&wanted)).await.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_whose_answer_was_lost_is_kept() {
    let etcd = Etcd::start(1).unwrap();
    let direct = ready(&etcd).await;
    let held = claim("r", seconds(30));
    take(&direct, &held).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    let lossy = open(&cut.address().to_string(), "").await.unwrap();
    let waiter = Claim { queue: true, ..again(&held) };
    assert_eq!(lossy.acquire(waiter.clone()).await.unwrap_err().kind(), Kind::Unknown);
    cut.set(false);
    assert_eq!(busy(&lossy, &waiter).await.position, Some(0));
    assert_eq!(direct.inspect(held.resource.clone()).await.unwrap().waiting, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keepalive_stream_is_opened_anew_after_a_cut() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let held = claim("r", seconds(20));
    let grant = take(&client, &held).await;
    for _ in 0..3 {
        extended(&client, &held, grant.token).await;
        proxy.cut();
        let since = Stopwatch::start();
        // The first after a cut may find the old connection.
        while renew(&client, &held, grant.token).await.is_err() {
            assert!(since.elapsed() < grant.ttl.as_duration(), "it was not renewed in time");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_behind_a_connection_that_stalls_one_way_keeps_its_lease() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let holder = Leases::connect(&format!("etcd://{}", proxy.address())).await.unwrap();
    let lease = holder.lease("r").ttl(Duration::from_secs(6)).acquire().await.unwrap();
    let before = lease.closes();
    // Nothing that is under way comes through; what is connected anew after it is free of that.
    proxy.set(Direction::ToClient, Passage::Lost);
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.set(Direction::ToClient, Passage::Open);
    assert!(lease.closes_after(before).await.is_some(), "the lease was lost: {:?}", lease.check());
    lease.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_a_compaction_and_a_cut() {
    let etcd = Etcd::start(1).unwrap();
    let direct = ready(&etcd).await;
    let held = claim("r", seconds(30));
    let grant = take(&direct, &held).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let waiter = Claim { queue: true, ..again(&held) };
    busy(&client, &waiter).await;
    // The waiter is cut off, and what happens meanwhile is compacted away.
    proxy.refuse(true);
    proxy.cut();
    end(&direct, &held, grant.token).await;
    for _ in 0..5 {
        etcd.ctl(&["put", "elsewhere", "x"]).unwrap();
    }
    let status = etcd.ctl(&["get", "elsewhere", "--write-out", "json"]).unwrap();
    let from = status.find("\"revision\":").unwrap() + 11;
    let revision: String = status[from..].chars().take_while(char::is_ascii_digit).collect();
    etcd.ctl(&["compact", &revision]).unwrap();
    proxy.refuse(false);
    woken(&client, waiter.lease_id).await;
    let next = take(&client, &waiter).await;
    assert!(next.token > grant.token);
    // The one that watches over the new grant is woken too, after another cut.
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.cut();
    revoke(&direct, &waiter, next.token).await;
    woken(&client, waiter.lease_id).await;
    let answer = renew(&client, &waiter, next.token).await;
    assert!(matches!(answer, Ok(Renewed::Gone(Gone::Revoked { .. }))), "got {answer:?}");
}

/// Whoever takes a connection and closes it at once is asked again and again, and not without a pause: neither for requests nor for
/// watches nor for keepalives.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_every_connection_is_not_besieged() {
    let etcd = Etcd::start(1).unwrap();
    drop(ready(&etcd).await);
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let held = claim("r", seconds(30));
    let grant = take(&client, &held).await;
    let waiter = Claim { queue: true, ..again(&held) };
    busy(&client, &waiter).await;
    proxy.refuse(true);
    proxy.cut();
    let (before, since) = (proxy.accepted(), Stopwatch::start());
    while since.elapsed() < Duration::from_secs(3) {
        let _fails = renew(&client, &held, grant.token).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (attempts, whole) = (proxy.accepted() - before, since.elapsed());
    assert!(attempts > 0, "nobody tries again");
    // We ask ten times a second; a loop without a pause makes thousands.
    let most = 100 * (whole.as_secs() + 1);
    assert!(attempts < most, "{attempts} connections in {whole:?}");
    proxy.refuse(false);
    let since = Stopwatch::start();
    while !matches!(renew(&client, &held, grant.token).await, Ok(Renewed::Extended { .. })) {
        assert!(since.elapsed() < PATIENCE, "the holder did not come back");
        tokio::time::sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_login_is_made_again_and_a_wrong_one_is_denied() {
    let etcd = Etcd::start(1).unwrap();
    etcd.enable_users("app", "secret", "leasehold/").unwrap();
    let root = ["--user", "root:secret"];
    let denied = open(&etcd.hosts(), "").await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied, "{denied}");
    let denied = open(&format!("app:wrong@{}", etcd.hosts()), "").await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied, "{denied}");
    let denied = open(&format!("app:secret@{}/elsewhere", etcd.hosts()), "").await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied, "{denied}");
    let client = open(&format!("app:secret@{}", etcd.hosts()), "").await.unwrap();
    client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    let held = claim("r", seconds(40));
    let grant = take(&client, &held).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Tokens live in the member's memory.
    etcd.kill(0).unwrap();
    etcd.restart_with(0, &root).unwrap();
    extended(&client, &held, grant.token).await;
    busy(&client, &Claim { queue: true, ..again(&held) }).await;
    take(&client, &claim("other", seconds(10))).await;
    // The watches have a login that works, too.
    revoke(&client, &held, grant.token).await;
    woken(&client, held.lease_id).await;
    etcd.ctl(&[&root[..], &["role", "revoke-permission", "writer", "leasehold/", "leasehold0"]].concat())
        .unwrap();
    let denied = client.acquire(claim("third", seconds(10))).await.unwrap_err();
    assert!(denied.kind() == Kind::Denied && denied.to_string().contains("permission"), "{denied}");
    // etcdctl reads the new password from its input, which is empty.
    etcd.ctl(&[&root[..], &["user", "passwd", "app", "--interactive=false"]].concat()).unwrap();
    let denied = client.acquire(claim("third", seconds(10))).await.unwrap_err();
    assert!(denied.kind() == Kind::Denied && denied.to_string().contains("password"), "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_revoked_behind_our_back_is_gone() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(30));
    let grant = take(&client, &held).await;
    for id in etcd.ctl(&["lease", "list"]).unwrap().lines().skip(1) {
        etcd.ctl(&["lease", "revoke", id]).unwrap();
    }
    woken(&client, held.lease_id).await;
    let answer = renew(&client, &held, grant.token).await.unwrap();
    assert_eq!(answer, Renewed::Gone(Gone::Expired));
    let next = take(&client, &again(&held)).await;
    assert!(next.after_lapse && next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_lease_that_is_gone_is_replaced() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let first = claim("r", seconds(30));
    let grant = take(&client, &first).await;
    end(&client, &first, grant.token).await;
    for id in etcd.ctl(&["lease", "list"]).unwrap().lines().skip(1) {
        etcd.ctl(&["lease", "revoke", id]).unwrap();
    }
    let second = again(&first);
    let grant = take(&client, &second).await;
    extended(&client, &second, grant.token).await;
    assert_eq!(client.inspect(first.resource.clone()).await.unwrap().record.unwrap().token, grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_refuses_grants_and_lets_holders_renew_and_release() {
    let etcd = Etcd::with(1, Setup { quota: 16 << 20, ..Setup::default() }).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(40));
    let grant = take(&client, &held).await;
    let much = "x".repeat(100_000);
    let full = (0..1_000).find_map(|at| etcd.ctl(&["put", &format!("big/{at}"), &much]).err()).unwrap();
    assert!(full.to_string().contains("space"), "{full}");
    let error = client.acquire(claim("other", seconds(10))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    extended(&client, &held, grant.token).await;
    let found = examine(options(&etcd), &Namespace::default()).await.unwrap();
    assert!(
        found.iter().any(|finding| finding.subject == "alarms" && finding.verdict == Verdict::Fault),
        "{found:?}"
    );
    // A success could not be recorded: it must not be claimed to be.
    let success = Release { succeeded: true, ..release(&held, Some(grant.token)) };
    assert_eq!(client.release(success).await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(client.inspect(held.resource.clone()).await.unwrap().record.unwrap().token, grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_lets_a_holder_go() {
    let etcd = Etcd::with(1, Setup { quota: 16 << 20, ..Setup::default() }).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(40));
    let grant = take(&client, &held).await;
    let much = "x".repeat(100_000);
    (0..1_000).find_map(|at| etcd.ctl(&["put", &format!("big/{at}"), &much]).err()).unwrap();
    assert_eq!(client.release(release(&held, Some(grant.token))).await.unwrap(), Released::Ended);
    assert_eq!(client.inspect(held.resource.clone()).await.unwrap().record, None);
}

fn options(etcd: &Etcd) -> Options {
    Options::read(&Address::parse("etcd", &format!("//{}", etcd.hosts())).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_snapshot_gives_no_lower_token_to_who_knows_better() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let first = claim("r", seconds(5));
    let grant = take(&client, &first).await;
    end(&client, &first, grant.token).await;
    let snapshot = etcd.snapshot("old.db").unwrap();
    let mut known = grant.token;
    for _ in 0..5 {
        let later = again(&first);
        known = take(&client, &later).await.token;
        end(&client, &later, known).await;
    }
    etcd.restore(&snapshot).unwrap();
    // Who knows no better is given a token that was given before: nothing in etcd tells that it went back.
    let client = open(&etcd.hosts(), "").await.unwrap();
    let fooled = again(&first);
    let low = until_granted(&client, &fooled).await.token;
    assert!(low <= known, "if this fails, etcd has learnt to tell: {low} after {known}");
    end(&client, &fooled, low).await;
    // Who does is given a higher one.
    let wise = Claim { floor: Some(known), ..again(&first) };
    let high = take(&client, &wise).await.token;
    assert!(high > known);
    end(&client, &wise, high).await;
    assert!(take(&client, &again(&first)).await.token > high);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_lives_through_a_restore_announces_it() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let client = open(&etcd.hosts(), "").await.unwrap();
    client.prepare(Preparation { fresh: false, max_ttl: Some(seconds(5)) }).await.unwrap();
    let (first, kept) = (claim("r", seconds(5)), claim("kept", seconds(5)));
    let token = take(&client, &kept).await.token;
    let snapshot = etcd.snapshot("old.db").unwrap();
    let mut known = token;
    for _ in 0..5 {
        let later = again(&first);
        known = take(&client, &later).await.token;
        end(&client, &later, known).await;
    }
    etcd.restore(&snapshot).unwrap();
    // A renewal finds out, and so all others are kept out for as long as what was lost may last.
    let since = Stopwatch::start();
    while renew(&client, &kept, token).await.is_err_and(|error| error.is_transient()) {
        assert!(since.elapsed() < PATIENCE);
    }
    let newcomer = open(&etcd.hosts(), "").await.unwrap();
    let answer = newcomer.acquire(again(&first)).await.unwrap();
    assert!(matches!(answer, Acquired::Quarantined { .. }), "what was lost may stand: got {answer:?}");
    assert!(until_granted(&newcomer, &again(&first)).await.token > known);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_restore_quarantines_and_raises_every_token() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let first = claim("r", seconds(5));
    let grant = take(&client, &first).await;
    end(&client, &first, grant.token).await;
    let snapshot = etcd.snapshot("old.db").unwrap();
    let lost = claim("lost", seconds(5));
    let given = take(&client, &lost).await.token;
    etcd.restore(&snapshot).unwrap();
    etcd.ctl(&["del", "leasehold/default/meta"]).unwrap();
    let client = open(&etcd.hosts(), "?max_ttl=5s").await.unwrap();
    let answer = client.acquire(again(&lost)).await.unwrap();
    assert!(matches!(answer, Acquired::Quarantined { .. }), "the lost grant may stand: got {answer:?}");
    assert!(until_granted(&client, &again(&lost)).await.token > given);
    assert!(take(&client, &again(&first)).await.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_checked_and_used() {
    let etcd = Etcd::with(1, Setup { tls: true, ..Setup::default() }).unwrap();
    let address = |rest: &str| Address::parse("etcds", &format!("//{}{rest}", etcd.hosts())).unwrap();
    let file = |name: &str| etcd.certificates().join(name).display().to_string();
    let ca = format!("?ca={}", file("ca.pem"));
    let good = address(&format!("{ca}&cert={}&key={}", file("client.pem"), file("client.key")));
    let client = connect(Options::read(&good).unwrap(), Namespace::default()).await.unwrap();
    client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    let held = claim("r", seconds(5));
    let grant = take(&client, &held).await;
    extended(&client, &held, grant.token).await;
    // Nobody vouches for it.
    let error = connect(Options::read(&address("")).unwrap(), Namespace::default()).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    // The member does not know who we are.
    let error = connect(Options::read(&address(&ca)).unwrap(), Namespace::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_resources_are_forgotten_and_their_tokens_rise_all_the_same() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let mut tokens = HashMap::new();
    for name in ["plain", "lifted", "held"] {
        let claim = claim(name, seconds(50));
        let floor = (name == "lifted").then(|| Token::new(leasehold::clock::unix_us() + 60_000_000).unwrap());
        let token = take(&client, &Claim { floor, ..claim.clone() }).await.token;
        tokens.insert(name, token);
        if name != "held" {
            end(&client, &claim, token).await;
        }
    }
    let week = Ttl::MAX.as_micros() + 60_000_000;
    let (one, two) = (options(&etcd), options(&etcd));
    let purge = |options| {
        leasehold::coordinator::etcd::purge(options, Namespace::default(), leasehold::clock::unix_us() + week)
    };
    let (one, two) = tokio::join!(purge(one), purge(two));
    assert_eq!(one.unwrap() + two.unwrap(), 2, "each is forgotten once, however many look");
    let states = etcd.ctl(&["get", "--prefix", "leasehold/default/state/", "--keys-only"]).unwrap();
    assert!(states.contains("held") && !states.contains("plain") && !states.contains("lifted"), "{states}");
    for name in ["plain", "lifted"] {
        assert!(take(&client, &claim(name, seconds(5))).await.token > tokens[name], "{name}");
    }
}

/// One who wants a resource, holds it for a moment, and writes down what it believes.
async fn contend(
    name: String,
    hosts: String,
    running: Arc<AtomicBool>,
    granted_so_far: Arc<AtomicU64>,
) -> Vec<Event> {
    let client = open(&hosts, "").await.unwrap();
    let mut choices = Choices::new(random::seed());
    let mut events = Vec::new();
    while running.load(Ordering::SeqCst) {
        let claim = Claim { queue: choices.one_in(2), ..claim("r", seconds(3)) };
        let mut note = |what| events.push(Event::now(&name, "r", claim.lease_id, what));
        note(What::Attempt);
        let since = Stopwatch::start();
        let granted = loop {
            let sent = Stopwatch::start();
            if let Ok(Acquired::Granted(grant)) = client.acquire(claim.clone()).await {
                granted_so_far.fetch_add(1, Ordering::SeqCst);
                break Some((sent, grant));
            }
            if since.elapsed() > Duration::from_secs(4) || !running.load(Ordering::SeqCst) {
                break None;
            }
            tokio::time::sleep(Duration::from_millis(5 + choices.below(20))).await;
        };
        let window = |sent: Stopwatch| {
            sent.started_ns() + u64::try_from(Margin::DEFAULT.window_of(claim.ttl).as_nanos()).unwrap()
        };
        let Some((sent, grant)) = granted else {
            note(What::GaveUp);
            let _ = client.release(release(&claim, None)).await;
            continue;
        };
        let (token, mut close_ns) = (grant.token, window(sent));
        if close_ns <= boot_ns() {
            continue;
        }
        let ttl_ms = Some(claim.ttl.as_millis());
        note(What::Granted { token, sent_ns: Some(sent.started_ns()), open_ns: boot_ns(), close_ns, ttl_ms });
        for _ in 0..choices.below(4) {
            tokio::time::sleep(Duration::from_millis(choices.below(300))).await;
            let sent = Stopwatch::start();
            let answer = renew(&client, &claim, token).await;
            if matches!(answer, Ok(Renewed::Extended { .. })) && boot_ns() < close_ns {
                close_ns = close_ns.max(window(sent));
                note(What::Extended { token, sent_ns: Some(sent.started_ns()), close_ns });
            }
        }
        if !choices.one_in(4) {
            note(What::Released { token });
            let _ = client.release(release(&claim, Some(token))).await;
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_under_random_faults_never_overlap_and_tokens_rise() {
    let etcd = Etcd::start(3).unwrap();
    ready(&etcd).await;
    let proxies: Vec<Proxy> = (0..3).map(|at| Proxy::start(etcd.address(at)).unwrap()).collect();
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let (running, granted) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for at in 0..4 {
        let mut hosts = hosts.clone();
        hosts.rotate_left(at % 3);
        let (running, granted) = (Arc::clone(&running), Arc::clone(&granted));
        tasks.push(tokio::spawn(contend(format!("contender-{at}"), hosts.join(","), running, granted)));
    }
    let seed = random::seed();
    let mut choices = Choices::new(seed);
    let begun = Stopwatch::start();
    for round in 0.. {
        if round >= 12 && granted.load(Ordering::SeqCst) >= 20 || begun.elapsed() > PATIENCE {
            break;
        }
        let at = usize::try_from(choices.below(3)).unwrap();
        match choices.below(6) {
            0 => proxies[at].cut(),
            1 => proxies[at].set(Direction::ToClient, Passage::Lost),
            2 => proxies[at].set_both(Passage::Stalled),
            3 => proxies[at].set_both(Passage::Delayed(Duration::from_millis(50))),
            4 => {
                etcd.kill(at).unwrap();
                tokio::time::sleep(Duration::from_millis(choices.below(1_500))).await;
                etcd.restart(at).unwrap();
            }
            _ => {
                etcd.pause(at).unwrap();
                tokio::time::sleep(Duration::from_millis(choices.below(2_500))).await;
                etcd.resume(at).unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(500 + choices.below(1_000))).await;
        proxies[at].set_both(Passage::Open);
    }
    // Whoever is left has a quiet moment to be served in.
    tokio::time::sleep(Duration::from_secs(4)).await;
    running.store(false, Ordering::SeqCst);
    let mut events = Vec::new();
    for task in tasks {
        events.extend(tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap());
    }
    let report = History::new(events).judge();
    println!("seed {seed}: {} grants", report.judged.grants);
    assert!(
        report.judged.grants >= 10,
        "too few grants to mean anything: {} (seed {seed})",
        report.judged.grants
    );
    assert!(report.is_clean(), "seed {seed}: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_wrote_down_is_told_as_an_expiry() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(2));
    let grant = take(&client, &held).await;
    let since = Stopwatch::start();
    while client.inspect(held.resource.clone()).await.unwrap().record.is_some() {
        assert!(since.elapsed() < PATIENCE);
        tokio::time::sleep(GLANCE).await;
    }
    let end = client.inspect(held.resource.clone()).await.unwrap().last_end.unwrap();
    assert_eq!((end.lease_id, end.token, end.reason), (held.lease_id, grant.token, EndReason::Expired));
}

/// Renews one grant until another one, of the same shared lease, is over.
async fn until_over(keeper: &Client, kept: (&Claim, Token), wanted: &Claim) -> (Grant, Duration) {
    let since = Stopwatch::start();
    loop {
        extended(keeper, kept.0, kept.1).await;
        if let Acquired::Granted(grant) = keeper.acquire(wanted.clone()).await.unwrap() {
            return (grant, since.elapsed());
        }
        assert!(since.elapsed() < PATIENCE, "it lives as long as the lease that it shares");
        tokio::time::sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_share_a_lease_end_each_in_its_own_time() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    cut.set(false);
    let client = open(&cut.address().to_string(), "?shared_lease=true").await.unwrap();
    let kept = claim("kept", seconds(3));
    let token = take(&client, &kept).await.token;
    // One is forgotten by its holder, and one never came to be known.
    let forgotten = claim("forgotten", seconds(3));
    let first = take(&client, &forgotten).await;
    let (next, lasted) = until_over(&client, (&kept, token), &again(&forgotten)).await;
    assert!(next.after_lapse && next.token > first.token && lasted >= Duration::from_secs(2), "{lasted:?}");
    let leases = etcd.ctl(&["lease", "list"]).unwrap();
    assert_eq!(leases.lines().count(), 2, "all hang on one lease: {leases}");
    // The connection may be cut at the answer of the keepalive, before the grant itself: then it is tried again.
    let mut unknown = claim("unknown", seconds(3));
    loop {
        cut.set(true);
        assert_eq!(client.acquire(unknown.clone()).await.unwrap_err().kind(), Kind::Unknown);
        cut.set(false);
        extended(&client, &kept, token).await;
        if client.inspect(unknown.resource.clone()).await.unwrap().record.is_some() {
            break;
        }
        unknown = again(&unknown);
    }
    let (next, _) = until_over(&client, (&kept, token), &again(&unknown)).await;
    assert!(next.after_lapse);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_on_a_shared_lease_may_be_kept_by_another_client() {
    let etcd = Etcd::start(1).unwrap();
    let other = ready(&etcd).await;
    let sharing = open(&etcd.hosts(), "?shared_lease=true").await.unwrap();
    let held = claim("r", seconds(3));
    let token = take(&sharing, &held).await.token;
    let since = Stopwatch::start();
    while since.elapsed() < Duration::from_secs(8) {
        extended(&other, &held, token).await;
        let holder = other.inspect(held.resource.clone()).await.unwrap().record;
        assert_eq!(holder.unwrap().token, token, "its former client has ended it");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    end(&other, &held, token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_names_what_the_promises_depend_on() {
    let etcd = Etcd::start(3).unwrap();
    ready(&etcd).await;
    etcd.kill(2).unwrap();
    // It may have been the leader: the others need a moment to have another one.
    let examined = async {
        loop {
            match examine(options(&etcd), &Namespace::default()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(50)).await,
                other => break other.unwrap(),
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), examined).await.unwrap();
    let verdicts = |subject: &str| -> Vec<Verdict> {
        found.iter().filter(|finding| finding.subject == subject).map(|finding| finding.verdict).collect()
    };
    assert_eq!(verdicts("namespace"), [Verdict::Fine]);
    assert!(verdicts("members").contains(&Verdict::Warning), "one is down: {found:?}");
    // What Debian ships has both bugs, and leaves out a fix.
    assert!(!verdicts("version").contains(&Verdict::Fault) && verdicts("version").len() >= 2, "{found:?}");
    for subject in ["leader", "space", "alarms", "election"] {
        assert_eq!(verdicts(subject), [Verdict::Fine], "{subject}: {found:?}");
    }
    for subject in ["users", "tls"] {
        assert_eq!(verdicts(subject), [Verdict::Note], "{subject}: {found:?}");
    }
    assert!(
        found.iter().all(|finding| (finding.verdict == Verdict::Fine) == finding.cure.is_none()),
        "{found:?}"
    );
    let missing = Options::read(&Address::parse("etcd", "//127.0.0.1:1").unwrap()).unwrap();
    assert_eq!(examine(missing, &Namespace::default()).await.unwrap_err().kind(), Kind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_says_what_kind_of_cluster_it_is() {
    let (one, three) = (Etcd::start(1).unwrap(), Etcd::start(3).unwrap());
    let (one, three) = (ready(&one).await, ready(&three).await);
    assert!(one.profile().guarantee.caveat.contains("fewer than three members"));
    assert!(!three.profile().guarantee.caveat.contains("fewer than three members"));
    assert!(three.profile().guarantee.caveat.contains("restoring"));
}

/// A figure of a member's metrics.
fn figure(etcd: &Etcd, name: &str) -> u64 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(etcd.address(0)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
}

/// Thousands of grants of one client are a few leases of etcd's, and one round of renewals of all is a few keepalives.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_grants_share_few_leases_and_few_keepalives() {
    const GRANTS: usize = 2_000;
    const FEW: u64 = 100;
    const RENEWED: &str = "etcd_debugging_lease_renewed_total";
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let client = open(&etcd.hosts(), "?shared_lease=true").await.unwrap();
    // The longest that the namespace has: nothing ends while the machine is busy.
    let names: Vec<usize> = (0..GRANTS).collect();
    let mut grants = Vec::with_capacity(GRANTS);
    for some in names.chunks(100) {
        let taken = some.iter().map(|at| {
            let (client, claim) = (Arc::clone(&client), claim(&format!("orders/{at}"), seconds(60)));
            tokio::spawn(async move {
                let token = take(&client, &claim).await.token;
                (claim, token)
            })
        });
        for one in taken.collect::<Vec<_>>() {
            grants.push(one.await.unwrap());
        }
    }
    let leases = etcd.ctl(&["lease", "list"]).unwrap().lines().count() as u64;
    assert!(leases <= FEW, "{leases} leases for {GRANTS} grants");

    let before = figure(&etcd, RENEWED);
    let renewals = grants.iter().map(|(claim, token)| renewal(claim, *token)).collect();
    let answers = client.renew(renewals).await.unwrap();
    let kept = answers.iter().filter(|answer| matches!(answer, Ok(Renewed::Extended { .. }))).count();
    assert_eq!(kept, GRANTS);
    let keepalives = figure(&etcd, RENEWED) - before;
    assert!((1..=FEW).contains(&keepalives), "{keepalives} keepalives for {GRANTS} renewals");
}
