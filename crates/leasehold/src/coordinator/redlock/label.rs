//! The guarantee label: what these nodes really promise together, from what they say about themselves.

use std::num::NonZeroU32;

use leasehold_core::{
    Ttl,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    window::ClockRule,
};

use super::options::Options;
use crate::{coordinator::redis::facts::Facts, guarantees::Deployment};

const AFTER: &str = "a minority may be lost; a node that lost its memory takes no part for the longest TTL";
const CLOCKS: &str = "wall clocks of the nodes; they must not replicate one another; waiters have no order";

/// What is told about the nodes that were reached.
pub(super) fn profile(options: &Options, nodes: &[Facts], max_ttl: Ttl) -> Profile {
    Profile {
        engine: "redlock",
        place: options.place.clone(),
        capabilities: Capabilities {
            queue: QueueOrder::Unordered,
            wakes: true,
            once_per: true,
            history: false,
            ttl_step_ms: NonZeroU32::MIN,
        },
        clock: ClockRule::LargestOfThree,
        max_ttl,
        guarantee: guarantee(nodes),
    }
}

/// The kinds of deployment, for the table of guarantees.
pub(crate) fn deployments() -> Vec<Deployment> {
    let durable = Facts::assumed(&[("aof_enabled", "1")], &[("appendfsync", "always")]);
    let what = "three or five independent Redis servers";
    vec![Deployment {
        url: "redlock://A,B,C",
        what,
        guarantee: guarantee(&[durable.clone(), durable.clone(), durable]),
    }]
}

fn guarantee(nodes: &[Facts]) -> Guarantee {
    let replicated = nodes.iter().any(|facts| facts.replicas() > 0);
    let durable = nodes.iter().all(|facts| facts.syncs_always() == Some(true));
    let windows = if replicated {
        Promise::Limited("until a node fails over to its replica: two masters can both serve")
    } else {
        Promise::Yes("A1, A2 per node: their wall clocks do not step")
    };
    let caveat = match (replicated, durable) {
        (true, _) => {
            "a node has replicas: a failover may make it forget what it granted; nodes must be independent"
        }
        (false, true) => CLOCKS,
        (false, false) => {
            "wall clocks of the nodes; they must not replicate one another; waiters have no order; not every node syncs each \
             change, so a majority that crashes together ends leases"
        }
    };
    Guarantee {
        windows,
        tokens: Promise::Yes("unless a majority loses its memory and clocks are set back at once"),
        after_failover: AFTER,
        caveat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(nodes: &[(&str, &[(&str, &str)])]) -> Guarantee {
        let facts: Vec<Facts> =
            nodes.iter().map(|(info, config)| Facts::from_text(info, Some(config))).collect();
        guarantee(&facts)
    }

    #[test]
    fn each_deployment_has_its_label() {
        let always: (&str, &[(&str, &str)]) = ("aof_enabled:1", &[("appendfsync", "always")]);
        let durable = label(&[always; 3]);
        assert!(matches!(durable.windows, Promise::Yes(_)) && durable.caveat.contains("wall clocks"));
        assert!(!durable.caveat.contains("crashes together"));
        assert!(label(&[always, ("aof_enabled:0", &[])]).caveat.contains("crashes together"));
        let replicated = label(&[always, ("aof_enabled:1\r\nconnected_slaves:1", &[])]);
        assert!(
            matches!(replicated.windows, Promise::Limited(_)) && replicated.caveat.contains("independent")
        );
    }
}
