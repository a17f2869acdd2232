//! Durations as people type them: a number with its unit. A bare `30` is refused, because half of those who write it
//! mean seconds and half milliseconds.

use std::time::Duration;

use leasehold::{Ttl, Wait};

use crate::failure::Failure;

/// More characters than any duration needs. Together with [`MAX_DIGITS`] it keeps every sum in the parser far below its
/// limits.
const MAX_LENGTH: usize = 32;
/// Ten thousand million of anything is too long.
const MAX_DIGITS: usize = 10;

/// Reads the duration that was given for `option`.
pub(crate) fn parse(option: &str, text: &str) -> Result<Duration, Failure> {
    let refuse = |problem: &str| Failure::usage(format!("{option}: {problem}"));
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(refuse("is empty; write a number with a unit, as in 30s, 5m or 1h30m"));
    }
    if trimmed.starts_with('-') && trimmed[1..].starts_with(|first: char| first.is_ascii_digit()) {
        return Err(refuse(&format!("{trimmed} is negative; write how long, as in 30s")));
    }
    if trimmed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(refuse(&format!("{trimmed} has no unit; write {trimmed}s (or {trimmed}ms)")));
    }
    if trimmed.len() > MAX_LENGTH || longest_number(trimmed) > MAX_DIGITS {
        return Err(refuse(&format!("{trimmed} is too long")));
    }
    humantime::parse_duration(trimmed).map_err(|_| {
        refuse(&format!("{trimmed} is not a duration; write a number with a unit, as in 30s, 5m or 1h30m"))
    })
}

/// Reads a TTL.
pub(crate) fn ttl(option: &str, text: &str) -> Result<Ttl, Failure> {
    Ttl::new(parse(option, text)?).map_err(|invalid| Failure::usage(format!("{option}: {text}: {invalid}")))
}

/// Reads how long to wait; nothing given means: try once.
pub(crate) fn wait(text: Option<&str>) -> Result<Wait, Failure> {
    match text {
        None => Ok(Wait::No),
        Some("forever") => Ok(Wait::Forever),
        Some(text) => parse("--wait", text).map(Wait::For),
    }
}

fn longest_number(text: &str) -> usize {
    text.split(|character: char| !character.is_ascii_digit()).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse("--ttl", text).unwrap_err().what().to_owned()
    }

    #[test]
    fn durations_have_units() {
        let read = |text| parse("--ttl", text).unwrap();
        assert_eq!(read("30s"), Duration::from_secs(30));
        assert_eq!(read("1h30m"), Duration::from_secs(5_400));
        assert_eq!(read("250ms"), Duration::from_millis(250));
        assert_eq!(read("1.5s"), Duration::from_millis(1_500));
        assert_eq!(problem("30"), "--ttl: 30 has no unit; write 30s (or 30ms)");
        assert_eq!(problem("0"), "--ttl: 0 has no unit; write 0s (or 0ms)");
        assert_eq!(problem("1.5"), "--ttl: 1.5 has no unit; write 1.5s (or 1.5ms)");
    }

    #[test]
    fn hostile_durations_are_refused_and_never_panic() {
        assert!(problem("-5s").contains("negative"));
        assert!(problem("").contains("empty") && problem("  ").contains("empty"));
        for bad in ["s", "x", "5 parsecs", "--wait", "٣s", "5é", "-", "1e9s"] {
            assert!(problem(bad).contains("not a duration"), "{bad}: {}", problem(bad));
        }
        for huge in ["99999999999999999999s", "18446744073709551615s 999999999ns 1ns", &"1".repeat(1 << 20)] {
            assert!(parse("--ttl", huge).is_err());
        }
        assert!(
            ttl("--ttl", "9999999999y").is_err()
                && ttl("--ttl", "0s").is_err()
                && ttl("--ttl", "49ms").is_err()
        );
    }

    #[test]
    fn waiting_is_bounded_unless_said() {
        assert_eq!(wait(None).unwrap(), Wait::No);
        assert_eq!(wait(Some("forever")).unwrap(), Wait::Forever);
        assert_eq!(wait(Some("5m")).unwrap(), Wait::For(Duration::from_secs(300)));
        assert!(wait(Some("5")).is_err());
    }
}
