//! `run`: its checked arguments, and its outcome in words, codes and JSON.

use std::{fs, path::Path, time::Duration};

use leasehold::{
    Done, Label, Leases, Loss, Ttl, Url, Vitals,
    blocking::block_on,
    clock,
    core::{holder::Identity, request::MAX_ONCE_PER},
    settings::{Limit, Rules, Tuning},
};
use nix::{errno::Errno, sys::signal::Signal};
use serde::Serialize;

use crate::{
    args, client, duration,
    exit::Exit,
    failure::Failure,
    interrupt::run_for,
    message, output,
    run::{self, Asked, Note, Notify, OnPreempt, Origin, Outcome, Plan, Restart, Verdict, say::names},
    settings,
    settings::Settings,
    supervise::{Status, spawn_failure_code},
    telemetry, view,
};

/// How long a claim that is taken back, or a release that is tried again, in the background may keep this process.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a run that was not needed may take to say so in the history.
const NOTE_LIMIT: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &args::Run, settings: &Settings) -> Result<Exit, Failure> {
    let origin = Origin::note();
    let mut plan = plan(args, settings, &origin)?;
    let mut granted_us = None;
    let outcome = run::run(&mut plan, |lease, leases| {
        granted_us = Some(clock::boot_us());
        settings.output.detail(|| {
            let (resource, place) = (lease.resource(), &leases.profile().place);
            format!("holding {resource} on {place} with fencing token {}", lease.token())
        });
    });
    let again = plan.restart.follows(&outcome);
    let exit = conclude(args, &plan, outcome, settings);
    if again {
        let term_us = granted_us.map_or(0, |granted_us| clock::boot_us().saturating_sub(granted_us));
        let error = origin.execute(Duration::from_micros(term_us));
        settings.output.note(&format!("cannot stand by again: {error}"));
    }
    Ok(exit)
}

/// Checks what was asked.
fn plan(args: &args::Run, settings: &Settings, origin: &Origin) -> Result<Plan, Failure> {
    let optional = |option, text: Option<&String>| text.map(|text| duration::parse(option, text)).transpose();
    let resource = settings::resource(&args.resource)?;
    let once_per = optional("--once-per", args.once_per.as_ref())?;
    if once_per.is_some_and(|period| period.is_zero() || period > MAX_ONCE_PER) {
        return Err(Failure::usage("--once-per: must be more than zero and at most 7d"));
    }
    let max_hold = optional("--max-hold", args.max_hold.as_ref())?;
    if max_hold.is_some_and(|limit| limit.is_zero()) {
        return Err(Failure::usage("--max-hold: must be more than zero"));
    }
    let restart = match args.restart.as_deref() {
        None => Restart::Never,
        Some("on-loss") => Restart::OnLoss,
        Some("always") => Restart::Always,
        Some(word) => {
            return Err(Failure::usage(format!("--restart: {word} is neither on-loss nor always")));
        }
    };
    let on_preempt = match args.on_preempt.as_deref() {
        None | Some("drain") => OnPreempt::Drain,
        Some("refuse") => OnPreempt::Refuse,
        Some(word) => {
            return Err(Failure::usage(format!("--on-preempt: {word} is neither drain nor refuse")));
        }
    };
    let asked = Asked {
        ttl: args.ttl.as_deref().map(|text| duration::ttl("--ttl", text)).transpose()?,
        wait: args.wait.as_deref().map(|wait| duration::wait(Some(wait))).transpose()?,
        grace: optional("--grace", args.grace.as_ref())?,
        max_hold,
        drain_timeout: match args.drain_timeout.as_deref() {
            None => None,
            Some("forever") => Some(Limit::None),
            Some(text) => Some(Limit::After(duration::parse("--drain-timeout", text)?)),
        },
        restart,
    };
    // Where no option says, the file does; what the coordinator says is asked once it can be.
    let own = settings.rules.of(&resource);
    let terms = asked.under(own)?;
    let label = || -> Label { client::runner(args.command.first().map_or("".as_ref(), |command| command)) };
    Ok(Plan {
        // What no request can say is left to the client.
        connect: client::builder(settings, label)
            .rules(Rules::general(Tuning { jitter: own.jitter, ..Tuning::default() })),
        url: Url::parse(&settings.url)?,
        namespace: settings.namespace.clone(),
        resource,
        command: args.command.clone(),
        // A TTL on the command line is the last word.
        file: settings.file.clone().filter(|_| asked.ttl.is_none()),
        asked,
        own,
        common: Tuning::default(),
        terms,
        once_per,
        kill_leftovers: args.kill_leftovers,
        pause: if restart == Restart::Never { Duration::ZERO } else { origin.pause() },
        restart,
        on_preempt,
        notify: if args.no_sd_notify {
            Notify::default()
        } else {
            Notify::from_name(settings::variable("NOTIFY_SOCKET"))
        },
        telemetry: telemetry::Plan {
            listen: args.metrics_listen.as_deref().map(telemetry::Plan::address).transpose()?,
            textfile: args.metrics_textfile.clone(),
        },
    })
}

/// Tells what happened, writes the report, and says how this program ends.
fn conclude(args: &args::Run, plan: &Plan, outcome: Outcome, settings: &Settings) -> Exit {
    let Outcome { verdict, notes, lease, leases, telemetry, asked_to_end: _ } = outcome;
    for note in &notes {
        tell(note, plan, settings);
    }
    if let Some(doubts) = leases.as_ref().and_then(|leases| doubts(plan.terms.ttl, &leases.vitals())) {
        settings.output.detail(|| doubts);
    }
    let judged = judge(&verdict, plan, lease.as_ref(), leases.as_ref(), settings);
    let unfinished = lease.is_none()
        || matches!(verdict, Verdict::Lost(_))
        || notes.iter().any(|note| matches!(note, Note::NotReleased(_)));
    if let Some(leases) = leases.filter(|_| unfinished) {
        // What a claim or a release left behind is tried in the background, which ends with this process; and a loss is known
        // here a moment before the driver has told log and metrics of it.
        block_on(leases.close(PATIENCE));
    }
    drop(telemetry);
    let told = judged.is_err();
    let exit = match judged {
        Ok(exit) => exit,
        Err(failure) => settings.output.fail(&failure),
    };
    let exit = match args.own_exit {
        Some(code) if exit.is_ours() => Exit::Moved(code),
        _ => exit,
    };
    let report = Report::new(&verdict, plan, lease.as_ref(), exit);
    if let Some(Err(failure)) = args.report.as_ref().map(|path| report.write(path)) {
        // The command has run: its code is worth more than the report's.
        settings.output.note(failure.what());
    }
    if !told {
        settings.output.event(&report);
    }
    exit
}

/// What this run has measured says that its TTL is too short. Told with `-v` and in the log alone: one bad day is no reason to
/// send mail from every cron job.
fn doubts(ttl: Ttl, vitals: &Vitals) -> Option<String> {
    let needed = vitals.needed_ttl()?;
    (needed > ttl.as_duration()).then(|| {
        format!(
            "a TTL of {ttl} is short for what this run has met (round trip p99 {:?}, pause p99 {:?}): {needed:?} are needed; see \
             `leasehold ttl --measure 10s`",
            vitals.round_trip.p99, vitals.host_pause.p99
        )
    })
}

fn judge(
    verdict: &Verdict,
    plan: &Plan,
    lease: Option<&Identity>,
    leases: Option<&Leases>,
    settings: &Settings,
) -> Result<Exit, Failure> {
    let resource = &plan.resource;
    match (verdict, leases) {
        (Verdict::Command(status), _) => Ok(Exit::Command(*status)),
        (Verdict::NotStarted { errno }, _) => Err(not_started(plan, *errno)),
        (Verdict::AlreadyDone(done), leases) => {
            settings.output.detail(|| {
                let due = crate::people::duration(done.due_in);
                format!("{resource}: the last successful run is recent enough; due again in {due}")
            });
            note_skipped(done, plan, leases, settings);
            Ok(Exit::Done)
        }
        (Verdict::Refused(refusal), Some(leases)) => {
            Err(message::refused(refusal, resource, plan.terms.wait, settings, leases))
        }
        (Verdict::Refused(_), None) => {
            Err(Failure::answer(Exit::NotGranted, "refused", format!("{resource} was refused")))
        }
        (Verdict::Nested, _) => {
            let what = format!(
                "{resource} is held by the very run that this command is part of, and would wait for itself"
            );
            let mut failure = Failure::answer(Exit::NotGranted, "nested", what)
                .advise("start the inner command without `leasehold run`, or under another resource");
            failure.resource = Some(view::name(resource));
            Err(failure)
        }
        (Verdict::Failed(error), _) => Err(error.clone().into()),
        (Verdict::Interrupted(signal), _) => {
            Err(Failure::interrupted(Signal::try_from(*signal).unwrap_or(Signal::SIGTERM)))
        }
        (Verdict::Lost(loss), leases) => Err(lost(loss, plan, lease, leases)),
        (Verdict::SuccessUnrecorded, _) => {
            let what = format!("the command succeeded, and no answer says that {resource} has that recorded");
            let mut failure = Failure::answer(Exit::Unknown, "unknown", what)
                .advise("within the period it may be run once more; see `leasehold show`");
            failure.resource = Some(view::name(resource));
            Err(failure)
        }
    }
}

/// Leaves word in the history that this run came for nothing. That it cannot is no failure of a run that was not needed.
fn note_skipped(done: &Done, plan: &Plan, leases: Option<&Leases>, settings: &Settings) {
    let (Some(leases), Some(once_per)) = (leases, plan.once_per) else { return };
    let noted = run_for(NOTE_LIMIT, leases.note_skipped(&plan.resource, done, once_per));
    settings.output.detail(|| match noted {
        Some(Ok(true)) => format!("noted in the history of {}", plan.resource),
        Some(Ok(false)) => format!("not noted: there is no place for it in the history of {}", plan.resource),
        Some(Err(error)) => format!("not noted in the history: {error}"),
        None => format!("not noted in the history within {NOTE_LIMIT:?}"),
    });
}

fn not_started(plan: &Plan, errno: i32) -> Failure {
    let command = plan.command.first().map(|command| command.to_string_lossy()).unwrap_or_default();
    if errno == libc::ETIME {
        let what = format!("the lease on {} was too near its deadline to start anything", plan.resource);
        return Failure::answer(Exit::NotGranted, "too_late", what).advise("use a longer --ttl");
    }
    let code = u8::try_from(spawn_failure_code(errno)).unwrap_or(126);
    let what = format!("cannot run {command}: {}", Errno::from_raw(errno).desc());
    Failure::error(Exit::NotStarted(code), "not_started", what)
}

fn lost(loss: &Loss, plan: &Plan, lease: Option<&Identity>, leases: Option<&Leases>) -> Failure {
    let what =
        format!("the lease on {} was lost while the command ran, which was stopped: {loss}", plan.resource);
    let mut failure = Failure::error(Exit::NotHeld, "lost", what);
    if let (Loss::WindowClosed, Some(leases)) = (loss, leases) {
        // Nobody has taken it away: the coordinator did not answer, or this machine did not ask.
        let place = &leases.profile().place;
        failure = failure.advise(format!(
            "see whether {place} can be reached from here, and whether it answers in time: `leasehold doctor`"
        ));
    }
    failure.resource = Some(view::name(&plan.resource));
    failure.reason = Some(loss.word());
    failure.details.extend(lease.map(|lease| ("token", lease.token.to_string())));
    failure
}

fn tell(note: &Note, plan: &Plan, settings: &Settings) {
    let text = match note {
        Note::Leftovers(left) => {
            format!("{} is released, and left running without it: {}", plan.resource, names(left))
        }
        Note::Unkillable(left) => format!(
            "could not end {}; the lease on {} is not released and runs out by itself",
            names(left),
            plan.resource
        ),
        Note::NotReleased(error) => error.to_string(),
        Note::DrainedByForce => {
            "the command did not end in the time it had to drain, and was ended".to_owned()
        }
        Note::Preempted { by, reason } => {
            let who = message::by_and_why(by, reason);
            format!("{} was asked for {who}; the command was told to end", plan.resource)
        }
        Note::GuardDied => "the guard process was killed, and the command with it".to_owned(),
    };
    settings.output.note(&text);
}

/// Whose exit code it is, for `--report` and, with `--json`, on the standard error.
#[derive(Debug, Serialize)]
struct Report {
    event: &'static str,
    resource: String,
    namespace: String,
    /// `command` or `leasehold`: whose code it is.
    source: &'static str,
    /// What happened, in one stable word.
    outcome: &'static str,
    exit_code: u8,
    signal: Option<i32>,
    reason: Option<&'static str>,
    lease_id: Option<String>,
    fencing_token: Option<u64>,
}

impl Report {
    fn new(verdict: &Verdict, plan: &Plan, lease: Option<&Identity>, exit: Exit) -> Self {
        let (outcome, signal, reason) = match verdict {
            Verdict::Command(Status::Code(_)) => ("ended", None, None),
            Verdict::Command(Status::Signal(signal)) => ("ended", Some(*signal), None),
            Verdict::NotStarted { .. } => ("not_started", None, None),
            Verdict::AlreadyDone(_) => ("already_done", None, None),
            Verdict::Refused(_) | Verdict::Nested => ("not_granted", None, None),
            Verdict::Failed(error) => ("failed", None, Some(error.kind().word())),
            Verdict::Interrupted(signal) => ("interrupted", Some(*signal), None),
            Verdict::Lost(loss) => ("lost", None, Some(loss.word())),
            Verdict::SuccessUnrecorded => ("success_unrecorded", None, None),
        };
        let source = if matches!(exit, Exit::Command(_)) { "command" } else { "leasehold" };
        Self {
            event: "run",
            resource: view::name(&plan.resource),
            namespace: plan.namespace.as_str().to_owned(),
            source,
            outcome,
            exit_code: exit.code(),
            signal,
            reason,
            lease_id: lease.map(|lease| lease.lease_id.to_string()),
            fencing_token: lease.map(|lease| lease.token.get()),
        }
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let line = output::json_line(self)?;
        fs::write(path, line).map_err(|error| {
            Failure::usage(format!("cannot write the report to {}: {error}", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use leasehold::Wait;

    use super::*;
    use crate::{
        args::{Cli, Verb},
        output::Output,
    };

    fn check(words: &str) -> Result<Plan, Failure> {
        match Cli::try_parse_from(words.split(' ')).unwrap().verb {
            Verb::Run(args) => {
                let settings =
                    Settings::check(&args::Global::default(), Output::new(false, false, false), &|_| None)?;
                plan(&args, &settings, &Origin::note())
            }
            verb => panic!("{verb:?}"),
        }
    }

    #[test]
    fn the_grace_fits_into_the_ttl() {
        let grace = |words| check(words).unwrap().terms.grace;
        assert_eq!(grace("leasehold run r -- c"), Duration::from_secs(5));
        assert_eq!(grace("leasehold run r --ttl 6s -- c"), Duration::from_secs(2));
        assert_eq!(grace("leasehold run r --grace 10s -- c"), Duration::from_secs(10));
        assert!(check("leasehold run r --ttl 6s --grace 3s -- c").is_err());
        assert_eq!(grace("leasehold run r --max-hold 3s -- c"), Duration::from_secs(1));
        assert!(check("leasehold run r --max-hold 3s --grace 3s -- c").is_err());
    }

    #[test]
    fn a_ttl_below_what_was_measured_is_doubted() {
        let mut vitals = Vitals::default();
        (vitals.round_trip.count, vitals.round_trip.p99) = (20, Duration::from_millis(10));
        assert_eq!(doubts(Ttl::DEFAULT, &vitals), None);
        vitals.host_pause.p99 = Duration::from_secs(60);
        let doubted = doubts(Ttl::DEFAULT, &vitals).unwrap();
        assert!(
            doubted.starts_with("a TTL of 30s is short") && doubted.contains("pause p99 60s"),
            "{doubted}"
        );
    }

    #[test]
    fn periods_and_limits_are_more_than_nothing() {
        assert!(check("leasehold run r --once-per 0s -- c").is_err());
        assert!(check("leasehold run r --once-per 8d -- c").is_err());
        assert!(check("leasehold run r --max-hold 0s -- c").is_err());
        let all = check("leasehold run r --once-per 23h --max-hold 1h --wait forever -- c").unwrap();
        assert_eq!((all.terms.wait, all.terms.ttl), (Wait::Forever, Ttl::DEFAULT));
    }

    #[test]
    fn the_command_keeps_its_own_flags() {
        let plan = check("leasehold run r -- c --ttl 5s -E 3").unwrap();
        assert_eq!(plan.command, ["c", "--ttl", "5s", "-E", "3"]);
        assert_eq!(check("leasehold run r c --wait x").unwrap().command, ["c", "--wait", "x"]);
    }
}
