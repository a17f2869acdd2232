//! A terminal with nobody in front of it: a pty whose other end is read and typed by the test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{PtyMaster, Winsize, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;

use crate::world::{LONG, World, nap};
use leasehold_cli::supervise::boottime_ns;

pub(crate) struct Tty {
    keyboard: Option<File>,
    screen: Arc<Mutex<String>>,
    pub(crate) child: Child,
    seen: usize,
    log: PathBuf,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Tty {
    /// Runs a program as the leader of a session on a new terminal.
    pub(crate) fn run(program: &Command) -> Self {
        // Close-on-exec from the first moment: tests run side by side, and a copy in a stranger's process would keep
        // this terminal from ever being hung up.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = open(ptsname_r(&master).unwrap().as_str(), flags, Mode::empty()).unwrap();
        let side = || Stdio::from(slave.try_clone().unwrap());
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").arg(program.get_program()).args(program.get_args());
        setsid.env("TERM", "xterm").env("PS1", "prompt> ").env("HISTFILE", "/dev/null");
        for (key, value) in program.get_envs() {
            setsid.env(key, value.unwrap());
        }
        let child = setsid.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        // Also the copies in the command: with them this process would hold the terminal open.
        drop(setsid);
        drop(slave);
        let keyboard = to_file(master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let closing = Arc::new(AtomicBool::new(false));
        let (written, ending) = (Arc::clone(&screen), Arc::clone(&closing));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !ending.load(Ordering::SeqCst) {
                // Not blocked in a read, which would hold the terminal open after a hang-up.
                let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, PollTimeout::from(5_u8)).unwrap() == 0 {
                    continue;
                }
                let Ok(length @ 1..) = output.read(&mut buffer) else { return };
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        let tty = Self {
            keyboard: Some(keyboard),
            screen,
            child,
            seen: 0,
            log: PathBuf::new(),
            closing,
            reader: Some(reader),
        };
        tty.resize(24);
        tty
    }

    /// An interactive bash; `run` is its name for a front with these options.
    pub(crate) fn bash(world: &World, options: &str) -> Self {
        let exe = std::env::current_exe().unwrap();
        Self::shell(world, &format!("'{}' front $D {options}", exe.display()))
    }

    /// An interactive bash; `run` is its name for the program itself, with a lease file in the world's folder.
    pub(crate) fn program(world: &World) -> Self {
        Self::shell(world, &format!("'{}' run r --url sqlite:$D/leases.db", env!("CARGO_BIN_EXE_leasehold")))
    }

    /// An interactive bash; `run` is its name for this.
    fn shell(world: &World, run: &str) -> Self {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "--noediting", "-i"]).env("D", world.dir());
        let mut tty = Self::run(&bash);
        tty.log = world.path("log");
        tty.expect("prompt> ");
        tty.type_line(&format!("run() {{ {run} -- \"$@\"; }}"));
        tty.expect("prompt> ");
        tty
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keyboard.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.type_keys(&format!("{line}\n"));
    }

    /// Waits until the text appears after what was expected before.
    pub(crate) fn expect(&mut self, text: &str) {
        let end = boottime_ns() + u64::try_from(LONG.as_nanos()).unwrap();
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(
                boottime_ns() < end,
                "{text:?} did not appear; screen:\n{screen}\nlog:\n{}",
                std::fs::read_to_string(&self.log).unwrap_or_default()
            );
            nap();
        }
    }

    /// Has the text appeared after what was expected before?
    pub(crate) fn has(&self, text: &str) -> bool {
        self.screen.lock().unwrap()[self.seen..].contains(text)
    }

    /// Closes the terminal as a dropped connection does.
    pub(crate) fn hang_up(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        self.reader.take().unwrap().join().unwrap();
        self.keyboard = None;
    }

    pub(crate) fn resize(&self, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let fd = self.keyboard.as_ref().unwrap().as_raw_fd();
        // SAFETY: the ioctl reads one Winsize.
        assert_eq!(unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size) }, 0);
    }
}

fn to_file(master: PtyMaster) -> File {
    // SAFETY: the descriptor has no other owner any more.
    File::from(unsafe { OwnedFd::from_raw_fd(master.into_raw_fd()) })
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
