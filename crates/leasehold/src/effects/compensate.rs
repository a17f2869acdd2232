//! Undoing: an operation of its own, whose key follows from the key of what it undoes. So it is idempotent, leased and fenced as
//! every other, and attributed to the grant that has carried it out.

use leasehold_core::{Error, Kind};

use super::{
    answer::NotDone,
    key::{Key, Request},
    record::{Record, State},
};

impl Key {
    /// The key of the operation that undoes this one.
    ///
    /// # Errors
    /// [`leasehold_core::Invalid`] when the scope leaves no room for it: it may have 250 bytes.
    pub fn undoing(&self) -> Result<Self, leasehold_core::Invalid> {
        Self::new(&format!("undo/{}", self.scope()), self.as_str())
    }
}

/// What an undoing is asked for, where there is something to undo.
pub(super) fn request(found: Option<Record>, key: &Key) -> Result<(Record, Key, Request), NotDone<Error>> {
    let record = found.ok_or_else(|| {
        Error::new(Kind::Invalid, format!("there is no operation {key}"))
            .advise("what never happened, or was forgotten, cannot be undone")
    })?;
    if record.state == State::Started {
        return Err(NotDone::Unsettled(Box::new(record)));
    }
    let undoing = key.undoing().map_err(Error::from)?;
    let request = Request::of(record.resource.clone(), &[b"undo", record.fingerprint.as_bytes()]);
    Ok((record, undoing, request))
}

/// The undoing of a scope that nobody has told us how to undo.
pub(super) fn unknown(key: &Key) -> NotDone<Error> {
    Error::new(Kind::Unsupported, format!("nothing undoes operations of the scope {:?}", key.scope()))
        .advise("add it to the compensations")
        .into()
}
