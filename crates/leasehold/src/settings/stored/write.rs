//! Changes what the coordinator keeps. A text is written first, in parts that nobody reads yet, and then the line that names it.

use leasehold_core::{Error, Kind, Label};

use super::{
    Change, Head, MAX_BYTES, Stored,
    head::parts,
    read::{place, place_of},
};
use crate::{Leases, cell, leases::Client, random, settings::Rules};

/// Others change them at the same moment, or have died of it; so often is it tried to come in between (ours: twenty seconds, longer
/// than the grant of one that died lasts).
const ATTEMPTS: u32 = 100;
/// Why a grant ended that carried a line. For people who look at the history of the resource.
const REASON: &str = "these settings count";

impl Leases {
    /// Lets the coordinator keep these settings for everybody in this namespace who follows them
    /// ([`Leases::follow_coordinator`]): TOML as [`Rules::parse`] reads it, at most [`MAX_BYTES`], in place of all that it kept. `by`
    /// says who changes them; it is cut at about 160 bytes.
    ///
    /// Whoever reads them sees the old ones or the new ones. They are kept as leases are: they survive what those survive, and a
    /// namespace that nobody has used for a week forgets them; clients that follow them keep that from happening.
    ///
    /// Costs two requests for each quarter of a kilobyte, and four more.
    ///
    /// **Cancel safety.** Dropping the future leaves the old settings or the new ones.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: they are no settings, too long, or not for this namespace; nothing has changed. What the coordinator says
    /// when it cannot be asked, or grants nothing because of a quarantine ([`Kind::Unavailable`], nothing has changed);
    /// [`Kind::Unknown`] when nobody knows whether they count.
    pub async fn store_settings(&self, text: &str, by: &Label) -> Result<Stored, Error> {
        let client = self.client();
        let profile = client.coordinator().profile();
        let invalid = |problem: String| Error::new(Kind::Invalid, problem);
        if text.len() > MAX_BYTES {
            let what = format!("settings may have {MAX_BYTES} bytes, and these have {}", text.len());
            return Err(invalid(what).advise("leave out comments, or use fewer patterns"));
        }
        Rules::parse(text, &[]).map_err(invalid)?.check(profile.max_ttl, &profile.place)?;
        let (id, parts) = (random::lease_id()?, parts(text));
        for (n, part) in parts.iter().enumerate() {
            cell::leave(client, &place_of(id, n)?, &Label::new(part)?, ATTEMPTS).await?;
        }
        let next = |stands: &Label, at_us| {
            // What cannot be read is replaced, as if it were not there.
            let before = Head::read(stands.as_str()).ok().flatten();
            let version = before.map_or(0, |head| head.change.version).saturating_add(1);
            let change = Change { version, by: by.clone(), at_us, bytes: text.len() };
            let head = Head { change, parts: parts.len(), id };
            Some((head.write(), head.change))
        };
        let change = cell::change(client, &place()?, REASON, ATTEMPTS, next).await?;
        let change = change.ok_or_else(|| Error::new(Kind::Unavailable, "the settings were not changed"))?;
        Ok(Stored { change, text: text.to_owned() })
    }

    /// Takes away the settings that the coordinator keeps: the same as storing an empty text.
    ///
    /// **Cancel safety.** As [`Leases::store_settings`].
    ///
    /// # Errors
    /// As [`Leases::store_settings`].
    pub async fn clear_settings(&self, by: &Label) -> Result<Stored, Error> {
        self.store_settings("", by).await
    }
}

/// Writes down once more what counts, so that it is not forgotten as unused. Where another does the same, or changes them,
/// that one comes first.
///
/// # Errors
/// That nothing came of it; somebody will try again.
pub(super) async fn keep(client: &Client, known: &Head) -> Result<(), Error> {
    for n in 0..known.parts {
        let place = place_of(known.id, n)?;
        let part = cell::read(client, &place).await?.line;
        if part.is_empty() {
            return Err(Error::new(Kind::Invalid, "a part of the settings is missing"));
        }
        cell::leave(client, &place, &part, 1).await?;
    }
    let same = |stands: &Label, _| Some((stands.clone(), ()));
    cell::change(client, &place()?, REASON, 1, same).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::Namespace;

    use super::*;
    use crate::coordinator::memory::{MemoryCoordinator, MemoryStore};

    #[tokio::test]
    async fn what_is_kept_from_being_forgotten_is_no_change() {
        let coordinator = Arc::new(MemoryCoordinator::new(MemoryStore::default(), Namespace::default()));
        let namespace = Namespace::default();
        let leases = Leases::over(coordinator, namespace, Label::from_lossy("test")).await.unwrap();
        let by = Label::from_lossy("alice@web1");
        let text = "# é\nttl = \"9s\"\n".to_owned() + &"# more\n".repeat(100);
        let stored = leases.store_settings(&text, &by).await.unwrap();
        let line = cell::read(leases.client(), &place().unwrap()).await.unwrap().line;
        let known = Head::read(line.as_str()).unwrap().unwrap();
        assert!(known.parts > 2);
        keep(leases.client(), &known).await.unwrap();
        assert_eq!(leases.stored_settings().await.unwrap(), Some(stored.clone()));
        assert_eq!(leases.settings_history().await.unwrap(), [stored.change]);
        for place in [place().unwrap(), place_of(known.id, 0).unwrap()] {
            assert_eq!(leases.history(&place).await.unwrap().len(), 2, "{place} was written once more");
        }
        // Somebody has changed them since the look: theirs stay.
        let later = leases.store_settings("ttl = \"8s\"", &by).await.unwrap();
        keep(leases.client(), &known).await.unwrap();
        assert_eq!(leases.stored_settings().await.unwrap(), Some(later));
    }
}
