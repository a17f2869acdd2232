//! What a process writes down.

use leasehold_core::{LeaseId, Token};
use serde::{Deserialize, Serialize};

use crate::clock::boot_ns;

/// One line of a history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When it was written, CLOCK_BOOTTIME in nanoseconds.
    pub at_ns: u64,
    /// Who wrote it: unique per process (or task) of the history.
    pub process: String,
    /// The resource it is about.
    pub resource: String,
    /// The claim or grant it is about.
    #[serde(with = "lease_id")]
    pub lease_id: LeaseId,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The process wants the resource. Written before the first request.
    Attempt,
    /// The process stopped wanting it without having had it.
    GaveUp,
    /// The process believes that it holds the resource.
    Granted {
        /// The token.
        #[serde(with = "token")]
        token: Token,
        /// When the granted request was sent, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent_ns: Option<u64>,
        /// From when on it believes: the answer.
        open_ns: u64,
        /// Until when it believes, unless it renews.
        close_ns: u64,
        /// The TTL that was asked for, where the window shall be held to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
    },
    /// A renewal was confirmed: it now believes until `close_ns`.
    Extended {
        /// The token.
        #[serde(with = "token")]
        token: Token,
        /// When the renewal was sent, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent_ns: Option<u64>,
        /// The new end.
        close_ns: u64,
    },
    /// It was asked whether it still holds, and said yes.
    Held {
        /// The token.
        #[serde(with = "token")]
        token: Token,
    },
    /// It stopped believing and goes on to release. Written before the release is sent.
    Released {
        /// The token.
        #[serde(with = "token")]
        token: Token,
    },
    /// It stopped believing because the grant was lost.
    Lost {
        /// The token.
        #[serde(with = "token")]
        token: Token,
    },
    /// A write reached the protected resource, which checked the token.
    Write {
        /// The token that came with it.
        #[serde(with = "token")]
        token: Token,
        /// True when the resource let it in.
        admitted: bool,
        /// The resource's version after the write: the order of writes.
        version: u64,
        /// The number of the write within its grant, where the resource compares it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        op_seq: Option<u64>,
        /// The version that the writer had read, where it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        based_on: Option<u64>,
    },
    /// The resource was told of a new holder's token, before that holder read anything.
    Sealed {
        /// The token.
        #[serde(with = "token")]
        token: Token,
        /// True when the resource took it.
        admitted: bool,
        /// The resource's version at that moment.
        version: u64,
    },
    /// At the request of this lease id the coordinator changed (renewed, released) the grant that stood.
    Changed {
        /// The token that the request named, where it named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<u64>,
        /// The grant that stood.
        #[serde(with = "lease_id")]
        stood: LeaseId,
        /// Its token.
        stood_token: u64,
    },
    /// The coordinator's record was looked at: this grant stands.
    Stands {
        /// Its token.
        #[serde(with = "token")]
        token: Token,
    },
    /// The coordinator's record was looked at: nobody has the resource, and the coordinator grants.
    Free,
    /// The claimant's caller was told that nothing of this claim stands.
    Disowned,
    /// The holder was told to stop, or had a limit of its own: a loss after this is meant.
    Told,
    /// The holder may hold for so long at most, however often it renews.
    Limited {
        /// From the grant on.
        hold_ms: u64,
    },
    /// A claim was answered: the coordinator is in quarantine.
    Quarantined {
        /// When the claim was sent.
        sent_ns: u64,
        /// For so long still, it says.
        left_ms: u64,
    },
    /// A claim was answered: another holds it.
    Busy {
        /// For so long still, unless it renews.
        left_ms: u64,
        /// By a lease of this TTL, lock-delay included.
        ttl_ms: u64,
    },
    /// The coordinator may have forgotten grants: it may make no new one before this time is over. About all resources.
    Forgot {
        /// The longest TTL there could be, less what its clock may run fast.
        for_ms: u64,
    },
    /// From here on nothing is broken on purpose. About all resources.
    Calm,
    /// Something was committed under an idempotency key.
    Committed {
        /// The key.
        key: u64,
        /// What.
        part: Part,
    },
}

/// What belongs together in one commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The effect itself.
    Effect,
    /// The record that the key has been used.
    Record,
    /// The event that tells others.
    Event,
}

impl Event {
    /// An event of this moment.
    pub fn now(process: &str, resource: &str, lease_id: LeaseId, what: What) -> Self {
        Self { at_ns: boot_ns(), process: process.to_owned(), resource: resource.to_owned(), lease_id, what }
    }

    /// The event as a line, with its end.
    ///
    /// # Errors
    /// When the serializer fails, which it does not for these types.
    pub fn line(&self) -> serde_json::Result<String> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }
}

impl What {
    /// The token it names, where it names one.
    pub const fn token(&self) -> Option<Token> {
        match *self {
            Self::Attempt
            | Self::GaveUp
            | Self::Changed { .. }
            | Self::Free
            | Self::Disowned
            | Self::Told
            | Self::Limited { .. }
            | Self::Quarantined { .. }
            | Self::Busy { .. }
            | Self::Forgot { .. }
            | Self::Calm
            | Self::Committed { .. } => None,
            Self::Granted { token, .. }
            | Self::Extended { token, .. }
            | Self::Held { token }
            | Self::Released { token }
            | Self::Lost { token }
            | Self::Write { token, .. }
            | Self::Sealed { token, .. }
            | Self::Stands { token } => Some(token),
        }
    }
}

mod lease_id {
    use leasehold_core::LeaseId;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(id: &LeaseId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LeaseId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

mod token {
    use leasehold_core::Token;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub(super) fn serialize<S: Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(token.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        Token::new(u64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
