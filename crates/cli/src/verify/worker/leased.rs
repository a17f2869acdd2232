//! The worker that uses leases as they are meant to be used, and in addition writes where nobody checks.

use std::{collections::HashMap, time::Duration};

use leasehold::{
    Kind, Label, Lease, LeaseId, Leases, Namespace, NotAcquired, Resource, Token, Ttl, core::window::Margin,
};
use leasehold_testkit::{check::What, clock::boot_ns, random};

use super::{Hands, until, within};
use crate::verify::plan::nanos;

/// A claim waits for so many TTLs at most: longer than any fault lasts.
const WAIT: u32 = 20;
/// How long a coordinator that cannot be reached is left alone.
const RETRY: Duration = Duration::from_millis(200);
/// How long the last releases may take.
const CLOSE: Duration = Duration::from_secs(5);

/// What a worker knows of its grant.
struct Belief {
    resource: &'static str,
    /// The attempt, under which it appears in the history.
    id: LeaseId,
    token: Token,
    close_ns: u64,
}

pub(super) async fn contend(hands: &mut Hands) -> Result<(), String> {
    let Some(leases) = connect(hands).await? else { return Ok(()) };
    let mut worker = Worker { window_ns: window(hands)?, unknown_until_ns: 0, known: HashMap::new(), leases };
    while hands.goes_on().await? {
        worker.turn(hands).await?;
    }
    // What was dropped is released before this process is gone.
    worker.leases.close(CLOSE).await;
    Ok(())
}

/// Connects, as often as it takes; `None` when the run ends first.
async fn connect(hands: &mut Hands) -> Result<Option<Leases>, String> {
    let plan = &hands.plan;
    let namespace = Namespace::new(&plan.namespace).map_err(|invalid| invalid.to_string())?;
    let builder = Leases::builder(&plan.url).namespace(namespace).label(Label::from_lossy(&plan.name));
    while hands.goes_on().await? {
        match builder.clone().connect().await {
            Ok(leases) => return Ok(Some(leases)),
            Err(error) if error.is_transient() || error.kind() == Kind::Unknown => {
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(None)
}

/// How long a window lasts, from the send of the request that gave it.
fn window(hands: &Hands) -> Result<u64, String> {
    let ttl = Ttl::from_millis(hands.plan.ttl_ms).map_err(|invalid| invalid.to_string())?;
    Ok(nanos(Margin::DEFAULT.window_of(ttl)))
}

struct Worker {
    leases: Leases,
    window_ns: u64,
    /// Until then a claim whose outcome nobody knew may still stand, and what is found says nothing.
    unknown_until_ns: u64,
    /// The last grant that was had of each resource: its release may not have arrived.
    known: HashMap<&'static str, LeaseId>,
}

impl Worker {
    async fn turn(&mut self, hands: &mut Hands) -> Result<(), String> {
        let resource = hands.resource();
        let id = random::lease_id();
        hands.note(resource, id, What::Attempt)?;
        let ttl = hands.plan.ttl();
        let answer = self.leases.lease(resource).ttl(ttl).wait(ttl * WAIT).acquire().await;
        match answer {
            Ok(lease) => {
                self.known.insert(resource, lease.lease_id());
                match granted(hands, self.window_ns, (resource, id), &lease)? {
                    Some(belief) => self.hold(hands, lease, belief).await,
                    // Stopped on the way: it never believed.
                    None => hands.note(resource, id, What::GaveUp),
                }
            }
            Err(refused) => self.not_granted(hands, resource, id, &refused).await,
        }
    }

    /// Holds for a while: asks, takes its time, writes.
    async fn hold(&mut self, hands: &mut Hands, lease: Lease, mut belief: Belief) -> Result<(), String> {
        let (resource, id, token) = (belief.resource, belief.id, belief.token);
        let longest = hands.plan.ttl() * 3 / 2;
        let until_ns = until(hands.hold(longest));
        let pass = lease.pass();
        let seal = hands.registers.seal(&pass);
        // Unsealed it reads and writes nothing: older writes might still come.
        let is_sealed = hands.note_entry(id, seal)?;
        loop {
            if !self.look(hands, &lease, &mut belief)? {
                return Ok(());
            }
            let work = hands.time(8, 25);
            tokio::time::sleep(work).await;
            // The answer is a moment old, as it always is: whoever was stopped in between writes all the same.
            if is_sealed {
                let written = hands.registers.write(&pass);
                hands.note_entry(id, written)?;
            }
            let written = hands.registers.write_unfenced(resource, token);
            hands.note_entry(id, written)?;
            if boot_ns() >= until_ns {
                break;
            }
        }
        hands.note(resource, id, What::Released { token })?;
        // How it ended is in the history already; what could not be released runs out.
        let _ = within(hands.plan.ttl() * 2, lease.release()).await;
        Ok(())
    }

    /// Asks whether it still holds, and writes the answer down.
    fn look(&self, hands: &mut Hands, lease: &Lease, belief: &mut Belief) -> Result<bool, String> {
        let Belief { resource, id, token, close_ns } = *belief;
        let now_ns = boot_ns();
        if lease.check().is_err() {
            hands.note(resource, id, What::Lost { token })?;
            return Ok(false);
        }
        let closes_ns = lease.closes().boot_ns;
        if now_ns >= close_ns {
            // Held, but the looks were further apart than the window: what was written down does not reach that far.
            hands.note(resource, id, What::Released { token })?;
            return Ok(false);
        }
        let what = if closes_ns > close_ns {
            belief.close_ns = closes_ns;
            What::Extended {
                token,
                sent_ns: Some(closes_ns.saturating_sub(self.window_ns)),
                close_ns: closes_ns,
            }
        } else {
            What::Held { token }
        };
        hands.note_at(now_ns, resource, id, what)?;
        Ok(true)
    }

    /// What a claim that came to nothing leaves behind: nothing, or nobody knows.
    async fn not_granted(
        &mut self,
        hands: &mut Hands,
        resource: &'static str,
        id: LeaseId,
        refused: &NotAcquired,
    ) -> Result<(), String> {
        hands.note(resource, id, What::GaveUp)?;
        let now_ns = boot_ns();
        let NotAcquired::Failed(error) = refused else { return Ok(()) };
        if error.kind() == Kind::Unknown {
            self.unknown_until_ns = now_ns + 3 * nanos(hands.plan.ttl());
        } else if now_ns > self.unknown_until_ns {
            hands.note(resource, id, What::Disowned)?;
            self.look_back(hands, resource, id).await?;
        }
        tokio::time::sleep(RETRY).await;
        Ok(())
    }

    /// This process claims one thing at a time and was just told that nothing of the claim stands: whatever has its name is
    /// that claim's.
    async fn look_back(&self, hands: &mut Hands, resource: &'static str, id: LeaseId) -> Result<(), String> {
        let name = Resource::new(resource).map_err(|invalid| invalid.to_string())?;
        let Ok(found) = self.leases.inspect(&name).await else { return Ok(()) };
        let own = found.record.filter(|record| {
            record.holder_id == self.leases.holder_id() && self.known.get(resource) != Some(&record.lease_id)
        });
        match own {
            Some(record) => hands.note(resource, id, What::Stands { token: record.token }),
            None => Ok(()),
        }
    }
}

/// Writes down that it believes from now on; `None` when it was stopped for so long that it may not.
fn granted(
    hands: &mut Hands,
    window_ns: u64,
    (resource, id): (&'static str, LeaseId),
    lease: &Lease,
) -> Result<Option<Belief>, String> {
    let open_ns = boot_ns();
    let close_ns = lease.closes().boot_ns;
    if lease.check().is_err() || open_ns >= close_ns {
        return Ok(None);
    }
    let token = lease.token();
    let sent_ns = Some(close_ns.saturating_sub(window_ns).min(open_ns));
    let ttl_ms = Some(hands.plan.ttl_ms);
    hands.note_at(open_ns, resource, id, What::Granted { token, sent_ns, open_ns, close_ns, ttl_ms })?;
    Ok(Some(Belief { resource, id, token, close_ns }))
}
