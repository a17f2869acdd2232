//! The guard and the driver, over a coordinator in memory that can be made to fail.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use common::{client, distant, eventually, faulty, free, ms};
use leasehold::{
    Ended, Kind, Label, Loss, NotAcquired, NotEnough, Outcome, Refusal, Resource, State, blocking::block_on,
    coordinator::memory::MemoryStore,
};
use leasehold_core::request::Revocation;

fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

#[tokio::test]
async fn a_lease_is_held_renewed_past_its_ttl_and_released() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    assert_eq!((lease.check(), lease.state()), (Ok(()), State::Held));
    assert!(lease.remaining().is_some_and(|left| left > ms(100) && left < ms(300)));
    eventually("five renewals", async || faults.renewals.load(Ordering::SeqCst) >= 5).await;
    assert_eq!(lease.check(), Ok(()));
    let token = lease.token();
    assert_eq!(lease.release().await.unwrap(), Ended::Released);
    let again = leases.lease("r").acquire().await.unwrap();
    assert!(again.token() > token);
}

#[tokio::test]
async fn every_good_renewal_moves_the_local_deadline_on() {
    let leases = client(&MemoryStore::default(), "x").await;
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    let first = lease.closes();
    let second = lease.closes_after(first).await.unwrap();
    let third = lease.closes_after(second).await.unwrap();
    assert!(first.boot_ns < second.boot_ns && second.boot_ns < third.boot_ns);
    let worker = lease.handle();
    assert_eq!(lease.release().await.unwrap(), Ended::Released);
    assert_eq!(worker.closes_after(third).await, None);
}

#[tokio::test]
async fn a_busy_answer_names_the_holder_and_leaves_nothing_behind() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let held = one.lease("r").acquire().await.unwrap();
    let error = two.lease("r").wait(ms(50)).acquire().await.unwrap_err();
    assert!(error.is_contended());
    assert!(
        error.to_string().contains("held by one") && error.to_string().contains(&held.token().to_string())
    );
    assert_eq!(two.inspect(&resource("r")).await.unwrap().waiting, 0);
}

#[tokio::test]
async fn a_waiter_gets_the_resource_when_it_is_released() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let held = one.lease("r").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { two.lease("r").wait_forever().acquire().await.unwrap() });
    eventually("a waiter", async || one.inspect(&resource("r")).await.unwrap().waiting == 1).await;
    let _ = held.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().check(), Ok(()));
}

#[tokio::test]
async fn an_unreachable_coordinator_ends_belief_at_the_local_deadline_and_not_later() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(ms(400)).acquire().await.unwrap();
    let cancelled = lease.cancellation();
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(lease.lost().await, Loss::WindowClosed);
    cancelled.cancelled().await;
    assert_eq!((lease.check(), lease.remaining()), (Err(Loss::WindowClosed), None));
    faults.unreachable.store(false, Ordering::SeqCst);
    let other =
        client(&store, "other").await.lease("r").wait(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(lease.check().is_err() && other.check().is_ok());
    assert_eq!(lease.release().await.unwrap(), Ended::Lost(Loss::WindowClosed));
    assert_eq!(other.check(), Ok(()), "a late release must not touch the successor");
}

#[tokio::test]
async fn a_silent_coordinator_ends_belief_by_the_clock() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(ms(400)).acquire().await.unwrap();
    faults.silent.store(true, Ordering::SeqCst);
    assert_eq!(lease.lost().await, Loss::WindowClosed);
}

#[tokio::test]
async fn it_is_uncertain_before_it_is_lost_and_recovers() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(lease.changed().await, Some(State::Uncertain));
    faults.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(lease.changed().await, Some(State::Held));
}

#[tokio::test]
async fn a_revoked_holder_is_told_at_once_by_whom_and_why() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let lease = one.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let revocation = Revocation {
        resource: resource("r"),
        token: lease.token(),
        by: Label::new("ops").unwrap(),
        reason: Label::new("deploy").unwrap(),
        now: false,
    };
    let _ = two.revoke(revocation).await.unwrap();
    let loss = tokio::time::timeout(Duration::from_secs(10), lease.lost()).await.expect("told by a wake");
    assert_eq!(
        loss,
        Loss::Revoked { by: Label::new("ops").unwrap(), reason: Label::new("deploy").unwrap(), freed: false }
    );
    drop(lease);
    free(&two, "r").await;
}

#[tokio::test]
async fn the_four_causes_of_loss_have_four_reasons() {
    let store = MemoryStore::default();
    let other = client(&store, "other").await;
    let (leases, faults) = faulty(&store).await;
    let ttl = Duration::from_secs(60);

    let lease = leases.lease("a").ttl(ms(200)).acquire().await.unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(lease.lost().await.word(), "window_closed");
    faults.unreachable.store(false, Ordering::SeqCst);

    let revoke = async |name: &str, token, now| {
        let (by, reason) = (Label::default(), Label::default());
        let _ = other.revoke(Revocation { resource: resource(name), token, by, reason, now }).await.unwrap();
    };
    let lease = leases.lease("b").ttl(ttl).acquire().await.unwrap();
    revoke("b", lease.token(), false).await;
    assert_eq!(lease.lost().await.word(), "revoked");

    let lease = leases.lease("c").ttl(ms(3_000)).acquire().await.unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    revoke("c", lease.token(), true).await;
    let successor = other.lease("c").acquire().await.unwrap();
    let next = successor.token();
    faults.unreachable.store(false, Ordering::SeqCst);
    assert_eq!(lease.lost().await, Loss::Superseded { token: next });

    let lease = leases.lease("d").ttl(ms(900)).acquire().await.unwrap();
    let release = leasehold_core::request::Release {
        resource: resource("d"),
        lease_id: lease.lease_id(),
        token: Some(lease.token()),
        succeeded: false,
    };
    let _ = other.release_once(release).await.unwrap();
    assert_eq!(lease.lost().await.word(), "released_elsewhere");
}

#[tokio::test]
async fn a_lost_answer_to_an_acquire_is_adopted_by_its_retry() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    faults.lose_acquire_answers.store(2, Ordering::SeqCst);
    let lease = leases.lease("r").wait(Duration::from_secs(10)).acquire().await.unwrap();
    let claims = faults.claims.lock().unwrap().clone();
    assert_eq!(claims.len(), 3);
    assert!(claims.iter().all(|id| *id == lease.lease_id()), "retries reuse the lease id");
}

#[tokio::test]
async fn an_unknown_outcome_without_a_wait_is_taken_back_and_becomes_certain() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    faults.lose_acquire_answers.store(1, Ordering::SeqCst);
    let error = leases.lease("r").attempt().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(leases.inspect(&resource("r")).await.unwrap().record.is_none());
}

#[tokio::test]
async fn on_a_network_only_the_end_of_its_grant_makes_an_unknown_claim_certain() {
    let store = MemoryStore::default();
    let (leases, faults) = distant(&store).await;
    let attempt = async || leases.lease("r").ttl(Duration::from_secs(7)).attempt().await.unwrap_err();
    faults.lose_acquire_answers.store(1, Ordering::SeqCst);
    assert_eq!(attempt().await.kind(), Kind::Unavailable, "the grant was there, and was ended");
    // Nothing was there to take back: the request may still be on its way, and be granted when it arrives.
    faults.hold_up_acquires.store(1, Ordering::SeqCst);
    let error = attempt().await;
    assert_eq!(error.kind(), Kind::Unknown);
    assert!(error.to_string().contains("was taken back; should it be granted all the same"), "{error}");
    assert!(error.to_string().contains("7s"), "{error}");
}

#[tokio::test]
async fn an_unknown_outcome_that_cannot_be_taken_back_stays_unknown_and_says_for_how_long() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    faults.lose_acquire_answers.store(1, Ordering::SeqCst);
    faults.refuse_releases.store(1, Ordering::SeqCst);
    let error = leases.lease("r").ttl(Duration::from_secs(7)).attempt().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown);
    assert!(error.to_string().contains("7s"), "{error}");
    free(&leases, "r").await;
}

/// Cuts an acquire off at every point at which it is not ready, one after the other.
#[tokio::test]
async fn an_acquire_cancelled_at_any_await_leaves_nothing() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let name = resource("r");
    for polls in 1..6 {
        faults.silent.store(true, Ordering::SeqCst);
        {
            let mut acquire = std::pin::pin!(leases.lease("r").wait_forever().attempt());
            for _ in 0..polls {
                let _ = futures_poll(acquire.as_mut()).await;
                tokio::task::yield_now().await;
            }
        }
        faults.silent.store(false, Ordering::SeqCst);
        eventually("nothing left", async || {
            let inspection = leases.inspect(&name).await.unwrap();
            inspection.record.is_none() && inspection.waiting == 0
        })
        .await;
    }
    let held = leases.lease("r").acquire().await.unwrap();
    let other = client(&store, "other").await;
    {
        let mut waiting = std::pin::pin!(other.lease("r").wait_forever().attempt());
        let _ = futures_poll(waiting.as_mut()).await;
        eventually("a place in the queue", async || leases.inspect(&name).await.unwrap().waiting == 1).await;
    }
    eventually("an empty queue", async || leases.inspect(&name).await.unwrap().waiting == 0).await;
    assert_eq!(held.check(), Ok(()));
}

/// Polls once.
async fn futures_poll<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[test]
fn dropping_a_guard_waits_for_nobody() {
    let store = MemoryStore::default();
    let (leases, faults) = block_on(faulty(&store));
    let held = block_on(leases.lease("r").acquire()).unwrap();
    // No release is answered from now on.
    faults.silent.store(true, Ordering::SeqCst);
    let since = leasehold_testkit::clock::Stopwatch::start();
    drop(held);
    let took = since.elapsed();
    // Whoever waited for the answer would have given up only after the five seconds that a call may take.
    assert!(took < ms(2_500), "dropping took {took:?}");
    faults.silent.store(false, Ordering::SeqCst);
}

#[test]
fn a_guard_dropped_without_a_runtime_in_a_panic_or_on_a_plain_thread_is_released() {
    let store = MemoryStore::default();
    let leases = block_on(client(&store, "plain"));
    drop(block_on(leases.lease("r").acquire()).unwrap());
    let held = block_on(leases.lease("s").acquire()).unwrap();
    assert!(
        thread::spawn(move || {
            let _held = held;
            panic!("work failed");
        })
        .join()
        .is_err()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held = runtime.block_on(leases.lease("t").acquire()).unwrap();
    runtime.spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for name in ["r", "s", "t"] {
            free(&leases, name).await;
        }
    });
}

#[test]
fn a_blocked_user_runtime_loses_no_lease() {
    let store = MemoryStore::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (leases, faults) = faulty(&store).await;
        let lease = leases.lease("r").ttl(ms(200)).acquire().await.unwrap();
        // Blocks the only thread of the runtime until the driver has renewed well past two TTLs.
        while faults.renewals.load(Ordering::SeqCst) < 8 {
            thread::yield_now();
        }
        assert_eq!(lease.check(), Ok(()));
    });
}

#[tokio::test]
async fn run_cancels_the_work_on_loss_and_gives_its_output_otherwise() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    assert_eq!(lease.run(async { 7 }).await, Ok(7));
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(lease.run(std::future::pending::<()>()).await, Err(Loss::WindowClosed));
    assert_eq!(lease.run(async { 7 }).await, Err(Loss::WindowClosed));
}

#[tokio::test]
async fn require_demands_enough_time() {
    let leases = client(&MemoryStore::default(), "x").await;
    let lease = leases.lease("r").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    assert_eq!(lease.require(Duration::from_secs(1)), Ok(()));
    assert!(matches!(lease.require(Duration::from_secs(6)), Err(NotEnough::Short { .. })));
    assert!(matches!(lease.require(Duration::MAX), Err(NotEnough::Short { .. })));
}

#[tokio::test]
async fn draining_goes_on_renewing_until_the_release() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    let worker = lease.handle();
    let asked = tokio::spawn(async move { worker.draining().await });
    lease.drain();
    asked.await.unwrap();
    let before = faults.renewals.load(Ordering::SeqCst);
    eventually("renewals", async || faults.renewals.load(Ordering::SeqCst) > before + 3).await;
    assert_eq!((lease.state(), lease.check()), (State::Draining, Ok(())));
    assert_eq!(lease.release().await.unwrap(), Ended::Released);
}

#[tokio::test]
async fn max_hold_and_the_progress_watchdog_end_a_stuck_holder() {
    let leases = client(&MemoryStore::default(), "x").await;
    let capped = leases.lease("a").ttl(ms(300)).max_hold(ms(700)).acquire().await.unwrap();
    let stuck = leases.lease("b").ttl(ms(300)).progress_timeout(ms(50)).acquire().await.unwrap();
    assert_eq!((capped.lost().await, stuck.lost().await), (Loss::MaxHold, Loss::NoProgress));
    let busy = leases.lease("c").ttl(ms(300)).progress_timeout(ms(200)).acquire().await.unwrap();
    for _ in 0..100 {
        busy.progress();
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(busy.check(), Ok(()));
}

#[tokio::test]
async fn once_per_counts_successes_from_their_start() {
    let leases = client(&MemoryStore::default(), "x").await;
    let request = || leases.lease("r").once_per(Duration::from_secs(3_600));
    let failed = request().acquire().await.unwrap();
    assert_eq!(failed.release().await.unwrap(), Ended::Released);
    let good = request().acquire().await.unwrap();
    let started = good.granted_us();
    assert_eq!(good.complete().await.unwrap(), Ended::Released);
    let Outcome::AlreadyDone(done) = request().attempt().await.unwrap() else {
        panic!("a recent success counts")
    };
    assert_eq!(done.started_us, started);
    assert!(leases.lease("r").acquire().await.is_ok(), "without the period it may run");
}

#[tokio::test]
async fn a_lease_handed_off_is_resumed_with_its_window() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let lease = one.lease("r").ttl(ms(600)).acquire().await.unwrap();
    let token = lease.token();
    let view = lease.handle();
    let belief = lease.hand_off().unwrap();
    assert_eq!(view.check(), Err(Loss::HandedOff), "it is somebody else's to answer for now");
    let resumed = two.lease("r").resume(belief.clone()).unwrap();
    assert_eq!((resumed.token(), resumed.check()), (token, Ok(())));
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(resumed.check(), Ok(()), "it is renewed here now");
    let _ = resumed.release().await.unwrap();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(one.lease("r").resume(belief).unwrap_err(), Loss::WindowClosed);
}

#[tokio::test]
async fn a_lease_forsaken_is_not_released_although_it_was_lost() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let lease = leases.lease("r").ttl(Duration::from_secs(60)).max_hold(ms(100)).acquire().await.unwrap();
    assert_eq!(lease.lost().await, Loss::MaxHold);
    lease.forsake();
    leases.clone().close(ms(50)).await;
    assert_eq!(faults.releases.load(Ordering::SeqCst), 0);
    assert!(leases.inspect(&resource("r")).await.unwrap().record.is_some());
}

#[tokio::test]
async fn a_token_above_the_engines_own_is_asked_for_by_the_known_floor() {
    let leases = client(&MemoryStore::default(), "x").await;
    let first = leases.lease("r").acquire().await.unwrap();
    // Somebody saw a higher token, although the engine would not go that far by itself.
    let seen = leasehold::Token::new(first.token().get() + 60_000_000).unwrap();
    leases.raise_floor(&resource("r"), seen);
    let _ = first.release().await.unwrap();
    assert!(leases.lease("r").acquire().await.unwrap().token() > seen);
}

#[tokio::test]
async fn ten_thousand_leases_are_renewed_in_few_calls() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let mut held = Vec::new();
    for n in 0..10_000 {
        held.push(leases.lease(&format!("r{n}")).ttl(Duration::from_secs(6)).acquire().await.unwrap());
    }
    eventually("all renewed", async || faults.renewals.load(Ordering::SeqCst) >= 20_000).await;
    assert!(held.iter().all(|lease| lease.check().is_ok()));
    let (renewals, calls) =
        (faults.renewals.load(Ordering::SeqCst), faults.renew_calls.load(Ordering::SeqCst));
    assert!(renewals / calls > 100, "{renewals} renewals in {calls} calls");
    drop(held);
    eventually("all released", async || faults.releases.load(Ordering::SeqCst) == 10_000).await;
    assert_eq!(leases.held(), 0);
}

#[tokio::test]
async fn a_short_lease_among_many_long_ones_is_kept() {
    let leases = client(&MemoryStore::default(), "x").await;
    let mut long = Vec::new();
    for n in 0..2_000 {
        long.push(leases.lease(&format!("r{n}")).ttl(Duration::from_secs(4)).acquire().await.unwrap());
    }
    let short = leases.lease("short").ttl(ms(400)).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(short.check(), Ok(()));
    assert!(long.iter().all(|lease| lease.check().is_ok()));
}

#[tokio::test]
async fn bad_settings_are_refused_before_anything_is_asked() {
    let store = MemoryStore::default();
    let (leases, faults) = faulty(&store).await;
    let asked = |request: leasehold::LeaseRequest| async { request.attempt().await.unwrap_err() };
    for error in [
        asked(leases.lease("")).await,
        asked(leases.lease("a\0b")).await,
        asked(leases.lease("r").ttl(Duration::ZERO)).await,
        asked(leases.lease("r").ttl(Duration::MAX)).await,
        asked(leases.lease("r").ttl(Duration::from_secs(3)).renew_every(Duration::from_secs(2))).await,
        asked(leases.lease("r").once_per(Duration::MAX)).await,
        asked(leases.lease("r").lock_delay(Duration::MAX)).await,
    ] {
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    assert_eq!(faults.acquires.load(Ordering::SeqCst), 0);
    assert!(leases.lease("r").wait(Duration::MAX).acquire().await.is_ok(), "a huge wait is a long wait");
}

#[tokio::test]
async fn a_forked_child_does_not_act_on_the_guard() {
    let leases = client(&MemoryStore::default(), "x").await;
    let lease = Arc::new(leases.lease("r").acquire().await.unwrap());
    assert_eq!(lease.check(), Ok(()));
    // The child's answer comes back as its exit code.
    #[allow(unsafe_code)]
    // SAFETY: the child only reads atomics and leaves at once without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = if lease.check() == Err(Loss::ForkedChild) { 42 } else { 1 };
        #[allow(unsafe_code)]
        // SAFETY: ends the child without touching what it shares with its parent.
        unsafe {
            libc::_exit(code)
        };
    }
    let mut status = 0;
    #[allow(unsafe_code)]
    // SAFETY: waits for the child made above.
    unsafe {
        libc::waitpid(child, &raw mut status, 0)
    };
    assert_eq!(libc::WEXITSTATUS(status), 42);
    assert_eq!(lease.check(), Ok(()));
}

#[test]
fn closing_waits_for_what_was_dropped_and_for_no_longer() {
    let store = MemoryStore::default();
    for _ in 0..200 {
        let leases = block_on(client(&store, "x"));
        drop(block_on(leases.lease("r").acquire()).unwrap());
        block_on(leases.close(Duration::from_secs(60)));
        let look = block_on(client(&store, "y"));
        assert!(block_on(look.inspect(&resource("r"))).unwrap().record.is_none());
        let kept = look.clone();
        block_on(look.close(ms(1)));
        drop(kept);
    }
}

#[tokio::test]
async fn refusals_say_what_stands_in_the_way() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let _held = one.lease("r").acquire().await.unwrap();
    let Outcome::Refused(Refusal::Busy(busy)) = two.lease("r").attempt().await.unwrap() else {
        panic!("busy")
    };
    assert_eq!(busy.holder.holder_id, one.holder_id());
    let NotAcquired::Refused { resource, .. } = two.lease("r").acquire().await.unwrap_err() else {
        panic!("refused")
    };
    assert_eq!(resource.as_str(), "r");
}

#[test]
fn closing_waits_for_the_driver_and_survives_its_end() {
    let look = leasehold::blocking::Leases::connect("memory:closing").unwrap();
    for n in 0..200 {
        let leases = leasehold::blocking::Leases::connect("memory:closing").unwrap();
        let name = format!("r{n}");
        drop(leases.lease(&name, |lease| lease).acquire().unwrap());
        leases.close(Duration::from_secs(60));
        let found = block_on(look.inner().inspect(&resource(&name))).unwrap();
        assert!(found.record.is_none(), "the dropped lease was released before close returned");
    }
}
