//! Runs that were not needed: somebody came, found the last success recent enough, and left a note of it.
//!
//! `once_per` answers "already done" and changes nothing, so an engine remembers nothing of it; yet whoever asks why a job did
//! not run at six wants to see who was there. A note is kept by means that every engine with a history has already: a short
//! grant of a resource of its own, beside the one that it is about, ended at once with the reason written into it.
//!
//! ```text
//!  run --once-per ── acquires, revokes ──▶ ~skip/RESOURCE        label: who came; reason: the period, the last success
//!  history RESOURCE ── reads its history ──────┘                 as many as a history keeps, for as long as it is kept
//! ```
//!
//! A note is a help for people, and decides nothing: where it cannot be left the run was not needed all the same.

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, Kind, Label, Resource, Ttl,
    backoff::Backoff,
    record::{Acquired, EndReason, Past, Revoked},
    request::{Claim, MAX_ONCE_PER, Revocation},
};

use crate::{Done, Leases, driver::CALL_LIMIT, leases::Client, random};

/// What the names of notes begin with.
const PREFIX: &str = "~skip/";
/// The first word of a note.
const MARK: &str = "skipped";
/// Others leave a note at the same moment; so often is it tried to come in between (ours: fifty that start together).
const ATTEMPTS: u32 = 50;

/// A run that was not needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// The process run that came.
    pub holder_id: HolderId,
    /// What people call it.
    pub label: Label,
    /// When, µs since 1970 by the engine's clock. For people; never compared.
    pub at_us: u64,
    /// The period that it asked for.
    pub once_per: Duration,
    /// When the last successful run had started, as it was told: µs since 1970 by the engine's clock.
    pub last_success_us: u64,
}

/// True for the name of a note: no resource of anybody's, and left out where people look at resources.
pub fn is_skip(resource: &Resource) -> bool {
    resource.as_str().starts_with(PREFIX)
}

/// Where the notes about a resource are; `None` for a name that is too long to have one.
fn name_of(resource: &Resource) -> Option<Resource> {
    Resource::new(&format!("{PREFIX}{}", resource.as_str())).ok()
}

/// What a note says.
fn write(once_per: Duration, last_success_us: u64) -> Label {
    Label::from_lossy(&format!("{MARK} {} {last_success_us}", once_per.as_millis()))
}

/// Reads it back; `None` for what was not written here.
fn read(past: Past) -> Option<Skipped> {
    let EndReason::Revoked(text) = &past.end.reason else { return None };
    let (period, success) = text.as_str().strip_prefix(MARK)?.strip_prefix(' ')?.split_once(' ')?;
    let once_per = Duration::from_millis(period.parse().ok()?);
    let last_success_us = success.parse().ok()?;
    let Past { holder_id, label, granted_us, .. } = past;
    (once_per <= MAX_ONCE_PER).then_some(Skipped {
        holder_id,
        label,
        at_us: granted_us,
        once_per,
        last_success_us,
    })
}

impl Leases {
    /// Leaves a note that this process run came and had nothing to do, for [`Leases::skipped`]. True when it is there; false
    /// where there is no place for it: on an engine without a history, for a name of more than 249 bytes, and in the crowd of
    /// very many who leave one at the same moment. Costs two requests that change something.
    ///
    /// **Cancel safety.** Dropping the future leaves a note or none.
    ///
    /// # Errors
    /// What the coordinator says when it cannot be asked; [`Kind::Unknown`] when nobody knows whether the note was left.
    pub async fn note_skipped(
        &self,
        resource: &Resource,
        done: &Done,
        once_per: Duration,
    ) -> Result<bool, Error> {
        let client = self.client();
        let profile = client.coordinator().profile();
        let Some(place) = name_of(resource).filter(|_| profile.capabilities.history) else {
            return Ok(false);
        };
        let claim = Claim {
            resource: place.clone(),
            lease_id: random::lease_id()?,
            holder_id: client.holder_id(),
            label: client.label.clone(),
            // As long as two calls may take.
            ttl: Ttl::new(2 * CALL_LIMIT)?.min(profile.max_ttl),
            lock_delay: Duration::ZERO,
            floor: None,
            queue: false,
            once_per: None,
        };
        let Some(token) = come_in(client, &claim).await? else { return Ok(false) };
        let reason = write(once_per, done.started_us);
        let end = Revocation { resource: place, token, by: client.label.clone(), reason, now: true };
        let call = client.coordinator().revoke(end);
        let answer = client.driver.bounded(CALL_LIMIT, "revocation", call).await;
        Ok(matches!(answer.map_err(|error| error.on(resource))?, Revoked::Ended { .. }))
    }

    /// The runs of a resource that were not needed, the latest first: as many as the engine's history keeps, and those alone
    /// that left a note (`leasehold run --once-per` does).
    ///
    /// # Errors
    /// As [`Leases::history`].
    pub async fn skipped(&self, resource: &Resource) -> Result<Vec<Skipped>, Error> {
        let Some(place) = name_of(resource) else { return Ok(Vec::new()) };
        Ok(self.history(&place).await?.into_iter().filter_map(read).collect())
    }
}

/// Takes the place of the notes for a moment, as soon as nobody else has it. `None`: there is no getting in.
async fn come_in(client: &Client, claim: &Claim) -> Result<Option<leasehold_core::Token>, Error> {
    for attempt in 0..ATTEMPTS {
        let call = client.coordinator().acquire(claim.clone());
        match client.driver.bounded(CALL_LIMIT, "claim", call).await {
            Ok(Acquired::Granted(grant)) => return Ok(Some(grant.token)),
            Ok(Acquired::Busy(_) | Acquired::Queued(_)) => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == Kind::Unavailable => {}
            Err(error) => return Err(error),
        }
        client.driver.sleep(Backoff::default().delay(attempt.min(3), client.draw())).await;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use leasehold_core::{LeaseId, Token, record::End};

    use super::*;

    fn past(reason: EndReason) -> Past {
        let (id, label) = (HolderId::from_bytes([3; 16]), Label::from_lossy("web1:1:daily"));
        let end = End {
            lease_id: LeaseId::from_bytes([7; 16]),
            token: Token::new(5).unwrap(),
            reason,
            by: label.clone(),
            at_us: 11,
        };
        Past { holder_id: id, label, granted_us: 10, end }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is() {
        let period = Duration::from_secs(23 * 3_600);
        let found = read(past(EndReason::Revoked(write(period, 1_767_323_045_678_901)))).unwrap();
        assert_eq!((found.once_per, found.last_success_us, found.at_us), (period, 1_767_323_045_678_901, 10));
        for text in
            ["", "skipped", "skipped 5", "skipped x 5", "skipped 5 x", "skipped 99999999999999 5", "skip 5 5"]
        {
            assert_eq!(read(past(EndReason::Revoked(Label::from_lossy(text)))), None, "{text}");
        }
        assert_eq!(read(past(EndReason::Released)), None);
    }

    #[test]
    fn a_name_that_is_too_long_has_no_notes() {
        let name = |length| Resource::new(&"x".repeat(length)).unwrap();
        assert!(is_skip(&name_of(&name(249)).unwrap()) && !is_skip(&name(249)));
        assert_eq!(name_of(&name(250)), None);
    }
}
