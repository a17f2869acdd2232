//! Rows as answers.

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, Kind, Label, LeaseId, Token, Ttl,
    line::{RESERVATION, recheck},
    record::{
        Acquired, Busy, End, EndReason, Gone, Grant, Notice, Queued, Record, Released, Renewed, Revoked,
    },
    request::Claim,
    token::NoToken,
};
use tokio_postgres::Row;

use super::{sight::Seen, wire::Id};
use crate::coordinator::rules;

/// One row of a function's answer. Which columns mean something depends on the word.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) word: String,
    pub(super) how: Option<String>,
    pub(super) token: Option<i64>,
    pub(super) lease_id: Option<Id>,
    pub(super) holder_id: Option<Id>,
    pub(super) label: Option<String>,
    pub(super) ttl_ms: Option<i64>,
    pub(super) span_ms: Option<i64>,
    pub(super) seq: Option<i32>,
    pub(super) at_us: Option<i64>,
    pub(super) left_us: Option<i64>,
    pub(super) revoked_by: Option<String>,
    pub(super) note: Option<String>,
    pub(super) place: Option<i32>,
    pub(super) ahead: Option<i32>,
}

impl Answer {
    /// Reads a row: the kind of request, which one, and what is answered to it.
    pub(super) fn read(row: &Row) -> Result<(usize, usize, Self), tokio_postgres::Error> {
        let kind: i32 = row.try_get(0)?;
        let n: i32 = row.try_get(1)?;
        let answer = Self {
            word: row.try_get(2)?,
            how: row.try_get(3)?,
            token: row.try_get(4)?,
            lease_id: row.try_get(5)?,
            holder_id: row.try_get(6)?,
            label: row.try_get(7)?,
            ttl_ms: row.try_get(8)?,
            span_ms: row.try_get(9)?,
            seq: row.try_get(10)?,
            at_us: row.try_get(11)?,
            left_us: row.try_get(12)?,
            revoked_by: row.try_get(13)?,
            note: row.try_get(14)?,
            place: row.try_get(15)?,
            ahead: row.try_get(16)?,
        };
        let index = |value: i32| usize::try_from(value).unwrap_or(usize::MAX);
        Ok((index(kind), index(n).wrapping_sub(1), answer))
    }

    pub(super) fn acquired(self, claim: &Claim) -> Result<Acquired, Error> {
        Ok(match self.word.as_str() {
            "granted" | "lapsed" | "adopted" => Acquired::Granted(Grant {
                token: self.token()?,
                ttl: claim.ttl,
                granted_us: unsigned(self.at_us),
                adopted: self.word == "adopted",
                after_lapse: self.word == "lapsed",
            }),
            "busy" => {
                let holder = self.record()?;
                let position = count(self.place);
                let recheck = recheck(position.unwrap_or(0), holder.remaining);
                Acquired::Busy(Busy { holder, position, recheck })
            }
            "queued" => {
                let (ahead, position) = (count(self.ahead).unwrap_or(0), count(self.place));
                // A reservation that is over lets the next re-check through: do not make it wait for nothing.
                let left = self.left().clamp(Duration::from_millis(1), RESERVATION);
                Acquired::Queued(Queued { ahead, position, recheck: recheck(ahead, left) })
            }
            "quarantined" => Acquired::Quarantined { remaining: self.left(), position: count(self.place) },
            "done" => Acquired::AlreadyDone { started_us: unsigned(self.at_us), due_in: self.left() },
            "spent" => Acquired::Spent(self.end()?.ok_or_else(unexpected)?),
            "wild" => {
                let floor = claim.floor.map_or(0, Token::get);
                return Err(rules::no_token(NoToken::WildFloor { floor, limit: unsigned(self.token) }));
            }
            _ => return Err(self.refusal(claim.ttl)),
        })
    }

    pub(super) fn renewed(self, ttl: Ttl) -> Result<Renewed, Error> {
        match self.word.as_str() {
            "extended" => Ok(Renewed::Extended { ttl }),
            "gone" => Ok(Renewed::Gone(self.gone()?)),
            _ => Err(self.refusal(ttl)),
        }
    }

    pub(super) fn released(self) -> Result<Released, Error> {
        match self.word.as_str() {
            "ended" => Ok(Released::Ended),
            "left" => Ok(Released::LeftQueue),
            "gone" => Ok(Released::NotHeld(self.gone()?)),
            _ => Err(self.refusal(Ttl::MIN)),
        }
    }

    pub(super) fn revoked(self, now: bool) -> Result<Revoked, Error> {
        match self.word.as_str() {
            "revoked" => {
                let record = self.record()?;
                let busy_for = if now { Duration::ZERO } else { record.remaining };
                Ok(Revoked::Ended { record, busy_for })
            }
            "other" => Ok(Revoked::OtherToken(self.record()?)),
            "nobody" => Ok(Revoked::NotHeld(self.end()?)),
            _ => Err(self.refusal(Ttl::MIN)),
        }
    }

    pub(super) fn left(&self) -> Duration {
        Duration::from_micros(unsigned(self.left_us))
    }

    /// The grant that stands in the way, and how long it can last.
    pub(super) fn seen(&self) -> Option<(Seen, i64)> {
        Some((Seen { token: self.token?, seq: self.seq? }, self.span_ms?))
    }

    fn token(&self) -> Result<Token, Error> {
        token(self.token)
    }

    fn record(&self) -> Result<Record, Error> {
        let by = self.revoked_by.as_deref();
        Ok(Record {
            lease_id: LeaseId::from_bytes(self.lease_id.ok_or_else(unexpected)?.0),
            token: self.token()?,
            ttl: Ttl::from_millis(unsigned(self.ttl_ms)).map_err(|_| unexpected())?,
            remaining: self.left(),
            granted_us: unsigned(self.at_us),
            holder_id: HolderId::from_bytes(self.holder_id.ok_or_else(unexpected)?.0),
            label: label(self.label.as_deref()),
            revoked: by.map(|by| Notice { by: label(Some(by)), reason: label(self.note.as_deref()) }),
        })
    }

    fn end(&self) -> Result<Option<End>, Error> {
        let Some(lease_id) = self.lease_id else { return Ok(None) };
        end(
            lease_id,
            self.token,
            self.how.as_deref(),
            self.label.as_deref(),
            self.note.as_deref(),
            self.at_us,
        )
        .map(Some)
    }

    fn gone(&self) -> Result<Gone, Error> {
        Ok(match self.how.as_deref() {
            Some("expired") => Gone::Expired,
            Some("superseded") => Gone::Superseded { token: self.token()? },
            Some("released") => Gone::Released,
            Some("absent") => Gone::Absent,
            Some("revoked") => Gone::Revoked {
                by: label(self.revoked_by.as_deref()),
                reason: label(self.note.as_deref()),
                remaining: self.left(),
            },
            _ => return Err(unexpected()),
        })
    }

    /// A request that was refused inside the step.
    fn refusal(&self, asked: Ttl) -> Error {
        let stored = Ttl::from_millis(unsigned(self.ttl_ms)).unwrap_or(Ttl::MAX);
        match self.word.as_str() {
            "ttl" => rules::too_long(asked, stored),
            "disagree" => Error::new(
                Kind::Invalid,
                format!("this client was told another longest TTL than the namespace has ({stored})"),
            )
            .advise(format!(
                "put max_ttl={}ms into the URL, or change the namespace with `leasehold init --max-ttl`",
                stored.as_millis()
            )),
            "exhausted" => rules::no_token(NoToken::Exhausted),
            "skipped" => {
                Error::new(Kind::Unavailable, "another session keeps the row of this resource locked")
                    .advise("look for it in pg_locks and end it")
            }
            _ => unexpected(),
        }
    }
}

/// How a grant ended, out of its columns.
pub(super) fn end(
    lease_id: Id,
    token_: Option<i64>,
    how: Option<&str>,
    by: Option<&str>,
    note: Option<&str>,
    at_us: Option<i64>,
) -> Result<End, Error> {
    let reason = match how {
        Some("released") => EndReason::Released,
        Some("expired") => EndReason::Expired,
        Some("revoked") => EndReason::Revoked(label(note)),
        _ => return Err(unexpected()),
    };
    let lease_id = LeaseId::from_bytes(lease_id.0);
    Ok(End { lease_id, token: token(token_)?, reason, by: label(by), at_us: unsigned(at_us) })
}

pub(super) fn token(value: Option<i64>) -> Result<Token, Error> {
    Token::new(unsigned(value)).map_err(|_| unexpected())
}

pub(super) fn label(text: Option<&str>) -> Label {
    Label::from_lossy(text.unwrap_or_default())
}

pub(super) fn unsigned(value: Option<i64>) -> u64 {
    u64::try_from(value.unwrap_or(0)).unwrap_or(0)
}

fn count(value: Option<i32>) -> Option<u32> {
    value.map(|value| u32::try_from(value).unwrap_or(0))
}

/// The tables say what we never write.
pub(super) fn unexpected() -> Error {
    Error::new(Kind::Corrupt, "the lease tables say what Leasehold never writes")
        .advise("somebody has changed rows or functions by hand: compare them with a fresh schema")
}
