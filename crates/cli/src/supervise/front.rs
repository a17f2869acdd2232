//! The front: the process that the user's shell started, and its view of the guard.
//!
//! It owns the terminal's attention: it receives the signals, passes on those that the command does not have
//! yet, and stops and ends as the command does. It decides nothing about processes; the guard does.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getsid};

use super::caretaker::Caretaker;
use super::channel::{Channel, Packet};
use super::clock::{boottime_ns, nanos};
use super::ending::stop_self;
use super::event::{Event, GuardEvent, Origin, Process, SignalEvent, Start};
use super::guard::Birth;
use super::signals::{bit, forwardable, origin};
use super::sys::process::{Handle, fork};
use super::sys::signal::{Received, SignalSet, SignalSource, is_ignored, set_default, set_mask};
use super::sys::spawn::Inherited;
use super::terminal::Foreground;
use super::tree::{self, Stat};
use super::wire::{Ask, Forward, Tell};

/// How long the guard may take to answer before a suspension goes on without it.
const ANSWER_NS: u64 = 2_000_000_000;

/// How long the front tries to kill what a dead guard left behind.
const CLEANING_NS: u64 = 2_000_000_000;

/// Where the command is, as far as the front knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Starting,
    Running,
    Over,
}

/// What an awaited answer turned out to be.
#[derive(Debug)]
enum Answer {
    Given(Tell),
    /// Not within the time a healthy guard needs.
    Missing,
    /// The guard has ended.
    Over,
}

/// What there is to read.
#[derive(Clone, Copy, Debug)]
struct Ready {
    bell: bool,
    news: bool,
    signal: bool,
}

/// What came of a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The front runs again and renewing is its own again.
    Held {
        /// The deadline that the guard's renewals have reached, in nanoseconds of BOOTTIME.
        deadline_ns: u64,
        /// The guard learnt that the lease is lost; the tree is being stopped.
        lost: bool,
    },
    /// The guard has ended meanwhile; the next event says how.
    Over,
}

/// The guard as seen from any thread.
#[derive(Clone, Debug)]
pub struct Remote(Arc<Channel>);

impl Remote {
    /// The lease was renewed: everything may live until `deadline_ns` (BOOTTIME). Never shortens.
    ///
    /// # Errors
    /// The guard is gone or does not listen; the old deadline stands.
    pub fn extend(&self, deadline_ns: u64) -> io::Result<()> {
        self.ask(&Ask::Extend { deadline_ns })
    }

    /// The command and its whole tree shall end: SIGTERM now, SIGKILL after `grace` or just before the
    /// deadline, whichever comes first.
    ///
    /// # Errors
    /// The guard is gone or does not listen.
    pub fn stop(&self, grace: Duration) -> io::Result<()> {
        self.ask(&Ask::Stop { grace_ns: nanos(grace) })
    }

    /// Sends the command a signal, as one that the front was sent.
    ///
    /// # Errors
    /// The guard is gone or does not listen.
    pub fn signal(&self, signo: i32) -> io::Result<()> {
        self.ask(&Ask::Signal(Forward { signo, value: None, if_stopped: false }))
    }

    fn ask(&self, ask: &Ask) -> io::Result<()> {
        self.0.send(&ask.encode())
    }
}

/// Wakes the front from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// Makes [`Front::next_event`] return [`Event::Woken`], once for any number of calls before it.
    pub fn wake(&self) {
        // The counter can only be full if it was not read for 2^64 calls, and then the front is awake anyway.
        let _full = self.0.write(1);
    }
}

/// The front's end. When it and every [`Remote`] are dropped, or this process ends in any way, the guard ends the
/// command and everything below it.
#[derive(Debug)]
pub struct Front {
    remote: Remote,
    guard: i32,
    signals: SignalSource,
    bell: Waker,
    leads_session: bool,
    phase: Phase,
    /// The command's pid, once it runs.
    child: i32,
    /// News that came while an answer was awaited.
    backlog: VecDeque<GuardEvent>,
    /// Signals from the terminal that came while the command was being started: does it have them?
    held: Vec<Received>,
    /// Set between a suspension and the SIGCONT that ended it: does the command need that signal too?
    continuing: Option<bool>,
}

impl Front {
    /// Forks the guard, which waits to be told to start `argv`.
    ///
    /// To be called first of all, while the process has a single thread: the guard is a copy of this process,
    /// and threads do not survive the copying. From here on the calling thread, and every thread it starts
    /// later, has the forwardable signals blocked; they arrive as events.
    ///
    /// # Errors
    /// No descriptor, no process, or no memory was left.
    pub fn fork(argv: Vec<OsString>, caretaker: impl Caretaker + 'static) -> io::Result<Self> {
        let forwardable = forwardable();
        let ignores_chld = is_ignored(libc::SIGCHLD);
        // With every signal blocked across the fork, none can be lost or act in the guard.
        let mask = set_mask(&SignalSet::full())?;
        let forked = Self::fork_blocked(argv, caretaker, &forwardable, Inherited { mask, ignores_chld });
        let mut blocked = mask;
        if forked.is_ok() {
            (1..=libc::SIGRTMAX())
                .filter(|signo| forwardable.contains(*signo))
                .for_each(|signo| blocked.add(signo));
        }
        set_mask(&blocked)?;
        forked
    }

    fn fork_blocked(
        argv: Vec<OsString>,
        caretaker: impl Caretaker + 'static,
        forwardable: &SignalSet,
        inherited: Inherited,
    ) -> io::Result<Self> {
        let (ours, theirs) = Channel::pair()?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let signals = SignalSource::new(forwardable)?;
        let own = getpid();
        let mut ends = Some((ours, theirs));
        let guard = fork(|| {
            if let Some((ours, theirs)) = ends.take() {
                // Held open here, the guard would never see the end of the front.
                drop(ours);
                let caretaker = Arc::new(caretaker);
                Birth { channel: theirs, argv, inherited, caretaker, front: own.as_raw() }.live();
            }
        })?;
        let Some((ours, _theirs)) = ends else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
        set_default(libc::SIGCHLD);
        // Should the guard be killed, its tree becomes ours, to be killed by us.
        set_child_subreaper(true)?;
        Ok(Self {
            remote: Remote(Arc::new(ours)),
            guard,
            signals,
            bell: Waker(Arc::new(bell)),
            leads_session: getsid(None) == Ok(own),
            phase: Phase::Waiting,
            child: 0,
            backlog: VecDeque::new(),
            held: Vec::new(),
            continuing: None,
        })
    }

    /// The guard's handle for library threads.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The waker for library threads.
    pub fn waker(&self) -> Waker {
        self.bell.clone()
    }

    /// The guard's pid, for messages.
    pub fn guard_pid(&self) -> i32 {
        self.guard
    }

    /// Lets the guard go on, should somebody have stopped it: it has nothing to do that could wait.
    pub fn rouse_guard(&self) {
        // It is our child and has not been reaped: nobody else can have its number.
        if self.phase != Phase::Over {
            let _gone = kill(Pid::from_raw(self.guard), Signal::SIGCONT);
        }
    }

    /// The lease is granted: start the command. The outcome comes as an event.
    ///
    /// # Errors
    /// The guard is gone, or environment and handoff do not fit in 64 KiB (`EMSGSIZE`). Nothing was started.
    pub fn start(&mut self, start: Start) -> io::Result<()> {
        self.remote.ask(&Ask::Start(start))?;
        self.phase = Phase::Starting;
        Ok(())
    }

    /// Waits for the next thing to happen, at most `timeout`.
    ///
    /// Signals come before news of the guard. Those that the command does not have yet are passed on before
    /// they are returned; before [`Front::start`] there is nobody to pass them to, and the caller decides.
    ///
    /// # Errors
    /// A system call failed that only a broken environment can make fail.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> io::Result<Event> {
        let end_ns = timeout.map(|timeout| boottime_ns().saturating_add(nanos(timeout)));
        loop {
            if let Some(news) = self.backlog.pop_front() {
                return Ok(Event::Guard(news));
            }
            let ready = self.wait(end_ns)?;
            if ready.signal
                && let Some(signal) = self.signals.take()?
            {
                return Ok(Event::Signal(self.take_signal(signal)));
            }
            if ready.news {
                let told = self.receive()?;
                let news = told.and_then(|tell| self.translate(tell));
                self.backlog.extend(news);
                continue;
            }
            if ready.bell && self.bell.0.read().is_ok() {
                return Ok(Event::Woken);
            }
            if end_ns.is_some_and(|end| boottime_ns() >= end) {
                return Ok(Event::Timeout);
            }
        }
    }

    /// The command was stopped ([`GuardEvent::ChildStopped`]): hands renewing to the guard, stops this process
    /// by the same signal, and takes renewing back when it is continued.
    ///
    /// The caller must have paused its own renewals. `handoff` is what the guard's caretaker renews with.
    ///
    /// # Errors
    /// A system call failed that only a broken environment can make fail.
    pub fn suspend(&mut self, signal: i32, handoff: Vec<u8>) -> io::Result<Resumed> {
        if self.phase == Phase::Over {
            return Ok(Resumed::Over);
        }
        // A guard that is gone is learnt of below.
        let _gone = self.remote.ask(&Ask::Keep { handoff });
        if matches!(self.await_answer(|tell| matches!(tell, Tell::Kept))?, Answer::Over) {
            return Ok(Resumed::Over);
        }
        // Continued already, perhaps together with us: stopping now would stop the wrong one.
        let stops = self.child_is_stopped();
        if stops {
            let foreground = Foreground::note(self.child);
            stop_self(signal)?;
            if let Some(foreground) = foreground {
                foreground.restore();
            }
        }
        // A shell continues the whole group, us perhaps a little earlier; the guard's answer is time enough for the
        // command. It must be looked at now: soon the next Ctrl-Z may have stopped it again.
        let needs_it = self.child_is_stopped();
        let resumed = self.take_back();
        if stops {
            self.continuing = Some(needs_it && self.child_is_stopped());
        }
        resumed
    }

    /// Takes renewing back from the guard, which also renews unasked while the whole process group stands still: the
    /// deadline it has come to is the one that counts.
    ///
    /// # Errors
    /// A system call failed that only a broken environment can make fail.
    pub fn take_back(&mut self) -> io::Result<Resumed> {
        if self.phase == Phase::Over {
            return Ok(Resumed::Over);
        }
        // A guard that is gone is learnt of below.
        let _gone = self.remote.ask(&Ask::TakeBack);
        match self.await_answer(|tell| matches!(tell, Tell::TakenBack { .. }))? {
            Answer::Given(Tell::TakenBack { deadline_ns, lost }) => Ok(Resumed::Held { deadline_ns, lost }),
            Answer::Over => Ok(Resumed::Over),
            // The guard is stuck: what it has reached is not known, so nothing is claimed.
            Answer::Given(_) | Answer::Missing => Ok(Resumed::Held { deadline_ns: 0, lost: false }),
        }
    }

    fn child_is_stopped(&self) -> bool {
        Stat::read(self.child).is_some_and(|stat| stat.is_stopped())
    }

    /// Waits for a certain message; the others are kept for later.
    fn await_answer(&mut self, is_answer: impl Fn(&Tell) -> bool) -> io::Result<Answer> {
        let end_ns = boottime_ns().saturating_add(ANSWER_NS);
        loop {
            match self.receive()? {
                Some(tell) if is_answer(&tell) => return Ok(Answer::Given(tell)),
                Some(tell) => {
                    let news = self.translate(tell);
                    self.backlog.extend(news);
                    if self.phase == Phase::Over {
                        return Ok(Answer::Over);
                    }
                }
                None if self.phase == Phase::Over => return Ok(Answer::Over),
                None => {
                    if boottime_ns() >= end_ns {
                        return Ok(Answer::Missing);
                    }
                    let mut fds = [PollFd::new(self.remote.0.as_fd(), PollFlags::POLLIN)];
                    poll_until(&mut fds, Some(end_ns))?;
                }
            }
        }
    }

    fn wait(&self, end_ns: Option<u64>) -> io::Result<Ready> {
        // The guard's news is looked at before the signals: if it says "started", a signal that came before the
        // command existed is visible here too.
        let mut fds = vec![
            PollFd::new(self.bell.0.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.remote.0.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        if self.phase == Phase::Over {
            fds.remove(1);
        }
        poll_until(&mut fds, end_ns)?;
        let ready = |at: usize| fds.get(at).and_then(PollFd::any) == Some(true);
        Ok(match fds.len() {
            3 => Ready { bell: ready(0), news: ready(1), signal: ready(2) },
            _ => Ready { bell: ready(0), news: false, signal: ready(1) },
        })
    }

    /// The next message; `Tell` has no word for the death of the guard, so its end is translated here.
    fn receive(&mut self) -> io::Result<Option<Tell>> {
        loop {
            match self.remote.0.receive()? {
                Packet::Nothing => return Ok(None),
                Packet::Bytes(packet) => {
                    // What cannot be read was not sent by our guard.
                    if let Some(tell) = Tell::decode(&packet) {
                        return Ok(Some(tell));
                    }
                }
                Packet::End => {
                    if self.phase != Phase::Over {
                        self.phase = Phase::Over;
                        let left = clean_up()?;
                        self.backlog.push_back(GuardEvent::Died { left });
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Keeps the books of what the guard says, and puts it in the words of events.
    fn translate(&mut self, tell: Tell) -> Option<GuardEvent> {
        Some(match tell {
            Tell::Started { pid, missed } => {
                self.phase = Phase::Running;
                self.child = pid;
                // The terminal's signal came before the command was in the group, so it does not have it.
                let missed =
                    mem::take(&mut self.held).into_iter().filter(|signal| missed & bit(signal.signo) != 0);
                missed.for_each(|signal| drop(self.forward(signal, false)));
                GuardEvent::Started { pid }
            }
            Tell::SpawnFailed { errno } => {
                self.phase = Phase::Over;
                GuardEvent::SpawnFailed { errno }
            }
            Tell::Ended(ended) => {
                self.phase = Phase::Over;
                GuardEvent::Ended(ended)
            }
            Tell::ChildStopped { signal } => GuardEvent::ChildStopped { signal },
            Tell::ChildContinued => GuardEvent::ChildContinued,
            Tell::Stopping { reason } => GuardEvent::Stopping { reason },
            // An answer that came after its question was given up.
            Tell::Kept | Tell::TakenBack { .. } => return None,
        })
    }

    fn take_signal(&mut self, signal: Received) -> SignalEvent {
        let origin = origin(&signal, self.guard, self.leads_session);
        let continues = signal.signo == libc::SIGCONT && matches!(origin, Origin::Outside | Origin::Guard);
        let resumption = if continues { self.continuing.take() } else { None };
        let (if_stopped, has_it) = (resumption.is_some(), resumption == Some(false));
        let forwarded = match (self.phase, origin) {
            (Phase::Starting, Origin::Terminal) => {
                self.held.push(signal);
                false
            }
            (Phase::Starting | Phase::Running, Origin::Outside) if !has_it => {
                self.forward(signal, if_stopped).is_ok()
            }
            _ => false,
        };
        SignalEvent { signo: signal.signo, origin, forwarded }
    }

    fn forward(&self, signal: Received, if_stopped: bool) -> io::Result<()> {
        let value = (signal.code == libc::SI_QUEUE).then_some(signal.value);
        self.remote.ask(&Ask::Signal(Forward { signo: signal.signo, value, if_stopped }))
    }
}

/// How long the end of a guard that has nothing left to do is waited for.
const FAREWELL_NS: u64 = 500_000_000;

impl Drop for Front {
    /// A guard that has ended is reaped here: in a container whose first process reaps nobody it would stay for ever. One that
    /// still has a command to end is left to it.
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Waiting | Phase::Over) {
            return;
        }
        self.remote.0.close();
        reap(self.guard, boottime_ns().saturating_add(FAREWELL_NS));
    }
}

/// Waits for the end of a child: by its handle, whose readiness is that end, so that it costs no moment too many. A kernel that
/// has no handles is asked each millisecond.
fn reap(pid: i32, until_ns: u64) {
    let ended = || waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) != Ok(WaitStatus::StillAlive);
    if ended() {
        return;
    }
    let handle = Handle::open(pid).ok().flatten();
    let mut watched: Vec<_> =
        handle.iter().map(|handle| PollFd::new(handle.as_fd(), PollFlags::POLLIN)).collect();
    while !ended() && boottime_ns() < until_ns {
        let step_ns = boottime_ns().saturating_add(1_000_000);
        let _interrupted = poll_until(&mut watched, Some(if handle.is_some() { until_ns } else { step_ns }));
    }
}

/// Kills what a dead guard left: the kernel has killed the command, the rest became ours.
fn clean_up() -> io::Result<Vec<Process>> {
    let until_ns = boottime_ns().saturating_add(CLEANING_NS);
    let pause = |pause| poll_until(&mut [], Some(boottime_ns().saturating_add(nanos(pause))));
    tree::kill_all(until_ns, pause, |_, _| {}).map(|killed| killed.left)
}

fn poll_until(fds: &mut [PollFd<'_>], end_ns: Option<u64>) -> io::Result<()> {
    let timeout = match end_ns {
        None => PollTimeout::NONE,
        Some(end) => {
            // Rounded up, so that the end has come when the wait is over.
            let millis = end.saturating_sub(boottime_ns()).div_ceil(1_000_000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        }
    };
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(other) => Err(other.into()),
    }
}
