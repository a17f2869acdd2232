//! Is a grant still there? What `check`, `renew` and `release` ask first.
//!
//! A script knows a grant by its fencing token. The token is proof enough: no other grant of the resource ever has it,
//! and it was printed to the claimant alone. The lease id, which every change names too, is read from the record under
//! that token; where the script knows it, it must agree.

use std::time::Duration;

use leasehold::{
    LeaseId, Leases, Resource, Token,
    blocking::block_on,
    core::{
        record::{EndReason, Gone, Inspection, Record},
        window::Margin,
    },
};

use crate::{
    args,
    exit::Exit,
    failure::Failure,
    message, people,
    settings::{self, variable},
    view::{self, GrantLine, LeaseFields},
};

/// A grant as a script names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) resource: Resource,
    pub(crate) token: Token,
    lease_id: Option<LeaseId>,
}

/// What the coordinator has under that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It stands.
    Yours(Record),
    /// It is over.
    Gone(Gone),
    /// It stands, but so close to its end that a holder must not rely on it any more.
    Closing,
    /// The token is right, the lease id is another's.
    OtherLeaseId,
}

impl Named {
    /// Checks what was typed.
    pub(crate) fn check(grant: &args::Grant) -> Result<Self, Failure> {
        let resource = settings::resource(&grant.resource)?;
        let token = settings::token(&grant.token)?;
        let lease_id = settings::lease_id(grant.lease_id.as_deref(), &resource, token, &variable)?;
        Ok(Self { resource, token, lease_id })
    }

    /// A grant that is known by its token alone.
    pub(crate) fn by_token(resource: Resource, token: Token) -> Self {
        Self { resource, token, lease_id: None }
    }

    /// Asks the coordinator.
    pub(crate) fn standing(&self, leases: &Leases) -> Result<Standing, Failure> {
        let inspection = block_on(leases.inspect(&self.resource))?;
        Ok(judge(&inspection, self.token, self.lease_id))
    }

    /// The record of a grant that is to be changed, or why there is none.
    pub(crate) fn record(&self, leases: &Leases) -> Result<Record, Failure> {
        match self.standing(leases)? {
            Standing::Yours(record) => Ok(record),
            other => Err(self.not_held(&other)),
        }
    }

    /// The answer 79.
    pub(crate) fn not_held(&self, standing: &Standing) -> Failure {
        let (reason, why) = describe(standing);
        let what = format!("{} is not held under token {}: {why}", self.resource, self.token);
        let mut failure = Failure::answer(Exit::NotHeld, "not_held", what);
        failure.resource = Some(view::name(&self.resource));
        failure.reason = Some(reason);
        failure
    }

    /// The grant as JSON.
    pub(crate) fn line(&self, leases: &Leases, record: Option<&Record>) -> GrantLine {
        GrantLine {
            resource: view::name(&self.resource),
            namespace: leases.namespace().as_str().to_owned(),
            place: leases.profile().place.clone(),
            lease: record.map(LeaseFields::from).unwrap_or_default(),
        }
    }
}

/// One stable word, and words for people.
pub(crate) fn describe(standing: &Standing) -> (&'static str, String) {
    match standing {
        Standing::Yours(_) => ("held", "it is held".to_owned()),
        Standing::Gone(gone) => message::gone(gone),
        Standing::Closing => ("window_closed", "its TTL is all but over".to_owned()),
        Standing::OtherLeaseId => {
            ("other_lease_id", "the grant with that token has another lease id".to_owned())
        }
    }
}

fn judge(inspection: &Inspection, token: Token, lease_id: Option<LeaseId>) -> Standing {
    let Some(record) = inspection.record.clone().filter(|record| record.token == token) else {
        return Standing::Gone(why_gone(inspection, token));
    };
    if lease_id.is_some_and(|lease_id| lease_id != record.lease_id) {
        return Standing::OtherLeaseId;
    }
    if let Some(notice) = record.revoked {
        return Standing::Gone(Gone::Revoked {
            by: notice.by,
            reason: notice.reason,
            remaining: record.remaining,
        });
    }
    // As a holder's own window: the TTL less the margin.
    let margin = record.ttl.as_duration().saturating_sub(Margin::DEFAULT.window_of(record.ttl));
    if record.remaining <= margin { Standing::Closing } else { Standing::Yours(record) }
}

/// Why no grant with this token stands, from what the coordinator remembers.
fn why_gone(inspection: &Inspection, token: Token) -> Gone {
    if let Some(end) = inspection.last_end.as_ref().filter(|end| end.token == token) {
        return match &end.reason {
            EndReason::Released => Gone::Released,
            EndReason::Revoked(reason) => {
                Gone::Revoked { by: end.by.clone(), reason: reason.clone(), remaining: Duration::ZERO }
            }
            _ => Gone::Expired,
        };
    }
    match inspection.last_token {
        Some(last) if last > token => Gone::Superseded { token: last },
        _ => Gone::Absent,
    }
}

/// Words about a grant that was just made to last.
pub(crate) fn lasts(record: &Record) -> String {
    format!("{} for another {}", record.token, people::duration(record.remaining))
}

#[cfg(test)]
mod tests {
    use leasehold::{
        HolderId, Label, Ttl,
        core::record::{End, Notice},
    };

    use super::*;

    fn record(token: u64, remaining_ms: u64) -> Record {
        Record {
            lease_id: LeaseId::from_bytes([1; 16]),
            token: Token::new(token).unwrap(),
            ttl: Ttl::from_millis(10_000).unwrap(),
            remaining: Duration::from_millis(remaining_ms),
            granted_us: 0,
            holder_id: HolderId::from_bytes([2; 16]),
            label: Label::default(),
            revoked: None,
        }
    }

    fn inspection(record: Option<Record>, last_token: u64, last_end: Option<(u64, EndReason)>) -> Inspection {
        Inspection {
            resource: Resource::new("r").unwrap(),
            record,
            last_token: Token::new(last_token).ok(),
            last_end: last_end.map(|(token, reason)| End {
                lease_id: LeaseId::from_bytes([1; 16]),
                token: Token::new(token).unwrap(),
                reason,
                by: Label::default(),
                at_us: 0,
            }),
            last_success_us: None,
            waiters: Vec::new(),
            waiting: 0,
        }
    }

    #[test]
    fn a_grant_is_yours_only_while_its_window_is_open_and_nobody_revoked_it() {
        let ask =
            |record, lease_id| judge(&inspection(Some(record), 5, None), Token::new(5).unwrap(), lease_id);
        assert!(matches!(ask(record(5, 9_000), None), Standing::Yours(_)));
        assert!(matches!(ask(record(5, 9_000), Some(LeaseId::from_bytes([1; 16]))), Standing::Yours(_)));
        assert_eq!(ask(record(5, 9_000), Some(LeaseId::from_bytes([3; 16]))), Standing::OtherLeaseId);
        // The margin of 10 s: 100 ms of rate error and 2 ms.
        assert_eq!(ask(record(5, 102), None), Standing::Closing);
        assert!(matches!(ask(record(5, 103), None), Standing::Yours(_)));
        let notice = Notice { by: Label::default(), reason: Label::default() };
        let revoked = Record { revoked: Some(notice), ..record(5, 9_000) };
        assert!(matches!(ask(revoked, None), Standing::Gone(Gone::Revoked { .. })));
    }

    #[test]
    fn what_is_gone_is_gone_for_a_reason() {
        let why = |found: Inspection, token| match judge(&found, Token::new(token).unwrap(), None) {
            Standing::Gone(gone) => message::gone(&gone).0,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(inspection(Some(record(6, 1_000)), 6, None), 5), "superseded");
        assert_eq!(why(inspection(None, 5, Some((5, EndReason::Released))), 5), "released");
        assert_eq!(why(inspection(None, 5, Some((5, EndReason::Expired))), 5), "expired");
        assert_eq!(why(inspection(None, 5, Some((5, EndReason::Revoked(Label::default())))), 5), "revoked");
        assert_eq!(why(inspection(Some(record(6, 1_000)), 6, Some((5, EndReason::Expired))), 5), "expired");
        assert_eq!(why(inspection(None, 0, None), 5), "absent");
        assert_eq!(why(inspection(Some(record(4, 1_000)), 4, None), 5), "absent");
    }
}
