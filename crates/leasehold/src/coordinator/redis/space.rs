//! Where things are kept: the names of keys, and the shards of a namespace.
//!
//! Everything of one shard has one hash tag, so that a Cluster keeps it on one node and a script may touch all of it. On a
//! single server a namespace is one shard; on a Cluster it is [`CLUSTER_SHARDS`] of them, each with its own record of the
//! incarnation, because each may fail over alone.
//!
//! ```text
//! lh:{ns}:m            what the shard is          lh:{ns}:r:NAME   a resource's record
//! lh:{ns}:i            its resources' names       lh:{ns}:q:NAME   its queue: the order
//!                                                 lh:{ns}:w:NAME   its queue: who waits
//!                                                 lh:{ns}:p:NAME   its grants that have ended
//! ```
//!
//! On a Cluster the tag is `{ns:shard}`. Names are encoded ([`Resource::encode`]) and have no braces; a namespace has
//! neither braces nor colons. So nobody's name can reach into another's tag.

use std::sync::Arc;

use leasehold_core::{Namespace, Resource, Ttl};

use super::pack::Packed;

/// Shards of a namespace on a Cluster (ours: enough to use some nodes, few enough that a list asks each of them).
pub(crate) const CLUSTER_SHARDS: u8 = 16;
/// The longest TTL of a namespace that asks for no other.
pub(crate) const DEFAULT_MAX_TTL: Ttl = Ttl::NETWORK_MAX;

/// One shard of a namespace, as its keys and its scripts know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Space {
    prefix: String,
    told: Option<Ttl>,
    keeps_history: bool,
}

impl Space {
    /// The key of the shard's own record.
    pub(crate) fn meta(&self) -> String {
        format!("{}:m", self.prefix)
    }

    /// The key of the names.
    pub(crate) fn index(&self) -> String {
        format!("{}:i", self.prefix)
    }

    pub(crate) fn record(&self, name: &str) -> String {
        format!("{}:r:{name}", self.prefix)
    }

    pub(crate) fn line(&self, name: &str) -> String {
        format!("{}:q:{name}", self.prefix)
    }

    pub(crate) fn entries(&self, name: &str) -> String {
        format!("{}:w:{name}", self.prefix)
    }

    pub(crate) fn past(&self, name: &str) -> String {
        format!("{}:p:{name}", self.prefix)
    }

    /// What every operation of a call is told.
    pub(crate) fn header(&self, reads_only: bool) -> Vec<u8> {
        let told = self.told.map_or(0, Ttl::as_millis);
        Packed::new()
            .number(told)
            .number(DEFAULT_MAX_TTL.as_millis())
            .truth(reads_only)
            .truth(self.keeps_history)
            .finish()
    }
}

/// A namespace, split into its shards.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    shards: Vec<Arc<Space>>,
}

impl Layout {
    /// A namespace on a server that has all of it. `told` is the longest TTL that the client's URL names.
    pub(crate) fn whole(namespace: &Namespace, told: Option<Ttl>) -> Self {
        Self {
            shards: vec![Arc::new(Space {
                prefix: format!("lh:{{{namespace}}}"),
                told,
                keeps_history: true,
            })],
        }
    }

    /// A namespace on one of several independent servers, none of which knows alone what was granted.
    pub(crate) fn part(namespace: &Namespace, told: Option<Ttl>) -> Self {
        Self {
            shards: vec![Arc::new(Space {
                prefix: format!("lh:{{{namespace}}}"),
                told,
                keeps_history: false,
            })],
        }
    }

    /// A namespace spread over a Cluster.
    pub(crate) fn spread(namespace: &Namespace, told: Option<Ttl>) -> Self {
        let shard = |at: u8| {
            Arc::new(Space { prefix: format!("lh:{{{namespace}:{at:02}}}"), told, keeps_history: true })
        };
        Self { shards: (0..CLUSTER_SHARDS).map(shard).collect() }
    }

    /// All shards.
    pub(crate) fn shards(&self) -> &[Arc<Space>] {
        &self.shards
    }

    /// The shard of an encoded name.
    pub(crate) fn of(&self, name: &str) -> usize {
        // FNV-1a: spreads short names well, and never changes.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        usize::try_from(hash % self.shards.len() as u64).unwrap_or_default()
    }

    /// The shard of a resource, and its encoded name.
    pub(crate) fn place(&self, resource: &Resource) -> (usize, String) {
        let name = resource.encode();
        (self.of(&name), name)
    }
}

/// The slot of a Cluster in which a key lives: CRC-16 (XMODEM) of its hash tag.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
        assert_eq!(slot_of("foo{}{bar}"), slot_of("foo{}{bar}"));
    }

    #[test]
    fn every_key_of_a_shard_has_its_slot_whatever_the_names() {
        let layout = Layout::spread(&Namespace::new("ns").unwrap(), None);
        for name in ["{", "}", "{}", "a{b}c", "orders/42", "🦀"] {
            let (shard, name) = layout.place(&Resource::new(name).unwrap());
            let space = &layout.shards()[shard];
            let keys =
                [space.meta(), space.index(), space.record(&name), space.line(&name), space.entries(&name)];
            assert!(keys.iter().all(|key| slot_of(key) == slot_of(&keys[0])), "{keys:?}");
        }
    }
}
