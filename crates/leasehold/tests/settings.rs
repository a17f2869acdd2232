//! Settings that change while leases are held and asked for: what counts when, and that a change never costs a lease.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{eventually, faulty, ms};
use leasehold::{
    Kind, Lease, Leases, NotAcquired, Refusal, Resource, Ttl, Wait, Worker,
    coordinator::memory::MemoryStore,
    core::window::Margin,
    settings::{Limit, Rules, Tuning},
};

fn ttl(ms: u64) -> Tuning {
    Tuning { ttl: Some(Ttl::from_millis(ms).unwrap()), ..Tuning::default() }
}

async fn ttl_at_coordinator(leases: &Leases, resource: &str) -> u64 {
    let resource = Resource::new(resource).unwrap();
    leases.inspect(&resource).await.unwrap().record.unwrap().ttl.as_millis()
}

/// Two hundred held leases, others acquired and released all the time, and the settings change again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_under_load_lose_no_lease_and_shorten_no_window() {
    const HELD: usize = 200;
    let (leases, _) = faulty(&MemoryStore::default()).await;
    leases.retune(Rules::general(ttl(6_000))).unwrap();
    let mut held: Vec<Lease> = Vec::new();
    for n in 0..HELD {
        held.push(leases.lease(&format!("held/{n}")).acquire().await.unwrap());
    }
    let (busy, more) = (Arc::new(AtomicBool::new(true)), leases.clone());
    let churn = tokio::spawn({
        let busy = busy.clone();
        async move {
            let mut pairs = 0_u64;
            while busy.load(Ordering::SeqCst) {
                let lease = more.lease(&format!("busy/{}", pairs % 8)).acquire().await.unwrap();
                lease.check().unwrap();
                let _ = lease.release().await.unwrap();
                pairs += 1;
                tokio::task::yield_now().await;
            }
            pairs
        }
    });
    let mut closes: Vec<u64> = held.iter().map(|lease| lease.closes().boot_ns).collect();
    for (round, seconds) in [9, 6, 12, 5, 10, 45].into_iter().enumerate() {
        for jiggle in 0..20 {
            let rules = Rules::general(ttl(seconds * 1_000 - 50 * (19 - jiggle)));
            leases.retune(rules.with("held/1*", ttl(seconds * 1_000)).unwrap()).unwrap();
        }
        tokio::time::sleep(ms(1_000)).await;
        for (lease, known) in held.iter().zip(&mut closes) {
            lease.check().unwrap();
            let now = lease.closes().boot_ns;
            assert!(now >= *known, "round {round}: a window was shortened");
            *known = now;
        }
    }
    busy.store(false, Ordering::SeqCst);
    assert!(churn.await.unwrap() > 0);
    for n in [0, 1, 19, 100, HELD - 1] {
        eventually("the last TTL at the coordinator", async || {
            ttl_at_coordinator(&leases, &format!("held/{n}")).await == 45_000
        })
        .await;
    }
    assert_eq!(leases.held(), HELD);
}

#[tokio::test]
async fn what_the_code_sets_is_the_last_word_and_the_rest_follows_its_pattern() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    leases.retune(Rules::general(ttl(3_000)).with("slow/*", ttl(6_000)).unwrap()).unwrap();
    let own = leases.lease("own").ttl(ms(4_000)).acquire().await.unwrap();
    let general = leases.lease("general").acquire().await.unwrap();
    let slow = leases.lease("slow/1").acquire().await.unwrap();
    let of = async |lease: &Lease| ttl_at_coordinator(&leases, lease.resource().as_str()).await;
    assert_eq!((of(&own).await, of(&general).await, of(&slow).await), (4_000, 3_000, 6_000));
    leases.retune(Rules::general(ttl(9_000)).with("slow/*", ttl(12_000)).unwrap()).unwrap();
    eventually("the general one follows", async || of(&general).await == 9_000).await;
    eventually("the slow one follows its own", async || of(&slow).await == 12_000).await;
    assert_eq!(of(&own).await, 4_000);
}

#[tokio::test]
async fn settings_that_do_not_fit_change_nothing_for_nobody() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let good = Rules::general(ttl(3_000));
    leases.retune(good.clone()).unwrap();
    let lease = leases.lease("r").acquire().await.unwrap();
    // It gives away so much by the code's word that a TTL of a second leaves nothing.
    let margin = Margin::new(5_000, ms(990)).unwrap();
    let strict = leases.lease("strict").margin(margin).acquire().await.unwrap();
    let too_long =
        Rules::general(ttl(4_000)).with("other/*", Tuning { ttl: Some(Ttl::MAX), ..ttl(1_000) }).unwrap();
    let error = leases.retune(too_long).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("longest that this namespace allows"), "{error}");
    let too_short = Rules::general(ttl(4_000)).with("strict", ttl(1_000)).unwrap();
    let error = leases.retune(too_short).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("strict"), "{error}");
    assert_eq!(leases.rules(), good);
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(ttl_at_coordinator(&leases, "r").await, 3_000);
    lease.check().unwrap();
    strict.check().unwrap();
    assert!(
        Leases::builder("memory:")
            .rules(Rules::general(Tuning { ttl: Some(Ttl::MAX), ..ttl(1_000) }))
            .connect()
            .await
            .is_err()
    );
}

#[tokio::test]
async fn waits_count_from_the_next_request_and_hold_limits_from_the_next_grant() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let wait = |wait| Rules::general(Tuning { wait: Some(wait), ..Tuning::default() });
    let holder = leases.lease("r").acquire().await.unwrap();
    let refused = leases.lease("r").acquire().await.unwrap_err();
    assert!(matches!(refused, NotAcquired::Refused { .. }), "{refused:?}");
    leases.retune(wait(Wait::Forever)).unwrap();
    let waiter = tokio::spawn({
        let leases = leases.clone();
        async move { leases.lease("r").acquire().await.unwrap() }
    });
    let resource = Resource::new("r").unwrap();
    eventually("a waiter", async || leases.inspect(&resource).await.unwrap().waiting == 1).await;
    // For who waits already a hold limit is not too late: the grant is still to come.
    let limit = Tuning { max_hold: Some(Limit::After(ms(500))), ..Tuning::default() };
    leases.retune(Rules::general(limit)).unwrap();
    let once = leases.lease("r").attempt().await.unwrap();
    assert!(matches!(once, leasehold::Outcome::Refused(Refusal::Busy(_) | Refusal::Queued(_))), "{once:?}");
    holder.check().unwrap();
    let _ = holder.release().await.unwrap();
    let lease = tokio::time::timeout(Duration::from_secs(60), waiter).await.unwrap().unwrap();
    assert_eq!(lease.lost().await, leasehold::Loss::MaxHold);
    let forever = Tuning { max_hold: Some(Limit::None), ..Tuning::default() };
    leases.retune(Rules::general(limit).with("r", forever).unwrap()).unwrap();
    let lease = leases.lease("r").wait(Duration::from_secs(60)).acquire().await.unwrap();
    // A limit that comes later is not for a lease that is held.
    leases.retune(Rules::general(limit)).unwrap();
    tokio::time::sleep(ms(700)).await;
    lease.check().unwrap();
}

/// A claim that has waited since older settings asks with their TTL; its grant has the new one from its first renewal.
#[tokio::test]
async fn a_lease_that_was_asked_for_under_older_settings_follows_the_new_ones() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    leases.retune(Rules::general(ttl(3_000))).unwrap();
    let holder = leases.lease("r").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let leases = leases.clone();
        async move { leases.lease("r").wait_forever().acquire().await.unwrap() }
    });
    let resource = Resource::new("r").unwrap();
    eventually("a waiter", async || leases.inspect(&resource).await.unwrap().waiting == 1).await;
    leases.retune(Rules::general(ttl(9_000))).unwrap();
    let _ = holder.release().await.unwrap();
    let lease = tokio::time::timeout(Duration::from_secs(60), waiter).await.unwrap().unwrap();
    assert_eq!(ttl_at_coordinator(&leases, "r").await, 3_000, "as it was asked for");
    eventually("the TTL in force", async || ttl_at_coordinator(&leases, "r").await == 9_000).await;
    lease.check().unwrap();
}

#[tokio::test]
async fn a_drain_may_take_what_the_settings_say() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let drain = |limit| Tuning { drain_timeout: Some(limit), ..Tuning::default() };
    let worker = Worker::new(leases.lease("r").ttl(ms(3_000)).acquire().await.unwrap());
    assert_eq!(worker.drain_timeout(), Some(ms(6_000)));
    leases.retune(Rules::general(drain(Limit::After(ms(700))))).unwrap();
    assert_eq!(worker.drain_timeout(), Some(ms(700)));
    leases.retune(Rules::general(drain(Limit::None))).unwrap();
    assert_eq!(worker.drain_timeout(), None);
}

fn put(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

#[tokio::test]
async fn a_file_is_followed_and_a_wrong_one_keeps_the_old() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leasehold.toml");
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let missing = leases.follow(&path, &[]).await.unwrap_err();
    assert!(missing.to_string().contains("no such file"), "{missing}");
    put(&path, "url = 5\nttl = \"3s\"\n[resource.\"slow/*\"]\nttl = \"6s\"\n");
    assert!(leases.follow(&path, &[]).await.is_err(), "a key of nobody");
    let follower = leases.follow(&path, &["url"]).await.unwrap();
    let slow = leases.lease("slow/1").acquire().await.unwrap();
    assert_eq!(ttl_at_coordinator(&leases, "slow/1").await, 6_000);
    let good = leases.rules();
    for wrong in
        ["ttl = \"5\"", "nonsense", "ttl = \"7d\"", "[resource.\"slow/*\"]\nttl = \"9s\"\ntll = \"9s\"\n"]
    {
        put(&path, wrong);
        follower.look();
        // Long enough for a look, nearly always; a wrong file that counts is then found out.
        tokio::time::sleep(ms(300)).await;
        assert_eq!(leases.rules(), good, "{wrong}");
    }
    put(&path, "[resource.\"slow/*\"]\nttl = \"9s\"\n");
    eventually("what is right counts", async || ttl_at_coordinator(&leases, "slow/1").await == 9_000).await;
    // A link that leads elsewhere, as a mounted configuration map changes.
    fs::remove_file(&path).unwrap();
    put(&folder.path().join("other"), "ttl = \"12s\"\n");
    std::os::unix::fs::symlink(folder.path().join("other"), &path).unwrap();
    eventually("the other file counts", async || ttl_at_coordinator(&leases, "slow/1").await == 12_000).await;
    slow.check().unwrap();
}
