//! What is said when the answer is no: who holds, since when, under which token, for how long, how to wait, and the exact
//! command that ends it.

use std::time::Duration;

use leasehold::{
    Leases, Namespace, Refusal, Resource, Token, Url, Wait, clock,
    core::record::{Busy, Gone, Record},
};

use crate::{
    exit::Exit,
    failure::Failure,
    people::{self, shell_word},
    place,
    settings::Settings,
    view::{self, LeaseFields},
};

/// Why a claim was not granted: exit code 75. `wait` is what the claimant asked for.
pub(crate) fn refused(
    refusal: &Refusal,
    resource: &Resource,
    wait: Wait,
    settings: &Settings,
    leases: &Leases,
) -> Failure {
    let mut failure = match refusal {
        Refusal::Busy(busy) => held(busy, resource, wait, settings, leases),
        Refusal::Queued(queued) => {
            let what = format!("{resource} is promised to those who wait: {} in front", queued.ahead);
            Failure::answer(Exit::NotGranted, "queued", what).advise(how_to_wait(wait))
        }
        Refusal::Quarantined { remaining } => quarantined(*remaining, settings, leases),
        Refusal::TooLate => {
            let what = format!("{resource} was granted too late to be of use, and was given back");
            Failure::answer(Exit::NotGranted, "too_late", what)
                .advise("ask again; with a longer --ttl if it happens often")
        }
        // A refusal that this program does not know is a refusal.
        other => Failure::answer(Exit::NotGranted, "refused", format!("{resource} was refused: {other:?}")),
    };
    failure.resource = Some(view::name(resource));
    failure
}

fn held(busy: &Busy, resource: &Resource, wait: Wait, settings: &Settings, leases: &Leases) -> Failure {
    let record = &busy.holder;
    let within = match wait {
        Wait::For(limit) => format!(" (waited {})", people::duration(limit)),
        _ => String::new(),
    };
    let holder = if record.label.is_empty() { "another".to_owned() } else { record.label.to_string() };
    let mut failure =
        Failure::answer(Exit::NotGranted, "held", format!("{resource} is held by {holder}{within}"));
    describe_holder(&mut failure, record, resource, settings, leases);
    let before_last = failure.details.len().saturating_sub(1);
    failure.details.insert(before_last, ("to wait", how_to_wait(wait)));
    failure.advise(how_to_wait(wait))
}

/// Adds the grant in the way, in full, and last the command that ends it.
pub(crate) fn describe_holder(
    failure: &mut Failure,
    record: &Record,
    resource: &Resource,
    settings: &Settings,
    leases: &Leases,
) {
    let revoke = revoke_command(record, resource, settings, leases);
    failure.details.extend(record_lines(record));
    failure.details.push(("place", place(leases)));
    failure.details.push(("to end it", revoke.clone()));
    failure.holder = Some(LeaseFields::from(record));
    failure.revoke = Some(revoke);
    failure.resource = Some(view::name(resource));
}

/// A grant for people, as names and values.
pub(crate) fn record_lines(record: &Record) -> Vec<(&'static str, String)> {
    let remaining = people::duration(record.remaining);
    let (remaining, revoked) = match &record.revoked {
        None => (format!("{remaining} unless renewed"), None),
        Some(notice) => (
            format!("{remaining} at most"),
            Some(by_and_why(&notice.by.to_string(), &notice.reason.to_string())),
        ),
    };
    let mut lines = vec![
        ("since", people::since(record.granted_us, clock::unix_us())),
        ("token", record.token.to_string()),
        ("remaining", remaining),
    ];
    lines.extend(revoked.map(|revoked| ("revoked", revoked)));
    lines
}

/// `by alice@host (stuck)`.
pub(crate) fn by_and_why(by: &str, reason: &str) -> String {
    let by = if by.is_empty() { "somebody" } else { by };
    if reason.is_empty() { format!("by {by}") } else { format!("by {by} ({reason})") }
}

/// Where the coordinator is, and which namespace was asked.
pub(crate) fn place(leases: &Leases) -> String {
    format!("{}, namespace {}", leases.profile().place, leases.namespace())
}

fn how_to_wait(wait: Wait) -> String {
    match wait {
        Wait::No => "add --wait 5m".to_owned(),
        Wait::For(_) => "use a longer --wait, or --wait forever".to_owned(),
        Wait::Forever => "ask again".to_owned(),
    }
}

/// The command that ends this grant and no other, ready for a shell, from any folder.
fn revoke_command(record: &Record, resource: &Resource, settings: &Settings, leases: &Leases) -> String {
    revoke_words(resource.as_str(), record.token, &whereabouts(settings, leases))
}

/// The options that lead another shell to the same namespace; each with a space in front.
fn whereabouts(settings: &Settings, leases: &Leases) -> String {
    let url = Url::parse(&settings.url).ok().filter(|_| !settings.is_default_place);
    let place = url.and_then(|url| place::for_people(&url, &leases.profile().place));
    options(place.as_deref(), &settings.namespace)
}

fn options(place: Option<&str>, namespace: &Namespace) -> String {
    let place = place.map_or_else(String::new, |place| format!(" --url {}", shell_word(place)));
    let is_default = *namespace == Namespace::default();
    let namespace = if is_default { String::new() } else { format!(" --namespace {namespace}") };
    place + &namespace
}

fn revoke_words(resource: &str, token: Token, options: &str) -> String {
    let name = shell_word(resource);
    let options = format!("--token {token}{options}");
    if resource.starts_with('-') {
        return format!("leasehold revoke {options} -- {name}");
    }
    format!("leasehold revoke {name} {options}")
}

fn quarantined(remaining: Duration, settings: &Settings, leases: &Leases) -> Failure {
    let what = format!(
        "namespace {} is new on {}, or it lost its memory; grants start in {}",
        settings.namespace,
        leases.profile().place,
        people::duration(remaining)
    );
    Failure::answer(Exit::NotGranted, "quarantined", what).advise(format!(
        "wait with --wait; if nobody can hold a lease here, `leasehold init --fresh{}`",
        whereabouts(settings, leases)
    ))
}

/// Why a grant is not there any more: one stable word, and words for people.
pub(crate) fn gone(gone: &Gone) -> (&'static str, String) {
    match gone {
        Gone::Expired => ("expired", "its TTL ran out".to_owned()),
        Gone::Superseded { token } => ("superseded", format!("a later grant exists, token {token}")),
        Gone::Revoked { by, reason, remaining } => {
            let busy = if remaining.is_zero() {
                String::new()
            } else {
                format!("; the resource stays busy for at most {}", people::duration(*remaining))
            };
            ("revoked", format!("revoked {}{busy}", by_and_why(&by.to_string(), &reason.to_string())))
        }
        Gone::Released => ("released", "it was released".to_owned()),
        Gone::Absent => ("absent", "the coordinator knows no such grant here".to_owned()),
        other => ("gone", format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_revokes_names_what_is_not_the_default() {
        let token = Token::new(17).unwrap();
        let none = options(None, &Namespace::default());
        assert_eq!(revoke_words("nightly", token, &none), "leasehold revoke nightly --token 17");
        let namespace = Namespace::new("app").unwrap();
        assert_eq!(
            revoke_words("-odd name", token, &options(Some("sqlite:/a b.db"), &namespace)),
            "leasehold revoke --token 17 --url 'sqlite:/a b.db' --namespace app -- '-odd name'"
        );
    }
}
