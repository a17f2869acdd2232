//! Reads what the coordinator keeps. A read that finds nothing new is one look at one resource.

use leasehold_core::{Error, Kind, LeaseId, Resource, record::EndReason};

use super::{Change, Head, NAME, PREFIX, Stored};
use crate::{Leases, cell, leases::Client, settings::Rules};

/// The resource whose last end says which settings count.
pub(super) fn place() -> Result<Resource, Error> {
    Ok(Resource::new(NAME)?)
}

/// Where a part is; counted from one, for people.
pub(super) fn place_of(id: LeaseId, part: usize) -> Result<Resource, Error> {
    Ok(Resource::new(&format!("{PREFIX}{id}/{}", part + 1))?)
}

/// The text to which a head belongs.
pub(super) async fn text(client: &Client, head: &Head) -> Result<Result<String, String>, Error> {
    let mut text = String::with_capacity(head.change.bytes);
    for part in 0..head.parts {
        text.push_str(cell::read(client, &place_of(head.id, part)?).await?.line.as_str());
    }
    if text.len() == head.change.bytes {
        return Ok(Ok(text));
    }
    let what = format!("only {} of {} bytes are there", text.len(), head.change.bytes);
    Ok(Err(what))
}

/// What a line and its text say; `None` where there is nothing.
pub(super) async fn rules(
    client: &Client,
    line: &str,
) -> Result<Result<Option<(Change, Rules)>, String>, Error> {
    let head = match Head::read(line) {
        Ok(Some(head)) => head,
        Ok(None) => return Ok(Ok(None)),
        Err(problem) => return Ok(Err(problem)),
    };
    let text = text(client, &head).await?;
    let rules = text.and_then(|text| Rules::parse(&text, &[]));
    Ok(rules.map(|rules| Some((head.change, rules))))
}

impl Leases {
    /// The settings that the coordinator keeps for this namespace, whether or not this client follows them. `None`: it has never
    /// been given any, or has forgotten them ([`Leases::store_settings`]).
    ///
    /// **Cancel safety.** Dropping the future only stops the reading.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for what this version of Leasehold did not write; what the coordinator says when it cannot be asked.
    pub async fn stored_settings(&self) -> Result<Option<Stored>, Error> {
        let client = self.client();
        let profile = client.coordinator().profile();
        let wrong = |problem: String| {
            let what = format!("the settings that the coordinator keeps cannot be read: {problem}");
            Error::new(Kind::Invalid, what).at(&profile.place).advise("set them again")
        };
        let Some(head) = Head::read(cell::read(client, &place()?).await?.line.as_str()).map_err(wrong)?
        else {
            return Ok(None);
        };
        let text = text(client, &head).await?.map_err(wrong)?;
        Ok(Some(Stored { change: head.change, text }))
    }

    /// The changes of those settings, the latest first: at least the last few that the engine's history has, each once.
    ///
    /// # Errors
    /// As [`Leases::history`].
    pub async fn settings_history(&self) -> Result<Vec<Change>, Error> {
        let mut heads: Vec<Head> = Vec::new();
        for past in self.history(&place()?).await? {
            if !matches!(past.end.reason, EndReason::Revoked(_)) {
                continue;
            }
            // One that was kept from being forgotten stands there several times.
            let head = Head::read(past.end.by.as_str()).ok().flatten();
            heads.extend(head.filter(|head| !heads.contains(head)));
        }
        Ok(heads.into_iter().map(|head| head.change).collect())
    }
}
