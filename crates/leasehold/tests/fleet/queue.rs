//! A long queue, half of which dies while it waits.

use std::{collections::VecDeque, time::Duration};

use leasehold::{Resource, blocking::block_on};
use leasehold_testkit::{
    check::{Ending, What},
    clock::{Stopwatch, boot_ns},
    process::wait_until,
    random::{Choices, seed},
};

use crate::{
    LONG, Successor, World,
    worker::{RESOURCE, Role},
};

const WAITERS: usize = 50;
/// How long a released resource is kept for the first in line before others may take it.
const RESERVATION: Duration = Duration::from_millis(500);
/// What all hand-overs together may take. Were each of the dead waited for, it would be their reservations (12.5 s), or
/// the 45 s for which a place in the queue lives.
const TOGETHER: Duration = Duration::from_secs(6);

#[test]
fn half_of_a_queue_killed_holds_up_nobody_and_the_rest_keep_their_order() {
    let seed = seed();
    println!("seed {seed}");
    let mut choices = Choices::new(seed);
    let mut world = World::new();
    let leases = world.connect();
    let holder = Successor::take(&world, &leases);
    let resource = Resource::new(RESOURCE).unwrap();
    let mut waiters = Vec::new();
    for n in 1..=WAITERS {
        waiters.push(world.start(&format!("waiter-{n}"), Role::Queue, true));
        let queued = || (block_on(leases.inspect(&resource)).unwrap().waiting as usize == n).then_some(());
        wait_until(format!("waiter {n}"), LONG, queued).unwrap();
    }
    for _ in 0..WAITERS / 2 {
        let victim = usize::try_from(choices.below(waiters.len() as u64)).unwrap();
        waiters.remove(victim).kill().unwrap();
    }
    let mut line: VecDeque<String> =
        waiters.iter().map(|waiter| format!("{}:{}", waiter.name(), waiter.pid())).collect();

    let since = Stopwatch::start();
    let mut free_ns = boot_ns();
    holder.release();
    for waiter in &waiters {
        let status = waiter.wait(LONG).unwrap();
        assert!(status.success(), "{}: {}", waiter.name(), waiter.stderr().unwrap());
    }
    let took = since.elapsed();

    let history = world.history();
    let report = history.judge();
    println!("{} survivors served in {took:?}; {report}", line.len());
    assert!(report.is_clean(), "seed {seed}: {report}");
    assert_eq!(report.judged.grants, 1 + WAITERS - WAITERS / 2);
    for grant in &history.grants()[RESOURCE][1..] {
        let place = line.iter().position(|name| *name == grant.granted.process).unwrap();
        // Whoever was passed had its turn, and was too slow to take it.
        let reserved = Duration::from_nanos(grant.open_ns.saturating_sub(free_ns));
        assert!(place == 0 || reserved >= RESERVATION, "{} was passed within {reserved:?}", line[0]);
        line.remove(place);
        let Some((released_ns, Ending::Released)) = grant.ending else { panic!("{grant:?}") };
        free_ns = released_ns;
    }
    assert!(line.is_empty());
    assert!(took < TOGETHER, "{took:?}");
    let given_up = history.events().iter().filter(|event| event.what == What::GaveUp).count();
    assert_eq!(given_up, 0);
}
