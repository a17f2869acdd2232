//! What `run` logs beside the library: one structured event for each change of its settings. The fields are the library's.

use leasehold::{Lease, Ttl};

/// Tells of a TTL that counts from the next renewal.
pub(super) fn retuned(lease: &Lease, was: Ttl, ttl: Ttl) {
    tracing::info!(
        target: "leasehold",
        resource = lease.resource().as_str(),
        lease_id = %lease.lease_id(),
        fencing_token = lease.token().get(),
        ttl_ms = ttl.as_millis(),
        was_ms = was.as_millis(),
        "the configuration has another TTL, which counts from the next renewal"
    );
}

/// Tells of a configuration of which nothing counts.
pub(super) fn refused(lease: &Lease, ttl: Ttl, problem: &str) {
    tracing::warn!(
        target: "leasehold",
        resource = lease.resource().as_str(),
        lease_id = %lease.lease_id(),
        fencing_token = lease.token().get(),
        ttl_ms = ttl.as_millis(),
        error = problem,
        "the configuration has changed and is refused; what counted still counts"
    );
}
