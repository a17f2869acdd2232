//! Keeping leases: time acts on them, renewals leave in batches, answers are applied one by one. Mirrors
//! `crates/leasehold/src/driver/{mod,registry,renew}.rs`.

use core::time::Duration;

use leasehold_core::{
    Error, Kind, LeaseId,
    holder::{Holder, Loss, State, Transition},
    record::Renewed,
    request::Renewal,
};

use super::{Answer, CALL_LIMIT, Call, Effect, Job, Moment, Mutant, Node, Purpose, Timer, Timing};
use crate::check::What;

/// `leasehold::driver::registry::GATHER`.
const GATHER: u32 = 8;

impl Node {
    /// Sets the alarm to when a lease next wants attention.
    pub(super) fn plan_turn(&mut self, now: Moment) {
        let boot_ns = now.reading.boot_ns;
        let next = self
            .jobs
            .values()
            .filter_map(|job| job.lease.as_ref()?.holder.wake_in(now.reading))
            .map(|wake_in| boot_ns + u64::try_from(wake_in.as_nanos()).unwrap_or(u64::MAX / 2))
            .min();
        let Some(next_ns) = next else { return };
        let next_ns = next_ns.max(boot_ns + 1);
        if self.turn.is_some_and(|(_, at_ns)| at_ns <= next_ns) {
            return;
        }
        if let Some((timer, _)) = self.turn.take() {
            self.timers.remove(&timer);
        }
        let timer = self.timer(Timer::Turn, Timing::Alarm, Duration::from_nanos(next_ns - boot_ns));
        self.turn = Some((timer, next_ns));
    }

    /// Lets time act on every lease, then sends the renewals that are due.
    pub(super) fn take_turn(&mut self, now: Moment) {
        let numbers: Vec<u32> = self.jobs.keys().copied().collect();
        let mut due: Vec<(u32, Renewal)> = Vec::new();
        for number in numbers {
            let Some(Job { lease: Some(kept), .. }) = self.jobs.get_mut(&number) else { continue };
            let transition = kept.holder.tick(now.reading);
            let ahead = kept.holder.policy().renew_every() / GATHER;
            let ahead = if due.is_empty() { Duration::ZERO } else { ahead };
            if kept.holder.wants_renewal(now.reading, ahead) {
                due.push((number, kept.holder.begin_renewal(now.reading)));
            }
            self.turned(number, transition);
        }
        let class = |renewal: &Renewal| patience(renewal).as_nanos().ilog2();
        while let Some((_, first)) = due.first() {
            let (of, most) = (class(first), self.client.batch());
            let mut part = Vec::new();
            due.retain(|entry| {
                let goes = class(&entry.1) == of && part.len() < most;
                if goes {
                    part.push(entry.clone());
                }
                !goes
            });
            let limit = part.iter().map(|(_, renewal)| patience(renewal)).min().unwrap_or(CALL_LIMIT);
            let batch = part.iter().map(|(number, _)| (*number, now)).collect();
            let call = Call::Renew(part.into_iter().map(|(_, renewal)| renewal).collect());
            self.call(Purpose::Renew(batch), &call, limit, now);
        }
    }

    pub(super) fn renewed(&mut self, batch: &[(u32, Moment)], answer: Answer, now: Moment) {
        let answers: Vec<Result<Renewed, Error>> = match answer {
            Answer::Renewed(answers) if answers.len() == batch.len() => answers,
            Answer::Failed(error) => vec![Err(error); batch.len()],
            _ => vec![Err(Error::new(Kind::Corrupt, "")); batch.len()],
        };
        let random = self.choices.next();
        for (&(number, sent), answer) in batch.iter().zip(answers) {
            self.apply(number, sent, answer, random, now);
        }
    }

    fn apply(&mut self, number: u32, sent: Moment, answer: Result<Renewed, Error>, random: u64, now: Moment) {
        let retry = self.choices.next();
        let mutant = self.mutant;
        let Some(Job { lease: Some(kept), .. }) = self.jobs.get_mut(&number) else { return };
        let extended = match &answer {
            Ok(Renewed::Extended { ttl }) => Some(*ttl),
            _ => None,
        };
        let counted = if mutant == Some(Mutant::MeasureFromReply) { now } else { sent };
        let transition = match answer {
            Ok(answer) => kept.holder.renewal_answered(counted.reading, answer, now.reading, random),
            Err(error) => kept.holder.renewal_failed(error.kind(), now.reading, retry),
        };
        if mutant == Some(Mutant::Resurrect) && extended.is_some() && kept.holder.state().is_final() {
            let belief = leasehold_core::holder::Belief { sent: sent.reading, ..kept.holder.belief() };
            if let Ok(back) = Holder::resumed(belief, *kept.holder.policy(), self.rule, now.reading) {
                kept.holder = back;
            }
        }
        if extended.is_some() && kept.holder.state().may_work() {
            self.extended(number, sent);
        }
        self.turned(number, transition);
    }

    fn extended(&mut self, number: u32, sent: Moment) {
        let Some(job) = self.jobs.remove(&number) else { return };
        if let Some(kept) = &job.lease {
            let token = kept.holder.identity().token;
            self.note(&job, What::Extended { token, sent_ns: Some(sent.at_ns), close_ns: 0 });
            self.deadline(&job, &kept.holder);
        }
        self.jobs.insert(number, job);
    }

    pub(super) fn deadline(&mut self, job: &Job, holder: &Holder) {
        let (lease_id, closes) = (job.claim.lease_id, holder.window().closes());
        self.effects.push(Effect::Deadline { lease_id, closes });
    }

    /// A lease changed its state: a lost one is dropped by the program, which has no more use for it.
    pub(super) fn turned(&mut self, number: u32, transition: Option<Transition>) {
        let Some(State::Lost(loss)) = transition.map(|transition| transition.to) else { return };
        let Some(job) = self.jobs.remove(&number) else { return };
        let Some(kept) = &job.lease else { return };
        let token = kept.holder.identity().token;
        if matches!(loss, Loss::Revoked { .. } | Loss::MaxHold | Loss::NoProgress) {
            self.note(&job, What::Told);
        }
        self.note(&job, What::Lost { token });
        if self.mutant == Some(Mutant::Resurrect) {
            // It goes on listening for answers, and working.
            self.jobs.insert(number, job);
            return;
        }
        self.drop_lost(&job, &loss);
    }

    pub(super) fn woken(&mut self, lease_id: LeaseId, now: Moment) {
        let found = self.jobs.iter_mut().find(|(_, job)| job.claim.lease_id == lease_id);
        let Some((&number, job)) = found else { return };
        if let Some(kept) = &mut job.lease {
            kept.holder.poke();
            return self.take_turn(now);
        }
        match job.asleep.take() {
            Some(timer) => {
                self.timers.remove(&timer);
                self.ask(number, now);
            }
            None => job.rung = true,
        }
    }
}

/// `leasehold::driver::renew::patience`.
fn patience(renewal: &Renewal) -> Duration {
    (renewal.ttl.as_duration() / 4).min(CALL_LIMIT)
}
