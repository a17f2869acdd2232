//! How fast another clock runs, against the clock of this machine that nobody slews.
//!
//! A lease that ends by a clock which runs fast ends before its holder expects it. Windows allow for some of that; whether a
//! deployment keeps to it can be measured, by asking for the time twice.

use std::time::Duration;

use leasehold_core::window::ClockRule;
#[cfg(any(feature = "postgres", feature = "redis"))]
use leasehold_core::window::Margin;

use super::{Finding, Verdict};
use crate::clock;

/// Between the two looks at a server's clock (ours: with round trips of a millisecond, it is then known to a fifth of ρ).
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) const SPAN: Duration = Duration::from_secs(1);
/// Of so many questions the one that was answered fastest counts.
const QUESTIONS: usize = 4;

/// What another clock showed, and when; all in ns.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// On CLOCK_MONOTONIC_RAW: the middle between question and answer.
    here: u64,
    /// Half the time between them.
    error: u64,
    there: u64,
}

/// What a clock gains on this machine's, in parts per million, and how well that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    gain_ppm: i64,
    error_ppm: u64,
}

/// Measures over `span`. `ask` answers what the other clock shows, in ns.
pub(crate) async fn measure<E>(
    span: Duration,
    mut ask: impl AsyncFnMut() -> Result<u64, E>,
) -> Result<Rate, E> {
    let first = look(&mut ask).await?;
    tokio::time::sleep(span).await;
    Ok(rate(first, look(&mut ask).await?))
}

async fn look<E>(ask: &mut impl AsyncFnMut() -> Result<u64, E>) -> Result<Look, E> {
    let mut best = question(ask).await?;
    for _ in 1..QUESTIONS {
        let look = question(ask).await?;
        if look.error < best.error {
            best = look;
        }
    }
    Ok(best)
}

async fn question<E>(ask: &mut impl AsyncFnMut() -> Result<u64, E>) -> Result<Look, E> {
    let sent_ns = clock::read(ClockRule::LargestOfThree).raw_ns;
    let there = ask().await?;
    let heard_ns = clock::read(ClockRule::LargestOfThree).raw_ns;
    let error = heard_ns.saturating_sub(sent_ns).div_ceil(2);
    Ok(Look { here: sent_ns.midpoint(heard_ns), error, there })
}

fn rate(first: Look, last: Look) -> Rate {
    let here = i128::from(last.here) - i128::from(first.here);
    let there = i128::from(last.there) - i128::from(first.there);
    let here = here.max(1);
    let gain_ppm = (there - here) * 1_000_000 / here;
    let error_ppm = (i128::from(first.error) + i128::from(last.error)) * 1_000_000 / here + 1;
    Rate {
        gain_ppm: i64::try_from(gain_ppm).unwrap_or(if gain_ppm < 0 { i64::MIN } else { i64::MAX }),
        error_ppm: u64::try_from(error_ppm).unwrap_or(u64::MAX),
    }
}

impl Rate {
    /// In words: by how much, which way, and how well that is known.
    fn fact(self, whose: &str) -> String {
        let way = if self.gain_ppm < 0 { "behind" } else { "ahead" };
        let (gain, error) = (self.gain_ppm.unsigned_abs(), self.error_ppm);
        format!("{whose} goes {gain} ppm {way} (± {error} ppm) of this machine's oscillator")
    }

    /// This machine's own clock, which a time daemon may slew.
    pub(super) fn judged_here(self) -> Finding {
        /// What the kernel corrects a healthy oscillator by at most.
        const USUAL_PPM: u64 = 500;
        let fact = self.fact("the clock of this machine");
        if self.gain_ppm.unsigned_abs() <= USUAL_PPM + self.error_ppm {
            return Finding::fine("slewing", "windows", fact);
        }
        Finding::new(
            Verdict::Note,
            "slewing",
            "windows",
            format!("{fact}: it is being put right; holders look at the oscillator as well"),
            "nothing, if that ends: a time daemon slews after a step was needed",
        )
    }
}

/// Of engines that have a clock which can be asked for.
#[cfg(any(feature = "postgres", feature = "redis"))]
impl Rate {
    /// What it surely gains, at least.
    fn surely(self) -> i64 {
        self.gain_ppm.saturating_sub_unsigned(self.error_ppm)
    }

    /// A server's clock, by which leases end.
    pub(crate) fn judged(self) -> Finding {
        const SUBJECT: &str = "clock rate";
        let fact = self.fact("the server's clock");
        let rho = i64::from(Margin::DEFAULT.drift_ppm());
        let cure = "see what its time daemon does: it should slew by less than 5,000 ppm (0.5 %) and not step while leases are held";
        if self.surely() > 2 * rho {
            let fact = format!("{fact}, or was stepped: leases end before their holders stop");
            return Finding::new(Verdict::Fault, SUBJECT, "windows", fact, cure);
        }
        if self.surely() > rho {
            let fact = format!("{fact}: more than windows allow for one clock");
            return Finding::new(Verdict::Warning, SUBJECT, "windows", fact, cure);
        }
        if self.error_ppm > rho.unsigned_abs() {
            let fact = format!("{fact}: its answers took too long to tell");
            return Finding::new(
                Verdict::Note,
                SUBJECT,
                "windows",
                fact,
                "ask again from a machine that is less busy, or nearer",
            );
        }
        if self.gain_ppm < -rho {
            let fact = format!("{fact}: leases last longer than they should");
            return Finding::new(Verdict::Note, SUBJECT, "waiting", fact, cure);
        }
        Finding::fine(SUBJECT, "windows", fact)
    }

    /// A server's clock, by which no lease ends.
    #[cfg(feature = "postgres")]
    pub(crate) fn judged_for_people(self) -> Finding {
        Finding::fine(
            "clock rate",
            "windows",
            format!("{}; no lease ends by it", self.fact("the server's clock")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn looks(error: u64, seconds: u64, there: u64) -> Rate {
        let first = Look { here: 7 * S, error, there: 100 * S };
        rate(first, Look { here: (7 + seconds) * S, error, there: 100 * S + there })
    }

    #[test]
    fn a_rate_is_what_is_gained_and_how_well_that_is_known() {
        assert_eq!(looks(1_000_000, 2, 2 * S + 4_000_000), Rate { gain_ppm: 2_000, error_ppm: 1_001 });
        assert_eq!(looks(500, 1, S - 1_000_000), Rate { gain_ppm: -1_000, error_ppm: 2 });
        assert_eq!(looks(u64::MAX, 0, 0).error_ppm, u64::MAX);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_server_is_judged_by_what_it_surely_gains() {
        let judged = |gain_ppm, error_ppm| Rate { gain_ppm, error_ppm }.judged().verdict;
        assert_eq!([judged(0, 1), judged(5_999, 1_000), judged(-5_000, 1)], [Verdict::Fine; 3]);
        assert_eq!([judged(6_001, 1_000), judged(10_000, 0)], [Verdict::Warning; 2]);
        assert_eq!([judged(11_001, 1_000), judged(i64::MAX, 1)], [Verdict::Fault; 2]);
        assert_eq!([judged(-5_001, 0), judged(i64::MIN, 1), judged(9_000, 5_001)], [Verdict::Note; 3]);
        let here = |gain_ppm| Rate { gain_ppm, error_ppm: 10 }.judged_here().verdict;
        assert_eq!(
            [here(510), here(-510), here(511), here(-511)],
            [Verdict::Fine, Verdict::Fine, Verdict::Note, Verdict::Note]
        );
        assert_eq!(Rate { gain_ppm: i64::MAX, error_ppm: 1 }.judged_for_people().verdict, Verdict::Fine);
    }

    #[tokio::test]
    async fn a_clock_that_runs_twice_as_fast_is_measured_and_failures_are_passed_on() {
        let start = clock::read(ClockRule::LargestOfThree).raw_ns;
        let twice = async || Ok::<_, ()>(2 * clock::read(ClockRule::LargestOfThree).raw_ns - start);
        let rate = measure(Duration::from_millis(50), twice).await.unwrap();
        assert!(rate.gain_ppm.abs_diff(1_000_000) <= 2 * rate.error_ppm, "{rate:?}");
        assert_eq!(measure(Duration::ZERO, async || Err("gone")).await, Err("gone"));
    }
}
