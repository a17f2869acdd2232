//! What a run holds its lease under: options first, then the configuration file, then what the coordinator keeps for all.
//!
//! They are settled twice: from options and file before anything is asked, and once more when there is a connection, because
//! only then the coordinator can be asked for its settings. Those that do not go with the rest of the run change nothing.

use std::time::Duration;

use leasehold::{
    Ttl, Wait,
    settings::{Limit, Tuning},
};

use super::Restart;
use crate::failure::Failure;

/// Time between TERM and KILL unless said otherwise; never more than a third of the TTL.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// What the options say, checked one by one. `None`: nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) ttl: Option<Ttl>,
    pub(crate) wait: Option<Wait>,
    pub(crate) grace: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) drain_timeout: Option<Limit>,
    pub(crate) restart: Restart,
}

/// What counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
    /// Between asking the tree to end and killing it.
    pub(crate) grace: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// How long after SIGTERM the command may take; `None` for ever.
    pub(crate) drain_timeout: Option<Duration>,
}

impl Asked {
    /// With these settings where no option says.
    pub(crate) fn under(&self, tuning: Tuning) -> Result<Terms, Failure> {
        let ttl = self.ttl.or(tuning.ttl).unwrap_or(Ttl::DEFAULT);
        let max_hold = self.max_hold.or_else(|| tuning.max_hold.and_then(length));
        let wait = match (self.wait, self.restart) {
            (Some(wait), _) => wait,
            // Whoever stands by waits.
            (None, Restart::OnLoss | Restart::Always) => Wait::Forever,
            (None, Restart::Never) => tuning.wait.unwrap_or(Wait::No),
        };
        let drain = self.drain_timeout.or(tuning.drain_timeout);
        let drain_timeout = drain.map_or(Some(ttl.as_duration() * 2), length);
        Ok(Terms { ttl, wait, grace: grace(self.grace, ttl, max_hold)?, max_hold, drain_timeout })
    }
}

fn length(limit: Limit) -> Option<Duration> {
    match limit {
        Limit::After(limit) => Some(limit),
        Limit::None => None,
    }
}

/// As asked, or 5 s. Never more than a third of the TTL, so that a holder which cannot renew still has time to try; and less than
/// the hold limit, because the command is asked to end that long before it.
fn grace(asked: Option<Duration>, ttl: Ttl, max_hold: Option<Duration>) -> Result<Duration, Failure> {
    let longest = ttl.as_duration() / 3;
    match (asked, max_hold) {
        (Some(grace), _) if grace > longest => Err(Failure::usage(format!(
            "--grace: {grace:?} is more than a third of the TTL ({longest:?}); give a longer --ttl"
        ))),
        (Some(grace), Some(limit)) if grace >= limit => Err(Failure::usage(format!(
            "--grace: {grace:?} is not less than --max-hold ({limit:?}), so the command would be ended at once"
        ))),
        (Some(grace), _) => Ok(grace),
        (None, Some(limit)) => Ok(GRACE.min(longest).min(limit / 3)),
        (None, None) => Ok(GRACE.min(longest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_wins_over_the_settings_and_they_over_the_default() {
        let ttl = |seconds: u64| Ttl::from_millis(seconds * 1_000).ok();
        let tuning = Tuning {
            ttl: ttl(6),
            wait: Some(Wait::Forever),
            max_hold: Some(Limit::After(Duration::from_secs(60))),
            drain_timeout: Some(Limit::None),
            ..Tuning::default()
        };
        let terms = Asked::default().under(tuning).unwrap();
        assert_eq!((Some(terms.ttl), terms.wait, terms.drain_timeout), (ttl(6), Wait::Forever, None));
        assert_eq!((terms.grace, terms.max_hold), (Duration::from_secs(2), Some(Duration::from_secs(60))));
        let asked = Asked {
            ttl: ttl(9),
            wait: Some(Wait::No),
            drain_timeout: Some(Limit::After(Duration::from_secs(1))),
            ..Asked::default()
        };
        let terms = asked.under(tuning).unwrap();
        assert_eq!((Some(terms.ttl), terms.wait), (ttl(9), Wait::No));
        assert_eq!(terms.drain_timeout, Some(Duration::from_secs(1)));
        let bare = Asked::default().under(Tuning::default()).unwrap();
        assert_eq!((bare.ttl, bare.wait, bare.max_hold, bare.grace), (Ttl::DEFAULT, Wait::No, None, GRACE));
        assert_eq!(bare.drain_timeout, Some(Duration::from_secs(60)));
    }

    #[test]
    fn settings_that_do_not_go_with_an_option_are_refused() {
        let asked = Asked { grace: Some(Duration::from_secs(5)), ..Asked::default() };
        let short = Tuning { ttl: Ttl::from_millis(6_000).ok(), ..Tuning::default() };
        assert!(asked.under(short).is_err() && asked.under(Tuning::default()).is_ok());
    }
}
