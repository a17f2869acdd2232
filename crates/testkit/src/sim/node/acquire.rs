//! One acquire call: the loop that claims, waits and takes. Mirrors `crates/leasehold/src/acquisition.rs`.

use core::time::Duration;

use leasehold_core::{
    Error, Kind,
    backoff::Backoff,
    holder::{Holder, Identity, Unusable},
    policy::Policy,
    record::{Acquired, Grant, Released},
    request::{Claim, Release},
    waiter::{Next, Waiter},
    window::ClockRule,
};

use super::{
    Answer, CALL_LIMIT, Call, Effect, Job, Kept, Moment, Mutant, Node, Purpose, Timer, Timing, Want, Work,
    ttl,
};
use crate::check::What;

/// What follows once a claim has been taken back, or could not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    Nothing,
    TooLate,
    End,
    GiveUp,
}

impl Node {
    pub(super) fn begin(&mut self, want: Want, now: Moment) {
        let builder = Policy::builder(ttl(want.ttl_ms))
            .lock_delay(Duration::from_millis(u64::from(want.lock_delay_ms)))
            .max_hold(want.max_hold_ms.map(|ms| Duration::from_millis(u64::from(ms))));
        let Ok(policy) = builder.build() else { return };
        let waiter = Waiter::new(want.wait(), Backoff::default(), self.evented, self.rule, now.reading);
        let number = u32::try_from(self.serial()).unwrap_or_default();
        let resource = usize::from(want.resource);
        let claim = Claim {
            resource: self.resources[resource].clone(),
            lease_id: self.lease_id(),
            holder_id: self.holder_id,
            label: self.label.clone(),
            ttl: policy.ttl(),
            lock_delay: policy.lock_delay(),
            floor: self.floors.get(&resource).copied(),
            queue: waiter.queues(),
            once_per: None,
        };
        let job = Job {
            want,
            claim,
            policy,
            waiter,
            owing: false,
            unanswered: 0,
            sent: now,
            asleep: None,
            rung: false,
            then: Then::Nothing,
            lease: None,
        };
        self.note(&job, What::Attempt);
        self.jobs.insert(number, job);
        self.ask(number, now);
    }

    pub(super) fn ask(&mut self, number: u32, now: Moment) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.owing = true;
        job.sent = now;
        let window = job.policy.margin().window_of(job.policy.ttl());
        let limit = job.policy.call_timeout(window).max(CALL_LIMIT / 5).min(CALL_LIMIT);
        let call = Call::Acquire(job.claim.clone());
        self.call(Purpose::Claim(number), &call, limit, now);
    }

    pub(super) fn claim_answered(&mut self, number: u32, answer: Answer, now: Moment) {
        let random = self.choices.next();
        if let (Answer::Acquired(Acquired::Quarantined { remaining, .. }), Some(job)) =
            (&answer, self.jobs.get(&number))
        {
            let left_ms = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
            let (resource, lease_id) = (usize::from(job.want.resource), job.claim.lease_id);
            let what = What::Quarantined { sent_ns: job.sent.at_ns, left_ms };
            self.effects.push(Effect::Note { resource, lease_id, what });
        }
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let next = match answer {
            Answer::Acquired(answer) => job.waiter.answered(answer, now.reading, random),
            Answer::Failed(error) => {
                job.unanswered += u32::from(error.kind() == Kind::Unknown);
                job.waiter.failed(error, now.reading, random)
            }
            Answer::Renewed(_) | Answer::Released(_) => return,
        };
        match next {
            Next::Take(grant) => self.take(number, &grant, now),
            next => self.follow(number, next, now),
        }
    }

    fn follow(&mut self, number: u32, next: Next, now: Moment) {
        match next {
            Next::Sleep(limit) => self.sleep(number, limit, now),
            Next::StartOver(_) => {
                self.start_over(number);
                self.ask(number, now);
            }
            Next::Refuse(_) => self.leave_queue(number, now),
            Next::Fail(error) => self.give_up(number, &error, now),
            Next::Take(_) | Next::AlreadyDone { .. } => self.drop_job(number, now),
        }
    }

    fn take(&mut self, number: u32, grant: &Grant, now: Moment) {
        let random = self.choices.next();
        let Some(mut job) = self.jobs.remove(&number) else { return };
        let resource = usize::from(job.want.resource);
        let identity = Identity {
            resource: job.claim.resource.clone(),
            lease_id: job.claim.lease_id,
            token: grant.token,
        };
        let known = self.floors.get(&resource).copied();
        let sent = if self.mutant == Some(Mutant::MeasureFromReply) { now } else { job.sent };
        let granted =
            Holder::granted(identity, grant, job.policy, self.rule, known, sent.reading, now.reading, random);
        match granted {
            Ok(holder) => {
                let floor = self.floors.entry(resource).or_insert(grant.token);
                *floor = (*floor).max(grant.token);
                job.owing = false;
                self.granted(number, job, holder, grant);
            }
            Err(Unusable::TooLate) => {
                job.then = Then::TooLate;
                self.jobs.insert(number, job);
                self.take_back(number, now);
            }
            Err(Unusable::Regression { .. }) => {
                job.then = Then::End;
                self.jobs.insert(number, job);
                self.take_back(number, now);
            }
        }
    }

    fn granted(&mut self, number: u32, mut job: Job, holder: Holder, grant: &Grant) {
        let what = What::Granted {
            token: grant.token,
            sent_ns: Some(job.sent.at_ns),
            open_ns: 0,
            close_ns: 0,
            ttl_ms: Some(grant.ttl.as_millis()),
        };
        self.note(&job, what);
        self.deadline(&job, &holder);
        if let Some(ms) = job.want.max_hold_ms {
            self.note(&job, What::Limited { hold_ms: u64::from(ms) });
        }
        let hold = Duration::from_millis(u64::from(job.want.hold_ms));
        job.lease = Some(Kept { holder, work: Work::default(), releasing: 0 });
        self.jobs.insert(number, job);
        self.timer(Timer::HoldOver(number), Timing::Runtime, hold);
        self.start_work(number);
    }

    fn sleep(&mut self, number: u32, limit: Duration, now: Moment) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if std::mem::take(&mut job.rung) {
            return self.ask(number, now);
        }
        let timer = self.timer(Timer::Sleep(number), Timing::Runtime, limit);
        if let Some(job) = self.jobs.get_mut(&number) {
            job.asleep = Some(timer);
        }
    }

    /// A new lease id: the old one has been used up.
    fn start_over(&mut self, number: u32) {
        let lease_id = self.lease_id();
        let Some(mut job) = self.jobs.remove(&number) else { return };
        self.note(&job, What::GaveUp);
        job.claim.lease_id = lease_id;
        (job.owing, job.unanswered, job.rung) = (false, 0, false);
        self.note(&job, What::Attempt);
        self.jobs.insert(number, job);
    }

    /// A definite "no" leaves nothing but the place in the queue.
    fn leave_queue(&mut self, number: u32, now: Moment) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if job.claim.queue {
            job.then = Then::End;
            self.take_back(number, now);
        } else {
            job.owing = false;
            self.drop_job(number, now);
        }
    }

    fn give_up(&mut self, number: u32, _error: &Error, now: Moment) {
        let Some(mut job) = self.jobs.remove(&number) else { return };
        if self.mutant == Some(Mutant::CancelIsFailure) {
            // No answer counts as a refusal: nothing is taken back, and the caller is told that nothing stands.
            job.owing = false;
            self.note(&job, What::Disowned);
            self.jobs.insert(number, job);
            return self.drop_job(number, now);
        }
        if job.unanswered > 0 {
            job.then = Then::GiveUp;
            self.jobs.insert(number, job);
            return self.take_back(number, now);
        }
        job.owing = job.waiter.queues();
        self.note(&job, What::Disowned);
        self.jobs.insert(number, job);
        self.drop_job(number, now);
    }

    fn take_back(&mut self, number: u32, now: Moment) {
        let Some(job) = self.jobs.get(&number) else { return };
        let call = Call::Release(own_release(&job.claim));
        self.call(Purpose::TakeBack(number), &call, CALL_LIMIT, now);
    }

    pub(super) fn taken_back(&mut self, number: u32, answer: &Answer, now: Moment) {
        let random = self.choices.next();
        let Some(mut job) = self.jobs.remove(&number) else { return };
        let given_back = match answer {
            Answer::Released(released) => Some(released),
            _ => None,
        };
        job.owing &= given_back.is_none();
        match std::mem::replace(&mut job.then, Then::Nothing) {
            Then::TooLate => {
                if given_back.is_none() {
                    self.leave_to_the_driver(&job);
                }
                self.jobs.insert(number, job);
                self.start_over(number);
                if let Some(job) = self.jobs.get_mut(&number) {
                    let next = job.waiter.too_late(now.reading, random);
                    self.follow(number, next, now);
                }
                return;
            }
            Then::GiveUp if given_back.is_some_and(|answer| self.settles(answer, job.unanswered)) => {
                self.note(&job, What::Disowned);
            }
            Then::GiveUp | Then::Nothing | Then::End => {}
        }
        self.jobs.insert(number, job);
        self.drop_job(number, now);
    }

    /// True when the answer to taking a claim back makes it certain that nothing of the claim stands, now or later.
    fn settles(&self, answer: &Released, unanswered: u32) -> bool {
        self.rule == ClockRule::Boot || unanswered == 1 && matches!(answer, Released::Ended)
    }

    /// The program drops the future of an acquire that is under way.
    pub(super) fn cancel(&mut self, now: Moment) {
        let waiting = self.jobs.iter().find(|(_, job)| job.lease.is_none()).map(|(&number, _)| number);
        if let Some(number) = waiting {
            self.drop_calls_of(number);
            self.drop_job(number, now);
        }
    }

    fn drop_calls_of(&mut self, number: u32) {
        let of = |purpose: &Purpose| matches!(purpose, Purpose::Claim(job) | Purpose::TakeBack(job) if *job == number);
        let dropped: Vec<u64> =
            self.calls.iter().filter(|(_, purpose)| of(purpose)).map(|(&id, _)| id).collect();
        for call in dropped {
            self.calls.remove(&call);
            self.client.dropped(call);
        }
    }

    /// The acquisition is dropped without a lease.
    pub(super) fn drop_job(&mut self, number: u32, _now: Moment) {
        let Some(job) = self.jobs.remove(&number) else { return };
        self.note(&job, What::GaveUp);
        if job.owing && self.mutant != Some(Mutant::CancelIsFailure) {
            self.leave_to_the_driver(&job);
        }
    }

    fn leave_to_the_driver(&mut self, job: &Job) {
        let give_up = job.claim.ttl.as_duration() + job.claim.lock_delay;
        self.chore(own_release(&job.claim), give_up);
    }
}

fn own_release(claim: &Claim) -> Release {
    Release { resource: claim.resource.clone(), lease_id: claim.lease_id, token: None, succeeded: false }
}
