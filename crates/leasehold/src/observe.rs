//! One structured event for each transition: resource, lease id, holder id, token, TTL, from, to, reason.
//!
//! Field names are stable: people rebuild an ownership timeline from them. Ids appear here and never as metric labels.

use leasehold_core::{
    Error, HolderId, Ttl,
    holder::{Identity, Loss, State, Transition},
    request::Release,
};

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
pub(crate) fn granted(identity: &Identity, holder_id: HolderId, ttl: Ttl, after_lapse: bool) {
    tracing::info!(
        resource = identity.resource.as_str(),
        lease_id = %identity.lease_id,
        %holder_id,
        fencing_token = identity.token.get(),
        ttl_ms = ttl.as_millis(),
        from = "acquiring",
        to = "held",
        reason = if after_lapse { "previous_holder_expired" } else { "free" },
        "the lease is granted"
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

/// Tells of a grant that could not be ended although its holder is done with it.
pub(crate) fn not_released(release: &Release, holder_id: HolderId, error: &Error) {
    tracing::warn!(
        resource = release.resource.as_str(),
        lease_id = %release.lease_id,
        %holder_id,
        fencing_token = release.token.map(leasehold_core::Token::get),
        reason = error.kind().word(),
        %error,
        "a lease could not be released; its resource stays busy until the TTL runs out"
    );
}
