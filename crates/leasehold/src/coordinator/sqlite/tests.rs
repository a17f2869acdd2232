//! Single steps on a database in memory: what programs on a file cannot bring about at will.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    HolderId, Label, LeaseId, Namespace, Resource, Ttl,
    record::Acquired,
    request::{Claim, Release},
    slot::Now,
};
use rusqlite::Connection;

use super::{
    apply::{Setting, Step, Unheard},
    boot::Boot,
    clocks::Clocks,
    schema,
    space::Memo,
    wake::{Address, Bell, Ringer},
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
    _bell: Bell,
}

impl Desk {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        schema::create_tables(&connection).unwrap();
        connection.execute("INSERT INTO store VALUES (1, 0, '', 0, 0)", []).unwrap();
        let mailbox = Arc::new(Mailbox::default());
        let bell = Bell::hang(mailbox.clone(), None).unwrap();
        let setting = Setting {
            namespace: Namespace::default(),
            place: String::new(),
            told_max_ttl: None,
            own: bell.address(),
        };
        Self {
            connection,
            clocks: Clocks::new(Boot::read(), true),
            ringer: Ringer::new(bell.address(), mailbox).unwrap(),
            setting,
            memo: Memo::default(),
            _bell: bell,
        }
    }

    /// One transaction.
    fn step<T>(&mut self, act: impl FnOnce(&mut Step<'_>) -> T) -> T {
        self.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let Self { connection, clocks, ringer, setting, memo, .. } = self;
        let mut step = Step::new(connection, clocks, ringer, setting, memo);
        let answer = act(&mut step);
        self.connection.execute_batch("COMMIT").unwrap();
        answer
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
    assert_eq!(pass_over(3, Address::of_nobody(9, own)), [], "it came back elsewhere");
    assert_eq!(pass_over(3, own), [id(4)]);
    assert_eq!(pass_over(4, own), []);
    assert!(matches!(desk.acquire(&claim(5), NOW), Acquired::Granted(_)));
}
