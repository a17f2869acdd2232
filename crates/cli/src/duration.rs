//! Durations of options: as in the configuration file, with the name of the option in what is said.

use std::time::Duration;

use leasehold::{Ttl, Wait};

use crate::failure::Failure;

/// Reads the duration that was given for `option`.
pub(crate) fn parse(option: &str, text: &str) -> Result<Duration, Failure> {
    leasehold::settings::duration(text).map_err(|problem| Failure::usage(format!("{option}: {problem}")))
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
        assert_eq!(read("0"), Duration::ZERO);
        assert_eq!(
            ttl("--ttl", "0").unwrap_err().what(),
            "--ttl: 0: TTL must be between 50ms and 7d",
            "not a unit that would be refused next"
        );
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

    #[test]
    fn no_hostile_duration_makes_reading_panic() {
        for text in leasehold_testkit::hostile::texts() {
            let _ = (ttl("--ttl", &text), wait(Some(&text)));
            if let Err(refused) = parse("--once-per", &text) {
                assert!(refused.what().starts_with("--once-per: "), "{}", refused.what());
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_as_a_duration_is_read_as_it(ms in 0_u64..100 * 365 * 86_400_000) {
            let duration = Duration::from_millis(ms);
            let written = humantime::format_duration(duration).to_string();
            // Longer texts than a person writes are refused.
            if written.len() <= 32 {
                assert_eq!(parse("--ttl", &written).unwrap(), duration);
            }
            if ms < 10_000_000_000 {
                assert_eq!(parse("--ttl", &format!("{ms}ms")).unwrap(), duration);
            }
        }

        #[test]
        fn no_text_makes_reading_panic(text in "\\PC{0,40}|[0-9]{0,12}[a-z]{0,3} ?[0-9.]{0,12}[a-z]{0,7}") {
            let _ = parse("--ttl", &text);
        }
    }
}
