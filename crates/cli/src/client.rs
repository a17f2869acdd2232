//! From settings to a client of the library, and the names under which this program appears to others.

use std::{ffi::OsStr, path::Path};

use leasehold::{ConnectBuilder, Label, Leases, Wait};
use nix::{
    sys::signal::Signal,
    unistd::{Uid, gethostname, getppid},
};

use crate::{
    failure::Failure,
    interrupt::{Interrupts, run_for},
    patience::{CONNECT_LIMIT, Patience, silent},
    settings::{Settings, variable},
};

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
    let patience = Patience::begin(wait);
    loop {
        let attempt = interrupts.watching(builder.clone().connect());
        let answer = match run_for(patience.limit(), attempt) {
            Some(Ok(answer)) => answer,
            Some(Err(signal)) => return Ok(Connected::Interrupted(signal)),
            None => Err(silent()),
        };
        match answer {
            Ok(leases) => {
                tell(settings, &leases);
                return Ok(Connected::Yes(leases, patience.left()));
            }
            Err(error) => match patience.pause(&error) {
                Some(pause) => {
                    if let Some(signal) = interrupts.pause(pause) {
                        return Ok(Connected::Interrupted(signal));
                    }
                }
                // Connecting asks for nothing: whatever became of it, no lease was touched.
                None => return Err(error.without_effect().into()),
            },
        }
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
    fn names_say_who() {
        assert!(caller().as_str().contains(&format!(":{}:", getppid())));
        assert!(operator().as_str().contains('@'));
    }
}
