//! `fence file`: a command's output replaces a file, unless its lease was overtaken by then.
//!
//! The fence is sealed before the command starts, so that no older job's output lands while it reads; the output is written
//! beside the file and moved into place in one step with the fence's answer. A command that fails replaces nothing.

use std::{
    io,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use leasehold::{
    blocking::block_on,
    fence::{Draft, Fence, Pass},
};
use nix::{
    sys::{
        signal::kill,
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use super::{open, pass, refusal};
use crate::{
    args,
    exit::Exit,
    failure::Failure,
    interrupt::Interrupts,
    settings::Settings,
    supervise::{Status, spawn_failure_code},
};

/// How long one look for a signal lasts; there is always another.
const WATCH: Duration = Duration::from_secs(3_600);

pub(super) fn run(args: &args::FenceFile, settings: &Settings) -> Result<Exit, Failure> {
    let interrupts = Interrupts::watch().map_err(|error| unstarted(&error))?;
    let pass = pass::read(args.resource.as_deref(), &args.grant, settings)?;
    let fence = open(&args.place, settings)?;
    block_on(fence.seal(&pass)).map_err(|no| refusal(&no))?;
    let draft = Draft::of(&args.path)?;
    let status = match start(args, &draft) {
        Ok(child) => attend(child, interrupts).map_err(|error| unstarted(&error))?,
        Err(error) => return Err(not_started(args, &error)),
    };
    if !status.success() {
        settings.output.note(&format!("{} was not replaced: the command failed", args.path.display()));
        return Ok(Exit::Command(status_of(status)));
    }
    replace(&fence, &pass, draft)
}

fn replace(fence: &Fence, pass: &Pass, draft: Draft) -> Result<Exit, Failure> {
    // Outside of the fence's step: nobody waits for our disk.
    draft.sync()?;
    block_on(fence.admit_and(pass, move || draft.place())).map_err(|no| refusal(&no))?;
    Ok(Exit::Done)
}

fn start(args: &args::FenceFile, draft: &Draft) -> io::Result<Child> {
    let output = draft.file().try_clone()?;
    let mut words = args.command.iter();
    let program = words.next().map(Command::new);
    let mut command = program.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    command.args(words).stdout(Stdio::from(output)).spawn()
}

/// Waits for the command, and passes on what this program is told to end by.
fn attend(mut child: Child, interrupts: Interrupts) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let collected = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&collected);
    thread::Builder::new().name("leasehold-forward".to_owned()).spawn(move || {
        loop {
            let Some(signal) = interrupts.pause(WATCH) else { continue };
            // Held while it is sent: a number that was collected may be another's.
            let collected = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if !*collected {
                // When it fails the command has ended.
                let _ = kill(pid, signal);
            }
            return;
        }
    })?;
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(nix::errno::Errno::EINTR) => {}
            other => {
                other?;
                break;
            }
        }
    }
    *collected.lock().unwrap_or_else(PoisonError::into_inner) = true;
    child.wait()
}

fn status_of(status: ExitStatus) -> Status {
    use std::os::unix::process::ExitStatusExt as _;
    match status.code() {
        Some(code) => Status::Code(code),
        None => Status::Signal(status.signal().unwrap_or(0)),
    }
}

fn not_started(args: &args::FenceFile, error: &io::Error) -> Failure {
    let code = spawn_failure_code(error.raw_os_error().unwrap_or(0));
    let name = args.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Failure::error(
        Exit::NotStarted(u8::try_from(code).unwrap_or(126)),
        "not_started",
        format!("cannot start {name}: {error}"),
    )
}

fn unstarted(error: &io::Error) -> Failure {
    Failure::error(Exit::Unavailable, "unavailable", format!("the system refuses: {error}"))
}
