//! Many clients while nodes are killed and stopped at random, judged by the checker of histories.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    record::{Acquired, Renewed},
    request::Claim,
    window::Margin,
};
use leasehold_testkit::{
    check::{Event, History, What},
    clock::{Stopwatch, boot_ns},
    random::{Choices, lease_id, seed},
    server::{Redis, RedisSetup},
};

use super::world::{Client, Held, claim, open, ready, servers, url_of};

const WORKERS: u64 = 6;
const SPAN: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_millis(1_200);

fn closes(sent: Stopwatch, claim: &Claim) -> u64 {
    let window = Margin::DEFAULT.window_of(claim.ttl);
    sent.started_ns().saturating_add(u64::try_from(window.as_nanos()).unwrap())
}

struct Worker {
    name: String,
    client: Client,
    events: Vec<Event>,
    choices: Choices,
}

impl Worker {
    fn note(&mut self, claim: &Claim, what: What) {
        self.events.push(Event::now(&self.name, "r", claim.lease_id, what));
    }

    /// Claims, perhaps renews, and releases or deserts.
    async fn round(&mut self) {
        let wanted = Claim { lease_id: lease_id(), ..claim(TTL) };
        self.note(&wanted, What::Attempt);
        let mut got = None;
        for _ in 0..20 {
            let sent = Stopwatch::start();
            // An unknown outcome is asked again, under the same lease id.
            if let Ok(Acquired::Granted(grant)) = self.client.acquire(wanted.clone()).await {
                got = Some(Held { claim: wanted.clone(), token: grant.token, sent });
                break;
            }
            tokio::time::sleep(Duration::from_millis(5 + self.choices.below(25))).await;
        }
        let Some(held) = got else {
            self.note(&wanted, What::GaveUp);
            let _taken_back = self.client.release(super::world::take_back(&wanted)).await;
            return;
        };
        let close_ns = closes(held.sent, &wanted);
        if close_ns <= boot_ns() {
            return;
        }
        let (token, ttl_ms) = (held.token, Some(wanted.ttl.as_millis()));
        let sent_ns = Some(held.sent.started_ns());
        self.note(&wanted, What::Granted { token, sent_ns, open_ns: boot_ns(), close_ns, ttl_ms });
        self.hold(&held, close_ns).await;
    }

    async fn hold(&mut self, held: &Held, mut close_ns: u64) {
        let token = held.token;
        for _ in 0..self.choices.below(3) {
            tokio::time::sleep(Duration::from_millis(self.choices.below(60))).await;
            let sent = Stopwatch::start();
            let answer = self.client.renew(vec![held.renewal()]).await.unwrap().remove(0);
            if boot_ns() >= close_ns {
                return;
            }
            match answer {
                Ok(Renewed::Extended { .. }) => {
                    close_ns = close_ns.max(closes(sent, &held.claim));
                    self.note(
                        &held.claim,
                        What::Extended { token, sent_ns: Some(sent.started_ns()), close_ns },
                    );
                }
                Ok(_) => {
                    self.note(&held.claim, What::Lost { token });
                    return;
                }
                Err(_) => {}
            }
        }
        if self.choices.one_in(12) || boot_ns() >= close_ns {
            return; // deserted: the window stays open until it closes by itself
        }
        self.note(&held.claim, What::Released { token });
        let _answer = self.client.release(held.release()).await;
    }
}

/// Kills and stops nodes, most of the time no more than a minority.
fn torment(nodes: &[Redis], over: &AtomicBool, mut choices: Choices) {
    while !over.load(Ordering::SeqCst) {
        let at = usize::try_from(choices.below(nodes.len() as u64)).unwrap();
        let other = (at + 1) % nodes.len();
        let rest = |ms| std::thread::park_timeout(Duration::from_millis(ms));
        match choices.below(4) {
            0 => {
                nodes[at].server().kill().unwrap();
                rest(choices.below(200));
                nodes[at].start().unwrap();
            }
            1 => {
                nodes[at].server().pause().unwrap();
                rest(choices.below(600));
                nodes[at].server().resume().unwrap();
            }
            2 => {
                nodes[at].server().pause().unwrap();
                nodes[other].server().pause().unwrap();
                rest(choices.below(400));
                nodes[at].server().resume().unwrap();
                nodes[other].server().resume().unwrap();
            }
            _ => {
                // A majority stops for a moment.
                let three = [at, other, (at + 2) % nodes.len()];
                for &at in &three {
                    nodes[at].server().pause().unwrap();
                }
                rest(choices.below(150));
                for &at in &three {
                    nodes[at].server().resume().unwrap();
                }
            }
        }
        rest(400 + choices.below(400));
    }
}

async fn hammered(setup: &RedisSetup) {
    let nodes = Arc::new(servers(5, setup));
    let url = url_of(&nodes);
    drop(ready(&url).await);
    let begun = seed();
    let over = Arc::new(AtomicBool::new(false));
    let tormentor = {
        let (nodes, over) = (Arc::clone(&nodes), Arc::clone(&over));
        std::thread::spawn(move || torment(&nodes, &over, Choices::new(begun)))
    };
    let mut tasks = Vec::new();
    for at in 0..WORKERS {
        let client = open(&url).await;
        let Ok(client) = client else { continue };
        let mut worker = Worker {
            name: format!("worker-{at}"),
            client,
            events: Vec::new(),
            choices: Choices::new(begun ^ (at + 1)),
        };
        tasks.push(tokio::spawn(async move {
            let since = Stopwatch::start();
            while since.elapsed() < SPAN {
                worker.round().await;
            }
            worker.events
        }));
    }
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await.unwrap());
    }
    over.store(true, Ordering::SeqCst);
    tormentor.join().unwrap();
    let report = History::new(events).judge();
    assert!(
        report.judged.grants >= 20,
        "too few grants to mean anything: {} (seed {begun})",
        report.judged.grants
    );
    assert!(report.is_clean(), "the history breaks an invariant (seed {begun}): {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_killed_and_stopped_at_random_break_nothing() {
    hammered(&RedisSetup::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_nodes_killed_and_stopped_at_random_break_nothing() {
    hammered(&RedisSetup::new().with("appendonly", "yes").with("appendfsync", "no")).await;
}
