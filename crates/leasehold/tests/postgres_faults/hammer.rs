//! Many tasks over few resources, judged afterwards.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Coordinator,
    record::{Acquired, Renewed},
    request::Claim,
    window::Margin,
};
use leasehold_testkit::{
    check::{Event, History, What},
    clock::boot_ns,
    random,
    server::PgBouncer,
};

use super::scene::{claim, connect, ms, ready, release, renewed, shared};

const TASKS: u64 = 12;
const ROUNDS: u64 = 25;
const RESOURCES: u64 = 4;

struct Task {
    name: String,
    client: Arc<dyn Coordinator>,
    events: Vec<Event>,
    seed: u64,
}

impl Task {
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn note(&mut self, claim: &Claim, what: What) {
        self.events.push(Event::now(&self.name, claim.resource.as_str(), claim.lease_id, what));
    }

    async fn round(&mut self) {
        let name = format!("r{}", self.draw(RESOURCES));
        let claim = Claim { ttl: ms(2_000), queue: self.draw(2) == 0, ..claim(&name) };
        self.note(&claim, What::Attempt);
        for _ in 0..if claim.queue { 40 } else { 1 } {
            let sent_ns = boot_ns();
            if let Acquired::Granted(grant) = self.client.acquire(claim.clone()).await.unwrap() {
                return self.hold(&claim, grant.token, sent_ns).await;
            }
            tokio::time::sleep(Duration::from_millis(self.draw(15))).await;
        }
        self.note(&claim, What::GaveUp);
        let _ = self.client.release(release(&claim, None)).await.unwrap();
    }

    async fn hold(&mut self, claim: &Claim, token: leasehold_core::Token, sent_ns: u64) {
        let close_ns = closes(claim, sent_ns);
        let open_ns = boot_ns();
        if open_ns >= close_ns {
            return;
        }
        let ttl_ms = Some(claim.ttl.as_millis());
        self.note(claim, What::Granted { token, sent_ns: Some(sent_ns), open_ns, close_ns, ttl_ms });
        tokio::time::sleep(Duration::from_millis(self.draw(5))).await;
        if self.draw(3) == 0 {
            let sent_ns = boot_ns();
            let answer = renewed(&self.client, claim, token).await.unwrap();
            if boot_ns() < close_ns && matches!(answer, Renewed::Extended { .. }) {
                let close_ns = closes(claim, sent_ns);
                self.note(claim, What::Extended { token, sent_ns: Some(sent_ns), close_ns });
            }
        }
        self.note(claim, What::Released { token });
        let _ = self.client.release(release(claim, Some(token))).await.unwrap();
    }
}

fn closes(claim: &Claim, sent_ns: u64) -> u64 {
    let window = Margin::default().window_of(claim.ttl);
    sent_ns + u64::try_from(window.as_nanos()).unwrap()
}

/// Batches of several clients, with the same few resources in every order, through a pooler and without: no call fails, no two
/// windows overlap, tokens rise, and the server never has to break a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_over_the_same_resources_neither_deadlock_nor_overlap() {
    let server = shared();
    let database = server.database().unwrap();
    let bouncer = PgBouncer::start(server, 4).unwrap();
    let clients = [
        ready(&server.url(&database)).await,
        connect(&server.url(&database)).await,
        connect(&bouncer.url(&database)).await,
    ];
    let mut tasks = Vec::new();
    for (at, client) in clients.iter().enumerate() {
        for n in 0..TASKS {
            let (client, name) = (client.clone(), format!("{at}-{n}"));
            let mut task = Task { name, client, events: Vec::new(), seed: random::seed() };
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    task.round().await;
                }
                task.events
            }));
        }
    }
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await.unwrap());
    }
    let report = History::new(events).judge();
    assert!(report.judged.grants > 100, "{report}");
    assert!(report.is_clean(), "{report}");
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(server.psql(&database, deadlocks).unwrap(), "0");
}
