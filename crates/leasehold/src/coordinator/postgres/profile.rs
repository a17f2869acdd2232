//! What this deployment is and guarantees, in words.

use std::num::NonZeroU32;

use leasehold_core::{
    Ttl,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    window::ClockRule,
};

use super::options::Expiry;
use crate::guarantees::Deployment;

/// What stands behind the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standby {
    /// Nothing that we can see.
    Alone,
    /// A standby that may lack the last commits.
    Asynchronous,
    /// A standby without which nothing is committed.
    Synchronous,
}

pub(super) fn profile(place: &str, expiry: Expiry, standby: Standby, wakes: bool, max_ttl: Ttl) -> Profile {
    Profile {
        engine: "postgres",
        place: place.to_owned(),
        capabilities: Capabilities {
            queue: QueueOrder::Fifo,
            wakes,
            once_per: true,
            history: true,
            ttl_step_ms: NonZeroU32::MIN,
        },
        clock: ClockRule::LargestOfThree,
        max_ttl,
        guarantee: guarantee(expiry, standby),
    }
}

/// The kinds of deployment, for the table of guarantees.
pub(crate) fn deployments() -> Vec<Deployment> {
    let of = |url, what, expiry, standby| Deployment { url, what, guarantee: guarantee(expiry, standby) };
    let (plain, observed) = ("postgres://HOST/DB", "postgres://HOST/DB?expiry=observed");
    vec![
        of(plain, "one server", Expiry::ServerClock, Standby::Alone),
        of(plain, "with a synchronous standby", Expiry::ServerClock, Standby::Synchronous),
        of(plain, "with an asynchronous standby", Expiry::ServerClock, Standby::Asynchronous),
        of(
            observed,
            "alone or with a synchronous standby, with a wall clock that may step",
            Expiry::Observed,
            Standby::Synchronous,
        ),
        of(observed, "the same, with an asynchronous standby", Expiry::Observed, Standby::Asynchronous),
        of(
            "postgres://HOST/DB?mode=advisory",
            "sessions as the proof of life, with or without a standby",
            Expiry::Session,
            Standby::Alone,
        ),
    ]
}

fn guarantee(expiry: Expiry, standby: Standby) -> Guarantee {
    let windows = match (expiry, standby) {
        (Expiry::ServerClock, Standby::Asynchronous) => {
            "A1, A2, A4; pause of the longest TTL after a failover"
        }
        (Expiry::ServerClock, _) => "A1, A2",
        (Expiry::Session, _) => {
            return Guarantee {
                windows: Promise::Limited(
                    "no, until the holder's next heartbeat: a session that ends frees its leases at once",
                ),
                tokens: Promise::Yes(""),
                after_failover: "every session ends, so every lease may be taken; grants nothing until the longest TTL has passed",
                caveat: "a holder whose connection breaks is passed before it knows: fence what it writes",
            };
        }
        (Expiry::Observed, Standby::Asynchronous) => "A1, A4; pause of the longest TTL after a failover",
        (Expiry::Observed, _) => "A1",
    };
    let after_failover = match standby {
        Standby::Synchronous => {
            "nothing that was answered is lost; grants nothing until the longest TTL has passed"
        }
        Standby::Asynchronous => {
            "the last commits may be lost: grants nothing until the longest TTL has passed"
        }
        Standby::Alone => {
            "no standby; a restart loses nothing, a restore grants nothing until the longest TTL has passed"
        }
    };
    let caveat = match (expiry, standby) {
        (Expiry::ServerClock, Standby::Asynchronous) => {
            "depends on the server's wall clock, and the old primary must be fenced off"
        }
        (Expiry::ServerClock | Expiry::Session, _) => "depends on the server's wall clock",
        (Expiry::Observed, Standby::Asynchronous) => {
            "the old primary must be fenced off; a lease that nobody watched takes up to one more TTL to lapse"
        }
        (Expiry::Observed, _) => "a lease that nobody watched takes up to one more TTL to lapse",
    };
    Guarantee { windows: Promise::Yes(windows), tokens: Promise::Yes(""), after_failover, caveat }
}
