//! Figures and names as people read them, and words as a shell reads them.

use std::{
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use leasehold::core::name::is_deceptive;

/// The first microsecond of the year 10000, from which on RFC 3339 has no form.
const YEAR_10000_US: u64 = 253_402_300_800_000_000;

/// A duration in at most two units: `850ms`, `12.3s`, `2m 5s`, `1d 2h`. Rounded down.
pub(crate) fn duration(duration: Duration) -> String {
    let (ms, seconds) = (duration.as_millis(), duration.as_secs());
    match seconds {
        0 => format!("{ms}ms"),
        1..60 if ms % 1_000 < 100 => format!("{seconds}s"),
        1..60 => format!("{seconds}.{}s", ms / 100 % 10),
        60..3_600 => two(seconds, 60, "m", 1, "s"),
        3_600..86_400 => two(seconds, 3_600, "h", 60, "m"),
        _ => two(seconds, 86_400, "d", 3_600, "h"),
    }
}

fn two(seconds: u64, large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match seconds % large / small {
        0 => format!("{}{large_unit}", seconds / large),
        rest => format!("{}{large_unit} {rest}{small_unit}", seconds / large),
    }
}

/// A moment given in µs since 1970, in UTC, to the second.
pub(crate) fn instant(unix_us: u64) -> String {
    if unix_us >= YEAR_10000_US {
        return format!("{unix_us}us after 1970");
    }
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(unix_us)).to_string()
}

/// The same to the microsecond, for JSON.
pub(crate) fn exact_instant(unix_us: u64) -> Option<String> {
    let moment = || UNIX_EPOCH + Duration::from_micros(unix_us);
    (unix_us < YEAR_10000_US).then(|| humantime::format_rfc3339_micros(moment()).to_string())
}

/// `2026-01-02T03:04:05Z (2m 5s ago)`.
pub(crate) fn since(unix_us: u64, now_us: u64) -> String {
    format!("{} ({} ago)", instant(unix_us), duration(age(unix_us, now_us)))
}

/// How long ago; nothing for a moment that this machine's clock has not reached.
pub(crate) fn age(unix_us: u64, now_us: u64) -> Duration {
    Duration::from_micros(now_us.saturating_sub(unix_us))
}

/// The text with every character visible and none obeyed by a terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_deceptive(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// One word for a shell. Where quotes are not enough (control characters), in the `$'…'` form of bash, zsh and POSIX 2024.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    if !word.chars().any(is_deceptive) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = String::from("$'");
    for character in word.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            _ if is_deceptive(character) => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    // Three octal digits are always taken, and no more. Writing into a String cannot fail.
                    let _ = write!(quoted, "\\{byte:03o}");
                }
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let shown = |ms| duration(Duration::from_millis(ms));
        for (ms, text) in [
            (0, "0ms"),
            (850, "850ms"),
            (1_000, "1s"),
            (12_345, "12.3s"),
            (60_000, "1m"),
            (125_999, "2m 5s"),
            (3_599_999, "59m 59s"),
            (3_600_000, "1h"),
            (93_600_000, "1d 2h"),
        ] {
            assert_eq!(shown(ms), text);
        }
    }

    #[test]
    fn moments_are_utc_and_never_panic() {
        assert_eq!(instant(1_767_323_045_678_901), "2026-01-02T03:04:05Z");
        assert_eq!(exact_instant(1_767_323_045_678_901).unwrap(), "2026-01-02T03:04:05.678901Z");
        assert_eq!(exact_instant(u64::MAX), None);
        assert!(instant(u64::MAX).contains("after 1970"));
        assert_eq!(since(1_767_323_045_000_000, 1_767_323_170_000_000), "2026-01-02T03:04:05Z (2m 5s ago)");
        assert_eq!(age(5, 3), Duration::ZERO);
    }

    #[test]
    fn words_survive_a_shell() {
        for word in [
            "a",
            "",
            "it's",
            "a b",
            "--x",
            "$HOME",
            "a\nb",
            "\u{1b}[2J'\\",
            "🦀",
            "\u{202e}x7",
            "a*?",
            "\u{9b}1",
        ] {
            let printed = format!("printf '%s_' {}", shell_word(word));
            assert!(!printed.chars().any(is_deceptive));
            let shell = std::process::Command::new("bash").args(["-c", &printed]).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), format!("{word}_"), "{printed}");
        }
    }
}
