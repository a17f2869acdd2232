//! What a process of the fleet does: this program started again, in a role that its environment names.
//!
//! What a worker writes down is what it is certain of. It reads the clock *before* it asks whether it still holds, and
//! notes the answer for that moment: if it is stopped anywhere in between, the note is true all the same.

use std::{path::PathBuf, time::Duration};

use leasehold::{Label, Lease, LeaseId, Leases, Token};
use leasehold_testkit::{
    check::What,
    clock::boot_ns,
    process::{Fleet, Journal, Spawn, end_with_parent},
    random::{self, Choices},
};

use crate::register::Register;

const ROLE: &str = "LEASEHOLD_FLEET_ROLE";
const URL: &str = "LEASEHOLD_FLEET_URL";
const FENCED: &str = "LEASEHOLD_FLEET_FENCED";
/// Its presence in the folder tells workers to come to an end.
pub const STOP: &str = "stop";
/// Its presence tells the delayed writer to write.
pub const GO: &str = "go";
/// What the roles with one resource contend for.
pub const RESOURCE: &str = "r";
/// What the contending role contends for.
pub const RESOURCES: [&str; 3] = ["orders", "invoices", "mail"];
/// The TTL of the roles that have one.
pub const TTL: Duration = Duration::from_millis(400);

/// What a worker is for.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Takes and releases at random until told to stop.
    Contend,
    /// Takes [`RESOURCE`], asks all the time whether it still holds it, and takes it again when it is lost.
    Hold,
    /// As [`Role::Hold`], but goes on whatever the answer is.
    HoldBlindly,
    /// Asks, and then takes its time before it writes.
    WriteLate,
    /// Waits for [`RESOURCE`] for as long as it takes, has it for a moment, and ends.
    Queue,
}

/// How to start a worker on `url`.
pub fn spawn(role: Role, url: &str, fenced: bool) -> Spawn {
    Spawn::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker", "--nocapture"])
        .env(ROLE, format!("{role:?}"))
        .env(URL, url)
        .env(FENCED, fenced.to_string())
}

/// Plays the role that the environment names; nothing when the tests run.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    end_with_parent(std::env::var(Fleet::STARTER).unwrap().parse().unwrap()).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let mut worker = Worker::new().await;
        match role.as_str() {
            "Contend" => {
                worker.contend().await;
                // What was dropped is released before this process is gone.
                worker.leases.close(Duration::from_secs(5)).await;
            }
            "Hold" => worker.keep(true).await,
            "HoldBlindly" => worker.keep(false).await,
            "WriteLate" => worker.write_late().await,
            "Queue" => worker.queue().await,
            other => panic!("no role {other}"),
        }
    });
}

struct Worker {
    leases: Leases,
    journal: Journal,
    folder: PathBuf,
    choices: Choices,
    fenced: bool,
}

/// What a worker knows of its grant.
struct Belief<'a> {
    resource: &'a str,
    /// The attempt, under which it appears in the history.
    id: LeaseId,
    token: Token,
    close_ns: u64,
}

/// What a look at the lease gave.
#[derive(PartialEq, Eq)]
enum Look {
    Held,
    Lost,
    /// Held, but the looks were further apart than the window: what was written down does not reach that far.
    Lapsed,
}

impl Worker {
    async fn new() -> Self {
        let journal = Journal::of_this_process().unwrap();
        let folder = journal.path().parent().unwrap().to_owned();
        let name = journal.path().file_stem().unwrap().to_string_lossy().into_owned();
        let builder = Leases::builder(&std::env::var(URL).unwrap()).label(Label::from_lossy(&name));
        let leases = builder.connect().await.unwrap();
        let fenced = std::env::var(FENCED).unwrap() == "true";
        Self { leases, journal, folder, choices: Choices::new(random::seed()), fenced }
    }

    fn told(&self, what: &str) -> bool {
        self.folder.join(what).exists()
    }

    fn choose(&mut self, from: u64, below: u64) -> Duration {
        Duration::from_millis(from + self.choices.below(below - from))
    }

    /// Asks for a resource and writes down what came of it.
    async fn acquire<'a>(
        &mut self,
        resource: &'a str,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> Option<(Lease, Belief<'a>)> {
        let id = random::lease_id();
        self.journal.note(resource, id, What::Attempt).unwrap();
        let request = self.leases.lease(resource).ttl(ttl);
        let request = match wait {
            Some(wait) => request.wait(wait),
            None => request.wait_forever(),
        };
        let lease = match request.acquire().await {
            Ok(lease) => lease,
            Err(refused) => {
                println!("{refused}");
                self.journal.note(resource, id, What::GaveUp).unwrap();
                return None;
            }
        };
        let now_ns = boot_ns();
        let close_ns = lease.closes().boot_ns;
        if lease.check().is_err() || now_ns >= close_ns {
            // Stopped on the way: it never believed.
            self.journal.note(resource, id, What::GaveUp).unwrap();
            return None;
        }
        let token = lease.token();
        let ttl_ms = u64::try_from(ttl.as_millis()).ok();
        let granted = What::Granted { token, sent_ns: Some(now_ns), open_ns: now_ns, close_ns, ttl_ms };
        self.journal.note_at(now_ns, resource, id, granted).unwrap();
        Some((lease, Belief { resource, id, token, close_ns }))
    }

    /// Asks whether it still holds, and writes the answer down. A worker that is not `asking` takes every answer for yes.
    fn look(&mut self, lease: &Lease, belief: &mut Belief<'_>, asking: bool) -> Look {
        let Belief { resource, id, token, .. } = *belief;
        let now_ns = boot_ns();
        if lease.check().is_err() && asking {
            self.journal.note(resource, id, What::Lost { token }).unwrap();
            return Look::Lost;
        }
        let closes_ns = lease.closes().boot_ns;
        if now_ns >= belief.close_ns && asking {
            self.journal.note(resource, id, What::Released { token }).unwrap();
            return Look::Lapsed;
        }
        let what = if closes_ns > belief.close_ns {
            belief.close_ns = closes_ns;
            What::Extended { token, sent_ns: None, close_ns: closes_ns }
        } else {
            What::Held { token }
        };
        self.journal.note_at(now_ns, resource, id, what).unwrap();
        Look::Held
    }

    /// Holds for a while, looking and writing.
    async fn hold(&mut self, lease: Lease, mut belief: Belief<'_>, until_ns: u64) {
        let mut register = Register::open(&self.folder, belief.resource, self.fenced);
        while boot_ns() < until_ns {
            match self.look(&lease, &mut belief, true) {
                Look::Held => {}
                Look::Lost | Look::Lapsed => return,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            // The answer is a moment old, as it always is: whoever was stopped in between writes all the same.
            if self.choices.one_in(2) {
                register.write(belief.resource, belief.id, belief.token);
            }
        }
        self.journal.note(belief.resource, belief.id, What::Released { token: belief.token }).unwrap();
        // How it ended is in the history already; what could not be released runs out.
        let _ = lease.release().await;
    }

    async fn contend(&mut self) {
        for turn in 0_u64.. {
            if self.told(STOP) {
                return;
            }
            let resource = RESOURCES[usize::try_from(self.choices.below(3)).unwrap()];
            let ttl = self.choose(300, 800);
            let wait = Duration::from_secs(60);
            let Some((lease, belief)) = self.acquire(resource, ttl, Some(wait)).await else { continue };
            // Now and then one holds on for so long that it must renew.
            let hold = if turn % 8 == 1 { ttl * 3 / 2 } else { self.choose(1, 25) };
            let until_ns = boot_ns() + u64::try_from(hold.as_nanos()).unwrap();
            self.hold(lease, belief, until_ns).await;
        }
    }

    async fn keep(&mut self, asking: bool) {
        loop {
            let wait = Some(Duration::from_secs(60));
            let Some((lease, mut belief)) = self.acquire(RESOURCE, TTL, wait).await else { continue };
            while self.look(&lease, &mut belief, asking) == Look::Held {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    async fn write_late(&mut self) {
        let (lease, mut belief) = self.acquire(RESOURCE, TTL, Some(TTL)).await.unwrap();
        let mut register = Register::open(&self.folder, RESOURCE, self.fenced);
        assert!(register.write(RESOURCE, belief.id, belief.token), "the holder is let in");
        assert!(self.look(&lease, &mut belief, true) == Look::Held);
        // Between the question and the write: here it is stopped, and told to write before it goes on.
        while !self.told(GO) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        println!("admitted: {}", register.write(RESOURCE, belief.id, belief.token));
        assert!(self.look(&lease, &mut belief, true) == Look::Lost, "whoever asks is told");
    }

    async fn queue(&mut self) {
        let (lease, belief) = self.acquire(RESOURCE, Duration::from_secs(60), None).await.unwrap();
        self.hold(lease, belief, 0).await;
    }
}
