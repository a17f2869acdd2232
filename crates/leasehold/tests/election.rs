//! Campaigns go from term to term, one leader at a time, and say whether they still take part.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{eventually, faulty, ms};
use leasehold::{
    Label, Leases, Resource, Token,
    coordinator::memory::MemoryStore,
    core::request::Revocation,
    election::{After, Campaign, Outcome, Standing, Term},
    preempt::{Asked, Pending, Progress, Wish, handed_over},
};
use leasehold_testkit::clock::Stopwatch;

fn revocation(resource: &Resource, token: Token) -> Revocation {
    Revocation {
        resource: resource.clone(),
        token,
        by: Label::default(),
        reason: Label::default(),
        now: true,
    }
}

/// Ends the grant that stands, when one does.
async fn revoke(leases: &Leases, resource: &Resource) -> Option<Token> {
    let token = leases.inspect(resource).await.unwrap().record?.token;
    let _ = leases.revoke(revocation(resource, token)).await.unwrap();
    Some(token)
}

#[tokio::test]
async fn ten_losses_in_a_row_leave_a_campaign_electable() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let campaign = Campaign::new(leases.lease("r").ttl(ms(10_000)));
    let (health, stop) = (campaign.health(), campaign.stop_token());
    let terms = Arc::new(Mutex::new(Vec::new()));
    let running = tokio::spawn(campaign.run::<(), _>({
        let terms = terms.clone();
        move |term| {
            terms.lock().unwrap().push((term.number(), term.token()));
            async move {
                term.draining().await;
                After::AgainIn(Duration::ZERO)
            }
        }
    }));
    let resource = Resource::new("r").unwrap();
    for n in 1..=10 {
        eventually("the next term", async || terms.lock().unwrap().len() >= n).await;
        assert!(health.is_electable());
        revoke(&leases, &resource).await;
    }
    eventually("the eleventh term", async || terms.lock().unwrap().len() >= 11).await;
    assert!(matches!(health.standing(), Standing::Leading(_)));
    stop.cancel();
    assert!(matches!(running.await.unwrap(), Outcome::Stopped));
    assert!(!health.is_electable());
    let terms = terms.lock().unwrap().clone();
    assert!(terms.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 && pair[0].1 < pair[1].1), "{terms:?}");
    assert!(leases.inspect(&resource).await.unwrap().record.is_none(), "released at the end");
}

/// Work that ignores the loss is waited for: this process neither releases under it nor leads beside it.
#[tokio::test]
async fn work_that_ignores_its_loss_is_waited_for() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let campaign = Campaign::new(leases.lease("r").ttl(ms(10_000)));
    let (mut health, stop) = (campaign.health(), campaign.stop_token());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let mut ended = Some(ended);
    let running = tokio::spawn(campaign.run::<(), _>(move |term| {
        let wait = ended.take();
        async move {
            if let Some(wait) = wait {
                let _ = wait.await;
                assert!(term.ensure(ms(1)).is_err());
            } else {
                term.draining().await;
            }
            After::Again
        }
    }));
    while !matches!(health.standing(), Standing::Leading(_)) {
        health.changed().await;
    }
    let releases = faults.releases.load(Ordering::SeqCst);
    let token = revoke(&leases, &Resource::new("r").unwrap()).await.unwrap();
    eventually("the end of the term", async || health.standing() == Standing::Ending(token)).await;
    // Another term of somebody else may begin; nothing is released or claimed here.
    let other = leases.lease("r").acquire().await.unwrap();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(faults.releases.load(Ordering::SeqCst), releases);
    assert_eq!(health.standing(), Standing::Ending(token));
    end.send(()).unwrap();
    let _ = other.release().await.unwrap();
    eventually(
        "the next term",
        async || matches!(health.standing(), Standing::Leading(next) if next > token),
    )
    .await;
    stop.cancel();
    assert!(matches!(running.await.unwrap(), Outcome::Stopped));
}

#[tokio::test]
async fn health_tells_campaigning_from_given_up() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    // What can never be had is given up; what cannot be had now is not.
    let hopeless = Campaign::new(leases.lease("").ttl(ms(10_000)));
    let health = hopeless.health();
    assert!(health.is_electable());
    let outcome = hopeless.run(async |_| After::Resign(())).await;
    assert!(matches!(outcome, Outcome::GaveUp(_)), "{outcome:?}");
    assert!(!health.is_electable());

    faults.unreachable.store(true, Ordering::SeqCst);
    let patient = Campaign::new(leases.lease("r"));
    let health = patient.health();
    let running =
        tokio::spawn(patient.run(async |term: leasehold::election::Term| After::Resign(term.number())));
    eventually("claims that fail", async || faults.acquires.load(Ordering::SeqCst) > 2).await;
    assert_eq!(health.standing(), Standing::Waiting);
    faults.unreachable.store(false, Ordering::SeqCst);
    assert!(matches!(running.await.unwrap(), Outcome::Resigned(1)));
    // A campaign whose work panics, or that was never run, is over too.
    let panics = Campaign::new(leases.lease("r"));
    let health = panics.health();
    let running = tokio::spawn(panics.run::<(), _>(async |_| panic!("the work's own fault")));
    assert!(running.await.is_err() && !health.is_electable());
    let unused = Campaign::new(leases.lease("r")).health();
    assert!(!unused.is_electable());
}

/// Many campaigns, losses at random moments: never two at work at once, and tokens rise from term to term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_losses_elects_one_at_a_time_in_token_order() {
    let store = MemoryStore::default();
    let at_work = Arc::new(AtomicUsize::new(0));
    let terms = Arc::new(Mutex::new(Vec::new()));
    let mut stops = Vec::new();
    let mut running = Vec::new();
    for n in 0..4_usize {
        let (leases, _) = faulty(&store).await;
        let campaign = Campaign::new(leases.lease("r").ttl(ms(10_000)));
        stops.push(campaign.stop_token());
        let (at_work, terms) = (at_work.clone(), terms.clone());
        running.push(tokio::spawn(campaign.run::<(), _>(move |term| {
            let (at_work, terms) = (at_work.clone(), terms.clone());
            async move {
                assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two lead at once");
                terms.lock().unwrap().push((term.token(), n));
                term.draining().await;
                at_work.fetch_sub(1, Ordering::SeqCst);
                After::AgainIn(Duration::ZERO)
            }
        })));
    }
    let (operator, _) = faulty(&store).await;
    let resource = Resource::new("r").unwrap();
    for round in 0..20 {
        eventually("a term", async || terms.lock().unwrap().len() > round).await;
        // Not at once: a revocation with an awaited end keeps the resource until the holder has stopped.
        let Some(record) = operator.inspect(&resource).await.unwrap().record else { continue };
        let soft = Revocation { now: false, ..revocation(&resource, record.token) };
        let _ = operator.revoke(soft).await.unwrap();
    }
    for stop in stops {
        stop.cancel();
    }
    for campaign in running {
        assert!(matches!(campaign.await.unwrap(), Outcome::Stopped));
    }
    let terms = terms.lock().unwrap();
    assert!(terms.windows(2).all(|pair| pair[0].0 < pair[1].0), "{terms:?}");
}

async fn ask(operator: &Leases, within: Duration) -> Pending {
    let resource = Resource::new("r").unwrap();
    let (by, reason) = (Label::new("sre@ops").unwrap(), Label::new("deploy of 3.1").unwrap());
    match operator.preempt(Wish { resource, token: None, by, reason, within }).await.unwrap() {
        Asked::Pending(pending) => pending,
        other => panic!("{other:?}"),
    }
}

/// Whoever asks for a leader's lease gets it handed over: the work learns who asks and why, ends in its own time, and another
/// campaign has the next turn, however quick this one would be back.
#[tokio::test]
async fn a_leader_that_is_asked_for_its_lease_steps_down_and_another_leads() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let (others, _) = faulty(&store).await;
    let (operator, _) = faulty(&store).await;
    let first = Campaign::new(leases.lease("r").ttl(ms(10_000)));
    let (health, stop) = (first.health(), first.stop_token());
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let (told, mut ended) = (reasons.clone(), Some(ended));
    let running = tokio::spawn(first.run::<(), _>(move |term: Term| {
        let (told, wait) = (told.clone(), ended.take());
        async move {
            assert!(term.stepping_down().is_none(), "nobody has asked yet");
            term.draining().await;
            if let Some(asked) = term.stepping_down() {
                assert!(asked.remaining() <= ms(60_000) && asked.remaining() > Duration::ZERO);
                told.lock().unwrap().push((asked.by().to_string(), asked.reason().to_string()));
            }
            if let Some(wait) = wait {
                let _ = wait.await;
            }
            After::Again
        }
    }));
    eventually("the first term", async || matches!(health.standing(), Standing::Leading(_))).await;
    let Standing::Leading(token) = health.standing() else { panic!("it leads") };
    let pending = ask(&operator, ms(60_000)).await;
    eventually("the work is told", async || reasons.lock().unwrap().len() == 1).await;
    assert_eq!(reasons.lock().unwrap()[0], ("sre@ops".to_owned(), "deploy of 3.1".to_owned()));
    eventually("the standing says so", async || health.standing() == Standing::Ending(token)).await;
    eventually("the operator is told", async || {
        matches!(pending.look().await.unwrap(), Progress::Accepted { .. })
    })
    .await;
    assert_eq!(faults.releases.load(Ordering::SeqCst), 0, "nothing is released under the work");
    let since = Stopwatch::start();
    end.send(()).unwrap();
    eventually("the end of the grant", async || {
        matches!(pending.look().await.unwrap(), Progress::Ended(Some(_)))
    })
    .await;
    let Progress::Ended(Some(how)) = pending.look().await.unwrap() else { panic!("it has ended") };
    assert_eq!((how.by.as_str(), handed_over(&how.reason)), ("sre@ops", Some("deploy of 3.1")));
    // It does not wait in line, and rests although another comes only after a moment.
    let claims = faults.acquires.load(Ordering::SeqCst);
    while since.elapsed() < ms(1_500) {
        tokio::time::sleep(ms(20)).await;
        let asked = faults.acquires.load(Ordering::SeqCst) > claims;
        assert!(!asked || since.elapsed() > ms(4_500), "it comes back before another can");
    }
    let next = others.lease("r").ttl(ms(10_000)).acquire().await.unwrap();
    assert!(next.token() > token);
    assert_eq!(health.standing(), Standing::Waiting);
    let _ = next.release().await.unwrap();
    eventually(
        "a term of its own again",
        async || matches!(health.standing(), Standing::Leading(again) if again > token),
    )
    .await;
    stop.cancel();
    assert!(matches!(running.await.unwrap(), Outcome::Stopped));
    assert_eq!(reasons.lock().unwrap().len(), 1, "told to stop is not asked for");
}

#[tokio::test]
async fn a_campaign_may_refuse_and_goes_on_to_lead() {
    let store = MemoryStore::default();
    let (leases, _) = faulty(&store).await;
    let (operator, _) = faulty(&store).await;
    let campaign =
        Campaign::new(leases.lease("r").ttl(ms(10_000))).refuse_preemptions("the only one that can");
    let (health, stop) = (campaign.health(), campaign.stop_token());
    let running = tokio::spawn(campaign.run::<(), _>(async |term: Term| {
        term.draining().await;
        assert!(term.stepping_down().is_none());
        After::Again
    }));
    eventually("the first term", async || matches!(health.standing(), Standing::Leading(_))).await;
    let standing = health.standing();
    for _ in 0..2 {
        let pending = ask(&operator, ms(60_000)).await;
        eventually("told that it is refused", async || match pending.look().await.unwrap() {
            Progress::Refused { reason, .. } => reason == "the only one that can",
            _ => false,
        })
        .await;
        assert_eq!(health.standing(), standing);
    }
    stop.cancel();
    assert!(matches!(running.await.unwrap(), Outcome::Stopped));
}
