//! A namespace for one run, and its end.
//!
//! What a namespace remembers must outlive the leases in it: who forgets a counter too early gives a token twice. So nothing else
//! here removes a namespace. One that was drawn at random, for one run, has no later: when its run is over nobody will ask for
//! anything in it again, and what it remembers is rubbish at the coordinator.
//!
//! Only the one who drew it can discard it: there is no way from a name to a [`Throwaway`].

use leasehold_core::{Error, Kind, Namespace};

use crate::{Url, aside, random};

/// A namespace that nobody else has, until it is [discarded](Throwaway::discard).
#[derive(Debug)]
pub struct Throwaway {
    namespace: Namespace,
}

impl Throwaway {
    /// Draws one: `prefix` and 64 random bits.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a prefix that a namespace cannot start with, or a long one; [`Kind::Unavailable`] when the
    /// operating system gives no randomness.
    pub fn draw(prefix: &str) -> Result<Self, Error> {
        let id = random::lease_id()?;
        let half = id.as_bytes().iter().take(8).fold(0, |half, &byte| half << 8 | u64::from(byte));
        Ok(Self { namespace: Namespace::new(&format!("{prefix}{half:016x}"))? })
    }

    /// Its name, to connect with and to tell other processes of the run.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Removes all that the coordinator at `url` keeps of it: grants and places, counters, the history, the settings. How many
    /// things that were, in the engine's own terms (keys, rows); 0 when nothing was there.
    ///
    /// For the end of a run, after every client of the namespace has ended. A request that arrives later makes a record again,
    /// which can be discarded again; a grant that stood is simply gone.
    ///
    /// **Cancel safety.** Dropping the future leaves it discarded, wholly or in part, or not. It can be asked for again.
    ///
    /// # Errors
    /// What the engine says when it cannot be reached or does not allow it; then some of it may be there still.
    pub async fn discard(&self, url: &str) -> Result<u64, Error> {
        let (url, namespace) = (Url::parse(url)?, self.namespace.clone());
        let place = url.place();
        let work = move || async move { url.discard(&namespace).await };
        let early = || Error::new(Kind::Unknown, "the namespace's discarding ended early");
        aside::run("leasehold-end", work, early).await.map_err(|error| error.at(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_behind_the_prefix() {
        let draw = || Throwaway::draw("__verify_").unwrap().namespace().to_string();
        let (one, other) = (draw(), draw());
        assert_ne!(one, other);
        assert!(one.starts_with("__verify_") && one.len() == "__verify_".len() + 16, "{one}");
        assert_eq!(Throwaway::draw("a b").unwrap_err().kind(), Kind::Invalid);
    }
}
