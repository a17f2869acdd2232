//! `preempt`: an operator asks a holder to drain and hand over, and stays to see what becomes of it.

use std::time::Duration;

use leasehold::{
    Label, Leases, Refusal, Resource, Wait,
    core::record::{End, Record},
    preempt::{Asked, Pending, Progress, Wish},
};
use serde::Serialize;

use super::revoke::{nobody, other_token};
use crate::{
    args::Preempt,
    client, duration,
    exit::Exit,
    failure::Failure,
    interrupt::Interrupts,
    message, people,
    settings::{self, Settings},
    view::{self, GrantLine, LeaseFields},
};

/// What the holder has unless said otherwise (ours: twice the default TTL, as a drain has).
const WITHIN: Duration = Duration::from_secs(60);
/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);
/// A holder that agreed to end by the deadline has this much longer to have released.
const ALLOWANCE: Duration = Duration::from_secs(3);

/// What came of it.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    grant: GrantLine,
    /// `handed_over`, or `ended`: the grant ended in another way meanwhile.
    outcome: &'static str,
    /// How it ended: `released`, `expired`, `revoked`, or unknown.
    reason: Option<&'static str>,
}

pub(crate) fn run(args: &Preempt, settings: &Settings) -> Result<Exit, Failure> {
    let resource = settings::resource(&args.resource)?;
    let label = |option: &str, text: &str| {
        Label::new(text).map_err(|invalid| Failure::usage(format!("{option}: {invalid}")))
    };
    let wish = Wish {
        resource: resource.clone(),
        token: args.token.as_deref().map(settings::token).transpose()?,
        by: match &args.by {
            Some(text) => label("--by", text)?,
            None => settings.holder.clone().unwrap_or_else(client::operator),
        },
        reason: label("--reason", &args.reason)?,
        within: args.within.as_deref().map_or(Ok(WITHIN), |text| duration::parse("--within", text))?,
    };
    let interrupts =
        Interrupts::watch().map_err(|error| Failure::usage(format!("signals cannot be watched: {error}")))?;
    let leases = client::connect(settings, client::operator)?;
    let (token, within) = (wish.token, wish.within);
    let asked = match interrupts.run(leases.preempt(wish)) {
        Ok(asked) => asked?,
        Err(signal) => return Ok(Exit::Interrupted(signal)),
    };
    match asked {
        Asked::Pending(pending) => {
            Watch { resource, pending, within, settings, leases, interrupts }.until_settled()
        }
        Asked::Already { by, reason } => {
            let who = message::by_and_why(&by.to_string(), &reason.to_string());
            let mut failure =
                Failure::answer(Exit::NotGranted, "asked", format!("{resource} is asked for already, {who}"));
            failure.resource = Some(view::name(&resource));
            Err(failure.advise("see `leasehold show` for what became of it; that wish ends by itself"))
        }
        Asked::OtherToken(record) => {
            let token = token.unwrap_or(record.token);
            Err(other_token(&resource, token, &record, settings, &leases))
        }
        Asked::NotHeld(end) => Err(nobody(&resource, end.as_ref())),
        Asked::Refused(refusal) => Err(no_wish_now(&refusal, &resource, settings, &leases)),
        _ => Err(super::renew::unknown_answer()),
    }
}

fn no_wish_now(refusal: &Refusal, resource: &Resource, settings: &Settings, leases: &Leases) -> Failure {
    message::refused(refusal, resource, Wait::No, settings, leases)
}

/// A wish that stands, and who looks after it.
struct Watch<'a> {
    resource: Resource,
    pending: Pending,
    within: Duration,
    settings: &'a Settings,
    leases: Leases,
    interrupts: Interrupts,
}

impl Watch<'_> {
    /// Looks until the holder has handed over or refused, or its time is over.
    fn until_settled(self) -> Result<Exit, Failure> {
        let mut accepted: Option<String> = None;
        let mut reachable = true;
        loop {
            match self.interrupts.run(self.pending.look()) {
                Ok(Ok(progress)) => {
                    reachable = true;
                    match progress {
                        Progress::Ended(end) => return self.ended(end.as_ref()),
                        Progress::Refused { by, reason } => return Err(self.refused(&by, &reason)),
                        Progress::Accepted { by } if accepted.is_none() => {
                            self.tell_accepted(&by);
                            accepted = Some(by.to_string());
                        }
                        _ => {}
                    }
                }
                Ok(Err(error)) if error.is_transient() => {
                    if reachable {
                        self.settings.output.note(&format!("{error}; looking again"));
                    }
                    reachable = false;
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(signal) => return Ok(self.interrupted(signal)),
            }
            let allowance = if accepted.is_some() { ALLOWANCE } else { Duration::ZERO };
            if self.pending.remaining().is_zero() && self.pending.overdue() >= allowance {
                return Err(self.in_vain(accepted.as_deref()));
            }
            if let Some(signal) = self.interrupts.pause(EVERY) {
                return Ok(self.interrupted(signal));
            }
        }
    }

    fn tell_accepted(&self, by: &Label) {
        let left = people::duration(self.pending.remaining());
        self.settings.output.note(&format!("{}: {} hands over; it has {left}", self.resource, named(by)));
    }

    /// The operator went away: who has not heard of the wish shall not hear of it any more.
    fn interrupted(&self, signal: nix::sys::signal::Signal) -> Exit {
        self.withdraw();
        Exit::Interrupted(signal)
    }

    /// Best effort: what stays ends by itself.
    fn withdraw(&self) {
        let _ = leasehold::blocking::block_on(self.pending.withdraw());
    }

    fn grant(&self) -> GrantLine {
        GrantLine {
            resource: view::name(&self.resource),
            namespace: self.leases.namespace().as_str().to_owned(),
            place: self.leases.profile().place.clone(),
            lease: LeaseFields::from(self.pending.holder()),
        }
    }

    fn ended(&self, end: Option<&End>) -> Result<Exit, Failure> {
        self.withdraw();
        let Record { token, label, .. } = self.pending.holder();
        let holder = named(label);
        let wished = end.is_some_and(|end| leasehold::preempt::handed_over(&end.reason).is_some());
        let reason = end.map(|end| end.reason.word());
        let outcome = if wished || reason == Some("released") { "handed_over" } else { "ended" };
        let line = Line { grant: self.grant(), outcome, reason };
        let resource = &self.resource;
        self.settings.output.confirm(&line, || match (outcome, reason) {
            ("handed_over", _) => format!("{resource}: {holder} has handed over token {token}"),
            (_, Some(reason)) => format!("{resource}: token {token} of {holder} has ended: {reason}"),
            (_, None) => format!("{resource}: token {token} of {holder} has ended"),
        })?;
        Ok(Exit::Done)
    }

    fn refused(&self, by: &Label, reason: &str) -> Failure {
        self.withdraw();
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        self.still_held("declined", format!("{} does not hand {} over{why}", named(by), self.resource))
    }

    fn in_vain(&self, accepted: Option<&str>) -> Failure {
        self.withdraw();
        let (resource, within) = (&self.resource, people::duration(self.within));
        match accepted {
            Some(by) => self.still_held(
                "overdue",
                format!("{by} agreed to hand {resource} over, and has not within {within}"),
            ),
            None => self.still_held(
                "unanswered",
                format!(
                    "the holder of {resource} has not answered within {within}: it may not listen (`leasehold run` does, and \
                     programs that ask for preemptions)"
                ),
            ),
        }
    }

    /// The end of a wish that was in vain: who holds, and the command that ends it.
    fn still_held(&self, kind: &'static str, what: String) -> Failure {
        let mut failure = Failure::answer(Exit::NotGranted, kind, what);
        message::describe_holder(
            &mut failure,
            self.pending.holder(),
            &self.resource,
            self.settings,
            &self.leases,
        );
        let advice = failure.revoke.clone().unwrap_or_default();
        failure.advise(advice)
    }
}

fn named(label: &Label) -> String {
    if label.is_empty() { "its holder".to_owned() } else { label.to_string() }
}
