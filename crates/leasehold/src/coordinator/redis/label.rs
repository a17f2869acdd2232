//! The guarantee label: what this deployment really promises, from what the server says about itself.
//!
//! It is fixed when a client connects. What the server does not tell is assumed to be the weaker of the two.

use std::num::NonZeroU32;

use leasehold_core::{
    Ttl,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    window::ClockRule,
};

use super::{
    facts::Facts,
    options::{Options, Shape},
};
use crate::guarantees::Deployment;

const QUARANTINE: &str =
    "a restart or failover pauses new grants for the longest TTL; leases that were lost end, survivors go on";
const OUTSIDE_PARTITIONS: &str = "outside partitions only (A1, A2): two masters can both serve";

/// What is told about a connected server.
pub(super) fn profile(options: &Options, facts: &Facts, max_ttl: Ttl) -> Profile {
    Profile {
        engine: "redis",
        place: options.place.clone(),
        capabilities: Capabilities {
            queue: QueueOrder::Fifo,
            wakes: true,
            once_per: true,
            history: true,
            ttl_step_ms: NonZeroU32::MIN,
        },
        clock: ClockRule::LargestOfThree,
        max_ttl,
        guarantee: guarantee(options, facts),
    }
}

/// The kinds of deployment, for the table of guarantees.
pub(crate) fn deployments() -> Vec<Deployment> {
    let aof = Facts::assumed(&[("aof_enabled", "1")], &[("appendfsync", "always")]);
    let none = Facts::assumed(&[("aof_enabled", "0")], &[]);
    let of = |url, what, replicated, facts: &Facts| Deployment {
        url,
        what,
        guarantee: label(replicated, false, facts),
    };
    vec![
        of("redis://HOST", "one server that syncs each change (AOF)", false, &aof),
        of("redis://HOST", "one server without persistence", false, &none),
        of("redis://A,B,C?sentinel=NAME", "replicas watched by Sentinels", true, &aof),
        of("redis://A,B,C?cluster=true", "a Cluster", true, &aof),
    ]
}

fn guarantee(options: &Options, facts: &Facts) -> Guarantee {
    let replicated = !matches!(options.shape, Shape::Single) || facts.replicas() > 0;
    label(replicated, options.replicas.is_some(), facts)
}

fn label(replicated: bool, confirmed: bool, facts: &Facts) -> Guarantee {
    let tokens = Promise::Yes("unless memory is lost and the server's clock set back at once");
    if facts.may_evict() {
        return Guarantee {
            windows: Promise::Limited("until the server evicts a lease, unnoticed"),
            tokens,
            after_failover: QUARANTINE,
            caveat: "maxmemory-policy is not noeviction: an efficiency lock, unless the resource is fenced",
        };
    }
    let (windows, caveat) = match (replicated, confirmed) {
        (true, true) => (
            Promise::Limited(OUTSIDE_PARTITIONS),
            "grants and releases are confirmed by replicas, which narrows what a failover loses and does not end partitions",
        ),
        (true, false) => (
            Promise::Limited(OUTSIDE_PARTITIONS),
            "two masters are possible during a partition: an efficiency lock, unless the resource is fenced",
        ),
        (false, _) => (Promise::Yes("A1, A2: the server's wall clock does not step"), single(facts)),
    };
    Guarantee { windows, tokens, after_failover: QUARANTINE, caveat }
}

/// The caveat of a server that stands alone.
fn single(facts: &Facts) -> &'static str {
    match (facts.has_aof(), facts.syncs_always()) {
        (false, _) => "not highly available, and without AOF: a restart ends every lease and pauses new ones",
        (true, Some(true)) => "not highly available; what was answered survives a crash (AOF, fsync always)",
        (true, Some(false)) => "not highly available; a power failure may lose the last second (AOF)",
        (true, None) => {
            "not highly available; AOF is on, and how often it is synced the server does not tell"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    fn label(url: &str, info: &str, config: Option<&[(&str, &str)]>) -> Guarantee {
        let (scheme, rest) = url.split_once(':').unwrap();
        let options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
        guarantee(&options, &Facts::from_text(info, config))
    }

    #[test]
    fn each_deployment_has_its_label() {
        let alone = label("redis://h", "aof_enabled:0\r\n", None);
        assert!(matches!(alone.windows, Promise::Yes(_)) && alone.caveat.contains("without AOF"));
        let always = label("redis://h", "aof_enabled:1", Some(&[("appendfsync", "always")]));
        assert!(always.caveat.contains("survives a crash"));
        let everysec = label("redis://h", "aof_enabled:1", Some(&[("appendfsync", "everysec")]));
        assert!(everysec.caveat.contains("last second"));
        assert!(label("redis://h", "aof_enabled:1", None).caveat.contains("does not tell"));
        for (url, info) in [
            ("redis://h", "connected_slaves:1"),
            ("redis://h?sentinel=m", ""),
            ("redis://h?cluster=true", ""),
        ] {
            let label = label(url, info, None);
            assert!(matches!(label.windows, Promise::Limited(how) if how.contains("partitions")), "{url}");
            assert!(label.caveat.contains("efficiency lock"));
        }
        assert!(
            label("redis://h?sentinel=m&wait_replicas=1", "", None).caveat.contains("confirmed by replicas")
        );
        let evicts = label("redis://h", "maxmemory:1000\r\nmaxmemory_policy:allkeys-lru", None);
        assert!(matches!(evicts.windows, Promise::Limited(how) if how.contains("evicts")));
        let unbounded = label("redis://h", "maxmemory:0\r\nmaxmemory_policy:allkeys-lru", None);
        assert!(matches!(unbounded.windows, Promise::Yes(_)));
    }
}
