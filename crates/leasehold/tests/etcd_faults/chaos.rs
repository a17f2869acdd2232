//! Contenders under random faults, judged afterwards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    random::{self, Choices},
    server::{Direction, Etcd, Passage, Proxy},
};

use super::world::{PATIENCE, claim, open, ready, release, renew, seconds};

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
