//! What the program does while it holds: it raises the fence before it reads, asks before every write whether the resource is
//! still its own, and sends token, number and the version it read along with each. A write that was sent may still arrive
//! late: that is what the fence is for.

use core::time::Duration;

use super::{Effect, Job, Kept, Moment, Mutant, Node, Timer, Timing, Verdict};
use crate::check::What;

/// How far the work under a lease is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// The version of the resource that it knows.
    version: Option<u64>,
    op_seq: u64,
}

impl Node {
    pub(super) fn start_work(&mut self, number: u32) {
        let Some(job @ Job { lease: Some(kept), .. }) = self.jobs.get(&number) else { return };
        let resource = usize::from(job.want.resource);
        let (token, lease_id) = (kept.holder.identity().token, job.claim.lease_id);
        self.effects.push(match self.mutant {
            Some(Mutant::NoSeal) => Effect::Look { job: number, resource },
            _ => Effect::Seal { job: number, resource, token, lease_id },
        });
    }

    pub(super) fn write(&mut self, number: u32, now: Moment) {
        let Some(mut job) = self.jobs.remove(&number) else { return };
        let Some(kept) = &mut job.lease else { return };
        let transition = kept.holder.tick(now.reading);
        let Kept { holder, work, .. } = kept;
        if holder.state().may_work()
            && let Some(based_on) = work.version
        {
            work.op_seq += 1;
            let (token, op_seq) = (holder.identity().token, work.op_seq);
            let (resource, lease_id) = (usize::from(job.want.resource), job.claim.lease_id);
            self.note(&job, What::Held { token });
            self.effects.push(Effect::Write { job: number, resource, token, lease_id, op_seq, based_on });
        }
        self.jobs.insert(number, job);
        self.turned(number, transition);
    }

    pub(super) fn fenced(&mut self, number: u32, verdict: Verdict, _now: Moment) {
        let Some(Job { want, lease: Some(kept), .. }) = self.jobs.get_mut(&number) else { return };
        match verdict {
            Verdict::Admitted { version } => {
                kept.work.version = Some(version);
                let every = Duration::from_millis(u64::from(want.write_every_ms));
                self.timer(Timer::Write(number), Timing::Runtime, every);
            }
            // Somebody newer was here: this program has nothing more to do, and finds out why by its lease.
            Verdict::Stale { stored } => {
                let floor = self.floors.entry(usize::from(want.resource)).or_insert(stored);
                *floor = (*floor).max(stored);
            }
        }
    }
}
