//! `revoke`: an operator ends another's grant.
//!
//! The grant is named by its token, because the resource's name alone could hit the successor: between looking and typing,
//! the grant may have changed hands. Without a token nothing is changed; the record is shown with the exact command.

use leasehold::{
    Label, Leases, Resource, Token,
    blocking::block_on,
    core::{
        record::{End, Record, Revoked},
        request::Revocation,
    },
};

use crate::{
    args::Revoke,
    client,
    exit::Exit,
    failure::Failure,
    message, people,
    settings::{self, Settings},
    view::{self, GrantLine, LeaseFields, RevokeLine},
};

pub(crate) fn run(args: &Revoke, settings: &Settings) -> Result<Exit, Failure> {
    let resource = settings::resource(&args.resource)?;
    let token = args.token.as_deref().map(settings::token).transpose()?;
    let reason =
        Label::new(&args.reason).map_err(|invalid| Failure::usage(format!("--reason: {invalid}")))?;
    let leases = client::connect(settings, client::operator)?;
    let Some(token) = token else { return Err(which(&resource, settings, &leases)?) };
    let revocation =
        Revocation { resource: resource.clone(), token, by: leases.label().clone(), reason, now: args.now };
    match block_on(leases.revoke(revocation))? {
        Revoked::Ended { record, busy_for } => {
            let line = RevokeLine {
                grant: GrantLine {
                    resource: view::name(&resource),
                    namespace: leases.namespace().as_str().to_owned(),
                    place: leases.profile().place.clone(),
                    lease: LeaseFields::from(&record),
                },
                busy_for_ms: view::millis(busy_for),
            };
            settings.output.confirm(&line, || ended(&resource, &record, busy_for))?;
            if args.now {
                settings.output.note(
                    "its holder may still be at work: until it notices, only fences that check the token protect the resource",
                );
            }
            Ok(Exit::Done)
        }
        Revoked::OtherToken(record) => Err(other_token(&resource, token, &record, settings, &leases)),
        Revoked::NotHeld(end) => Err(nobody(&resource, end.as_ref())),
        _ => Err(super::renew::unknown_answer()),
    }
}

fn ended(resource: &Resource, record: &Record, busy_for: std::time::Duration) -> String {
    let holder = if record.label.is_empty() { "its holder".to_owned() } else { record.label.to_string() };
    if busy_for.is_zero() {
        return format!("{resource} is free: token {} of {holder} is revoked", record.token);
    }
    format!(
        "{resource}: token {} of {holder} is revoked; the resource stays busy until the holder stops, {} at most",
        record.token,
        people::duration(busy_for)
    )
}

/// No token was given: shows the grant, and the command that ends it.
fn which(resource: &Resource, settings: &Settings, leases: &Leases) -> Result<Failure, Failure> {
    let found = block_on(leases.inspect(resource))?;
    let Some(record) = found.record else { return Ok(nobody(resource, found.last_end.as_ref())) };
    let mut failure = Failure::usage("--token is needed, so that the grant you see is the one you end");
    let holder = if record.label.is_empty() { "without a name".to_owned() } else { record.label.to_string() };
    failure.details.push(("resource", resource.to_string()));
    failure.details.push(("holder", holder));
    message::describe_holder(&mut failure, &record, resource, settings, leases);
    let advice = failure.revoke.clone().unwrap_or_default();
    Ok(failure.advise(advice))
}

pub(super) fn other_token(
    resource: &Resource,
    token: Token,
    record: &Record,
    settings: &Settings,
    leases: &Leases,
) -> Failure {
    let what =
        format!("{resource} is not held under token {token} but under {}; nothing was changed", record.token);
    let mut failure = Failure::answer(Exit::NotHeld, "not_held", what);
    failure.reason = Some(if record.token > token { "superseded" } else { "absent" });
    message::describe_holder(&mut failure, record, resource, settings, leases);
    failure
}

pub(super) fn nobody(resource: &Resource, end: Option<&End>) -> Failure {
    let last = end
        .map_or_else(String::new, |end| format!("; its last grant, token {}, was {}", end.token, past(end)));
    let mut failure = Failure::answer(Exit::NotHeld, "not_held", format!("nobody holds {resource}{last}"));
    failure.reason = Some(end.map_or("absent", |end| end.reason.word()));
    failure.resource = Some(view::name(resource));
    failure
}

fn past(end: &End) -> &'static str {
    match end.reason.word() {
        "expired" => "left to expire",
        other => other,
    }
}
