//! Keeping the lease while the command runs, and judging how both ended.

use std::{fs, path::PathBuf, pin::Pin, time::Duration};

use leasehold::{
    Belief, Ended as Concluded, Error, Lease, LeaseHandle, Leases, Loss,
    blocking::block_on,
    core::{
        holder::Identity,
        record::{Gone, Released, Renewed},
        request::{Release, Renewal},
        window::{Margin, Reading, Window},
    },
    preempt::{Preemption, Preemptions},
    settings::Follower,
};

use super::{
    Note, Plan, Restart, Verdict,
    acquire::request,
    begin::{margin, start},
    drain::Drain,
    handoff, nanos,
    poll::poll_once,
    preempted::{self, OnPreempt},
    retune::Retune,
    system,
};
use crate::supervise::{
    Ended, Event, Front, GuardEvent, Process, Resumed, Status, StopReason, boottime_ns, leave_stdio,
};

/// After a loss to another holder nothing is owed to the command but a moment to notice.
const DYING_BREATH: Duration = Duration::from_millis(100);

/// What the lease has to say.
enum Word {
    /// A good renewal moved the deadline on.
    Extended(Reading),
    /// It is lost.
    Lost(Loss),
}

type Listening = Pin<Box<dyn Future<Output = Word>>>;
/// The next wish for the lease, and whoever hears of the one after it.
type Wishes = Pin<Box<dyn Future<Output = (Option<Preemption>, Preemptions)>>>;

/// The lease on its side, the guard on the other.
struct Keeping<'a> {
    plan: &'a Plan,
    leases: &'a Leases,
    front: Front,
    lease: Option<Lease>,
    /// The lease while nobody in this process has the care of it: renewed by the guard, or lost in its hands.
    handed: Option<Belief>,
    listening: Listening,
    wishes: Wishes,
    /// When the lease was last known to end, on BOOTTIME: to judge whether the command ended before.
    closes_ns: u64,
    loss: Option<Loss>,
    /// The deadline before which the guard was roused last.
    roused_ns: u64,
    /// The drain, once it has begun.
    drain: Option<Drain>,
    /// The file that tells the command who asked for its lease.
    told: Option<PathBuf>,
    /// Looks whether the settings have another TTL by now.
    retune: Retune,
    notes: &'a mut Vec<Note>,
    asked_to_end: &'a mut bool,
}

/// Starts the command and stays with it to the end.
pub(super) fn keep(
    plan: &Plan,
    mut front: Front,
    leases: &Leases,
    lease: Lease,
    follower: Option<Follower>,
    notes: &mut Vec<Note>,
    asked_to_end: &mut bool,
) -> Verdict {
    let closes = lease.closes();
    if let Err(reason) = front.start(start(plan, leases, &lease, closes)) {
        drop(front);
        notes.extend(block_on(lease.release()).err().map(Note::NotReleased));
        let what = format!("the guard process has ended, and without it nothing is started: {reason}");
        let error = Error::new(leasehold::Kind::Unavailable, what);
        return Verdict::Failed(error.advise("start the command again"));
    }
    let listening = listen(lease.handle(), closes);
    let closes_ns = closes.boot_ns;
    let wishes = hear_wishes(lease.preemptions());
    let (lease, handed) = (Some(lease), None);
    Keeping {
        plan,
        leases,
        front,
        lease,
        handed,
        listening,
        wishes,
        closes_ns,
        loss: None,
        roused_ns: 0,
        drain: None,
        told: None,
        retune: Retune::begin(plan, follower),
        notes,
        asked_to_end,
    }
    .run()
}

fn listen(lease: LeaseHandle, known: Reading) -> Listening {
    Box::pin(async move {
        match lease.closes_after(known).await {
            Some(closes) => Word::Extended(closes),
            None => Word::Lost(lease.lost().await),
        }
    })
}

fn hear_wishes(mut preemptions: Preemptions) -> Wishes {
    Box::pin(async move {
        let wish = preemptions.next().await;
        (wish, preemptions)
    })
}

impl Keeping<'_> {
    fn run(mut self) -> Verdict {
        let waker = self.front.waker();
        loop {
            while let Some(word) =
                self.lease.as_ref().and_then(|_| poll_once(self.listening.as_mut(), &waker))
            {
                self.hear(word);
            }
            while let Some((wish, more)) =
                self.lease.as_ref().and_then(|_| poll_once(self.wishes.as_mut(), &waker))
            {
                self.wished(wish, more);
            }
            match self.front.next_event(self.patience()) {
                Ok(Event::Timeout) => self.time_passed(),
                Ok(Event::Guard(GuardEvent::ChildStopped { signal })) => self.suspend(signal),
                // From now on the pipes are the command's: a reader sees their end when the command closes them.
                Ok(Event::Guard(GuardEvent::Started { .. })) => self.started(),
                Ok(Event::Guard(GuardEvent::SpawnFailed { errno })) => return self.not_started(errno),
                Ok(Event::Guard(GuardEvent::Ended(ended))) => return self.ended(ended),
                Ok(Event::Guard(GuardEvent::Died { left })) => return self.guard_died(left),
                Ok(Event::Signal(signal)) => self.heed(signal.signo),
                Ok(_) => {}
                Err(reason) => {
                    // Dropping the front ends the command, after which the guard releases.
                    return Verdict::Failed(system("the command can no longer be watched", &reason));
                }
            }
        }
    }

    fn started(&self) {
        // Another term of the command may follow, with the same pipes.
        if self.plan.restart == Restart::Never {
            drop(leave_stdio());
        }
        if let Some(lease) = &self.lease {
            self.plan.notify.ready(self.plan.resource.as_str(), lease.token().get());
        }
    }

    /// A signal came, and the command has it. SIGTERM begins a drain: the lease is kept until the command has really ended.
    fn heed(&mut self, signo: i32) {
        *self.asked_to_end |= matches!(signo, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT);
        if signo != libc::SIGTERM {
            return;
        }
        self.front.rouse_guard();
        self.lease.iter().for_each(|lease| lease.drain());
        let now_ns = boottime_ns();
        match self.drain {
            None => {
                self.plan.notify.stopping("asked to end: waiting for the command");
                self.drain = Some(Drain::begin(now_ns, self.plan.terms.drain_timeout));
            }
            Some(drain) if drain.is_urged(now_ns) => self.force(),
            Some(_) => {}
        }
    }

    /// Somebody asks for the lease. The command is told as by SIGTERM, and must have ended when the time that it was given is
    /// over; a drain that is under way has its own time.
    fn wished(&mut self, wish: Option<Preemption>, more: Preemptions) {
        self.wishes = Box::pin(std::future::pending());
        let (Some(wish), Some(lease), None) = (wish, &self.lease, &self.loss) else { return };
        if self.plan.on_preempt == OnPreempt::Refuse {
            wish.refuse("by --on-preempt refuse");
            self.wishes = hear_wishes(more);
            return;
        }
        let left = wish.remaining();
        // Without the file the command still has the signal.
        let path = preempted::path(lease.lease_id());
        let _ = preempted::write(&path, &wish, left);
        self.told = Some(path);
        let (by, reason) = (wish.by().to_string(), wish.reason().to_string());
        self.notes.push(Note::Preempted { by, reason });
        wish.accept();
        self.front.rouse_guard();
        if self.drain.is_none() {
            self.plan.notify.stopping("asked to hand over: waiting for the command");
            let limit = left.saturating_sub(self.plan.terms.grace);
            self.drain = Some(Drain::begin(boottime_ns(), Some(limit)));
            // A guard that is gone is learnt of by the next event.
            let _ = self.front.remote().signal(libc::SIGTERM);
        }
    }

    /// The drain has taken long enough: the tree is ended, and then the lease is released.
    fn force(&mut self) {
        if let Some(drain) = self.drain.as_mut().filter(|drain| !drain.forced) {
            drain.forced = true;
            self.notes.push(Note::DrainedByForce);
            let _ = self.front.remote().stop(self.plan.terms.grace);
        }
    }

    /// True when the tree was ended because of a drain, and not because of the lease.
    fn is_forced(&self) -> bool {
        self.drain.is_some_and(|drain| drain.forced) && self.loss.is_none()
    }

    /// The next moment at which something is due: the end of a drain, or the moment by which the guard must have ended
    /// everything, when half of its margin is left.
    fn patience(&self) -> Option<Duration> {
        let left = |until_ns: u64| Duration::from_nanos(until_ns.saturating_sub(boottime_ns()));
        let rouse = (self.roused_ns != self.closes_ns).then(|| self.rouse_at_ns());
        let drain = self.drain.and_then(|drain| drain.due_ns());
        rouse.into_iter().chain(drain).chain(self.retune.due_ns()).min().map(left)
    }

    fn rouse_at_ns(&self) -> u64 {
        self.closes_ns.saturating_sub(nanos(margin(self.plan) / 2))
    }

    fn time_passed(&mut self) {
        let now_ns = boottime_ns();
        if self.drain.and_then(|drain| drain.due_ns()).is_some_and(|due_ns| due_ns <= now_ns) {
            self.force();
        }
        if let Some(lease) = self.lease.as_ref().filter(|_| self.retune.is_due(now_ns)) {
            self.retune.look(now_ns, self.plan, self.leases, lease);
        }
        if self.rouse_at_ns() <= now_ns {
            self.rouse();
        }
    }

    /// The deadline is nearly over and the guard has said nothing. If somebody has stopped it, it goes on now, and its first
    /// act is the deadline.
    fn rouse(&mut self) {
        self.front.rouse_guard();
        self.roused_ns = self.closes_ns;
    }

    fn hear(&mut self, word: Word) {
        // Somebody may have stopped the guard. It has to hear this, and to reap the command if that has ended.
        self.front.rouse_guard();
        match word {
            Word::Extended(closes) => {
                self.closes_ns = closes.boot_ns;
                // A guard that is gone is learnt of by the next event.
                let _ = self.front.remote().extend(closes.boot_ns);
                if let Some(lease) = &self.lease {
                    self.listening = listen(lease.handle(), closes);
                }
            }
            Word::Lost(Loss::WindowClosed) if self.guard_went_on() => {}
            Word::Lost(loss) => self.lose(loss),
        }
    }

    /// The lease is lost: the tree must end, and then it may be released.
    fn lose(&mut self, loss: Loss) {
        let grace = match &loss {
            // Renewals are refused, but the resource stays busy until the old deadline: time to end well. At the
            // deadline itself the guard has acted already.
            Loss::Revoked { freed: false, .. } | Loss::WindowClosed | Loss::MaxHold => self.plan.terms.grace,
            _ => DYING_BREATH.min(self.plan.terms.grace),
        };
        self.loss = Some(loss);
        self.listening = Box::pin(std::future::pending());
        let _ = self.front.remote().stop(grace);
    }

    /// A stop of the whole process group stopped this process before it could hand anything over. The guard then renews
    /// unasked, and where it has come to is the deadline, not where this process fell asleep. True: it has seen to it.
    fn guard_went_on(&mut self) -> bool {
        match self.front.take_back() {
            Ok(Resumed::Held { lost: true, .. }) => {
                let belief = self.lease.as_ref().map(|lease| lease.belief());
                let loss = belief.map_or(Loss::WindowClosed, |belief| self.ask_why(belief));
                self.lose(loss);
                true
            }
            Ok(Resumed::Held { deadline_ns, .. }) if deadline_ns > self.closes_ns => {
                self.handed = self.lease.take().map(Lease::forsake);
                self.resume(deadline_ns);
                true
            }
            _ => false,
        }
    }

    /// The command was stopped: the guard renews while this process is stopped too.
    fn suspend(&mut self, signal: i32) {
        // Everything is being stopped: what is left of it is no job to come back to.
        if self.loss.is_some() {
            return;
        }
        let Some(lease) = &self.lease else { return };
        match lease.check() {
            // Perhaps only here: this process may have been stopped together with the command, and the guard have renewed.
            Ok(()) | Err(Loss::WindowClosed) => {}
            Err(loss) => return self.lose(loss),
        }
        // Held or not, it is not released here: the command lives.
        self.listening = Box::pin(std::future::pending());
        let Some(belief) = self.lease.take().map(Lease::forsake) else { return };
        let handoff = handoff::encode(&belief, self.plan.terms.max_hold);
        self.handed = Some(belief);
        self.wishes = Box::pin(std::future::pending());
        match self.front.suspend(signal, handoff) {
            Ok(Resumed::Held { deadline_ns, lost: false }) => self.resume(deadline_ns),
            Ok(Resumed::Held { lost: true, .. }) => {
                self.loss = self.handed.clone().map(|belief| self.ask_why(belief));
            }
            // What happened meanwhile is the next event.
            Ok(Resumed::Over) => {}
            // The guard must not go on renewing for a front that cannot know of it.
            Err(_) => self.lose(Loss::WindowClosed),
        }
    }

    /// The guard learnt that the lease is lost, and not why: the coordinator knows.
    fn ask_why(&self, belief: Belief) -> Loss {
        let renewal = Renewal {
            resource: belief.identity.resource,
            lease_id: belief.identity.lease_id,
            token: belief.identity.token,
            ttl: belief.ttl,
            lock_delay: Duration::ZERO,
        };
        match block_on(self.leases.renew_once(renewal)) {
            Ok(Renewed::Gone(gone)) => gone.into(),
            _ => Loss::WindowClosed,
        }
    }

    /// Goes on renewing from where the guard has come to.
    fn resume(&mut self, deadline_ns: u64) {
        let Some(mut belief) = self.handed.clone() else { return };
        let window = Window::new(belief.sent, belief.ttl, Margin::DEFAULT, self.leases.profile().clock);
        let moved = Duration::from_nanos(deadline_ns.saturating_sub(window.closes().boot_ns));
        belief.sent = belief.sent.plus(moved);
        self.closes_ns = self.closes_ns.max(deadline_ns);
        match request(self.plan, self.leases).resume(belief) {
            Ok(lease) => {
                self.listening = listen(lease.handle(), lease.closes());
                self.wishes = hear_wishes(lease.preemptions());
                self.retune.start_over(self.plan);
                self.lease = Some(lease);
                self.handed = None;
            }
            Err(loss) => self.lose(loss),
        }
    }

    fn not_started(mut self, errno: i32) -> Verdict {
        self.release(false);
        Verdict::NotStarted { errno }
    }

    /// The command has ended, and so has the guard.
    fn ended(mut self, ended: Ended) -> Verdict {
        self.closes_ns = self.closes_ns.max(ended.deadline_ns);
        let by_force = |reason| reason == StopReason::Asked && self.is_forced();
        let stopped =
            ended.stopped.is_some_and(|reason| reason != StopReason::Leftovers && !by_force(reason));
        if !ended.left.is_empty() && ended.stopped.is_some() {
            return self.unkillable(ended.left);
        }
        if !ended.left.is_empty() {
            self.notes.push(Note::Leftovers(ended.left));
        }
        // The guard ends everything before the deadline; the front may have been told later than that.
        let in_time = ended.released
            || (ended.at_ns != 0 && ended.at_ns < self.closes_ns)
            || self.lease.as_ref().is_some_and(|lease| lease.check().is_ok());
        let Some(status) = ended.status.filter(|_| in_time && !stopped) else {
            let loss = self.why_stopped();
            self.release(false);
            return Verdict::Lost(loss);
        };
        let succeeded = status == Status::Code(0);
        // A guard that released did so without a word of success.
        let recorded = !ended.released && self.release(succeeded);
        if succeeded && self.plan.once_per.is_some() && !recorded {
            return Verdict::SuccessUnrecorded;
        }
        Verdict::Command(status)
    }

    /// The guard was killed, and the kernel has killed the command with it.
    fn guard_died(self, left: Vec<Process>) -> Verdict {
        self.notes.push(Note::GuardDied);
        if !left.is_empty() {
            return self.unkillable(left);
        }
        let status = Some(Status::Signal(libc::SIGKILL));
        self.ended(Ended {
            status,
            at_ns: 0,
            deadline_ns: 0,
            stopped: None,
            killed: true,
            left,
            released: false,
        })
    }

    /// Something of the tree still runs: the lease must not pass to another before its TTL is over, however it was lost.
    fn unkillable(mut self, left: Vec<Process>) -> Verdict {
        self.notes.push(Note::Unkillable(left));
        let loss = self.why_stopped();
        self.forsake();
        Verdict::Lost(loss)
    }

    /// Why the command had to stop: what the lease says, or what it would have said at the deadline.
    fn why_stopped(&self) -> Loss {
        if let Some(loss) = &self.loss {
            return loss.clone();
        }
        let (opened, closes_ns) = match (&self.lease, &self.handed) {
            (Some(lease), _) => match lease.check() {
                Ok(()) => (lease.belief().opened, lease.closes().boot_ns),
                Err(loss) => return loss,
            },
            (None, Some(belief)) => (belief.opened, self.closes_ns),
            (None, None) => return Loss::WindowClosed,
        };
        let capped = self.plan.terms.max_hold.is_some_and(|limit| opened.plus(limit).boot_ns <= closes_ns);
        if capped { Loss::MaxHold } else { Loss::WindowClosed }
    }

    /// Lets go of the lease without ending it at the coordinator.
    fn forsake(&mut self) {
        let _ = self.lease.take().map(Lease::forsake);
        self.handed = None;
    }

    /// Ends the lease; the work has ended. True when the coordinator confirmed that it was held to the end.
    fn release(&mut self, succeeded: bool) -> bool {
        let answer = match (self.lease.take(), self.handed.take()) {
            (Some(lease), _) => {
                block_on(async { if succeeded { lease.complete().await } else { lease.release().await } })
            }
            (None, Some(belief)) => release_once(self.leases, belief, succeeded),
            (None, None) => return false,
        };
        match answer {
            Ok(Concluded::Released) => true,
            Ok(Concluded::Lost(loss)) => {
                self.loss.get_or_insert(loss);
                false
            }
            Err(error) => {
                // Certainly no effect or unknown: for whoever waits it is the same, the TTL runs out.
                self.notes.push(Note::NotReleased(error));
                false
            }
        }
    }
}

impl Drop for Keeping<'_> {
    /// Left in any other way than an end that released (an error, a panic), the command still lives: with the front the
    /// guard loses its reason to let it, and once the whole tree is dead it releases. Not we, and not before.
    fn drop(&mut self) {
        if let Some(path) = &self.told {
            let _ = fs::remove_file(path);
        }
        self.forsake();
    }
}

/// Ends a lease that is in nobody's care.
fn release_once(leases: &Leases, belief: Belief, succeeded: bool) -> Result<Concluded, Error> {
    let Identity { resource, lease_id, token } = belief.identity;
    let release = Release { resource, lease_id, token: Some(token), succeeded };
    Ok(match block_on(leases.release_once(release))? {
        Released::NotHeld(gone) if gone != Gone::Released => Concluded::Lost(gone.into()),
        _ => Concluded::Released,
    })
}
