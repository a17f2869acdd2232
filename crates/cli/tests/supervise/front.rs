//! The front under test: what `leasehold run` does, with a lease that exists only in a file.
//!
//! `supervise front DIR [--ttl MS] [--grace MS] [--renew] [--kill-leftovers] [--wait] -- COMMAND…`

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_cli::supervise::{
    Caretaker, Event, Front, GuardEvent, Keeper, Process, Remote, Renewal, Resumed, Start, Status,
    StopReason, boottime_ns, die_like, leave_stdio, spawn_failure_code,
};

use crate::world::{is_alive, nap};

struct Options {
    dir: PathBuf,
    ttl: Duration,
    grace: Duration,
    renew: bool,
    kill_leftovers: bool,
    wait: bool,
    command: Vec<OsString>,
}

impl Options {
    fn parse(arguments: Vec<OsString>) -> Self {
        let mut rest = arguments.into_iter();
        let dir = PathBuf::from(rest.next().unwrap());
        let mut options = Self {
            dir,
            ttl: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            renew: false,
            kill_leftovers: false,
            wait: false,
            command: Vec::new(),
        };
        while let Some(word) = rest.next() {
            let mut millis =
                || Duration::from_millis(rest.next().unwrap().to_str().unwrap().parse().unwrap());
            match word.to_str().unwrap() {
                "--ttl" => options.ttl = millis(),
                "--grace" => options.grace = millis(),
                "--renew" => options.renew = true,
                "--kill-leftovers" => options.kill_leftovers = true,
                "--wait" => options.wait = true,
                "--" => break,
                other => panic!("unknown option {other}"),
            }
        }
        options.command = rest.collect();
        options
    }

    /// Generous, because a busy test machine must not make a promise look broken.
    fn margin(&self) -> Duration {
        Duration::from_millis(500).min(self.ttl / 4)
    }
}

/// Appends a line to the log of a test, with the time in front.
fn log(dir: &Path, line: &str) {
    // A test that is over has taken its folder with it; its front may still have to end.
    let Ok(mut file) = OpenOptions::new().append(true).create(true).open(dir.join("log")) else { return };
    file.write_all(format!("{} {line}\n", boottime_ns()).as_bytes()).unwrap();
}

/// The pids that the command's processes wrote down and that still live.
fn alive(dir: &Path) -> Vec<i32> {
    let pids = fs::read_to_string(dir.join("pids")).unwrap_or_default();
    pids.lines().filter_map(|line| line.parse().ok()).filter(|pid| is_alive(*pid)).collect()
}

struct Clerk {
    dir: PathBuf,
    ttl: Duration,
}

impl Caretaker for Clerk {
    fn release(&self, handoff: &[u8]) -> bool {
        let handoff = String::from_utf8_lossy(handoff);
        log(&self.dir, &format!("release {handoff} alive={:?}", alive(&self.dir)));
        !self.dir.join("unreachable").exists()
    }

    fn keep_alive(&self, handoff: &[u8]) -> Box<dyn Keeper> {
        log(&self.dir, &format!("keep {}", String::from_utf8_lossy(handoff)));
        Box::new(Renewer { dir: self.dir.clone(), ttl: self.ttl })
    }

    fn unkillable(&self, _: &[u8], left: &[Process]) {
        log(&self.dir, &format!("unkillable {left:?}"));
    }
}

struct Renewer {
    dir: PathBuf,
    ttl: Duration,
}

impl Keeper for Renewer {
    fn renew(&mut self) -> Renewal {
        if self.dir.join("lose").exists() {
            log(&self.dir, "renewed: lost");
            return Renewal::Lost;
        }
        log(&self.dir, "renewed");
        let now = boottime_ns();
        let ttl = u64::try_from(self.ttl.as_nanos()).unwrap();
        Renewal::Held { deadline_ns: now + ttl, next_ns: now + ttl / 3 }
    }
}

pub(crate) fn main(arguments: Vec<OsString>) -> ! {
    let options = Options::parse(arguments);
    let clerk = Clerk { dir: options.dir.clone(), ttl: options.ttl };
    let mut front = Front::fork(options.command.clone(), clerk).unwrap();
    log(&options.dir, &format!("guard {}", front.guard_pid()));
    if options.wait {
        wait_for_grant(&mut front, &options.dir);
    }
    let ttl = u64::try_from(options.ttl.as_nanos()).unwrap();
    let deadline_ns = boottime_ns() + ttl;
    log(&options.dir, &format!("deadline {deadline_ns}"));
    let start = Start {
        set_env: vec![("LEASE".into(), "mine".into()), ("CHANGED".into(), "new".into())],
        remove_env: vec!["SECRET".into()],
        deadline_ns,
        grace: options.grace,
        kill_margin: options.margin(),
        handoff: b"first".to_vec(),
        kill_leftovers: options.kill_leftovers,
    };
    front.start(start).unwrap();
    let paused = Arc::new(AtomicBool::new(false));
    if options.renew {
        let (remote, paused) = (front.remote(), Arc::clone(&paused));
        std::thread::spawn(move || renew(&remote, &paused, ttl));
    }
    if options.dir.join("stop").exists() {
        // A test that wants the front to end the command itself.
        let (dir, waker) = (options.dir.clone(), front.waker());
        std::thread::spawn(move || {
            while !dir.join("stop-now").exists() {
                nap();
            }
            waker.wake();
        });
    }
    run(&mut front, &options, &paused)
}

fn wait_for_grant(front: &mut Front, dir: &Path) {
    log(dir, "waiting");
    while !dir.join("go").exists() {
        match front.next_event(Some(Duration::from_millis(2))).unwrap() {
            Event::Timeout => {}
            other => log(dir, &format!("{other:?}")),
        }
    }
}

fn renew(remote: &Remote, paused: &AtomicBool, ttl: u64) {
    loop {
        if !paused.load(Ordering::SeqCst) && remote.extend(boottime_ns() + ttl).is_err() {
            return;
        }
        nap();
    }
}

fn run(front: &mut Front, options: &Options, paused: &AtomicBool) -> ! {
    let dir = &options.dir;
    loop {
        let event = front.next_event(None).unwrap();
        log(dir, &format!("{event:?}"));
        match event {
            Event::Woken => front.remote().stop(options.grace).unwrap(),
            Event::Guard(GuardEvent::Started { .. }) => leave_stdio().unwrap(),
            Event::Guard(GuardEvent::SpawnFailed { errno }) => std::process::exit(spawn_failure_code(errno)),
            Event::Guard(GuardEvent::ChildStopped { signal }) => {
                paused.store(true, Ordering::SeqCst);
                let resumed = front.suspend(signal, b"second".to_vec()).unwrap();
                log(dir, &format!("{resumed:?}"));
                if let Resumed::Held { lost: false, .. } = resumed {
                    paused.store(false, Ordering::SeqCst);
                }
            }
            Event::Guard(GuardEvent::Died { left }) => {
                log(dir, &format!("left={left:?} alive={:?}", alive(dir)));
                std::process::exit(80)
            }
            Event::Guard(GuardEvent::Ended(ended)) => {
                if matches!(ended.stopped, Some(StopReason::Deadline | StopReason::LeaseLost)) {
                    std::process::exit(79);
                }
                die_like(ended.status.unwrap_or(Status::Code(79)))
            }
            _ => {}
        }
    }
}
