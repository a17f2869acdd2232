//! An operator asks, a holder answers: what each sees, and what is left in the record.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{eventually, faulty, ms};
use leasehold::{
    Ended, Label, Lease, Leases, Resource, Token, Worker,
    coordinator::memory::MemoryStore,
    core::record::{EndReason, Revoked},
    core::request::{Listing, Revocation},
    preempt::{Asked, MAX_WITHIN, Pending, Preemption, Progress, Wish, handed_over, is_wish},
    worker::Drained,
};

const LONG: Duration = Duration::from_secs(60);

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn wish(within: Duration) -> Wish {
    let resource = Resource::new("r").unwrap();
    Wish { resource, token: None, by: label("sre@ops"), reason: label("deploy of 3.1"), within }
}

async fn pending(leases: &Leases, within: Duration) -> Pending {
    match leases.preempt(wish(within)).await.unwrap() {
        Asked::Pending(pending) => pending,
        other => panic!("{other:?}"),
    }
}

async fn heard(lease: &Lease) -> Preemption {
    tokio::time::timeout(LONG, lease.preemptions().next()).await.expect("heard in time").expect("still held")
}

struct World {
    holder: Leases,
    operator: Leases,
    lease: Lease,
}

async fn world() -> World {
    let store = MemoryStore::default();
    let (holder, _) = faulty(&store).await;
    let (operator, _) = faulty(&store).await;
    let lease = holder.lease("r").ttl(LONG).acquire().await.unwrap();
    World { holder, operator, lease }
}

#[tokio::test]
async fn a_holder_that_accepts_drains_and_the_history_says_by_whose_wish() {
    let World { operator, lease, .. } = world().await;
    let pending = pending(&operator, ms(50_000)).await;
    assert_eq!(pending.look().await.unwrap(), Progress::Unanswered);
    let asked = heard(&lease).await;
    assert_eq!((asked.by().as_str(), asked.reason().as_str()), ("sre@ops", "deploy of 3.1"));
    assert!(asked.remaining() <= ms(50_000) && asked.remaining() > ms(20_000), "{:?}", asked.remaining());
    assert_eq!(lease.state().word(), "held", "a wish alone changes nothing");
    asked.accept();
    assert_eq!(lease.state().word(), "draining");
    lease.check().unwrap();
    let accepted = async || matches!(pending.look().await.unwrap(), Progress::Accepted { .. });
    eventually("told that it is accepted", accepted).await;
    assert_eq!(lease.complete().await.unwrap(), Ended::Released);
    let Progress::Ended(Some(end)) = pending.look().await.unwrap() else { panic!("it has ended") };
    assert_eq!((end.by.as_str(), handed_over(&end.reason)), ("sre@ops", Some("deploy of 3.1")));
    let found = operator.inspect(&wish(LONG).resource).await.unwrap();
    assert!(found.last_success_us.is_some(), "a success is recorded all the same");
}

#[tokio::test]
async fn a_holder_that_refuses_goes_on_and_may_be_asked_again() {
    let World { operator, lease, .. } = world().await;
    let mut preemptions = lease.preemptions();
    for round in 0..2 {
        let pending = pending(&operator, LONG).await;
        let asked = tokio::time::timeout(LONG, preemptions.next()).await.unwrap().unwrap();
        asked.refuse(&format!("busy {round}"));
        let answer = async || match pending.look().await.unwrap() {
            Progress::Refused { reason, .. } => reason == format!("busy {round}"),
            _ => false,
        };
        eventually("told that it is refused", answer).await;
        assert_eq!(lease.state().word(), "held");
    }
    let _ = lease.release().await.unwrap();
    let end = operator.inspect(&wish(LONG).resource).await.unwrap().last_end.unwrap();
    assert_eq!(end.reason, EndReason::Released, "a refused wish is not the reason");
    assert!(preemptions.next().await.is_none(), "nothing is heard of a lease that has ended");
}

#[tokio::test]
async fn a_wish_is_for_one_grant_and_is_made_once() {
    let World { holder, operator, lease } = world().await;
    let first = pending(&operator, LONG).await;
    match operator.preempt(wish(LONG)).await.unwrap() {
        Asked::Already { by, reason } => {
            assert_eq!((by.as_str(), reason.as_str()), ("sre@ops", "deploy of 3.1"));
        }
        other => panic!("{other:?}"),
    }
    let wrong = Wish { token: Some(Token::new(lease.token().get() - 1).unwrap()), ..wish(LONG) };
    assert!(matches!(operator.preempt(wrong).await.unwrap(), Asked::OtherToken(_)));
    let _ = lease.release().await.unwrap();
    assert!(matches!(first.look().await.unwrap(), Progress::Ended(Some(_))));
    assert!(matches!(operator.preempt(wish(LONG)).await.unwrap(), Asked::NotHeld(Some(_))));
    // The successor hears nothing of it.
    let next = holder.lease("r").ttl(ms(1_500)).acquire().await.unwrap();
    let heard = tokio::time::timeout(ms(1_500), next.preemptions().next()).await;
    assert!(heard.is_err(), "{heard:?}");
}

#[tokio::test]
async fn a_wish_that_is_taken_back_is_not_heard_and_one_that_was_heard_is_not_heard_twice() {
    let World { operator, lease, .. } = world().await;
    let mut preemptions = lease.preemptions();
    let taken_back = pending(&operator, LONG).await;
    taken_back.withdraw().await.unwrap();
    assert!(tokio::time::timeout(ms(3_000), preemptions.next()).await.is_err());
    let standing = pending(&operator, LONG).await;
    assert!(preemptions.next().await.is_some());
    assert!(tokio::time::timeout(ms(3_000), preemptions.next()).await.is_err());
    assert_eq!(standing.look().await.unwrap(), Progress::Unanswered, "dropped: no answer");
}

#[tokio::test]
async fn a_worker_hands_over_within_what_it_is_given() {
    let World { holder, operator, lease } = world().await;
    let worker = Worker::new(lease);
    let piece = worker.intake().admit().unwrap();
    let pending = pending(&operator, LONG).await;
    let asked = worker.preemptions().unwrap().next().await.unwrap();
    let limit = asked.remaining();
    asked.accept();
    assert!(worker.intake().admit().is_err(), "the intake is shut by the acceptance");
    drop(piece);
    let drained = worker.drain(limit, async |_| ()).await.unwrap();
    assert_eq!(drained, Drained::Complete { checkpoint: (), ended: Ended::Released });
    assert!(matches!(pending.look().await.unwrap(), Progress::Ended(Some(_))));
    drop(holder);
}

#[tokio::test]
async fn after_the_deadline_the_operator_may_revoke() {
    let World { operator, lease, .. } = world().await;
    let pending = pending(&operator, ms(300)).await;
    eventually("overdue", async || !pending.overdue().is_zero()).await;
    assert!(pending.remaining().is_zero());
    let holder = pending.holder();
    let revocation = Revocation {
        resource: wish(LONG).resource,
        token: holder.token,
        by: label("sre@ops"),
        reason: label("too late"),
        now: true,
    };
    assert!(matches!(operator.revoke(revocation).await.unwrap(), Revoked::Ended { .. }));
    let Progress::Ended(Some(end)) = pending.look().await.unwrap() else { panic!("it has ended") };
    assert_eq!(handed_over(&end.reason), None, "this was no handing over");
    let _ = lease.lost().await;
}

#[tokio::test]
async fn wishes_out_of_bounds_are_refused_and_those_made_can_be_told_from_resources() {
    let World { operator, lease, .. } = world().await;
    for within in [Duration::ZERO, MAX_WITHIN + ms(1)] {
        assert!(operator.preempt(wish(within)).await.is_err());
    }
    let long = Wish { reason: label(&"x".repeat(255)), ..wish(LONG) };
    assert!(operator.preempt(long).await.unwrap_err().to_string().contains("230"));
    assert!(operator.list(Listing::new()).await.unwrap().items.len() == 1, "nothing was left");
    let _pending = pending(&operator, MAX_WITHIN).await;
    let names: Vec<bool> = operator
        .list(Listing::new())
        .await
        .unwrap()
        .items
        .iter()
        .map(|item| is_wish(&item.resource))
        .collect();
    assert_eq!(names.iter().filter(|is_wish| **is_wish).count(), 1, "{names:?}");
    let _ = lease.release().await.unwrap();
}
