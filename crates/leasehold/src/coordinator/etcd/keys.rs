//! Where things are in etcd: the keys of one namespace, all below one root that belongs to us alone.
//!
//! ```text
//!   PREFIX/NAMESPACE/meta               the namespace's settings
//!   PREFIX/NAMESPACE/purge              when a client last looked for what to forget, and where it stopped
//!   PREFIX/NAMESPACE/quarantine         there while nothing is granted; hangs on a lease
//!   PREFIX/NAMESPACE/state/RESOURCE     what is remembered of a resource
//!   PREFIX/NAMESPACE/held/RESOURCE      there while a grant lives; hangs on the grant's lease
//!   PREFIX/NAMESPACE/past/RESOURCE/N    a grant that has ended: a ring of as many as are kept
//!   PREFIX/NAMESPACE/line/RESOURCE/ID   a place in the queue; hangs on the waiting client's lease
//! ```
//!
//! A resource's name is encoded without `/`, so that none is a path-prefix of another and no key of somebody else can stand
//! in the way.

use leasehold_core::{LeaseId, Namespace, Resource};

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    root: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, namespace: &Namespace) -> Self {
        Self { root: format!("{prefix}/{namespace}/") }
    }

    /// What all keys of the namespace start with.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    pub(super) fn meta(&self) -> String {
        format!("{}meta", self.root)
    }

    pub(super) fn quarantine(&self) -> String {
        format!("{}quarantine", self.root)
    }

    /// Whose turn it was to forget.
    pub(super) fn turn(&self) -> String {
        format!("{}purge", self.root)
    }

    /// What all states start with.
    pub(super) fn states(&self) -> String {
        format!("{}state/", self.root)
    }

    pub(super) fn state(&self, resource: &Resource) -> String {
        format!("{}state/{}", self.root, resource.encode())
    }

    /// What all marks start with.
    pub(super) fn marks(&self) -> String {
        format!("{}held/", self.root)
    }

    pub(super) fn mark(&self, resource: &Resource) -> String {
        format!("{}held/{}", self.root, resource.encode())
    }

    /// What the history of one resource starts with.
    pub(super) fn pasts(&self, resource: &Resource) -> String {
        format!("{}past/{}/", self.root, resource.encode())
    }

    pub(super) fn past(&self, resource: &Resource, place: u64) -> String {
        format!("{}past/{}/{place:02}", self.root, resource.encode())
    }

    /// What all places start with.
    pub(super) fn lines(&self) -> String {
        format!("{}line/", self.root)
    }

    /// What the places of one resource start with.
    pub(super) fn line(&self, resource: &Resource) -> String {
        format!("{}line/{}/", self.root, resource.encode())
    }

    pub(super) fn place(&self, resource: &Resource, lease_id: LeaseId) -> String {
        format!("{}line/{}/{lease_id}", self.root, resource.encode())
    }
}

/// The lease id that a place's key ends with.
pub(super) fn claimant_of(key: &[u8]) -> Option<LeaseId> {
    let text = std::str::from_utf8(key).ok()?;
    text.rsplit_once('/')?.1.parse().ok()
}

/// The resource that a key of one kind names: what follows `prefix`, up to the next `/`.
pub(super) fn resource_of(key: &[u8], prefix: &str) -> Option<Resource> {
    let text = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
    Resource::decode(text.split('/').next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_what_they_name() {
        let keys = Keys::new("leasehold", &Namespace::default());
        let resource = Resource::new("a/b %\n").unwrap();
        let lease_id = LeaseId::from_bytes([7; 16]);
        let place = keys.place(&resource, lease_id);
        assert!(place.starts_with(&keys.line(&resource)) && place.starts_with("leasehold/default/line/"));
        assert_eq!(claimant_of(place.as_bytes()), Some(lease_id));
        assert_eq!(resource_of(place.as_bytes(), &keys.lines()), Some(resource.clone()));
        assert_eq!(resource_of(keys.state(&resource).as_bytes(), &keys.states()), Some(resource));
    }
}
