//! `run`: its checked arguments.

use std::time::Duration;

use leasehold::{Resource, Ttl, Wait, core::request::MAX_ONCE_PER};

use crate::{args, duration, exit::Exit, failure::Failure, settings, settings::Settings};

/// Time between TERM and KILL unless said otherwise; never more than a third of the TTL.
const GRACE: Duration = Duration::from_secs(5);

/// What `run` was asked to do.
#[derive(Debug)]
#[expect(dead_code, reason = "read by the supervisor")]
pub(crate) struct Checked {
    pub(crate) resource: Resource,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
    pub(crate) grace: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) once_per: Option<Duration>,
}

impl Checked {
    pub(crate) fn check(args: &args::Run) -> Result<Self, Failure> {
        let optional =
            |option, text: Option<&String>| text.map(|text| duration::parse(option, text)).transpose();
        let ttl = args.ttl.as_deref().map_or(Ok(Ttl::DEFAULT), |text| duration::ttl("--ttl", text))?;
        let longest = ttl.as_duration() / 3;
        let grace = match optional("--grace", args.grace.as_ref())? {
            Some(grace) if grace > longest => {
                return Err(Failure::usage(format!(
                    "--grace: {grace:?} is more than a third of the TTL ({longest:?}); give a longer --ttl"
                )));
            }
            Some(grace) => grace,
            None => GRACE.min(longest),
        };
        let once_per = optional("--once-per", args.once_per.as_ref())?;
        if once_per.is_some_and(|period| period.is_zero() || period > MAX_ONCE_PER) {
            return Err(Failure::usage("--once-per: must be more than zero and at most 7d"));
        }
        let max_hold = optional("--max-hold", args.max_hold.as_ref())?;
        if max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Failure::usage("--max-hold: must be more than zero"));
        }
        Ok(Self {
            resource: settings::resource(&args.resource)?,
            ttl,
            wait: duration::wait(args.wait.as_deref())?,
            grace,
            max_hold,
            once_per,
        })
    }
}

pub(crate) fn run(args: &args::Run, _settings: &Settings) -> Result<Exit, Failure> {
    let _checked = Checked::check(args)?;
    Err(Failure::usage("this build cannot run commands"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn check(words: &str) -> Result<Checked, Failure> {
        match Cli::try_parse_from(words.split(' ')).unwrap().verb {
            Verb::Run(args) => Checked::check(&args),
            verb => panic!("{verb:?}"),
        }
    }

    #[test]
    fn the_grace_fits_into_the_ttl() {
        let grace = |words| check(words).unwrap().grace;
        assert_eq!(grace("leasehold run r -- c"), GRACE);
        assert_eq!(grace("leasehold run r --ttl 6s -- c"), Duration::from_secs(2));
        assert_eq!(grace("leasehold run r --grace 10s -- c"), Duration::from_secs(10));
        assert!(check("leasehold run r --ttl 6s --grace 3s -- c").is_err());
    }

    #[test]
    fn periods_and_limits_are_more_than_nothing() {
        assert!(check("leasehold run r --once-per 0s -- c").is_err());
        assert!(check("leasehold run r --once-per 8d -- c").is_err());
        assert!(check("leasehold run r --max-hold 0s -- c").is_err());
        let all = check("leasehold run r --once-per 23h --max-hold 1h --wait forever -- c").unwrap();
        assert_eq!((all.wait, all.ttl), (Wait::Forever, Ttl::DEFAULT));
    }
}
