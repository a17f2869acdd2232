//! Rules of the engine's record that need a clock of their own.
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::Duration;

use leasehold_core::{
    HolderId, Label, LeaseId, Resource, Ttl,
    line::MemoryLine,
    record::Acquired,
    request::{Claim, Release},
    slot::{Now, Slot},
};

const HOUR_US: u64 = 3_600_000_000;

fn claim(n: u8) -> Claim {
    Claim {
        resource: Resource::new("r").unwrap(),
        lease_id: LeaseId::from_bytes([n; 16]),
        holder_id: HolderId::from_bytes([n; 16]),
        label: Label::default(),
        ttl: Ttl::DEFAULT,
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: Some(Duration::from_secs(23 * 3_600)),
    }
}

/// A success dated by a clock that was years ahead must not silence the job until those years have passed.
#[test]
fn a_success_dated_in_the_future_costs_one_period_at_most() {
    let (mut slot, mut line) = (Slot::default(), MemoryLine::default());
    let at = |hours: u64| Now { clock_us: hours * HOUR_US, unix_us: 1_000_000 * HOUR_US + hours * HOUR_US };
    let ahead = Now { unix_us: 2_000_000 * HOUR_US, ..at(1) };
    let Acquired::Granted(grant) = slot.acquire(&mut line, &claim(1), None, ahead).unwrap() else {
        unreachable!()
    };
    let release = Release {
        resource: claim(1).resource,
        lease_id: claim(1).lease_id,
        token: Some(grant.token),
        succeeded: true,
    };
    let _ = slot.release(&mut line, &release, ahead).unwrap();
    assert!(matches!(slot.acquire(&mut line, &claim(2), None, ahead).unwrap(), Acquired::AlreadyDone { .. }));
    assert!(matches!(slot.acquire(&mut line, &claim(3), None, at(2)).unwrap(), Acquired::Granted(_)));
}

/// Those who wait and do not run (Ctrl-Z) hold up whoever tries once for a few seconds, and not until their places are stale.
#[test]
fn a_resource_that_no_waiter_takes_is_anybodys_after_a_while() {
    use leasehold_core::line::FORSAKEN;
    let (mut slot, mut line) = (Slot::default(), MemoryLine::default());
    let at = |us: u64| Now { clock_us: HOUR_US + us, unix_us: HOUR_US + us };
    let once = |n| Claim { once_per: None, ..claim(n) };
    let Acquired::Granted(grant) = slot.acquire(&mut line, &once(1), None, at(0)).unwrap() else {
        unreachable!()
    };
    let waiter = Claim { queue: true, ..once(2) };
    assert!(matches!(slot.acquire(&mut line, &waiter, None, at(1)).unwrap(), Acquired::Busy(_)));
    let release = Release {
        resource: waiter.resource,
        lease_id: once(1).lease_id,
        token: Some(grant.token),
        succeeded: false,
    };
    let _ = slot.release(&mut line, &release, at(2)).unwrap();
    let over = u64::try_from(FORSAKEN.as_micros()).unwrap() + 2;
    assert!(matches!(slot.acquire(&mut line, &once(3), None, at(over - 1)).unwrap(), Acquired::Queued(_)));
    assert!(matches!(slot.acquire(&mut line, &once(4), None, at(over)).unwrap(), Acquired::Granted(_)));
}
