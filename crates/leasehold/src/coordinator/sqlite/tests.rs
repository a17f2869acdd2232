//! Single steps on a database in memory: what programs on a file cannot bring about at will.

mod heirs;

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    record::{Acquired, Notice, Renewed},
    request::{Claim, Release, Renewal},
    slot::{Held, Now, Slot, expiry},
};
use proptest::prelude::*;
use rusqlite::Connection;

use super::{
    apply::{Setting, Step, Unheard},
    boot::Boot,
    clocks::{Clocks, NO_BOOT},
    row::{self, Cell, Stamp},
    schema,
    space::Memo,
    wake::{Address, Ringer},
};
use crate::coordinator::mailbox::Mailbox;

const NOW: Now = Now { clock_us: 1_000_000_000, unix_us: 1_900_000_000_000_000 };

/// A database in memory, and one who works on it.
struct Desk {
    connection: Connection,
    clocks: Clocks,
    ringer: Ringer,
    setting: Setting,
    memo: Memo,
}

impl Desk {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        schema::create_tables(&connection).unwrap();
        connection.execute("INSERT INTO store VALUES (1, 0, '', 0, 0, 0, 0)", []).unwrap();
        let own = Address::of_nobody(1, [0; 8]);
        let setting =
            Setting { namespace: Namespace::default(), place: String::new(), told_max_ttl: None, own };
        Self {
            connection,
            clocks: Clocks::new(Boot::read(), true),
            ringer: Ringer::new(own, Arc::new(Mailbox::default())).unwrap(),
            setting,
            memo: Memo::default(),
        }
    }

    /// One transaction.
    fn step<T>(&mut self, act: impl FnOnce(&mut Step<'_>) -> T) -> T {
        self.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let answer = self.within(act);
        self.connection.execute_batch("COMMIT").unwrap();
        answer
    }

    /// Within a transaction.
    fn within<T>(&mut self, act: impl FnOnce(&mut Step<'_>) -> T) -> T {
        let Self { connection, clocks, ringer, setting, memo, .. } = self;
        let mut step = Step::new(connection, clocks, ringer, setting, memo);
        act(&mut step)
    }

    fn acquire(&mut self, claim: &Claim, now: Now) -> Acquired {
        self.step(|step| step.acquire(claim, now)).unwrap().unwrap()
    }
}

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

fn claim(n: u8) -> Claim {
    Claim {
        resource: Resource::new("r").unwrap(),
        lease_id: id(n),
        holder_id: HolderId::from_bytes([n; 16]),
        label: Label::new("test").unwrap(),
        ttl: Ttl::from_millis(10_000).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: true,
        once_per: None,
    }
}

/// Passing over ends: each time a waiter goes, or nothing happens and nobody is woken.
#[test]
fn a_dead_waiter_is_passed_over_once_and_one_that_came_back_is_not() {
    let mut desk = Desk::new();
    let Acquired::Granted(grant) = desk.acquire(&claim(1), NOW) else { panic!("busy") };
    for n in 2..5 {
        assert!(matches!(desk.acquire(&claim(n), NOW), Acquired::Busy(_)));
    }
    let own = desk.setting.own;
    let release =
        Release { resource: claim(1).resource, lease_id: id(1), token: Some(grant.token), succeeded: false };
    let _ = desk.step(|step| step.release(&release, NOW)).unwrap().unwrap();
    let mut pass_over = |n: u8, address: Address| {
        let unheard = Unheard { resource: claim(1).resource, lease_id: id(n), address };
        desk.step(|step| {
            step.pass_over(&unheard, NOW).unwrap().unwrap();
            step.effects.rings.iter().map(|ring| ring.lease_id).collect::<Vec<_>>()
        })
    };
    // To every look the waiters are alive: their address is ours. Only what passing over itself does makes progress.
    assert_eq!(pass_over(2, own), [id(3)]);
    assert_eq!(pass_over(2, own), [], "it is gone already");
    assert_eq!(pass_over(3, Address::of_nobody(9, [0; 8])), [], "it came back elsewhere");
    assert_eq!(pass_over(3, own), [id(4)]);
    assert_eq!(pass_over(4, own), []);
    assert!(matches!(desk.acquire(&claim(5), NOW), Acquired::Granted(_)));
}

/// Whoever renews or adopts what another clock wrote is promised its TTL from now: the others must learn of it.
#[test]
fn a_promise_about_a_lease_of_another_clock_is_written_by_our_own() {
    let later = |ms: u64| Now { clock_us: NOW.clock_us + ms * 1_000, unix_us: NOW.unix_us + ms * 1_000 };
    for adopting in [false, true] {
        let mut desk = Desk::new();
        let other = |desk: &mut Desk, name: &str| {
            desk.clocks = Clocks::new(Boot::parse(name), true);
        };
        other(&mut desk, "m1/b1/0.0");
        let Acquired::Granted(grant) = desk.acquire(&claim(1), NOW) else { panic!("busy") };
        other(&mut desk, "m2/b2/0.0");
        assert!(matches!(desk.acquire(&claim(2), NOW), Acquired::Busy(_)));
        // Seen for the first time by a third clock, to which it may last longer than what is asked for.
        other(&mut desk, "m3/b3/0.0");
        if adopting {
            let answer = desk.acquire(&claim(1), later(5_000));
            assert!(matches!(&answer, Acquired::Granted(grant) if grant.adopted), "{answer:?}");
        } else {
            let renewed = desk.step(|step| step.renew(&renewal(&claim(1), grant.token), later(5_000)));
            assert_eq!(renewed.unwrap().unwrap(), Renewed::Extended { ttl: claim(1).ttl });
        }
        for clock in ["m1/b1/0.0", "m2/b2/0.0"] {
            other(&mut desk, clock);
            let answer = desk.acquire(&claim(2), later(14_999));
            assert!(matches!(answer, Acquired::Busy(_)), "{clock}: {answer:?}");
        }
    }
}

/// A machine without a boot id: every run of a program is a clock of its own.
#[test]
fn runs_without_a_boot_id_leave_a_bounded_trace_and_their_leases_are_waited_out() {
    let mut desk = Desk::new();
    let run = |desk: &mut Desk, n: u32| {
        let clocks = Clocks::new(Boot::parse(&format!("-/unknown-{n}/none")), true);
        std::mem::replace(&mut desk.clocks, clocks)
    };
    desk.clocks = Clocks::new(Boot::parse("m/known/0.0"), true);
    let _ = desk.acquire(&Claim { resource: Resource::new("known").unwrap(), ..claim(9) }, NOW);
    run(&mut desk, 0);
    let Acquired::Granted(grant) = desk.acquire(&claim(1), NOW) else { panic!("busy") };
    let holder = run(&mut desk, 1);
    let count = |desk: &Desk, table: &str| -> i64 {
        desk.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    for n in 1..500 {
        run(&mut desk, n);
        let asked = Claim { queue: false, ..claim(2) };
        assert!(matches!(desk.acquire(&asked, NOW), Acquired::Busy(_)));
        let own = Claim { resource: Resource::new("other").unwrap(), ..claim(3) };
        let _ = desk.acquire(&own, NOW);
    }
    assert!(count(&desk, "boot") <= 66 && count(&desk, "observed") <= 140, "64 runs, and the known one");
    let known =
        desk.connection
            .query_row("SELECT count(*) FROM boot WHERE identity = 'm/known/0.0'", [], |row| row.get(0));
    assert_eq!(known, Ok(1));

    // The identity of the holder is gone. Its lease stands: to itself, and to whoever sees it for the first time.
    let later = Now { clock_us: NOW.clock_us + 9_000_000, ..NOW };
    desk.clocks = holder;
    let renewed = desk.step(|step| step.renew(&renewal(&claim(1), grant.token), later));
    assert_eq!(renewed.unwrap().unwrap(), Renewed::Extended { ttl: claim(1).ttl });
    run(&mut desk, 1_000);
    assert!(matches!(desk.acquire(&claim(2), later), Acquired::Busy(_)));
    let over = Now { clock_us: later.clock_us + 10_102_001, ..NOW };
    assert!(matches!(desk.acquire(&claim(2), over), Acquired::Granted(_)));
}

fn renewal(claim: &Claim, token: Token) -> Renewal {
    Renewal {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token,
        ttl: claim.ttl,
        lock_delay: claim.lock_delay,
    }
}

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

/// Whose clock wrote a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    Mine,
    Other,
    Nobody,
}

fn any_writer() -> impl Strategy<Value = Writer> {
    prop_oneof![4 => Just(Writer::Mine), 1 => Just(Writer::Other), 1 => Just(Writer::Nobody)]
}

/// Around now, with the edges.
fn any_expiry() -> impl Strategy<Value = u64> {
    let now = NOW.clock_us;
    prop_oneof![now - 2..now + 3, now - 5_000_000..now + 20_000_000, Just(now + 1_000_000)]
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let held = (1..3u8, 5..7u64, any_expiry(), 1..20_000_000u64, proptest::bool::weighted(0.2));
    (proptest::option::weighted(0.9, held), any_expiry(), proptest::option::of(5..7u64)).prop_map(
        |(held, free_since_us, last)| {
            let held = held.map(|(n, number, expires_us, ttl_us, revoked)| Held {
                lease_id: id(n),
                token: token(number),
                ttl: Ttl::from_millis((ttl_us / 1_000).max(100)).unwrap(),
                expires_us,
                granted_us: 7,
                holder_id: HolderId::from_bytes([n; 16]),
                label: Label::new("test").unwrap(),
                revoked: revoked.then(|| Notice { by: Label::default(), reason: Label::default() }),
            });
            Slot {
                last_token: held.as_ref().map(|held| held.token).or(last.map(token)),
                free_since_us: if held.is_some() { 0 } else { free_since_us },
                held,
                last_end: None,
                last_success_us: None,
            }
        },
    )
}

fn any_renewal() -> impl Strategy<Value = Renewal> {
    let ttl_ms = prop_oneof![Just(1_000), 100..20_000u64];
    let delay_ms = prop_oneof![3 => Just(0), 1 => 0..5_000u64];
    (1..3u8, 5..7u64, ttl_ms, delay_ms).prop_map(|(n, number, ttl_ms, delay_ms)| Renewal {
        ttl: Ttl::from_millis(ttl_ms).unwrap(),
        lock_delay: Duration::from_millis(delay_ms),
        ..renewal(&claim(n), token(number))
    })
}

impl Desk {
    /// A database with one row.
    fn with_row(slot: &Slot, writer: Writer) -> (Self, i64) {
        let mut desk = Self::new();
        let (space, row) = desk.step(|step| {
            let space = step.claimed_space().unwrap().id;
            let mine = step.clocks.my_id(step.connection).unwrap();
            step.connection.execute("INSERT INTO boot VALUES (77, 'another/one/0.0')", []).unwrap();
            let boot = match writer {
                Writer::Mine => mine,
                Writer::Other => 77,
                Writer::Nobody => NO_BOOT,
            };
            let at_us = slot.held.as_ref().map_or(slot.free_since_us, |held| held.expires_us);
            let stamp = Stamp { boot, at_us, span_us: at_us.saturating_sub(NOW.clock_us) };
            let row = row::insert(step.connection, space, "r", NOW).unwrap();
            let cell =
                Cell { id: Some(row), waiting: 0, stamp, wake: None, promised: false, heir: None, ends: 0 };
            row::save(step.connection, row, slot, &cell, NOW).unwrap();
            (space, row)
        });
        assert_eq!(row, 1);
        (desk, space)
    }

    fn row(&self, space: i64) -> (Slot, Stamp) {
        let (slot, cell) = row::load(&self.connection, space, "r").unwrap().unwrap();
        (slot, cell.stamp)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// The short way of a renewal is taken exactly where the slot would extend by our own clock and not shorten, and then
    /// leaves just what the slot would; elsewhere it touches nothing.
    #[test]
    fn the_short_way_of_a_renewal_agrees_with_the_slot(
        slot in any_slot(), writer in any_writer(), renewal in any_renewal(),
    ) {
        let (mut desk, space) = Desk::with_row(&slot, writer);
        let before = desk.row(space);
        prop_assert_eq!(&before.0, &slot);
        let mut expected = slot.clone();
        let answer = expected.renew(&renewal, NOW);
        let at_us = expiry(renewal.ttl, renewal.lock_delay, NOW);
        let stamp = desk.step(|step| Stamp {
            boot: step.clocks.my_id(step.connection).unwrap(),
            at_us,
            span_us: at_us - NOW.clock_us,
        });
        let extends = matches!(answer, Renewed::Extended { .. })
            && slot.held.as_ref().is_some_and(|held| at_us >= held.expires_us);
        let short = row::renew_at_once(&desk.connection, (space, "r"), &renewal, stamp, NOW).unwrap();
        prop_assert_eq!(short, extends && writer == Writer::Mine);
        let left = if short { (expected, stamp) } else { before };
        prop_assert_eq!(desk.row(space), left);
    }

    /// Whichever way is taken, the answer and the row are those of the slot.
    #[test]
    fn a_renewal_leaves_what_the_slot_says(slot in any_slot(), renewal in any_renewal()) {
        let (mut desk, space) = Desk::with_row(&slot, Writer::Mine);
        let mut expected = slot;
        let answer = expected.renew(&renewal, NOW);
        let (found, horizon_us) = desk.step(|step| {
            let found = step.renew(&renewal, NOW).unwrap().unwrap();
            (found, step.effects.horizon_us)
        });
        prop_assert_eq!(&found, &answer);
        prop_assert_eq!(&desk.row(space).0, &expected);
        if let (Renewed::Extended { .. }, Some(held)) = (&found, &expected.held) {
            let kept = held.expires_us > expiry(renewal.ttl, renewal.lock_delay, NOW);
            prop_assert!(kept || horizon_us >= held.expires_us, "the horizon is raised with the row");
        }
    }
}
