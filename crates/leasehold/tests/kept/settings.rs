//! Settings that the coordinator keeps: who reads sees the old or the new, on every engine; and a change under load costs no
//! lease and shortens no window.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Kind, Lease, Leases, Resource, Ttl,
    coordinator::memory::MemoryStore,
    core::{
        policy::MAX_JITTER_PERCENT,
        request::{Listing, Revocation},
    },
    settings::{
        Follower, Rules, Tuning,
        stored::{MAX_BYTES, is_settings},
    },
};

use crate::{
    common::{client, eventually, ms},
    place::{Place, label},
};

const EVERY: Duration = Duration::from_secs(1);

fn ttl_of(leases: &Leases, resource: &str) -> Option<u64> {
    leases.tuning(&Resource::new(resource).unwrap()).ttl.map(Ttl::as_millis)
}

async fn ttl_at_coordinator(leases: &Leases, resource: &str) -> u64 {
    let resource = Resource::new(resource).unwrap();
    leases.inspect(&resource).await.unwrap().record.unwrap().ttl.as_millis()
}

/// Looks until the client has made of the coordinator's settings what it will.
async fn sees(follower: &Follower, what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, async || {
        follower.look();
        condition()
    })
    .await;
}

#[tokio::test]
async fn what_one_sets_counts_for_all_who_follow_and_say_nothing_themselves() {
    let store = MemoryStore::default();
    let (operator, service, deaf) =
        (client(&store, "ops").await, client(&store, "service").await, client(&store, "deaf").await);
    let follower = service.follow_coordinator(EVERY).await.unwrap();
    assert_eq!((operator.stored_settings().await.unwrap(), follower.problem()), (None, None));
    let lease = service.lease("orders/1").acquire().await.unwrap();
    let own = service.lease("own").ttl(ms(4_000)).acquire().await.unwrap();
    let text = "ttl = \"40s\"\n# for the night\n[resource.\"orders/*\"]\nttl = \"50s\"\nwait = \"1m\"\n";
    let stored = operator.store_settings(text, &label("alice@ops")).await.unwrap();
    assert_eq!((stored.change.version, stored.change.by.as_str()), (1, "alice@ops"));
    assert_eq!(operator.stored_settings().await.unwrap(), Some(stored), "comments and all");
    sees(&follower, "a TTL", || ttl_of(&service, "orders/1") == Some(50_000)).await;
    eventually("a held lease has it", async || ttl_at_coordinator(&operator, "orders/1").await == 50_000)
        .await;
    assert_eq!(ttl_at_coordinator(&operator, "own").await, 4_000, "what the code sets is the last word");
    assert_eq!(ttl_of(&deaf, "orders/1"), None);
    // A general word of its own counts before the coordinator's special one, and the rest stays the coordinator's.
    let nearer = Tuning { ttl: Ttl::from_millis(9_000).ok(), ..Tuning::default() };
    service.retune(Rules::general(nearer)).unwrap();
    let tuning = service.tuning(&Resource::new("orders/1").unwrap());
    assert_eq!((tuning.ttl, tuning.wait), (nearer.ttl, Some(leasehold::Wait::For(Duration::from_secs(60)))));
    service.retune(Rules::default()).unwrap();
    assert_eq!(ttl_of(&service, "orders/1"), Some(50_000));
    let _ = operator.clear_settings(&label("bob@ops")).await.unwrap();
    sees(&follower, "none any more", || ttl_of(&service, "orders/1").is_none()).await;
    let changes = operator.settings_history().await.unwrap();
    let who: Vec<(u64, &str, usize)> =
        changes.iter().map(|change| (change.version, change.by.as_str(), change.bytes)).collect();
    assert_eq!(who, [(2, "bob@ops", 0), (1, "alice@ops", text.len())]);
    lease.check().unwrap();
    own.check().unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_refused_whole_where_it_is_set() {
    let leases = client(&MemoryStore::default(), "ops").await;
    let by = label("ops");
    let good = leases.store_settings("ttl = \"40s\"", &by).await.unwrap();
    let large = format!("ttl = \"9s\"\n{}", "# much\n".repeat(MAX_BYTES / 7 + 1));
    for (text, part) in [
        ("ttl = \"9s\"\ntll = \"1s\"", "unknown setting tll"),
        ("ttl = \"9s\"\n[resource.\"a*b\"]\nttl = \"1s\"", "may have a * at its end only"),
        ("ttl = \"9s\"\njitter = \"60%\"", "is above the most, 50%"),
        ("url = \"redis://:secret@h\"", "unknown setting url"),
        ("[resource.\"a/*\"]\nttl = \"7d\"", "is above the longest that this namespace allows"),
        ("nonsense", "line 1"),
        (&large, "may have 8192 bytes"),
    ] {
        let error = leases.store_settings(text, &by).await.unwrap_err();
        assert!(error.kind() == Kind::Invalid && error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(leases.stored_settings().await.unwrap(), Some(good));
    assert_eq!(leases.settings_history().await.unwrap().len(), 1);
    for every in [ms(10), Duration::from_secs(601)] {
        assert_eq!(leases.follow_coordinator(every).await.unwrap_err().kind(), Kind::Invalid);
    }
}

/// Lets `line` stand where the coordinator says which settings count, by hand.
async fn write_by_hand(leases: &Leases, line: &str) {
    let lease = leases.lease("~settings").wait(Duration::from_secs(60)).acquire().await.unwrap();
    let (resource, token) = (lease.resource().clone(), lease.token());
    let revocation = Revocation { resource, token, by: label(line), reason: label(""), now: true };
    let _ = leases.revoke(revocation).await.unwrap();
}

#[tokio::test]
async fn a_client_keeps_what_it_has_when_it_cannot_accept_what_is_there() {
    let store = MemoryStore::default();
    let (operator, service) = (client(&store, "ops").await, client(&store, "service").await);
    operator.store_settings("ttl = \"40s\"", &label("ops")).await.unwrap();
    let follower = service.follow_coordinator(EVERY).await.unwrap();
    assert_eq!(ttl_of(&service, "r"), Some(40_000));
    for (line, problem) in [
        ("settings 2 all is different now", "another version of Leasehold"),
        ("settings 1 x", "damaged"),
        ("alice", "was taken by alice"),
        ("settings 1 7 1 500 2 000102030405060708090a0b0c0d0e0f ops", "only 0 of 500 bytes"),
        ("", "forgotten"),
    ] {
        write_by_hand(&operator, line).await;
        let told = || follower.problem().is_some_and(|told| told.contains(problem));
        sees(&follower, problem, told).await;
        assert_eq!(ttl_of(&service, "r"), Some(40_000), "{line}");
    }
    // A client that comes now has nothing to keep, and begins all the same.
    write_by_hand(&operator, "settings 2 all is different now").await;
    let late = client(&store, "late").await;
    assert!(late.follow_coordinator(EVERY).await.unwrap().problem().is_some());
    assert_eq!(operator.stored_settings().await.unwrap_err().kind(), Kind::Invalid);
    // What fits nobody's lease here is refused here alone.
    let margin = leasehold::core::window::Margin::new(5_000, ms(990)).unwrap();
    let strict = service.lease("strict").margin(margin).acquire().await.unwrap();
    let short = operator.store_settings("[resource.strict]\nttl = \"1s\"", &label("ops")).await.unwrap();
    assert_eq!(short.change.version, 1, "what cannot be read counts as nothing");
    sees(&follower, "a refusal", || follower.problem().is_some_and(|told| told.contains("strict"))).await;
    assert_eq!(ttl_of(&service, "r"), Some(40_000), "whole or not at all");
    operator.store_settings("ttl = \"45s\"", &label("ops")).await.unwrap();
    sees(&follower, "what is right", || ttl_of(&service, "r") == Some(45_000)).await;
    assert_eq!(follower.problem(), None);
    strict.check().unwrap();
}

/// A text of several parts, all of whose lines say the same.
fn long_text(n: u64) -> String {
    let tables: Vec<String> =
        (0..60).map(|line| format!("[resource.\"r{line}/*\"]\nttl = \"{n}s\"\n")).collect();
    tables.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_sees_the_old_or_the_new_whatever_many_write_at_once() {
    const WRITERS: u64 = 6;
    const EACH: u64 = 4;
    let store = MemoryStore::default();
    let reader = client(&store, "reader").await;
    reader.store_settings(&long_text(100), &label("first")).await.unwrap();
    let mut writing = Vec::new();
    for writer in 0..WRITERS {
        let leases = client(&store, "writer").await;
        writing.push(tokio::spawn(async move {
            let mut versions = Vec::new();
            for n in 0..EACH {
                let text = long_text(10 + writer * EACH + n);
                let stored = leases.store_settings(&text, &label("writer")).await.unwrap();
                versions.push(stored.change.version);
            }
            versions
        }));
    }
    let mut looks = 0_u64;
    while writing.iter().any(|task| !task.is_finished()) {
        let stored = reader.stored_settings().await.unwrap().unwrap();
        let said: BTreeSet<&str> = stored.text.lines().filter(|line| line.starts_with("ttl")).collect();
        assert!(said.len() == 1 && stored.text.lines().count() == 120, "{}", stored.text);
        looks += 1;
        tokio::task::yield_now().await;
    }
    let mut versions = Vec::new();
    for task in writing {
        versions.extend(task.await.unwrap());
    }
    assert!(looks > 0);
    let different: BTreeSet<u64> = versions.iter().copied().collect();
    assert_eq!((versions.len() as u64, different.len() as u64), (WRITERS * EACH, WRITERS * EACH));
    assert_eq!(different.last(), Some(&(WRITERS * EACH + 1)), "no change was lost");
    let last = reader.stored_settings().await.unwrap().unwrap();
    assert_eq!(last.change.version, WRITERS * EACH + 1);
}

/// A jitter counts from the next renewal, also for a lease whose code says everything else.
#[tokio::test]
async fn a_jitter_is_a_setting_like_the_others() {
    let store = MemoryStore::default();
    let leases = client(&store, "service").await;
    let percent = |jitter| Tuning { jitter: Some(jitter), ..Tuning::default() };
    leases.retune(Rules::general(percent(0))).unwrap();
    let lease = leases.lease("r").ttl(ms(3_000)).acquire().await.unwrap();
    let most = u8::try_from(MAX_JITTER_PERCENT).unwrap();
    leases.retune(Rules::general(percent(most)).with("r", percent(3)).unwrap()).unwrap();
    let error = leases.retune(Rules::general(percent(most + 1))).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    let jitter = |name: &str| leases.tuning(&Resource::new(name).unwrap()).jitter;
    assert_eq!((jitter("r"), jitter("x")), (Some(3), Some(most)), "the old ones, whole");
    lease.check().unwrap();
}

impl Place {
    /// Held leases, others acquired and released all the time, and an operator who changes the settings again and again.
    async fn changes_under_load(self) {
        const HELD: usize = 20;
        let (operator, service) = (self.connect("ops").await, self.connect("service").await);
        operator.store_settings("ttl = \"20s\"\n", &label("first")).await.unwrap();
        let follower = service.follow_coordinator(EVERY).await.unwrap();
        let mut held: Vec<Lease> = Vec::new();
        for n in 0..HELD {
            held.push(service.lease(&format!("held/{n}")).acquire().await.unwrap());
        }
        assert_eq!(ttl_at_coordinator(&operator, "held/1").await, 20_000, "{}", self.name);
        let busy = Arc::new(AtomicBool::new(true));
        let churn = tokio::spawn({
            let (busy, service) = (busy.clone(), service.clone());
            async move {
                let mut pairs = 0_u64;
                while busy.load(Ordering::SeqCst) {
                    let lease = service.lease(&format!("busy/{}", pairs % 4)).acquire().await.unwrap();
                    lease.check().unwrap();
                    let _ = lease.release().await.unwrap();
                    pairs += 1;
                    tokio::time::sleep(ms(2)).await;
                }
                pairs
            }
        });
        let mut closes: Vec<u64> = held.iter().map(|lease| lease.closes().boot_ns).collect();
        for seconds in [30_u64, 12, 45, 15, 40] {
            let text = format!("ttl = \"{seconds}s\"\n{}", long_text(seconds));
            operator.store_settings(&text, &label("ops")).await.unwrap();
            sees(&follower, "the new TTL", || ttl_of(&service, "held/1") == Some(seconds * 1_000)).await;
            assert_eq!(follower.problem(), None, "{}", self.name);
            for (lease, known) in held.iter().zip(&mut closes) {
                lease.check().unwrap();
                let now = lease.closes().boot_ns;
                assert!(now >= *known, "{}: a window was shortened", self.name);
                *known = now;
            }
        }
        for n in [0, HELD - 1] {
            eventually("the last TTL at the coordinator", async || {
                ttl_at_coordinator(&operator, &format!("held/{n}")).await == 40_000
            })
            .await;
        }
        busy.store(false, Ordering::SeqCst);
        assert!(churn.await.unwrap() > 0);
        for lease in &held {
            lease.check().unwrap();
        }
        assert_eq!(service.held(), HELD);
        self.tells_who(&operator).await;
    }

    /// The changes, where the engine has a history; and that nobody sees the place where they are kept.
    async fn tells_who(&self, operator: &Leases) {
        let changes = operator.settings_history().await;
        if operator.profile().capabilities.history {
            let versions: Vec<u64> = changes.unwrap().iter().map(|change| change.version).collect();
            assert_eq!(versions, [6, 5, 4, 3, 2, 1], "{}", self.name);
        } else {
            assert_eq!(changes.unwrap_err().kind(), Kind::Unsupported);
        }
        let page = operator.list(Listing::new()).await.unwrap();
        assert!(!page.items.iter().any(|item| is_settings(&item.resource)), "nothing is held: {page:?}");
        let again = self.connect("again").await;
        let stored = again.stored_settings().await.unwrap().unwrap();
        assert_eq!((stored.change.version, stored.change.by.as_str()), (6, "ops"), "{}", self.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_under_load_on_sqlite() {
    Place::sqlite().await.changes_under_load().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_under_load_on_postgres() {
    Place::postgres("").await.changes_under_load().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_under_load_on_advisory_locks() {
    Place::postgres("?mode=advisory").await.changes_under_load().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_under_load_on_redis() {
    Place::redis().await.changes_under_load().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_under_load_on_redlock() {
    Place::redlock().await.changes_under_load().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_under_load_on_etcd() {
    Place::etcd().await.changes_under_load().await;
}
