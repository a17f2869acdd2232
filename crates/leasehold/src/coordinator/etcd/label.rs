//! What a cluster guarantees, by what it says about itself.

use leasehold_core::{
    Ttl,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    window::ClockRule,
};

use super::{
    options::Options,
    proto::{Empty, MemberListResponse, StatusResponse},
    rpc::{Effect, Rpc},
};
use crate::guarantees::Deployment;

/// What is known of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cluster {
    /// Members that vote.
    pub(super) voters: usize,
    /// The version of the member that was asked.
    pub(super) version: Option<Version>,
}

/// A version of etcd.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Version(pub(super) u32, pub(super) u32, pub(super) u32);

impl Version {
    /// Reads `3.4.23`, and what may follow.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let plain = text.split(['-', '+']).next()?;
        let mut parts = plain.split('.').map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next()??))
    }

    /// True when the fix that the release lines 3.4, 3.5 and 3.6 got in these versions is in this one.
    pub(super) fn has_fix(self, in_34: u32, in_35: u32, in_36: u32) -> bool {
        match self {
            Self(3, 4, patch) => patch >= in_34,
            Self(3, 5, patch) => patch >= in_35,
            Self(3, 6, patch) => patch >= in_36,
            other => other > Self(3, 6, 0),
        }
    }

    /// A leader that is stuck in a disk write for longer than an election takes may end leases that live, once it goes on
    /// (etcd #12528, #15247).
    pub(super) fn ends_live_leases(self) -> bool {
        !self.has_fix(31, 13, 0)
    }

    /// A keepalive of a lease that was revoked may be answered as if it lived.
    pub(super) fn keeps_dead_leases(self) -> bool {
        !self.has_fix(38, 23, 5)
    }
}

/// Asks the cluster about itself. What it does not tell (to a user who may not know) stays unknown.
pub(super) async fn look(rpc: &Rpc) -> Cluster {
    let members = rpc.call("/etcdserverpb.Cluster/MemberList", Empty {}, Effect::None);
    let status = rpc.call("/etcdserverpb.Maintenance/Status", Empty {}, Effect::None);
    let (members, status) = tokio::join!(members, status);
    let members: MemberListResponse = members.unwrap_or_default();
    let status: StatusResponse = status.unwrap_or_default();
    Cluster {
        voters: members.members.iter().filter(|member| !member.is_learner).count(),
        version: Version::parse(&status.version),
    }
}

pub(super) fn profile(options: &Options, max_ttl: Ttl, cluster: &Cluster) -> Profile {
    Profile {
        engine: "etcd",
        place: options.place.clone(),
        capabilities: Capabilities {
            queue: QueueOrder::Fifo,
            wakes: true,
            once_per: true,
            history: true,
            ttl_step_ms: core::num::NonZeroU32::MIN.saturating_add(999),
        },
        clock: ClockRule::LargestOfThree,
        max_ttl,
        guarantee: guarantee(cluster),
    }
}

/// The kinds of deployment, for the table of guarantees.
pub(crate) fn deployments() -> Vec<Deployment> {
    let of = |what, voters, version| Deployment {
        url: "etcd://A,B,C",
        what,
        guarantee: guarantee(&Cluster { voters, version: Some(version) }),
    };
    vec![
        of("three members or more", 3, Version(3, 5, 23)),
        of("the same, before 3.4.31 and 3.5.13", 3, Version(3, 4, 23)),
        of("one member", 1, Version(3, 5, 23)),
    ]
}

fn guarantee(cluster: &Cluster) -> Guarantee {
    let several = cluster.voters >= 3;
    Guarantee {
        windows: match cluster.version {
            Some(version) if several && version.ends_live_leases() => Promise::Limited(
                "yes (A1), unless a leader's disk hangs for longer than an election (etcd #15247)",
            ),
            _ => Promise::Yes("A1, A3"),
        },
        tokens: Promise::Yes("A3; a restored snapshot must be announced"),
        after_failover: if several {
            "leases go on and last up to a TTL and an election longer"
        } else {
            "waits until the member is back; leases go on and last up to a TTL longer"
        },
        caveat: caveat(cluster, several),
    }
}

fn caveat(cluster: &Cluster, several: bool) -> &'static str {
    let buggy = cluster.version.is_some_and(Version::ends_live_leases);
    match (several, buggy) {
        (true, true) => {
            "this version of etcd may end live leases after a leader's disk hung: upgrade to 3.4.31, 3.5.13 or later; after \
             restoring a snapshot remove the namespace's meta key; once-per periods go by the clients' wall clocks"
        }
        (true, false) => {
            "after restoring a snapshot remove the namespace's meta key; once-per periods go by the clients' wall clocks"
        }
        (false, _) => {
            "fewer than three members: nothing is granted or renewed while one is down; after restoring a snapshot remove the \
             namespace's meta key; once-per periods go by the clients' wall clocks"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_within_their_release_line() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("3.4.23").ends_live_leases() && version("3.5.12").ends_live_leases());
        assert!(!version("3.4.31").ends_live_leases() && !version("3.6.0-rc.1").ends_live_leases());
        assert!(version("3.6.4").keeps_dead_leases() && !version("3.7.0").keeps_dead_leases());
        assert!(version("3.3.27").keeps_dead_leases());
        assert_eq!(Version::parse("unknown"), None);
    }

    #[test]
    fn the_label_names_what_this_cluster_is() {
        let of = |voters, version| guarantee(&Cluster { voters, version: Version::parse(version) });
        assert!(
            of(3, "3.4.23").caveat.contains("3.4.31")
                && matches!(of(3, "3.4.23").windows, Promise::Limited(_))
        );
        assert!(
            matches!(of(3, "3.5.20").windows, Promise::Yes(_)) && !of(3, "3.5.20").caveat.contains("upgrade")
        );
        assert!(of(1, "3.4.23").caveat.contains("fewer than three"));
    }
}
