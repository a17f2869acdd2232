//! One structured event for each transition: resource, lease id, holder id, token, TTL, from, to, reason.
//!
//! Field names are stable: people rebuild an ownership timeline from them. Ids appear here and never as metric labels.

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, Invalid, Label, Namespace, Resource, Token, Ttl,
    fence::OpSeq,
    holder::{Identity, Loss, State, Transition},
    profile::Profile,
    record::{Grant, Record, Released},
    request::{Claim, Release},
    waiter::Refusal,
};

use crate::{LeaseHandle, Vitals, fence::Refused};

/// Tells of a new client: whose holder id is whose, and where its leases are.
pub(crate) fn connected(holder_id: HolderId, label: &Label, namespace: &Namespace, profile: &Profile) {
    tracing::info!(
        %holder_id,
        label = label.as_str(),
        namespace = namespace.as_str(),
        engine = profile.engine,
        place = profile.place.as_str(),
        "connected"
    );
}

/// Tells of a change of state.
pub(crate) fn transition(identity: &Identity, holder_id: HolderId, ttl: Ttl, transition: &Transition) {
    let (from, to) = (transition.from.word(), transition.to.word());
    let ttl_ms = ttl.as_millis();
    macro_rules! event {
        ($level:ident, $reason:expr, $text:literal) => {
            tracing::$level!(
                resource = identity.resource.as_str(),
                lease_id = %identity.lease_id,
                %holder_id,
                fencing_token = identity.token.get(),
                ttl_ms,
                from,
                to,
                reason = $reason,
                $text
            )
        };
    }
    match &transition.to {
        State::Lost(Loss::HandedOff) => event!(info, "hand_off", "the lease is handed off"),
        State::Lost(loss) => event!(error, loss.word(), "the lease is lost"),
        State::Uncertain => event!(
            warn,
            "no_good_renewal",
            "the lease is uncertain: no renewal has succeeded for half its TTL"
        ),
        State::Draining => event!(info, "drain", "the lease is draining"),
        _ => event!(info, "", "the lease changed state"),
    }
}

/// Tells of a new grant.
pub(crate) fn granted(identity: &Identity, holder_id: HolderId, ttl: Ttl, grant: &Grant) {
    tracing::info!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        ttl_ms = ttl.as_millis(),
        from = "acquiring",
        to = "held",
        reason = if grant.adopted {
            "adopted"
        } else if grant.after_lapse { "previous_holder_expired" } else { "free" },
        granted_us = grant.granted_us,
        "the lease is granted"
    );
}

/// Tells of a claim that was answered with no.
pub(crate) fn refused(claim: &Claim, refusal: &Refusal) {
    let (reason, record) = match refusal {
        Refusal::Busy(busy) => ("busy", Some(&busy.holder)),
        Refusal::Queued(_) => ("queued", None),
        Refusal::Quarantined { .. } => ("quarantined", None),
        Refusal::TooLate => ("too_late", None),
        _ => ("refused", None),
    };
    tracing::info!(
        resource = claim.resource.as_str(),
        lease_id = %claim.lease_id,
        holder_id = %claim.holder_id,
        ttl_ms = claim.ttl.as_millis(),
        from = "acquiring",
        to = "refused",
        reason,
        held_under = record.map(|record| record.token.get()),
        held_by = record.map(|record| tracing::field::display(record.holder_id)),
        "the lease is not granted"
    );
}

/// Tells of a claim that nothing is to be done for.
pub(crate) fn already_done(claim: &Claim) {
    tracing::info!(
        resource = claim.resource.as_str(),
        lease_id = %claim.lease_id,
        holder_id = %claim.holder_id,
        ttl_ms = claim.ttl.as_millis(),
        from = "acquiring",
        to = "refused",
        reason = "already_done",
        "nothing needs doing: the last successful run is recent enough"
    );
}

/// Tells of a claim that could not be asked for, or of which nobody knows what became.
pub(crate) fn not_asked(claim: &Claim, error: &Error) {
    tracing::warn!(
        resource = claim.resource.as_str(),
        lease_id = %claim.lease_id,
        holder_id = %claim.holder_id,
        ttl_ms = claim.ttl.as_millis(),
        from = "acquiring",
        to = "refused",
        reason = error.kind().word(),
        %error,
        "the lease could not be asked for"
    );
}

/// Tells of a TTL that counts from the next renewal, because the settings have another.
pub(crate) fn retuned(identity: &Identity, holder_id: HolderId, was: Ttl, ttl: Ttl) {
    tracing::info!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        ttl_ms = ttl.as_millis(),
        was_ms = was.as_millis(),
        "the settings have another TTL, which counts from the next renewal"
    );
}

/// Tells of a lease whose policy does not go with the TTL of the settings.
pub(crate) fn not_retuned(identity: &Identity, holder_id: HolderId, ttl: Ttl, problem: &Invalid) {
    tracing::warn!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        ttl_ms = ttl.as_millis(),
        error = %problem,
        "the TTL of the settings does not go with this lease, which keeps its own"
    );
}

/// Tells of a file of settings that has changed and counts.
#[cfg(feature = "settings")]
pub(crate) fn settings(path: &std::path::Path) {
    tracing::info!(file = %path.display(), "the settings have changed");
}

/// Tells of a file of settings of which nothing counts.
#[cfg(feature = "settings")]
pub(crate) fn settings_refused(path: &std::path::Path, problem: &str) {
    tracing::warn!(
        file = %path.display(),
        error = problem,
        "the settings have changed and are refused; what counted still counts"
    );
}

/// Tells of settings that the coordinator keeps, and that count from now on.
#[cfg(feature = "settings")]
pub(crate) fn stored_settings(namespace: &Namespace, change: &crate::settings::stored::Change) {
    tracing::info!(
        %namespace,
        version = change.version,
        by = %change.by,
        "the coordinator's settings have changed"
    );
}

/// Tells of settings that the coordinator keeps, and of which nothing counts.
#[cfg(feature = "settings")]
pub(crate) fn stored_settings_refused(namespace: &Namespace, problem: &str) {
    tracing::warn!(
        %namespace,
        error = problem,
        "the coordinator's settings have changed and are refused; what counted still counts"
    );
}

/// Tells of a renewal that succeeded.
pub(crate) fn renewed(identity: &Identity, holder_id: HolderId, ttl: Ttl) {
    tracing::debug!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        ttl_ms = ttl.as_millis(),
        "the lease is renewed"
    );
}

/// Tells of a grant that was ended by naming it: by a script, or by whoever ends what another process held.
pub(crate) fn released_by_name(release: &Release, holder_id: HolderId, answer: &Released) {
    let reason = match answer {
        Released::Ended => "named",
        Released::LeftQueue => "left_queue",
        _ => "not_held",
    };
    tracing::info!(
        resource = release.resource.as_str(),
        lease_id = %release.lease_id,
        %holder_id,
        fencing_token = release.token.map(Token::get),
        from = "held",
        to = "released",
        reason,
        "a grant was ended by its name"
    );
}

/// Tells of a renewal that failed; the lease stands until its window closes.
pub(crate) fn renewal_failed(identity: &Identity, holder_id: HolderId, failures: u32, error: &Error) {
    tracing::warn!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        failures,
        reason = error.kind().word(),
        %error,
        "a renewal failed and is tried again while the window is open"
    );
}

/// Tells of a TTL that is shorter than what this client has met calls for.
pub(crate) fn short_ttl(identity: &Identity, holder_id: HolderId, ttl: Ttl, vitals: &Vitals) {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        ttl_ms = ttl.as_millis(),
        needed_ms = vitals.needed_ttl().map(ms),
        round_trip_ms = ms(vitals.round_trip.p99),
        pause_ms = ms(vitals.host_pause.p99),
        "the TTL is short for what this client has met, and a lost renewal may cost the lease"
    );
}

/// Tells of a grant that could not be ended although its holder is done with it.
pub(crate) fn not_released(release: &Release, holder_id: HolderId, error: &Error) {
    tracing::warn!(
        resource = release.resource.as_str(),
        lease_id = %release.lease_id,
        %holder_id,
        fencing_token = release.token.map(Token::get),
        reason = error.kind().word(),
        %error,
        "a lease could not be released; its resource stays busy until the TTL runs out"
    );
}

/// Tells of a write that a fence refused, the `total`th of this process.
pub(crate) fn write_refused(refused: &Refused, total: u64) {
    let (pass, stored) = (refused.pass.as_ref(), refused.refusal.stored());
    let holder = |label: &Label| tracing::field::display(label.clone());
    tracing::warn!(
        resource = refused.resource.as_ref().map(Resource::as_str),
        namespace = pass.map(|pass| pass.namespace.as_str()),
        lease_id = pass.map(|pass| tracing::field::display(pass.lease_id)),
        fencing_token = pass.map(|pass| pass.token.get()),
        op_seq = pass.and_then(|pass| pass.op_seq).map(OpSeq::get),
        holder = pass.map(|pass| holder(&pass.holder)),
        stored_token = stored.map(|stored| stored.token.get()),
        stored_op_seq = stored.and_then(|stored| stored.op_seq).map(OpSeq::get),
        stored_holder = stored.map(|stored| holder(&stored.holder)),
        reason = refused.refusal.word(),
        fence = %refused.place,
        stale_write_rejected_total = total,
        "a write was refused at the fence"
    );
}

/// Tells of an operator's wish, at the operator's end.
pub(crate) fn preemption_asked(
    resource: &Resource,
    holder: &Record,
    by: &Label,
    why: &Label,
    within: Duration,
) {
    tracing::info!(
        resource = resource.as_str(),
        lease_id = %holder.lease_id,
        holder_id = %holder.holder_id,
        fencing_token = holder.token.get(),
        ttl_ms = holder.ttl.as_millis(),
        reason = "asked",
        by = by.as_str(),
        why = why.as_str(),
        within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        "the holder of a lease is asked to hand over"
    );
}

/// What a holder does about an operator's wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// It has learnt of it.
    Asked,
    /// It hands over.
    Accepted,
    /// It goes on.
    Refused,
}

impl Heard {
    /// One word, for logs and metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
        }
    }
}

/// Tells of an operator's wish, at the holder's end.
pub(crate) fn preemption(lease: &LeaseHandle, by: &Label, why: &Label, left: Duration, heard: Heard) {
    macro_rules! event {
        ($text:literal) => {
            tracing::info!(
                resource = lease.resource().as_str(),
                lease_id = %lease.lease_id(),
                holder_id = %lease.holder_id(),
                fencing_token = lease.token().get(),
                reason = heard.word(),
                by = by.as_str(),
                why = why.as_str(),
                within_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                $text
            )
        };
    }
    match heard {
        Heard::Asked => event!("somebody asks for the lease"),
        Heard::Accepted => event!("the holder hands the lease over"),
        Heard::Refused => event!("the holder does not hand the lease over"),
    }
}
