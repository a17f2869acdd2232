//! Watching a running command: the loop, and what each thing that can happen does to it.
//!
//! The order inside one round matters. The front is heard first, because a renewal that is already here must
//! not lose against a timer; hearing it costs microseconds. Then deaths are counted, then the clock is looked at.
//! After the machine slept, the first round thus finds the deadline passed and kills before anything else.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::keep::Keep;
use super::link::{Heard, Link};
use super::terms::Terms;
use crate::supervise::caretaker::{Caretaker, Renewal};
use crate::supervise::clock::boottime_ns;
use crate::supervise::event::{Ended, Process, Start, Status, StopReason};
use crate::supervise::sys::process::{Change, Waited, wait};
use crate::supervise::sys::signal::{SignalSource, send, send_with_value};
use crate::supervise::tree;
use crate::supervise::wire::{Ask, Forward, Tell};

/// What a tree may still do after its front was killed: enough to write down a last word, too short to be felt by
/// the next waiter.
const DYING_BREATH_NS: u64 = 100_000_000;

/// Killing goes on until the deadline, and at least this long: after a sleep of the machine the deadline is past.
const KILLING_NS: u64 = 1_000_000_000;

/// How often a suspended front is woken until it takes renewing back.
const NUDGE_NS: u64 = 20_000_000;

/// How long a front has to answer to a stop of the command before we look what became of it.
const ANSWER_NS: u64 = 100_000_000;

/// How much of one kind is handled before the clock is looked at again.
const PER_ROUND: usize = 64;

/// The command and what is known of it.
#[derive(Debug)]
struct Child {
    pid: i32,
    ended: Option<(Status, u64)>,
    stopped: bool,
}

/// What is known of the tree as a whole.
#[derive(Debug, Default)]
struct Tree {
    /// Nothing of it is left.
    empty: bool,
    /// More has changed than one round counts: the next round must not sleep.
    more_changes: bool,
    /// Something had to be killed.
    killed: bool,
}

pub(super) struct Watch {
    link: Link,
    caretaker: Arc<dyn Caretaker>,
    signals: SignalSource,
    timer: TimerFd,
    armed_ns: Option<u64>,
    child: Child,
    tree: Tree,
    terms: Terms,
    handoff: Vec<u8>,
    kill_leftovers: bool,
    keep: Option<Keep>,
    nudge_ns: Option<u64>,
    /// When to look whether the front was stopped together with the command.
    look_ns: Option<u64>,
}

impl Watch {
    pub(super) fn new(
        link: Link,
        caretaker: Arc<dyn Caretaker>,
        signals: SignalSource,
        child: i32,
        start: Start,
    ) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self {
            link,
            caretaker,
            signals,
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?,
            armed_ns: None,
            child: Child { pid: child, ended: None, stopped: false },
            tree: Tree::default(),
            terms: Terms::new(&start),
            handoff: start.handoff,
            kill_leftovers: start.kill_leftovers,
            keep: None,
            nudge_ns: None,
            look_ns: None,
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        loop {
            self.sleep()?;
            self.hear()?;
            self.count_deaths()?;
            if self.over()? {
                return Ok(());
            }
            self.hear_keeper()?;
            if self.look_at_the_clock()? {
                return Ok(());
            }
        }
    }

    /// Waits until something happens.
    fn sleep(&mut self) -> io::Result<()> {
        let next = self.next_instant();
        if self.armed_ns != Some(next) {
            // Zero would switch the timer off.
            let at = TimeSpec::from_duration(Duration::from_nanos(next.max(1)));
            self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            self.armed_ns = Some(next);
        }
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.push(PollFd::new(self.timer.as_fd(), PollFlags::POLLIN));
        if !self.link.is_gone() {
            fds.push(PollFd::new(self.link.as_fd(), PollFlags::POLLIN));
        }
        if let Some(keep) = &self.keep {
            fds.push(PollFd::new(keep.as_fd(), PollFlags::POLLIN));
        }
        let timeout =
            if mem::take(&mut self.tree.more_changes) { PollTimeout::ZERO } else { PollTimeout::NONE };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(other) => return Err(other.into()),
        }
        let signalled = fds.first().and_then(PollFd::any) == Some(true);
        let rang = fds.get(1).and_then(PollFd::any) == Some(true);
        drop(fds);
        if signalled {
            self.signals.take_all()?;
        }
        if rang {
            self.armed_ns = None;
        }
        Ok(())
    }

    /// The next instant at which the clock alone makes something happen.
    fn next_instant(&self) -> u64 {
        let renewal = self.keep.as_ref().and_then(|keep| keep.next_ns);
        let all = [self.terms.term_ns(), self.terms.kill_ns(), renewal, self.nudge_ns, self.look_ns];
        all.into_iter().flatten().fold(u64::MAX, u64::min)
    }

    /// Does what the front asks.
    fn hear(&mut self) -> io::Result<()> {
        for _ in 0..PER_ROUND {
            if self.link.is_gone() {
                return Ok(());
            }
            match self.link.hear()? {
                Heard::Nothing => return Ok(()),
                Heard::End => self.lose_front(),
                Heard::Ask(ask) => self.obey(ask)?,
            }
        }
        Ok(())
    }

    fn obey(&mut self, ask: Ask) -> io::Result<()> {
        match ask {
            Ask::Start(_) => {}
            Ask::Extend { deadline_ns } => self.terms.extend(deadline_ns),
            Ask::Signal(forward) => self.forward(forward)?,
            Ask::Stop { grace_ns } => self.begin_stop(StopReason::Asked, grace_ns),
            Ask::Keep { handoff } => {
                self.handoff = handoff;
                self.keep()?;
                self.link.tell(&Tell::Kept);
            }
            Ask::TakeBack => {
                self.keep = None;
                self.nudge_ns = None;
                self.link
                    .tell(&Tell::TakenBack { deadline_ns: self.terms.deadline_ns, lost: self.terms.lost });
            }
        }
        Ok(())
    }

    /// Renews from now on.
    fn keep(&mut self) -> io::Result<()> {
        self.look_ns = None;
        if self.keep.is_none() {
            self.keep = Some(Keep::start(Arc::clone(&self.caretaker), self.handoff.clone())?);
        }
        Ok(())
    }

    /// A SIGSTOP to the whole group (`suspend` of a shell) stops the front before it can hand over. The command
    /// stands still as after Ctrl-Z, so it is treated alike. The front learns it when it is continued.
    fn look_at_the_front(&mut self) -> io::Result<()> {
        self.look_ns = None;
        if !self.child.stopped || self.keep.is_some() || self.link.is_gone() {
            return Ok(());
        }
        if self.link.is_stopped() {
            return self.keep();
        }
        self.look_ns = Some(boottime_ns().saturating_add(ANSWER_NS));
        Ok(())
    }

    fn forward(&mut self, forward: Forward) -> io::Result<()> {
        if forward.if_stopped {
            self.count_deaths()?;
            if !self.child.stopped || tree::Stat::read(self.child.pid).is_some_and(|stat| !stat.is_stopped())
            {
                return Ok(());
            }
        }
        if self.child.ended.is_none() {
            // Not yet waited for, so the number is still the command's. A refusal (the command became another
            // user) is the same answer that the sender would have got from the command itself.
            let _refused = match forward.value {
                Some(value) => send_with_value(self.child.pid, forward.signo, value),
                None => send(self.child.pid, forward.signo),
            };
        }
        Ok(())
    }

    fn lose_front(&mut self) {
        self.link.give_up();
        self.keep = None;
        self.nudge_ns = None;
        self.begin_stop(StopReason::FrontGone, DYING_BREATH_NS);
    }

    /// Asks everything to end.
    fn begin_stop(&mut self, reason: StopReason, grace_ns: u64) {
        let now = boottime_ns();
        if self.terms.begin_stop(reason, now, grace_ns) {
            if self.terms.kill_ns().is_some_and(|kill| kill > now) {
                // A stopped process acts on SIGTERM only once it is continued.
                tree::signal_all(&[libc::SIGTERM, libc::SIGCONT]);
            }
            self.link.tell(&Tell::Stopping { reason });
        }
    }

    /// Takes in what has changed below us.
    fn count_deaths(&mut self) -> io::Result<()> {
        for _ in 0..PER_ROUND {
            match wait()? {
                Waited::Nothing => return Ok(()),
                Waited::NoChild => {
                    self.tree.empty = true;
                    return Ok(());
                }
                Waited::Changed(pid, change) if pid == self.child.pid => self.child_changed(change),
                Waited::Changed(..) => {}
            }
        }
        self.tree.more_changes = true;
        Ok(())
    }

    fn child_changed(&mut self, change: Change) {
        match change {
            Change::Ended(status) => self.child.ended = Some((status, boottime_ns())),
            Change::Stopped(signal) => {
                self.child.stopped = true;
                self.look_ns = Some(boottime_ns().saturating_add(ANSWER_NS));
                self.link.tell(&Tell::ChildStopped { signal });
            }
            Change::Continued => {
                self.child.stopped = false;
                self.link.tell(&Tell::ChildContinued);
                self.nudge();
            }
        }
    }

    /// Wakes the front if it is suspended although the command runs. Repeated until it has taken renewing back: a
    /// front that is just about to stop itself would miss a single call.
    fn nudge(&mut self) {
        self.nudge_ns = None;
        if self.keep.is_some() && !self.child.stopped {
            self.link.wake();
            self.nudge_ns = Some(boottime_ns().saturating_add(NUDGE_NS));
        }
    }

    fn hear_keeper(&mut self) -> io::Result<()> {
        let outcomes = match &mut self.keep {
            Some(keep) => keep.outcomes()?,
            None => return Ok(()),
        };
        for outcome in outcomes {
            match outcome {
                Renewal::Held { deadline_ns, next_ns } => {
                    self.terms.extend(deadline_ns);
                    if let Some(keep) = &mut self.keep {
                        keep.next_ns = Some(next_ns);
                    }
                }
                Renewal::Lost => {
                    self.terms.lost = true;
                    self.begin_stop(StopReason::LeaseLost, self.terms.grace_ns);
                }
            }
        }
        Ok(())
    }

    /// Does what is due. True: everything is over.
    fn look_at_the_clock(&mut self) -> io::Result<bool> {
        let now = boottime_ns();
        if self.terms.term_ns().is_some_and(|term| now >= term) {
            self.begin_stop(StopReason::Deadline, self.terms.grace_ns);
        }
        if self.terms.kill_ns().is_some_and(|kill| now >= kill) {
            return self.kill();
        }
        if let Some(keep) = &mut self.keep
            && keep.next_ns.is_some_and(|next| now >= next)
        {
            keep.renew();
        }
        if self.nudge_ns.is_some_and(|next| now >= next) {
            self.nudge();
        }
        if self.look_ns.is_some_and(|next| now >= next) {
            self.look_at_the_front()?;
        }
        Ok(false)
    }

    /// Kills everything, or gives up at the deadline.
    fn kill(&mut self) -> io::Result<bool> {
        let until_ns = self.terms.deadline_ns.max(boottime_ns().saturating_add(KILLING_NS));
        let mut deaths = Vec::new();
        let signals = &self.signals;
        let killed = tree::kill_all(
            until_ns,
            |pause| {
                let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO))?;
                signals.take_all().map(drop)
            },
            |pid, change| deaths.push((pid, change, boottime_ns())),
        )?;
        self.tree.killed = true;
        self.tree.empty = killed.all_dead;
        for (pid, change, at_ns) in deaths {
            if let (true, Change::Ended(status)) = (pid == self.child.pid, change) {
                self.child.ended = Some((status, at_ns));
            }
        }
        Ok(self.finish(&killed.left))
    }

    /// Is there nothing more to watch?
    fn over(&mut self) -> io::Result<bool> {
        if self.terms.stop.is_some() {
            return Ok(self.tree.empty && self.finish(&[]));
        }
        if self.child.ended.is_none() || self.tree.more_changes {
            return Ok(false);
        }
        if self.tree.empty {
            return Ok(self.finish(&[]));
        }
        if self.kill_leftovers {
            self.begin_stop(StopReason::Leftovers, self.terms.grace_ns);
            return Ok(false);
        }
        let mut left = tree::living();
        if left.is_empty() {
            // Dead since the last count, or not to be seen.
            self.count_deaths()?;
            if self.tree.more_changes {
                return Ok(false);
            }
            left = if self.tree.empty { Vec::new() } else { tree::left() };
        }
        Ok(self.finish(&left))
    }

    /// Says the last word, to the front or to the caretaker. False: the front died just now, and there is a tree
    /// left that must die with it.
    fn finish(&mut self, left: &[Process]) -> bool {
        let suspended = mem::take(&mut self.keep).is_some();
        let all_dead = left.is_empty();
        // A suspended front cannot release for as long as its user likes; a lease that is lost needs no release.
        let in_time = !self.terms.lost && boottime_ns() < self.terms.deadline_ns;
        let released = suspended && all_dead && in_time && self.caretaker.release(&self.handoff);
        let deadline_ns = self.terms.deadline_ns;
        let (status, at_ns) = self.child.ended.map_or((None, 0), |(status, at_ns)| (Some(status), at_ns));
        let stopped = self.terms.stop.map(|stop| stop.reason);
        let ended = Ended {
            status,
            at_ns,
            deadline_ns,
            stopped,
            killed: self.tree.killed,
            left: left.to_vec(),
            released,
        };
        if self.link.tell(&Tell::Ended(ended)) {
            if suspended {
                self.link.wake();
            }
            return true;
        }
        if !self.link.is_gone() {
            self.lose_front();
            if !all_dead && stopped.is_none() {
                return false;
            }
        }
        if !all_dead {
            self.caretaker.unkillable(&self.handoff, left);
        } else if !released {
            self.caretaker.release(&self.handoff);
        }
        true
    }
}
