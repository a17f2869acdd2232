//! Numbers as people read them.

use crate::{results::Middle, task::figure};

/// With as many digits as are worth something, and commas.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = if size >= 100.0 {
        0
    } else if size >= 10.0 || (size - size.round()).abs() < 1e-9 {
        usize::from(size < 100.0 && (size - size.round()).abs() >= 1e-9)
    } else {
        2
    };
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.split_once('.').map_or((plain.as_str(), ""), |(whole, rest)| (whole, rest));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{rest}") }
}

/// What stands behind a figure.
pub(super) fn unit(figure: &str) -> &'static str {
    match figure {
        figure::RATE => "/s",
        figure::P50 | figure::P99 => " us",
        figure::CLIENT | figure::ENGINE | figure::HOT => " %",
        figure::CLIENT_BYTES | figure::ENGINE_BYTES => " B",
        figure::WALL => " ms",
        figure::NANOSECONDS => " ns",
        figure::SLOWEST | figure::TURN => " x",
        _ => "",
    }
}

/// A median with its unit, and the range that it was taken of where there is one.
pub(super) fn middle(value: Middle, figure: &str) -> String {
    let Middle { median, low, high, rounds } = value;
    let range = if rounds > 1 { format!(" ({}-{})", number(low), number(high)) } else { String::new() };
    format!("{}{}{range}", number(median), unit(figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_are_worth_something() {
        let said = [0.0, 0.053, 0.85, 2.0, 12.34, 99.96, 105.3, 1_234.6, 134_000.0, -1_500.0].map(number);
        let expected = ["0", "0.05", "0.85", "2", "12.3", "100.0", "105", "1,235", "134,000", "-1,500"];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_single_round_has_no_range() {
        let value = |rounds| Middle { median: 2.5, low: 1.0, high: 3.0, rounds };
        assert_eq!(middle(value(1), figure::WALL), "2.50 ms");
        assert_eq!(middle(value(3), figure::WALL), "2.50 ms (1-3)");
    }
}
