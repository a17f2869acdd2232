//! What the guard is told when the lease is granted: the command's environment, and when everything must be dead.

use std::{ffi::OsString, time::Duration};

use leasehold::{Lease, Leases, core::window::Reading};

use super::{Plan, again, handoff, notify, preempted};
use crate::{
    place,
    supervise::{Start, kill_margin},
};

/// The guard's orders.
pub(super) fn start(plan: &Plan, leases: &Leases, lease: &Lease, closes: Reading) -> Start {
    let set = |name: &str, value: String| (OsString::from(name), OsString::from(value));
    Start {
        set_env: vec![
            set("LEASEHOLD_RESOURCE", plan.resource.as_str().to_owned()),
            set("LEASEHOLD_TOKEN", lease.token().to_string()),
            set("LEASEHOLD_LEASE_ID", lease.lease_id().to_string()),
            set("LEASEHOLD_HOLDER_ID", leases.holder_id().to_string()),
            set("LEASEHOLD_TTL_MS", plan.terms.ttl.as_millis().to_string()),
            set("LEASEHOLD_NAMESPACE", plan.namespace.to_string()),
            (OsString::from(preempted::VARIABLE), preempted::path(lease.lease_id()).into_os_string()),
            set("LEASEHOLD_URL", place::for_command(&plan.url, &leases.profile().place)),
        ],
        remove_env: [again::VARIABLE]
            .into_iter()
            .chain(plan.notify.is_on().then_some(notify::VARIABLE))
            .map(OsString::from)
            .collect(),
        deadline_ns: closes.boot_ns,
        grace: plan.terms.grace,
        kill_margin: margin(plan),
        handoff: handoff::encode(&lease.belief(), plan.terms.max_hold),
        kill_leftovers: plan.kill_leftovers,
    }
}

/// How long before the deadline the tree is killed.
pub(super) fn margin(plan: &Plan) -> Duration {
    let ttl = plan.terms.ttl.as_duration();
    kill_margin(plan.terms.max_hold.map_or(ttl, |limit| limit.min(ttl)))
}
