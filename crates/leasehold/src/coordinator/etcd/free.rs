//! Since when a resource has been free, as this client has seen it.
//!
//! etcd has no clock that a transaction could read, so no two clients can agree on the moment at which a resource became
//! free. Each goes by its own first look: it never passes the first in line earlier than allowed, at worst a little later. A
//! resource that nobody waits for needs no such moment.

use std::{collections::HashMap, sync::Mutex};

use leasehold_core::Resource;

use crate::sync::lock;

/// Looks older than this that were not repeated are forgotten (ours: far longer than any reservation).
const FORGOTTEN_US: u64 = 600_000_000;
/// Above this many looks, old ones are looked for.
const MANY: usize = 1_024;

/// First looks at free resources.
#[derive(Debug, Default)]
pub(super) struct Free {
    looks: Mutex<HashMap<Resource, Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    /// The last token given: it tells one spell of being free from the next.
    after: u64,
    first_us: u64,
    last_us: u64,
}

impl Free {
    /// It is free, after this token, and somebody waits: since when, as far as we have seen.
    pub(super) fn seen(&self, resource: &Resource, after: u64, now_us: u64) -> u64 {
        let mut looks = lock(&self.looks);
        if looks.len() > MANY {
            looks.retain(|_, look| now_us.saturating_sub(look.last_us) < FORGOTTEN_US);
        }
        let look = looks.entry(resource.clone()).or_insert(Look { after, first_us: now_us, last_us: now_us });
        if look.after != after {
            *look = Look { after, first_us: now_us, last_us: now_us };
        }
        look.last_us = now_us;
        look.first_us
    }

    /// It is held, or in quarantine, or nobody waits.
    pub(super) fn over(&self, resource: &Resource) {
        lock(&self.looks).remove(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spell_of_being_free_has_its_own_first_look() {
        let (free, resource) = (Free::default(), Resource::new("r").unwrap());
        assert_eq!((free.seen(&resource, 1, 10), free.seen(&resource, 1, 20)), (10, 10));
        assert_eq!(free.seen(&resource, 2, 30), 30);
        free.over(&resource);
        assert_eq!(free.seen(&resource, 2, 40), 40);
    }
}
