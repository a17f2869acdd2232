//! Programs that end in the middle: a runtime that is shut down, work that panics, a claim that is dropped at any moment, a child that
//! is forked under a lease. Nothing of it stays until a TTL runs out, and a child takes nothing from its parent.

use std::time::Duration;

use leasehold::{Leases, Resource};
use leasehold_core::holder::Loss;
use leasehold_testkit::{
    process::wait_until,
    random::{self, Choices},
};
use tokio::runtime::{Builder, Runtime};

use super::{
    diary::Diary,
    place::{LONG, PATIENCE, Place, eventually, has_line},
};

/// Claims that are dropped.
const DROPPED: usize = 40;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Nobody has it and nobody waits, long before anything has run out.
async fn is_free(near: &Leases, name: &str) {
    let resource = Resource::new(name).unwrap();
    eventually(&format!("{name} to be free"), async || {
        let seen = near.inspect(&resource).await.unwrap();
        seen.record.is_none() && (seen.waiting == 0 || !has_line(near))
    })
    .await;
    let taken = near.lease(name).ttl(LONG).wait(PATIENCE).acquire().await.unwrap();
    let _ = taken.release().await.unwrap();
}

async fn is_taken(near: &Leases, name: &str, waiting: u32) {
    let resource = Resource::new(name).unwrap();
    eventually(&format!("{name} to be taken"), async || {
        let seen = near.inspect(&resource).await.unwrap();
        seen.record.is_some() && (seen.waiting == waiting || !has_line(near))
    })
    .await;
}

async fn hold(leases: Leases, name: &'static str) {
    let _lease = leases.lease(name).ttl(LONG).wait(PATIENCE).acquire().await.unwrap();
    std::future::pending::<()>().await;
}

async fn a_shut_down(near: &Leases, place: &Place) {
    let (theirs, far) = (runtime(), place.another().await);
    theirs.spawn(hold(far.clone(), "shut-down"));
    is_taken(near, "shut-down", 0).await;
    theirs.spawn(hold(far.clone(), "shut-down"));
    is_taken(near, "shut-down", 1).await;
    theirs.shutdown_background();
    is_free(near, "shut-down").await;
}

async fn a_panic(near: &Leases, place: &Place) {
    let far = place.another().await;
    let work = tokio::spawn({
        let far = far.clone();
        async move {
            let _lease = far.lease("panic").ttl(LONG).acquire().await.unwrap();
            std::panic::resume_unwind(Box::new("the work"));
        }
    });
    assert!(work.await.unwrap_err().is_panic());
    is_free(near, "panic").await;
}

async fn drops_at_any_moment(near: &Leases, place: &Place) {
    let (far, mut choices) = (place.another().await, Choices::new(random::seed()));
    for _ in 0..DROPPED {
        let claim = tokio::spawn(hold(far.clone(), "dropped"));
        tokio::time::sleep(Duration::from_micros(choices.below(12_000))).await;
        claim.abort();
    }
    is_free(near, "dropped").await;
}

/// A child looks at its copy of the guard, drops it and ends; its parent goes on on the same connection.
fn a_fork(theirs: &Runtime, place: &Place) {
    let (far, diary) = (theirs.block_on(place.another()), Diary::default());
    let mut held = Some(theirs.block_on(diary.take("parent", &far, "fork", Duration::from_secs(9))));
    // The child's answer comes back as its exit code.
    #[allow(unsafe_code)]
    // SAFETY: the child reads atomics, drops the guard, which does nothing there, and leaves at once without other destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let held = held.take().unwrap();
        let told = held.lease.check() == Err(Loss::ForkedChild);
        drop(held);
        #[allow(unsafe_code)]
        // SAFETY: ends the child without touching what it shares with its parent.
        unsafe {
            libc::_exit(if told { 42 } else { 1 })
        };
    }
    let status = wait_until("the child's end", PATIENCE, || {
        let mut status = 0;
        #[allow(unsafe_code)]
        // SAFETY: looks at the child made above.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        (ended == child).then_some(status)
    });
    assert_eq!(libc::WEXITSTATUS(status.unwrap()), 42);
    let mut held = held.unwrap();
    theirs.block_on(async {
        eventually("a renewal", async || held.was_extended()).await;
        held.release().await;
    });
    diary.is_clean(1);
}

fn whatever_ends_in_the_middle_leaves_nothing(place: &Place) {
    let runtime = runtime();
    let near = runtime.block_on(place.near());
    runtime.block_on(async {
        a_shut_down(&near, place).await;
        a_panic(&near, place).await;
        drops_at_any_moment(&near, place).await;
    });
    a_fork(&runtime, place);
}

#[test]
fn whatever_ends_in_the_middle_leaves_nothing_in_a_lease_file() {
    whatever_ends_in_the_middle_leaves_nothing(&Place::sqlite());
}

#[test]
fn whatever_ends_in_the_middle_leaves_nothing_on_redis() {
    whatever_ends_in_the_middle_leaves_nothing(&Place::redis());
}

#[test]
fn whatever_ends_in_the_middle_leaves_nothing_on_redlock() {
    whatever_ends_in_the_middle_leaves_nothing(&Place::redlock());
}

#[test]
fn whatever_ends_in_the_middle_leaves_nothing_on_postgres() {
    whatever_ends_in_the_middle_leaves_nothing(&Place::postgres());
}

#[test]
fn whatever_ends_in_the_middle_leaves_nothing_on_etcd() {
    whatever_ends_in_the_middle_leaves_nothing(&Place::etcd());
}
