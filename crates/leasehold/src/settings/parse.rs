//! Settings as they are written: a word and a text.

use leasehold_core::{Ttl, policy::MAX_JITTER_PERCENT, waiter::Wait};

use super::{Limit, Tuning, duration};

/// The words, for whoever has mistyped one.
#[cfg(any(feature = "settings", test))]
pub(super) const WORDS: [&str; 5] = ["ttl", "jitter", "wait", "max_hold", "drain_timeout"];

/// Reads one setting into `tuning`: `ttl` a duration; `jitter` a percentage, as in `20%`; `wait` a duration, `forever` or `no`; `max_hold` a duration or `none`;
/// `drain_timeout` a duration or `forever`. False for another word.
///
/// # Errors
/// What is wrong with the text, beginning with the word.
pub fn setting(tuning: &mut Tuning, word: &str, text: &str) -> Result<bool, String> {
    let read = || duration(text).map_err(|problem| format!("{word}: {problem}"));
    let limit = |none: &str| {
        if text == none {
            return Ok(Limit::None);
        }
        match read()? {
            limit if limit.is_zero() => Err(format!("{word}: must be more than zero, or {none}")),
            limit => Ok(Limit::After(limit)),
        }
    };
    match word {
        "ttl" => {
            let ttl = Ttl::new(read()?).map_err(|invalid| format!("{word}: {text}: {invalid}"))?;
            tuning.ttl = Some(ttl);
        }
        "jitter" => {
            tuning.jitter = Some(percentage(text).map_err(|problem| format!("{word}: {problem}"))?);
        }
        "wait" => {
            tuning.wait = Some(match text {
                "no" => Wait::No,
                "forever" => Wait::Forever,
                _ => Wait::For(read()?),
            });
        }
        "max_hold" => tuning.max_hold = Some(limit("none")?),
        "drain_timeout" => tuning.drain_timeout = Some(limit("forever")?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// A whole number of percent, as many as a jitter may have.
fn percentage(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').map(str::trim_end);
    let number = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let Some(number) = number.and_then(|digits| digits.parse::<u8>().ok()) else {
        return Err(format!("{text} is not a percentage; write it as in 15%"));
    };
    if u32::from(number) > MAX_JITTER_PERCENT {
        return Err(format!("{text} is above the most, {MAX_JITTER_PERCENT}%"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn settings_are_read_or_refused_with_the_reason() {
        let mut tuning = Tuning::default();
        for (word, text) in [
            ("ttl", "20s"),
            ("jitter", "50%"),
            ("wait", "forever"),
            ("max_hold", "none"),
            ("drain_timeout", "1m"),
        ] {
            assert!(WORDS.contains(&word) && setting(&mut tuning, word, text).unwrap());
        }
        let minute = Limit::After(Duration::from_secs(60));
        assert_eq!((tuning.wait, tuning.max_hold), (Some(Wait::Forever), Some(Limit::None)));
        assert_eq!(tuning.jitter, Some(50));
        assert_eq!((tuning.ttl.unwrap().as_millis(), tuning.drain_timeout), (20_000, Some(minute)));
        assert_eq!(setting(&mut tuning, "grace", "1s"), Ok(false));
        for (word, text, problem) in [
            ("ttl", "20", "ttl: 20 has no unit"),
            ("ttl", "1ms", "ttl: 1ms: "),
            ("ttl", "8d", "ttl: 8d: "),
            ("jitter", "20", "jitter: 20 is not a percentage"),
            ("jitter", "+2%", "jitter: +2% is not a percentage"),
            ("jitter", "%", "jitter: % is not a percentage"),
            ("jitter", "300%", "jitter: 300% is not a percentage"),
            ("jitter", "51%", "jitter: 51% is above the most, 50%"),
            ("wait", "for ever", "wait: for ever is not a duration"),
            ("max_hold", "0s", "max_hold: must be more than zero, or none"),
            ("drain_timeout", "none", "drain_timeout: none is not a duration"),
        ] {
            let found = setting(&mut tuning, word, text).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
        assert_eq!(tuning.ttl.unwrap().as_millis(), 20_000, "what is refused changes nothing");
    }
}
