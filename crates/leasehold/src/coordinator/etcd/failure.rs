//! What became of a call to etcd that was not answered as hoped, and what that means for a lease.
//!
//! etcd answers `Unavailable` both when it never began and when it may have done everything, so the status code alone says
//! nothing. What does: whether a connection was ever made, and etcd's own words. Everything that is not known to be without
//! effect counts as unknown.

use std::{borrow::Cow, error::Error as _};

use leasehold_core::{Error, Kind};
use tonic::{Code, ConnectError, Status};

/// Why a call has no good answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fail {
    /// It reached no member.
    NotSent(String),
    /// The member would not begin. Another may, or this one later.
    NotBegun(String),
    /// The login is not known any more; a new one will do.
    StaleLogin,
    /// Nobody knows whether it took effect.
    Unanswered(String),
    /// The lease does not exist.
    NoLease,
    /// The lease exists already.
    LeaseExists,
    /// The database is full: nothing can be written, but leases can be kept and ended.
    Full,
    /// Who asks may not.
    Denied(String),
    /// etcd found the request wrong, or answered what we cannot read.
    Wrong(String),
}

impl Fail {
    /// What a status of the client library or of etcd means.
    pub(super) fn of(status: &Status) -> Self {
        let words = status.message();
        if never_connected(status) {
            return Self::NotSent(reason(status));
        }
        let Some(said) = words.strip_prefix("etcdserver: ") else {
            return match status.code() {
                Code::PermissionDenied => Self::Denied(words.to_owned()),
                Code::Unimplemented | Code::InvalidArgument => Self::Wrong(words.to_owned()),
                _ => Self::Unanswered(reason(status)),
            };
        };
        match said {
            // Refused before anything was proposed to the cluster.
            "no leader" | "too many requests" | "not capable" => Self::NotBegun(said.to_owned()),
            "requested lease not found" => Self::NoLease,
            "lease already exists" => Self::LeaseExists,
            "mvcc: database space exceeded" => Self::Full,
            "invalid auth token" | "revision of auth store is old" | "user name is empty" => Self::StaleLogin,
            _ => match status.code() {
                // A time-out, a change of leaders, a member that stops: it may have been proposed.
                Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Cancelled
                | Code::Unknown
                | Code::Internal => Self::Unanswered(said.to_owned()),
                Code::PermissionDenied | Code::Unauthenticated => Self::Denied(said.to_owned()),
                _ if is_about_login(said) => Self::Denied(said.to_owned()),
                _ => Self::Wrong(said.to_owned()),
            },
        }
    }

    /// True when the request certainly had no effect and another member, or the same one with a new login, may take it.
    pub(super) fn may_be_sent_again(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::NotBegun(_) | Self::StaleLogin)
    }

    /// True when another member may do better.
    pub(super) fn is_the_members(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::NotBegun(_) | Self::Unanswered(_))
    }

    /// The error of a request that changes nothing but what ends by itself (a read, a lease on which nothing hangs yet).
    pub(super) fn of_read(self) -> Error {
        self.of_write().without_effect()
    }

    /// The error of a request that may have changed something.
    pub(super) fn of_write(self) -> Error {
        let (kind, what, advice): (Kind, Cow<'static, str>, &'static str) = match self {
            Self::NotSent(why) => (
                Kind::Unavailable,
                format!("no etcd member can be reached: {why}").into(),
                "see whether etcd runs and the address is right",
            ),
            Self::NotBegun(why) => (
                Kind::Unavailable,
                format!("etcd does not take requests now: {why}").into(),
                "it does once a majority of its members have elected a leader; ask again",
            ),
            Self::Unanswered(why) => {
                (Kind::Unknown, format!("etcd did not answer: {why}").into(), "ask again")
            }
            Self::StaleLogin => (
                Kind::Denied,
                "etcd forgets this login as soon as it is made".into(),
                "see whether the members' clocks and their --auth-token setting agree",
            ),
            Self::NoLease => {
                (Kind::Unavailable, "the etcd lease ended while it was being used".into(), "ask again")
            }
            Self::LeaseExists => {
                (Kind::Unavailable, "the number drawn for an etcd lease is taken".into(), "ask again")
            }
            Self::Full => (
                Kind::Unavailable,
                "etcd's database is full (alarm NOSPACE)".into(),
                "compact and defragment it, then `etcdctl alarm disarm`",
            ),
            Self::Denied(why) => (
                Kind::Denied,
                format!("etcd refuses this client: {why}").into(),
                "put a user and password into the URL (etcd://user:password@host), and give that user a role with readwrite on \
                 the prefix",
            ),
            Self::Wrong(why) => (
                Kind::Unsupported,
                format!("etcd does not understand this client: {why}").into(),
                "version 3.4 or later is needed; see whether the address is that of an etcd client port",
            ),
        };
        Error::new(kind, what).advise(advice)
    }
}

fn is_about_login(said: &str) -> bool {
    ["user name", "authentication", "password", "auth "].iter().any(|word| said.contains(word))
}

/// True when the failure is of making a connection: nothing was sent on it.
fn never_connected(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The innermost reason: what lies around it says "transport error".
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    match innermost.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => innermost.to_string(),
    }
}

/// A connection that could not be made.
pub(super) fn not_connected(name: &str, error: &(dyn std::error::Error + 'static)) -> Fail {
    Fail::NotSent(format!("{name}: {}", reason(error)))
}

/// A record that is not one of ours.
pub(super) fn corrupt(what: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, what).advise(
        "find out what else writes below the prefix; remove the damaged key once nobody holds the resource",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_certainly_had_no_effect_is_called_unavailable() {
        for (code, words, kind) in [
            (Code::Unavailable, "etcdserver: no leader", Kind::Unavailable),
            (Code::ResourceExhausted, "etcdserver: too many requests", Kind::Unavailable),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Kind::Unavailable),
            (Code::NotFound, "etcdserver: requested lease not found", Kind::Unavailable),
            (Code::Unavailable, "etcdserver: request timed out", Kind::Unknown),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Kind::Unknown,
            ),
            (Code::Unavailable, "etcdserver: leader changed", Kind::Unknown),
            (Code::Unavailable, "etcdserver: server stopped", Kind::Unknown),
            (Code::Unavailable, "error reading a body from connection", Kind::Unknown),
            (Code::Cancelled, "operation was canceled", Kind::Unknown),
            (Code::Unknown, "", Kind::Unknown),
            (Code::PermissionDenied, "etcdserver: permission denied", Kind::Denied),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Kind::Denied,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", Kind::Denied),
        ] {
            let error = Fail::of(&Status::new(code, words)).of_write();
            assert_eq!(error.kind(), kind, "{words}");
            assert!(error.advice().is_some(), "{words}");
        }
        assert_eq!(Fail::Unanswered(String::new()).of_read().kind(), Kind::Unavailable);
        assert!(
            Fail::of(&Status::new(Code::Unauthenticated, "etcdserver: invalid auth token"))
                .may_be_sent_again()
        );
    }
}
