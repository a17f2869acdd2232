//! Durations as people type them: a number with its unit. A bare `30` is refused, because half of those who write it
//! mean seconds and half milliseconds; a bare `0` is both.

use std::time::Duration;

/// More characters than any duration needs. Together with [`MAX_DIGITS`] it keeps every sum in the parser far below its
/// limits.
const MAX_LENGTH: usize = 32;
/// Ten thousand million of anything is too long.
const MAX_DIGITS: usize = 10;

/// Reads a duration, such as `30s`, `5m` or `1h30m`.
///
/// # Errors
/// What is wrong with it, in words for whoever typed it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("is empty; write a number with a unit, as in 30s, 5m or 1h30m".to_owned());
    }
    if trimmed.starts_with('-') && trimmed[1..].starts_with(|first: char| first.is_ascii_digit()) {
        return Err(format!("{trimmed} is negative; write how long, as in 30s"));
    }
    // Nothing is nothing in every unit; whether it is long enough is for the setting to say.
    if trimmed == "0" {
        return Ok(Duration::ZERO);
    }
    if trimmed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("{trimmed} has no unit; write {trimmed}s (or {trimmed}ms)"));
    }
    if trimmed.len() > MAX_LENGTH || longest_number(trimmed) > MAX_DIGITS {
        return Err(format!("{trimmed} is too long"));
    }
    humantime::parse_duration(trimmed).map_err(|_| {
        format!("{trimmed} is not a duration; write a number with a unit, as in 30s, 5m or 1h30m")
    })
}

fn longest_number(text: &str) -> usize {
    text.split(|character: char| !character.is_ascii_digit()).map(str::len).max().unwrap_or(0)
}
