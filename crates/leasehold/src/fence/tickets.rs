//! Issuing and verifying signed tickets.
//!
//! Whoever gives leases to callers that are not trusted holds the secret key and issues; the fences hold the public keys and
//! verify. A key is named, so that a new one can be brought in while tickets of the old one are still about: fences learn the
//! new public key first, then the issuer signs with it, then the fences forget the old one.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
pub use leasehold_core::ticket::{KeyId, Ticket, TicketFault};
use leasehold_core::{
    Error, Invalid, Kind,
    fence::{Pass, Refusal},
};

use crate::clock;

/// The longest time that a fence believes a ticket for, unless told otherwise (ours: the longest TTL).
pub const MAX_VALIDITY: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The secret key, and its name. Signs what it is told: whether the caller holds the lease is for whoever calls it to know.
pub struct Issuer {
    key: KeyId,
    secret: SigningKey,
}

impl Issuer {
    /// An issuer with a key pair made from 32 secret random bytes.
    pub fn new(key: KeyId, secret: &[u8; 32]) -> Self {
        Self { key, secret: SigningKey::from_bytes(secret) }
    }

    /// An issuer with a new key pair; [`Issuer::secret`] gives it, to be kept.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when the operating system gives no randomness.
    pub fn generate(key: KeyId) -> Result<Self, Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|reason| {
            Error::new(Kind::Unavailable, format!("the operating system gave no random bytes: {reason}"))
        })?;
        Ok(Self::new(key, &secret))
    }

    /// The secret: whoever has it can make tickets.
    pub fn secret(&self) -> [u8; 32] {
        self.secret.to_bytes()
    }

    /// The public key, for the fences.
    pub fn public(&self) -> (KeyId, [u8; 32]) {
        (self.key.clone(), self.secret.verifying_key().to_bytes())
    }

    /// Signs a ticket for the grant of `pass`, believed for `validity` from now: the TTL, where it is issued again at each
    /// renewal; the longest time for which the work may go on, where it is not.
    pub fn issue(&self, pass: &Pass, validity: Duration) -> Ticket {
        let validity_us = u64::try_from(validity.as_micros()).unwrap_or(u64::MAX);
        self.issue_until(pass, clock::unix_us().saturating_add(validity_us))
    }

    /// The same until a moment, µs since 1970.
    pub fn issue_until(&self, pass: &Pass, not_after_us: u64) -> Ticket {
        let mut ticket = Ticket {
            key: self.key.clone(),
            namespace: pass.namespace.clone(),
            resource: pass.resource.clone(),
            token: pass.token,
            lease_id: pass.lease_id,
            not_after_us,
            signature: [0; 64],
        };
        ticket.signature = self.secret.sign(ticket.signed_text().as_bytes()).to_bytes();
        ticket
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The public keys that a fence believes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keyring {
    keys: Arc<HashMap<KeyId, VerifyingKey>>,
    max_validity: Duration,
}

impl Keyring {
    /// A ring of public keys.
    ///
    /// # Errors
    /// [`Invalid`] when there is none, one is no Ed25519 key, or two have one name.
    pub fn new(public: impl IntoIterator<Item = (KeyId, [u8; 32])>) -> Result<Self, Invalid> {
        let mut keys = HashMap::new();
        for (name, bytes) in public {
            let key = VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak());
            let key = key.ok_or(Invalid::new("public key", "is no Ed25519 key"))?;
            if keys.insert(name, key).is_some() {
                return Err(Invalid::new("public key", "has the name of another"));
            }
        }
        if keys.is_empty() {
            return Err(Invalid::new("keyring", "must have a public key"));
        }
        Ok(Self { keys: Arc::new(keys), max_validity: MAX_VALIDITY })
    }

    /// Refuses tickets that are to last longer than this from now: what a stolen key, or a mistaken issuer, can do ends then.
    #[must_use]
    pub fn at_most(mut self, validity: Duration) -> Self {
        self.max_validity = validity;
        self
    }

    /// Judges the ticket of a pass, at `now_us` (µs since 1970): signed by a key of this ring, not over, and for this very
    /// namespace, resource and grant.
    ///
    /// # Errors
    /// [`Refusal::Ticket`].
    pub fn verify(&self, pass: &Pass, now_us: u64) -> Result<(), Refusal> {
        self.judge(pass, now_us).map_err(Refusal::Ticket)
    }

    fn judge(&self, pass: &Pass, now_us: u64) -> Result<(), TicketFault> {
        let ticket = pass.ticket.as_deref().ok_or(TicketFault::Unsigned)?;
        let key = self.keys.get(&ticket.key).ok_or(TicketFault::UnknownKey)?;
        let signature = Signature::from_bytes(&ticket.signature);
        // Strict: one message has one signature by one key.
        let signed = key.verify_strict(ticket.signed_text().as_bytes(), &signature);
        signed.map_err(|_| TicketFault::Forged)?;
        let same = ticket.namespace == pass.namespace
            && ticket.resource == pass.resource
            && ticket.token == pass.token
            && ticket.lease_id == pass.lease_id;
        if !same {
            return Err(TicketFault::Foreign);
        }
        if ticket.not_after_us < now_us {
            return Err(TicketFault::Expired { not_after_us: ticket.not_after_us });
        }
        let longest_us = u64::try_from(self.max_validity.as_micros()).unwrap_or(u64::MAX);
        if ticket.not_after_us > now_us.saturating_add(longest_us) {
            return Err(TicketFault::TooLong);
        }
        Ok(())
    }
}
