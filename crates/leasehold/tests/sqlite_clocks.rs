//! Which clock counts on a lease file, and at which moment it is read.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    clock::{Clock, ManualClock},
    coordinator::sqlite::{Options, SqliteCoordinator},
};
use leasehold_core::{
    Coordinator, HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    record::{Acquired, Gone, Grant, Renewed},
    request::{Claim, Renewal},
    window::Reading,
};
use rusqlite::Connection;
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("leases.db")
}

/// The clocks of a machine, as a program sees them whose wall clock is its own.
#[derive(Debug)]
struct Clocks {
    machine: Arc<ManualClock>,
    wall_ns: AtomicU64,
}

impl Clock for Clocks {
    fn read(&self) -> Reading {
        Reading { real_ns: self.wall_ns.load(Ordering::SeqCst), ..self.machine.read() }
    }
}

/// A program on the file.
struct Program {
    coordinator: SqliteCoordinator,
    clocks: Arc<Clocks>,
}

impl Program {
    fn open(folder: &TempDir, machine: &Arc<ManualClock>) -> Self {
        let clocks = Arc::new(Clocks { machine: machine.clone(), wall_ns: AtomicU64::new(0) });
        let options = Options { clock: clocks.clone(), ..Options::default() };
        let coordinator = SqliteCoordinator::open(&file(folder), Namespace::default(), options).unwrap();
        let program = Self { coordinator, clocks };
        program.wall(0);
        program
    }

    /// Sets the wall clock of this program, relative to the year 2030.
    fn wall(&self, days: i32) {
        let since_1970 = DAY * (365 * 60u32).checked_add_signed(days).unwrap();
        self.clocks.wall_ns.store(u64::try_from(since_1970.as_nanos()).unwrap(), Ordering::SeqCst);
    }

    async fn acquire(&self, n: u8) -> Acquired {
        self.coordinator.acquire(claim("r", n)).await.unwrap()
    }

    async fn granted(&self, n: u8) -> Grant {
        match self.acquire(n).await {
            Acquired::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn renew(&self, n: u8, token: Token) -> Renewed {
        let Claim { resource, lease_id, ttl, lock_delay, .. } = claim("r", n);
        let renewal = Renewal { resource, lease_id, token, ttl, lock_delay };
        self.coordinator.renew(vec![renewal]).await.unwrap().pop().unwrap().unwrap()
    }
}

fn claim(resource: &str, n: u8) -> Claim {
    Claim {
        resource: Resource::new(resource).unwrap(),
        lease_id: LeaseId::from_bytes([n; 16]),
        holder_id: HolderId::from_bytes([n; 16]),
        label: Label::new("test").unwrap(),
        ttl: Ttl::new(TTL).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

#[tokio::test]
async fn a_wall_clock_that_steps_neither_ends_nor_lengthens_a_lease() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Arc::new(ManualClock::from_system());
    let program = Program::open(&folder, &machine);
    let grant = program.granted(1).await;
    program.wall(3_000);
    assert!(matches!(program.acquire(2).await, Acquired::Busy(_)), "a step ahead ends nothing");
    assert!(matches!(program.renew(1, grant.token).await, Renewed::Extended { .. }));
    program.wall(-3_000);
    assert!(matches!(program.acquire(3).await, Acquired::Busy(_)));
    machine.advance(TTL);
    assert!(program.granted(4).await.token > grant.token, "a step back lengthens nothing");
}

#[tokio::test]
async fn programs_whose_wall_clocks_differ_agree_on_who_holds() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Arc::new(ManualClock::from_system());
    let (slow, fast) = (Program::open(&folder, &machine), Program::open(&folder, &machine));
    slow.wall(-1);
    fast.wall(1);
    let mut last = slow.granted(1).await.token;
    for n in (2..8).step_by(2) {
        assert!(matches!(fast.acquire(n).await, Acquired::Busy(_)));
        machine.advance(TTL);
        let (winner, loser) = if n % 4 == 0 { (&slow, &fast) } else { (&fast, &slow) };
        let token = winner.granted(n).await.token;
        assert!(token > last);
        assert!(
            matches!(loser.acquire(n + 1).await, Acquired::Busy(_)),
            "whose clock is asked does not matter"
        );
        last = token;
    }
}

/// Both a claim and a renewal stand behind a stranger's transaction while the lease runs out.
#[tokio::test]
async fn a_request_that_waited_for_the_file_is_judged_by_the_time_at_which_it_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Arc::new(ManualClock::from_system());
    let (one, two) = (Program::open(&folder, &machine), Program::open(&folder, &machine));
    let stranger = Connection::open(file(&folder)).unwrap();
    let in_the_way = async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        machine.advance(TTL);
        stranger.execute_batch("ROLLBACK").unwrap();
    };

    let grant = one.granted(1).await;
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (answer, ()) = tokio::join!(one.renew(1, grant.token), in_the_way());
    assert!(matches!(answer, Renewed::Gone(Gone::Expired)), "{answer:?}");

    one.granted(2).await;
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (answer, ()) = tokio::join!(two.acquire(3), in_the_way());
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
}

#[tokio::test]
async fn what_is_held_is_never_forgotten_whatever_the_wall_clock_says() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Arc::new(ManualClock::from_system());
    let program = Program::open(&folder, &machine);
    let grant = program.granted(1).await;
    for n in 2..50 {
        // By the wall clock a month passes between two renewals, and the other claim comes first: whoever tidies up
        // after a minute finds a resource that nobody has touched for a month.
        machine.advance(TTL * 4 / 5);
        program.wall(30 * i32::from(n));
        let other = program.coordinator.acquire(claim("other", n)).await.unwrap();
        assert!(matches!(other, Acquired::Granted(_) | Acquired::Busy(_)), "{other:?}");
        assert!(matches!(program.renew(1, grant.token).await, Renewed::Extended { .. }));
    }
    assert!(matches!(program.acquire(99).await, Acquired::Busy(_)));
}
