//! Holders that are stopped past their TTL or killed, and what becomes of them and of their writes.

use std::time::Duration;

use leasehold::{Leases, Resource, blocking::block_on};
use leasehold_testkit::{
    check::{History, What},
    clock::boot_ns,
    process::{Child, wait_until},
    random,
};

use crate::{
    LONG, Successor, World,
    chaos::pass,
    of_process,
    register::Register,
    worker::{GO, RESOURCE, Role, TTL},
};

/// True for what only a holder may do.
fn believes(what: &What) -> bool {
    matches!(what, What::Granted { .. } | What::Extended { .. } | What::Held { .. })
}

/// The last moment at which the holder believed; 0 when it never did.
fn last_belief(history: &History) -> u64 {
    let events = history.events().iter();
    let beliefs = events.filter(|event| of_process(&event.process, "holder") && believes(&event.what));
    beliefs.map(|event| event.at_ns).max().unwrap_or(0)
}

/// Stops a process that is not in the middle of a commit; false, and it goes on, when it was. One that is stands in the
/// way of everybody until it goes on or dies: that is a limit of the file, and not what is tested here.
fn stopped(leases: &Leases, process: &Child) -> bool {
    process.stop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let probe = async { tokio::time::timeout(TTL, leases.lease("probe").attempt()).await.is_ok() };
    let free = runtime.block_on(probe);
    if !free {
        process.resume().unwrap();
    }
    free
}

/// Stops the holder at a random moment for longer than its TTL, three times over.
fn stop_past_the_ttl(role: Role) -> (World, Vec<(u64, u64)>) {
    let mut world = World::new();
    let leases = world.connect();
    let holder = world.start("holder", role, true);
    let mut pauses = Vec::new();
    while pauses.len() < 3 {
        let begun_ns = boot_ns();
        wait_until("its belief", LONG, || (last_belief(&world.history()) > begun_ns).then_some(())).unwrap();
        pass(Duration::from_millis(random::seed() % 300));
        if !stopped(&leases, &holder) {
            continue;
        }
        let stopped_ns = boot_ns();
        let successor = Successor::take(&world, &leases);
        let resumed_ns = boot_ns();
        holder.resume().unwrap();
        if matches!(role, Role::Hold) {
            // It has written down its loss and stands in the queue again.
            wait_until("a place in the queue", LONG, || (waiting(&leases) == 1).then_some(())).unwrap();
        } else {
            wait_until("its belief", LONG, || (last_belief(&world.history()) > resumed_ns).then_some(()))
                .unwrap();
        }
        assert_eq!(successor.lease.check(), Ok(()), "the one that woke up does not disturb its successor");
        successor.release();
        pauses.push((stopped_ns, resumed_ns));
    }
    holder.kill().unwrap();
    (world, pauses)
}

fn waiting(leases: &Leases) -> u32 {
    block_on(leases.inspect(&Resource::new(RESOURCE).unwrap())).unwrap().waiting
}

#[test]
fn a_stopped_holder_finds_itself_lost_before_it_does_anything() {
    let (world, pauses) = stop_past_the_ttl(Role::Hold);
    let history = world.history();
    let report = history.judge();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    for (stopped_ns, resumed_ns) in pauses {
        let mut woken = history.events().iter();
        let first =
            woken.find(|event| event.at_ns > stopped_ns && of_process(&event.process, "holder")).unwrap();
        assert!(first.at_ns > resumed_ns && matches!(first.what, What::Lost { .. }), "{first:?}");
    }
}

/// The control: a holder that does not ask is caught believing in what it has lost.
#[test]
fn a_holder_that_does_not_ask_is_caught() {
    let (world, _) = stop_past_the_ttl(Role::HoldBlindly);
    let report = world.history().judge();
    assert!(report.broken().contains(&"S5-resurrection"), "{report}");
}

/// A holder that is stopped between its question and its write: what the lease alone cannot prevent.
fn write_late(fenced: bool) -> (World, String) {
    let (mut world, mut leases, mut writer);
    loop {
        world = World::new();
        leases = world.connect();
        writer = world.start("writer", Role::WriteLate, fenced);
        world.hears("writer", "an answer", |what| matches!(what, What::Held { .. } | What::Extended { .. }));
        if stopped(&leases, &writer) {
            break;
        }
    }
    let successor = Successor::take(&world, &leases);
    let mut register = Register::open(world.folder.path(), RESOURCE, fenced);
    assert!(register.write(RESOURCE, successor.id, successor.lease.token()), "the new holder is let in");
    world.tell(GO);
    writer.resume().unwrap();
    let status = writer.wait(LONG).unwrap();
    assert!(status.success(), "{}\n{}", writer.stdout().unwrap(), writer.stderr().unwrap());
    successor.release();
    let said = writer.stdout().unwrap();
    (world, said)
}

#[test]
fn a_write_that_outlived_its_lease_is_refused_by_the_fence() {
    let (world, said) = write_late(true);
    assert!(said.contains("admitted: false"), "{said}");
    let report = world.history().judge();
    assert!(report.is_clean() && report.judged.writes == 3, "{report}");
}

/// The control: without the fence the same write lands, and the judge sees it.
#[test]
fn without_the_fence_the_same_write_lands() {
    let (world, said) = write_late(false);
    assert!(said.contains("admitted: true"), "{said}");
    let report = world.history().judge();
    assert_eq!(report.broken(), ["S6-fence"], "{report}");
}

#[test]
fn a_killed_holder_is_followed_when_its_ttl_is_over_and_not_before() {
    let mut world = World::new();
    let leases = world.connect();
    let holder = world.start("holder", Role::Hold, true);
    world.hears("holder", "a renewal", |what| matches!(what, What::Extended { .. }));
    holder.kill().unwrap();
    let killed_ns = boot_ns();
    let successor = Successor::take(&world, &leases);
    let history = world.history();
    let grants = &history.grants()[RESOURCE];
    let (end_ns, open_ns) = (grants[0].end_ns, grants[1].open_ns);
    assert!(last_belief(&history) <= killed_ns && open_ns >= end_ns, "{grants:?}");
    // One TTL after the last renewal, and what a machine with better things to do adds.
    let late = Duration::from_nanos(open_ns.saturating_sub(killed_ns));
    println!("followed {late:?} after the kill");
    assert!(late < TTL + Duration::from_secs(5), "{late:?}");
    successor.release();
    let report = world.history().judge();
    assert!(report.is_clean(), "{report}");
}
