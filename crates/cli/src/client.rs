//! From settings to a client of the library, and the names under which this program appears to others.

use std::{ffi::OsStr, path::Path, time::Duration};

use leasehold::{ConnectBuilder, Error, Kind, Label, Leases, Wait, clock};
use nix::{
    sys::signal::Signal,
    unistd::{Uid, gethostname, getppid},
};

use crate::{
    failure::Failure,
    interrupt::{Interrupts, run_for},
    settings::{Settings, variable},
};

/// How long to pause before an unreachable coordinator is asked again (ours: four times a second is no load for any).
const RETRY: Duration = Duration::from_millis(250);
/// How long connecting may take (with a wait: at least).
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Connects once. `label` is the name of this run unless `--holder` gave one.
pub(crate) fn connect(settings: &Settings, label: impl FnOnce() -> Label) -> Result<Leases, Failure> {
    let leases =
        run_for(CONNECT_LIMIT, builder(settings, label).connect()).unwrap_or_else(|| Err(silent()))?;
    tell(settings, &leases);
    Ok(leases)
}

/// What [`connect_within`] ended with.
#[derive(Debug)]
pub(crate) enum Connected {
    /// A client, and what is left of the wait.
    Yes(Leases, Wait),
    /// A signal came first.
    Interrupted(Signal),
}

/// Connects, asking again for as long as the wait allows: an engine that restarts is waited for like a busy resource.
pub(crate) fn connect_within(
    settings: &Settings,
    label: impl FnOnce() -> Label,
    wait: Wait,
    interrupts: &Interrupts,
) -> Result<Connected, Failure> {
    let builder = builder(settings, label);
    let started_us = clock::boot_us();
    loop {
        // One long attempt rather than many short ones: what is given up may leave a thread behind that waits for the engine.
        let limit = match left(wait, gone_since(started_us)) {
            Wait::For(left) => left.max(CONNECT_LIMIT),
            Wait::Forever => Duration::MAX,
            Wait::No => CONNECT_LIMIT,
        };
        let answer = match run_for(limit, interrupts.watching(builder.clone().connect())) {
            Some(Ok(answer)) => answer,
            Some(Err(signal)) => return Ok(Connected::Interrupted(signal)),
            None => Err(silent()),
        };
        let left = left(wait, gone_since(started_us));
        match answer {
            Ok(leases) => {
                tell(settings, &leases);
                return Ok(Connected::Yes(leases, left));
            }
            Err(error) if may_retry(&error, left) => {
                let pause = if let Wait::For(left) = left { RETRY.min(left) } else { RETRY };
                if let Some(signal) = interrupts.pause(pause) {
                    return Ok(Connected::Interrupted(signal));
                }
            }
            // Connecting asks for nothing: whatever became of it, no lease was touched.
            Err(error) => return Err(error.without_effect().into()),
        }
    }
}

fn gone_since(started_us: u64) -> Duration {
    Duration::from_micros(clock::boot_us().saturating_sub(started_us))
}

/// Connecting asks for nothing, so nothing can have been changed.
fn silent() -> Error {
    Error::new(Kind::Unavailable, format!("the coordinator did not answer within {CONNECT_LIMIT:?} of connecting"))
        .advise("look whether it is reachable; for a lease file, whether a process that uses it is stopped (state T in ps)")
}

fn may_retry(error: &Error, left: Wait) -> bool {
    error.is_transient() && !matches!(left, Wait::No | Wait::For(Duration::ZERO))
}

fn left(wait: Wait, gone: Duration) -> Wait {
    match wait {
        Wait::For(limit) => Wait::For(limit.saturating_sub(gone)),
        other => other,
    }
}

/// The settings as the library takes them.
pub(crate) fn builder(settings: &Settings, label: impl FnOnce() -> Label) -> ConnectBuilder {
    let label = settings.holder.clone().unwrap_or_else(label);
    Leases::builder(&settings.url).namespace(settings.namespace.clone()).label(label)
}

fn tell(settings: &Settings, leases: &Leases) {
    settings.output.detail(|| {
        let (place, namespace) = (&leases.profile().place, leases.namespace());
        format!("asking {place}, namespace {namespace}, as {}", leases.label())
    });
}

/// The name of whoever started this program: `host:pid:program` of the parent. This process itself has ended when the
/// name is read.
pub(crate) fn caller() -> Label {
    let parent = getppid();
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
    Label::from_lossy(&format!("{}:{parent}:{}", host(), name.trim_end()))
}

/// The name of a command that runs under a lease: `host:pid:command`.
pub(crate) fn runner(command: &OsStr) -> Label {
    let name = Path::new(command).file_name().unwrap_or(command).to_string_lossy();
    Label::from_lossy(&format!("{}:{}:{name}", host(), std::process::id()))
}

/// The name of the person at the keyboard: `user@host`, and who that was before `sudo`.
pub(crate) fn operator() -> Label {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| variable(name));
    let user =
        user.map_or_else(|| format!("uid-{}", Uid::current()), |user| user.to_string_lossy().into_owned());
    Label::from_lossy(&format!("{user}@{}", host()))
}

fn host() -> String {
    gethostname().map(|host| host.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_shrinks_and_only_a_wait_retries() {
        let (second, error) = (Duration::from_secs(1), Error::new(leasehold::Kind::Unavailable, "x"));
        assert_eq!(left(Wait::For(second), second * 2), Wait::For(Duration::ZERO));
        assert_eq!((left(Wait::No, second), left(Wait::Forever, second)), (Wait::No, Wait::Forever));
        assert!(may_retry(&error, Wait::Forever) && may_retry(&error, Wait::For(second)));
        assert!(!may_retry(&error, Wait::No) && !may_retry(&error, Wait::For(Duration::ZERO)));
        assert!(!may_retry(&Error::new(leasehold::Kind::Denied, "x"), Wait::Forever));
    }

    #[test]
    fn names_say_who() {
        assert!(caller().as_str().contains(&format!(":{}:", getppid())));
        assert!(operator().as_str().contains('@'));
    }
}
