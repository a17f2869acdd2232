//! The measurements. Each begins when everything is there that it needs, and leaves nothing held.

use std::{cell::Cell, rc::Rc, time::Duration};

use leasehold::{Ended, Lease, Leases, Outcome, Ttl, Wait, clock};
use nix::sys::resource::{UsageWho, getrusage};
use tokio::task::JoinSet;

use super::figures::{HandOver, Latency, Pairs, Recording, Renewals};
use crate::{
    client,
    exit::Exit,
    failure::Failure,
    message,
    settings::{self, Settings},
};

/// A holder rests this long before it hands over, so that whoever waits does wait (ours: ten hand-overs of a slow engine).
const REST: Duration = Duration::from_millis(5);
/// The TTL of the leases that are renewed: short, so that there is something to measure. Engines with longer steps round up.
const RENEWED_TTL: Duration = Duration::from_secs(6);
/// So many leases are acquired and released at a time.
const AT_ONCE: u32 = 256;
/// Waiting for a turn longer than this, per client in line, means that nobody hands over.
const LONGEST_TURN: Duration = Duration::from_secs(30);

fn since(start_us: u64) -> u64 {
    clock::boot_us().saturating_sub(start_us)
}

fn per_second(count: u64, took_us: u64) -> u64 {
    count.saturating_mul(1_000_000) / took_us.max(1)
}

/// A client, and what it takes to say who was in the way.
#[derive(Clone, Debug)]
pub(super) struct Claimant {
    pub(super) leases: Leases,
    settings: Rc<Settings>,
}

impl Claimant {
    pub(super) fn over(leases: Leases, settings: &Rc<Settings>) -> Self {
        Self { leases, settings: Rc::clone(settings) }
    }

    /// A client with connections of its own.
    pub(super) async fn connect(settings: &Rc<Settings>) -> Result<Self, Failure> {
        let leases = client::builder(settings, client::operator).connect().await?;
        Ok(Self::over(leases, settings))
    }

    pub(super) async fn take(&self, name: &str, wait: Wait, ttl: Ttl) -> Result<Lease, Failure> {
        let resource = settings::resource(name)?;
        let request = self.leases.lease(name).waiting(wait).ttl(ttl.as_duration());
        match request.attempt().await? {
            Outcome::Held(lease) => Ok(lease),
            Outcome::Refused(refusal) => {
                Err(message::refused(&refusal, &resource, wait, &self.settings, &self.leases))
            }
            Outcome::AlreadyDone(_) => Err(Failure::usage("nobody asked for a period")),
        }
    }

    /// The TTL of whoever does not care, where the namespace allows it.
    pub(super) fn usual_ttl(&self) -> Ttl {
        Ttl::DEFAULT.min(self.leases.profile().max_ttl)
    }
}

/// Ends a lease; one that was lost meanwhile makes the figures worthless.
pub(super) async fn release(lease: Lease) -> Result<(), Failure> {
    match lease.release().await? {
        Ended::Released => Ok(()),
        Ended::Lost(loss) => {
            let what = format!("a lease was lost while it was measured: {loss}");
            Err(Failure::answer(Exit::NotHeld, "not_held", what).advise(
                "the coordinator or this machine is too busy to be measured; leasehold doctor tells more",
            ))
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    acquire: Recording,
    release: Recording,
    pairs: u64,
}

/// Pairs by so many tasks, each on a resource of its own.
pub(super) async fn pairs(claimant: &Claimant, tasks: u16, each: Duration) -> Result<Pairs, Failure> {
    let tally = Rc::new(Cell::new(Tally::default()));
    let start_us = clock::boot_us();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (claimant, tally) = (claimant.clone(), Rc::clone(&tally));
        running.spawn_local(async move {
            let name = format!("pair/{task}");
            while since(start_us) < micros(each) {
                let asked_us = clock::boot_us();
                let lease = claimant.take(&name, Wait::No, claimant.usual_ttl()).await?;
                let granted_us = clock::boot_us();
                release(lease).await?;
                let released_us = clock::boot_us();
                let mut counted = tally.take();
                counted.acquire.record(granted_us.saturating_sub(asked_us));
                counted.release.record(released_us.saturating_sub(granted_us));
                counted.pairs += 1;
                tally.set(counted);
            }
            Ok::<_, Failure>(())
        });
    }
    all(&mut running).await?;
    let (took_us, tally) = (since(start_us), tally.take());
    Ok(Pairs {
        tasks,
        took_ms: took_us / 1_000,
        per_second: per_second(tally.pairs, took_us),
        acquire: tally.acquire.latency(),
        release: tally.release.latency(),
    })
}

/// Clients with connections of their own, of which one holds and the others wait in line.
pub(super) async fn hand_over(
    settings: &Rc<Settings>,
    waiters: u16,
    each: Duration,
) -> Result<HandOver, Failure> {
    let mut claimants = Vec::new();
    for _ in 0..=waiters {
        claimants.push(Claimant::connect(settings).await?);
    }
    let wait = Wait::For(LONGEST_TURN.saturating_mul(u32::from(waiters) + 1));
    let (recording, released_us) = (Rc::new(Cell::new(Recording::default())), Rc::new(Cell::new(None)));
    let start_us = clock::boot_us();
    let mut running = JoinSet::new();
    for claimant in claimants {
        let (recording, released_us) = (Rc::clone(&recording), Rc::clone(&released_us));
        running.spawn_local(async move {
            while since(start_us) < micros(each) {
                let lease = claimant.take("hand-over", wait, claimant.usual_ttl()).await?;
                if let Some(released_us) = released_us.take() {
                    let mut counted = recording.take();
                    counted.record(since(released_us));
                    recording.set(counted);
                }
                tokio::time::sleep(REST).await;
                // Who is the last to hold hands over to nobody.
                released_us.set((since(start_us) < micros(each)).then(clock::boot_us));
                release(lease).await?;
            }
            claimant.leases.close(LONGEST_TURN).await;
            Ok::<_, Failure>(())
        });
    }
    all(&mut running).await?;
    Ok(HandOver { waiters, latency: recording.take().latency() })
}

/// Many leases of one client, held for `each`, and at least for half a TTL, beyond the time that it takes to get them.
pub(super) async fn renewals(
    settings: &Rc<Settings>,
    count: u32,
    each: Duration,
) -> Result<Renewals, Failure> {
    let claimant = Claimant::connect(settings).await?;
    let leases = &claimant.leases;
    let ttl = Ttl::new(RENEWED_TTL).unwrap_or(Ttl::DEFAULT).min(leases.profile().max_ttl);
    let mut held = Vec::new();
    for first in (0..count).step_by(AT_ONCE as usize) {
        let mut running = JoinSet::new();
        for at in first..count.min(first + AT_ONCE) {
            let claimant = claimant.clone();
            let name = format!("held/{at}");
            running.spawn_local(async move { claimant.take(&name, Wait::No, ttl).await });
        }
        while let Some(lease) = running.join_next().await {
            held.push(lease.map_err(|error| broken(&error))??);
        }
    }
    let (before, cpu_us, start_us) = (leases.vitals().renewal_lateness.count, cpu_us(), clock::boot_us());
    // Each lease is renewed at least once.
    tokio::time::sleep(each.max(ttl.as_duration() / 2)).await;
    let (took_us, used_us) = (since(start_us), self::cpu_us().saturating_sub(cpu_us));
    let late = leases.vitals().renewal_lateness;
    let lost = held.iter().filter(|lease| lease.check().is_err()).count();
    let renewed = late.count.saturating_sub(before);
    give_back(held).await?;
    claimant.leases.close(LONGEST_TURN).await;
    Ok(Renewals {
        leases: count,
        ttl_ms: ttl.as_millis(),
        renewed,
        per_second: per_second(renewed, took_us),
        late: Latency {
            count: late.count,
            p50_us: micros(late.p50),
            p99_us: micros(late.p99),
            max_us: micros(late.max),
        },
        lost: u64::try_from(lost).unwrap_or(u64::MAX),
        cpu_ppm: per_second(used_us, took_us),
    })
}

async fn give_back(mut held: Vec<Lease>) -> Result<(), Failure> {
    while !held.is_empty() {
        let mut running = JoinSet::new();
        for lease in held.split_off(held.len().saturating_sub(AT_ONCE as usize)) {
            running.spawn_local(async move { lease.release().await.map(drop).map_err(Failure::from) });
        }
        all(&mut running).await?;
    }
    Ok(())
}

/// Waits for all; the first failure ends the others.
async fn all(running: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| broken(&error))??;
    }
    Ok(())
}

fn broken(error: &tokio::task::JoinError) -> Failure {
    leasehold::Error::new(leasehold::Kind::Unknown, format!("a task of the measurement broke down: {error}"))
        .into()
}

/// Processor time of this process, all threads.
fn cpu_us() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0 };
    let of = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or_default()
    };
    of(usage.user_time()) + of(usage.system_time())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
