//! Who has the last word: the client's own settings, and where they say nothing, those that the coordinator keeps.

use leasehold_core::{Error, Resource, Ttl, policy::Policy};

use super::{Limit, Rules, Tuning};
use crate::coordinator;

/// The settings in force. Replaced as a whole, never changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Layers {
    /// Of this client: from its code, or from its file.
    pub(crate) own: Rules,
    /// Of everybody who follows the coordinator.
    pub(crate) common: Rules,
}

impl Layers {
    /// The settings of one resource. A general word of the client counts before a special one of the coordinator: whoever
    /// is nearer to the program knows better.
    pub(crate) fn of(&self, resource: &Resource) -> Tuning {
        self.own.of(resource).over(self.common.of(resource))
    }

    pub(crate) fn ttl_of(&self, resource: &Resource) -> Ttl {
        self.of(resource).ttl.unwrap_or_default()
    }
}

impl Rules {
    /// Finds what could count for no lease of a namespace whose longest TTL is `longest`.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`], naming it.
    pub(crate) fn check(&self, longest: Ttl, place: &str) -> Result<(), Error> {
        for tuning in self.all() {
            if let Some(ttl) = tuning.ttl.filter(|ttl| *ttl > longest) {
                return Err(coordinator::too_long(ttl, longest).at(place));
            }
            let jitter = Policy::builder(Ttl::DEFAULT).jitter_percent(tuning.jitter_percent());
            let limited = match tuning.max_hold {
                Some(Limit::After(limit)) => jitter.max_hold(Some(limit)),
                Some(Limit::None) | None => jitter,
            };
            limited.build()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::waiter::Wait;

    use super::*;

    #[test]
    fn a_general_word_of_the_client_counts_before_a_special_one_of_the_coordinator() {
        let ttl = |seconds: u64| Tuning { ttl: Ttl::from_millis(seconds * 1_000).ok(), ..Tuning::default() };
        let waits = Tuning { wait: Some(Wait::Forever), ..ttl(9) };
        let layers =
            Layers { own: Rules::general(ttl(3)), common: Rules::default().with("a/*", waits).unwrap() };
        let of = |name: &str| layers.of(&Resource::new(name).unwrap());
        assert_eq!((of("a/b").ttl, of("a/b").wait), (ttl(3).ttl, Some(Wait::Forever)));
        assert_eq!((of("b").ttl, of("b").wait), (ttl(3).ttl, None));
        assert_eq!(Layers::default().ttl_of(&Resource::new("b").unwrap()), Ttl::DEFAULT);
    }

    #[test]
    fn what_can_count_for_no_lease_is_found() {
        let longest = Ttl::from_millis(60_000).unwrap();
        let check = |tuning: Tuning| Rules::default().with("a/*", tuning).unwrap().check(longest, "here");
        assert!(check(Tuning::default()).is_ok());
        assert!(check(Tuning { ttl: Some(longest), jitter: Some(50), ..Tuning::default() }).is_ok());
        for wrong in [
            Tuning { ttl: Some(Ttl::MAX), ..Tuning::default() },
            Tuning { jitter: Some(51), ..Tuning::default() },
            Tuning { max_hold: Some(Limit::After(Duration::from_micros(1))), ..Tuning::default() },
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
