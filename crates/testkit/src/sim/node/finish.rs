//! The end of a lease: released while the program waits, or in the background. Mirrors `crates/leasehold/src/lease.rs` and
//! `driver/chore.rs`.

use core::time::Duration;

use leasehold_core::{
    backoff::Backoff,
    holder::{Loss, State},
    request::Release,
};

use super::{Answer, CALL_LIMIT, Call, Chore, Job, Moment, Node, Purpose, Timer, Timing};
use crate::{check::What, sim::schedule::Finish};

/// `leasehold::lease::RELEASE_ATTEMPTS`.
const RELEASE_ATTEMPTS: u32 = 3;

impl Node {
    /// The program is done with the resource.
    pub(super) fn hold_over(&mut self, number: u32, now: Moment) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let finish = job.want.finish;
        let Some(kept) = &mut job.lease else { return };
        if finish == Finish::Never {
            return;
        }
        let transition = kept.holder.begin_release(now.reading);
        if transition.as_ref().is_some_and(|transition| matches!(transition.to, State::Lost(_))) {
            return self.turned(number, transition);
        }
        if kept.holder.state() != &State::Releasing {
            return;
        }
        let token = kept.holder.identity().token;
        let Some(job) = self.jobs.remove(&number) else { return };
        self.note(&job, What::Released { token });
        match finish {
            Finish::Release => {
                self.jobs.insert(number, job);
                self.release(number, now);
            }
            Finish::Drop | Finish::Never => self.drop_released(&job),
        }
    }

    pub(super) fn release(&mut self, number: u32, now: Moment) {
        let Some(Job { lease: Some(kept), .. }) = self.jobs.get(&number) else { return };
        let call = Call::Release(kept.holder.release_request(false));
        self.call(Purpose::Release(number), &call, CALL_LIMIT, now);
    }

    pub(super) fn release_answered(&mut self, number: u32, answer: &Answer, _now: Moment) {
        let Some(Job { lease: Some(kept), .. }) = self.jobs.get_mut(&number) else { return };
        if let Answer::Failed(error) = answer {
            kept.releasing += 1;
            if kept.releasing == RELEASE_ATTEMPTS || !error.is_transient() {
                if let Some(job) = self.jobs.remove(&number) {
                    self.drop_released(&job);
                }
                return;
            }
            let attempt = kept.releasing;
            let delay = Backoff::default().delay(attempt, self.choices.next());
            self.timer(Timer::Retry(number), Timing::Runtime, delay);
            return;
        }
        kept.holder.released();
        self.jobs.remove(&number);
    }

    /// The guard is dropped before its release was answered.
    fn drop_released(&mut self, job: &Job) {
        let Some(kept) = &job.lease else { return };
        self.chore(kept.holder.release_request(false), give_up(job));
    }

    /// The guard of a lost lease is dropped.
    pub(super) fn drop_lost(&mut self, job: &Job, loss: &Loss) {
        let Some(kept) = &job.lease else { return };
        if may_stand(loss) {
            self.chore(kept.holder.release_request(false), give_up(job));
        }
    }

    pub(super) fn chore(&mut self, release: Release, give_up: Duration) {
        let number = u32::try_from(self.serial()).unwrap_or_default();
        self.chores.insert(number, Chore { release, attempt: 0 });
        self.timer(Timer::ChoreOver(number), Timing::Runtime, give_up);
        self.work_off(number);
    }

    pub(super) fn work_off(&mut self, number: u32) {
        let Some(chore) = self.chores.get(&number) else { return };
        let call = Call::Release(chore.release.clone());
        let id = self.serial();
        self.calls.insert(id, Purpose::Chore(number));
        let mut orders = Vec::new();
        // A release is never answered before something was sent.
        let _none = self.client.begin(id, &call, leasehold_core::window::Reading::default(), &mut orders);
        self.carry_out(id, orders);
        self.timer(Timer::Deadline(id), Timing::Runtime, CALL_LIMIT);
    }

    pub(super) fn chore_answered(&mut self, number: u32, answer: &Answer) {
        let random = self.choices.next();
        let Some(chore) = self.chores.get_mut(&number) else { return };
        match answer {
            Answer::Failed(error) if error.is_transient() => {
                let delay = Backoff::default().delay(chore.attempt, random);
                chore.attempt += 1;
                self.timer(Timer::ChoreRetry(number), Timing::Runtime, delay);
            }
            _ => {
                self.chores.remove(&number);
            }
        }
    }
}

fn give_up(job: &Job) -> Duration {
    job.policy.ttl().as_duration() + job.policy.lock_delay()
}

/// `leasehold::lease::may_stand`.
const fn may_stand(loss: &Loss) -> bool {
    matches!(loss, Loss::WindowClosed | Loss::MaxHold | Loss::NoProgress | Loss::Revoked { .. })
}
