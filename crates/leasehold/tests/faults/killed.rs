//! A holder that is killed at each step of a lease: its claim granted and not answered, while it holds, its release done and not
//! answered. Who comes next has it when the TTL is over, or at once, and the windows do not meet.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use leasehold::{Leases, Namespace, Resource};
use leasehold_testkit::{
    check::{History, What},
    clock::boot_ns,
    process::{Child, Fleet, Journal, Spawn, end_with_parent, wait_until},
    random,
    server::{Cut, Direction, Passage, Proxy},
};

use super::{
    diary::Diary,
    place::{LONG, PATIENCE, Place, eventually},
};

const URL: &str = "LEASEHOLD_FAULTS_URL";
const NAMESPACE: &str = "LEASEHOLD_FAULTS_NAMESPACE";
const TTL_MS: &str = "LEASEHOLD_FAULTS_TTL_MS";
const TTL: Duration = Duration::from_secs(3);
/// Files by which the child says how far it is, and is told to go on.
const READY: &str = "ready";
const CLAIM: &str = "claim";
const HOLDS: &str = "holds";
const RELEASE: &str = "release";

/// The entrance of the child; nothing when the tests run.
#[test]
fn holder() {
    let Ok(url) = std::env::var(URL) else { return };
    end_with_parent(std::env::var(Fleet::STARTER).unwrap().parse().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(hold(&url));
}

async fn hold(url: &str) {
    let mut journal = Journal::of_this_process().unwrap();
    let folder = journal.path().parent().unwrap().to_owned();
    let namespace = Namespace::new(&std::env::var(NAMESPACE).unwrap()).unwrap();
    let leases = Leases::builder(url).namespace(namespace).connect().await.unwrap();
    // The server has seen this client's requests: what is not answered later is the request itself.
    let _ = leases.lease("other").acquire().await.unwrap().release().await.unwrap();
    let go_on = async |said: &str, told: &str| {
        fs::write(folder.join(said), "").unwrap();
        while !folder.join(told).exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    go_on(READY, CLAIM).await;
    let id = random::lease_id();
    let ttl = Duration::from_millis(std::env::var(TTL_MS).unwrap().parse().unwrap());
    journal.note("r", id, What::Attempt).unwrap();
    let lease = leases.lease("r").ttl(ttl).wait(LONG).acquire().await.unwrap();
    let (open_ns, close_ns, token) = (boot_ns(), lease.closes().boot_ns, lease.token());
    let granted = What::Granted { token, sent_ns: None, open_ns, close_ns, ttl_ms: None };
    journal.note_at(open_ns, "r", id, granted).unwrap();
    go_on(HOLDS, RELEASE).await;
    journal.note("r", id, What::Released { token }).unwrap();
    let _ = lease.release().await;
}

/// Ways on which answers can be lost.
enum Ways {
    Plain(Vec<Proxy>),
    ToEtcd(Cut),
}

impl Ways {
    fn to(place: &Place, near: &Leases) -> Self {
        if near.profile().engine == "etcd" { Self::ToEtcd(place.cut()) } else { Self::Plain(place.ways()) }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Plain(ways) => ways.iter().map(Proxy::address).collect(),
            Self::ToEtcd(cut) => vec![cut.address()],
        }
    }

    /// From now on nobody hears of a change.
    fn lose_answers(&self) {
        match self {
            Self::Plain(ways) => {
                for way in ways {
                    way.set(Direction::ToClient, Passage::Lost);
                }
            }
            Self::ToEtcd(cut) => cut.set(true),
        }
    }
}

/// A child on ways that can be broken, and a client that goes straight there.
struct Scene<'a> {
    near: &'a Leases,
    ways: Ways,
    folder: tempfile::TempDir,
    fleet: Fleet,
    child: Arc<Child>,
}

impl<'a> Scene<'a> {
    fn begin(place: &Place, near: &'a Leases, ttl: Duration) -> Self {
        let (ways, folder) = (Ways::to(place, near), tempfile::tempdir().unwrap());
        let mut fleet = Fleet::new(folder.path());
        let spawn = Spawn::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::holder", "--nocapture"])
            .env(URL, place.url_at(&ways.addresses()))
            .env(NAMESPACE, place.namespace.as_str())
            .env(TTL_MS, ttl.as_millis().to_string());
        let child = fleet.start("holder", spawn).unwrap();
        let scene = Self { near, ways, folder, fleet, child };
        scene.hears(READY);
        scene
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn hears(&self, said: &str) {
        let heard = || self.path().join(said).exists().then_some(());
        let waited = wait_until(format!("{said} of the child"), PATIENCE, heard);
        assert!(waited.is_ok(), "{waited:?}: {}", self.child.stderr().unwrap_or_default());
    }

    fn tell(&self, what: &str) {
        fs::write(self.path().join(what), "").unwrap();
    }

    async fn until_taken(&self, is_taken: bool) {
        let resource = Resource::new("r").unwrap();
        eventually("what the child asked for", async || {
            self.near.inspect(&resource).await.unwrap().record.is_some() == is_taken
        })
        .await;
    }

    /// Kills it; the next one gets the resource, and both together are judged.
    async fn ends_well(self, grants: usize) {
        self.child.kill().unwrap();
        let diary = Diary::default();
        diary.take("next", self.near, "r", LONG).await.release().await;
        let mut events = self.fleet.history().unwrap().events().to_vec();
        events.extend(diary.events());
        let report = History::new(events).judge();
        assert!(report.is_clean() && report.judged.grants == grants, "{report}");
    }
}

async fn a_killed_holder_is_followed(place: Place) {
    let near = place.near().await;

    let scene = Scene::begin(&place, &near, TTL);
    scene.ways.lose_answers();
    scene.tell(CLAIM);
    scene.until_taken(true).await;
    scene.ends_well(1).await;

    let scene = Scene::begin(&place, &near, TTL);
    scene.tell(CLAIM);
    scene.hears(HOLDS);
    scene.ends_well(2).await;

    // Its TTL is longer than anybody waits here: it is the release that lets the next one in.
    let scene = Scene::begin(&place, &near, LONG);
    scene.tell(CLAIM);
    scene.hears(HOLDS);
    scene.ways.lose_answers();
    scene.tell(RELEASE);
    scene.until_taken(false).await;
    scene.ends_well(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_killed_at_any_step_is_followed_on_redis() {
    a_killed_holder_is_followed(Place::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_killed_at_any_step_is_followed_on_redlock() {
    a_killed_holder_is_followed(Place::redlock()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_killed_at_any_step_is_followed_on_postgres() {
    a_killed_holder_is_followed(Place::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_killed_at_any_step_is_followed_on_etcd() {
    a_killed_holder_is_followed(Place::etcd()).await;
}
