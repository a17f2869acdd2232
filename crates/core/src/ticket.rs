//! Signed tickets: a fencing token that cannot be made up.
//!
//! A plain token is a number, and proves nothing. Where callers are not trusted, whoever gives the tokens signs them, and the
//! fence holds the public key. This module is the written form; signing and verifying need a cryptographic library and live
//! beside the fences.
//!
//! ```text
//! lht1:KEY:NAMESPACE:RESOURCE:TOKEN:LEASE-ID:NOT-AFTER-US:SIGNATURE
//! ```
//!
//! The resource is [encoded](Resource::encode), so that no part contains a colon; ids and the signature are hexadecimal. What is
//! signed is the text before the last colon. One ticket has one spelling: what would be written differently is refused.

use alloc::{
    format,
    string::{String, ToString as _},
    sync::Arc,
};
use core::{fmt, str::FromStr};

use crate::{
    error::Invalid,
    id::LeaseId,
    name::{Namespace, Resource},
    token::Token,
};

/// The form's name and version. Part of what is signed, so that no other signature of the same key passes for a ticket.
const FORM: &str = "lht1";

/// The name of a key pair: 1–63 ASCII letters, digits, `_`, `-` and `.`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyId(Arc<str>);

impl KeyId {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`Invalid`] when it is empty, too long, or has a character outside the set above.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        Namespace::new(name).map(|name| Self(name.as_str().into())).map_err(|_| {
            Invalid::new(
                "key id",
                "must be 1-63 ASCII letters, digits, '_', '-' or '.', and start with no '-' or '.'",
            )
        })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a ticket says, and by whom it is signed. Not verified by being here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The key that signed it.
    pub key: KeyId,
    /// The grant's namespace.
    pub namespace: Namespace,
    /// The grant's resource.
    pub resource: Resource,
    /// The grant's token.
    pub token: Token,
    /// The grant's lease id.
    pub lease_id: LeaseId,
    /// The last moment at which a fence believes it, µs since 1970.
    pub not_after_us: u64,
    /// Ed25519 over [`Ticket::signed_text`].
    pub signature: [u8; 64],
}

impl Ticket {
    /// What is signed.
    pub fn signed_text(&self) -> String {
        let Self { key, namespace, resource, token, lease_id, not_after_us, signature: _ } = self;
        format!("{FORM}:{key}:{namespace}:{}:{token}:{lease_id}:{not_after_us}", resource.encode())
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.signed_text())?;
        self.signature.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Ticket {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let misspelt = Invalid::new("ticket", "is not one that Leasehold wrote");
        // One ticket has one spelling.
        read(text).filter(|ticket| ticket.to_string() == text).ok_or(misspelt)
    }
}

fn read(text: &str) -> Option<Ticket> {
    let mut parts = text.split(':');
    if parts.next()? != FORM {
        return None;
    }
    let ticket = Ticket {
        key: KeyId::new(parts.next()?).ok()?,
        namespace: Namespace::new(parts.next()?).ok()?,
        resource: Resource::decode(parts.next()?).ok()?,
        token: parts.next()?.parse().ok()?,
        lease_id: parts.next()?.parse().ok()?,
        not_after_us: parts.next()?.parse().ok()?,
        signature: read_signature(parts.next()?)?,
    };
    parts.next().is_none().then_some(ticket)
}

fn read_signature(text: &str) -> Option<[u8; 64]> {
    let digits = text.as_bytes();
    if digits.len() != 128 {
        return None;
    }
    let mut bytes = [0; 64];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// What is wrong with a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TicketFault {
    /// There is none.
    Unsigned,
    /// The fence does not know the key.
    UnknownKey,
    /// The signature is not the key's.
    Forged,
    /// Its time is over.
    Expired {
        /// When it ended, µs since 1970.
        not_after_us: u64,
    },
    /// It is for another namespace, resource or grant than the write shows.
    Foreign,
    /// It outlives the longest time that the fence allows a ticket.
    TooLong,
}

impl TicketFault {
    /// One stable lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::UnknownKey => "unknown_key",
            Self::Forged => "forged",
            Self::Expired { .. } => "ticket_expired",
            Self::Foreign => "foreign_ticket",
            Self::TooLong => "ticket_too_long",
        }
    }
}

impl fmt::Display for TicketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsigned => "this fence takes signed tokens only, and the write shows no ticket",
            Self::UnknownKey => "the ticket is signed by a key that this fence does not know",
            Self::Forged => "the ticket's signature is not its key's",
            Self::Expired { .. } => "the ticket's time is over",
            Self::Foreign => "the ticket is for another resource or grant than the write",
            Self::TooLong => "the ticket is to last longer than this fence allows",
        })
    }
}
