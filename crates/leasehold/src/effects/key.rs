//! What names an operation, and what it asks for: the key by which a repeated request is known, and the fingerprint by which a
//! *different* request under the same key is found out.

use std::fmt;

use leasehold_core::{Invalid, Resource, name::MAX_NAME_BYTES};
use sha2::{Digest as _, Sha256};

/// The name of one operation, chosen by whoever asks for it and the same at every repetition: 1–255 bytes of UTF-8 without
/// NUL, within a scope of the same form.
///
/// The scope keeps callers apart who choose keys on their own: a tenant, a kind of operation, an endpoint.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    scope: String,
    key: String,
}

impl Key {
    /// Checks and takes a scope and a key.
    ///
    /// # Errors
    /// [`Invalid`] when one is empty, longer than 255 bytes, or contains NUL.
    pub fn new(scope: &str, key: &str) -> Result<Self, Invalid> {
        text("scope of an idempotency key", scope)?;
        text("idempotency key", key)?;
        Ok(Self { scope: scope.to_owned(), key: key.to_owned() })
    }

    /// Within what the key is unique.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The key itself.
    pub fn as_str(&self) -> &str {
        &self.key
    }

    /// The same operation as one word of 64 hexadecimal digits: for a provider whose idempotency keys must be short and plain.
    pub fn digest(&self) -> String {
        Fingerprint::of("leasehold key 1", &[self.scope.as_bytes(), self.key.as_bytes()]).to_string()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Callers choose keys: what could deceive a terminal is shown harmlessly.
        write!(f, "{}/{}", crate::address::visible(&self.scope), crate::address::visible(&self.key))
    }
}

pub(super) fn text(what: &'static str, value: &str) -> Result<(), Invalid> {
    if value.is_empty() || value.len() > MAX_NAME_BYTES || value.contains('\0') {
        return Err(Invalid::new(what, "must be 1 to 255 bytes of UTF-8 without NUL"));
    }
    Ok(())
}

/// SHA-256 over a request. Two requests with one fingerprint are one request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Each part goes in with its length, so that no two lists of parts look alike.
    pub(super) fn of(purpose: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The hash as it is stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is asked for: on which resource, and with which content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    resource: Resource,
    fingerprint: Fingerprint,
}

impl Request {
    /// A request on `resource` with this content: whatever makes two requests *the same* to you, in bytes that do not change from
    /// one repetition to the next. The body as it arrived is the usual choice; leave out what a retry changes (dates, trace ids).
    ///
    /// # Errors
    /// [`Invalid`] for a name that no resource can have.
    pub fn new(resource: &str, content: impl AsRef<[u8]>) -> Result<Self, Invalid> {
        Ok(Self::of(Resource::new(resource)?, &[content.as_ref()]))
    }

    /// The same for content in several parts, such as a method, a path and a body.
    pub fn of(resource: Resource, parts: &[&[u8]]) -> Self {
        let all: Vec<&[u8]> =
            std::iter::once(resource.as_str().as_bytes()).chain(parts.iter().copied()).collect();
        let fingerprint = Fingerprint::of("leasehold request 1", &all);
        Self { resource, fingerprint }
    }

    /// What is leased while it is carried out.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// By which it is known again.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other_and_the_resource_counts() {
        let of = |resource: &str, parts: &[&[u8]]| {
            *Request::of(Resource::new(resource).unwrap(), parts).fingerprint()
        };
        let all = [of("a", &[b"bc"]), of("ab", &[b"c"]), of("a", &[b"b", b"c"]), of("a", &[b"", b"bc"])];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
        assert_eq!(Request::new("a", "bc").unwrap().fingerprint(), &all[0]);
        assert_eq!(all[0].to_string().len(), 64);
    }

    #[test]
    fn keys_are_bounded_and_show_themselves_harmlessly() {
        for bad in ["", "a\0b", &"x".repeat(256)] {
            assert!(Key::new("s", bad).is_err() && Key::new(bad, "k").is_err());
        }
        let key = Key::new("pay", "a\u{1b}[2J").unwrap();
        assert!(!key.to_string().contains('\u{1b}'));
        assert_ne!(Key::new("a", "bc").unwrap().digest(), Key::new("ab", "c").unwrap().digest());
    }
}
