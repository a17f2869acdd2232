//! How long a TTL should be: derived from measured latencies, never picked.
//!
//! There are two questions, and their answers are often a factor of ten apart. Both are given, each with the parts that
//! add up to it and the one part that *drives* it, so that whoever is on call knows which measurement to look at.
//!
//! | figure | question | before rounding |
//! | --- | --- | --- |
//! | [`Derivation::covering`] | How long must a grant last that **nobody renews** while one piece of work is done? | work p99 + round trip p99 + margin + drift buffer |
//! | [`Derivation::renewed`] | How short may it be **with renewal**, and still survive a slow call, a pause and one lost heartbeat? | [`ATTEMPTS`] × (round trip p99 + pause p99), or more where the clock margin asks for it |
//!
//! With renewal the work does not count at all: a lease lasts as long as it is renewed, and the TTL only bounds how long a
//! crashed holder goes unnoticed. The parts are summed first and rounded up once, to the step and to what the engine can
//! express.
//!
//! Why [`ATTEMPTS`] is 4, and when more is needed: a renewal leaves at T/3 ± 15 %, so at the latest at 0.383 T. It may take
//! T/4, and within that must fit one round trip and one pause: hence 4. If it is lost, the next one leaves up to T/12 later
//! (at least 20 ms), at 0.717 T, and must be answered before the window closes at T·(1−2ρ) − ε. With the default margin
//! 0.273 T are left for it, which again is a quarter; with a larger ρ, or a TTL so short that ε and the 20 ms weigh, it is
//! this second attempt that needs the room, and [`Component::SecondAttempt`] says how much.

use alloc::{string::String, vec::Vec};
use core::{fmt, num::NonZeroU32, time::Duration};

use crate::{error::Invalid, ttl::Ttl, window::Margin};

mod findings;
#[cfg(test)]
mod tests;

pub use findings::Finding;

/// A renewal may take the 4th part of the TTL; it must hold one round trip and one pause.
pub const ATTEMPTS: u32 = 4;
/// The default rounding step: 500 ms.
pub const DEFAULT_STEP: Duration = Duration::from_millis(500);
/// The sensible range of a drift buffer other than zero: 50 … 200 ms.
pub const DRIFT_RANGE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(200));
/// A window shorter than this, or than three round trips, is not worth having.
pub const MIN_WINDOW: Duration = Duration::from_millis(10);

/// One million: the whole, in parts per million.
const WHOLE: u64 = 1_000_000;
/// The latest first renewal, T/3 + 15 %, in parts per million of T, rounded up.
const LATEST_RENEWAL: u64 = 383_334;
/// What a renewal may take, T/4.
const ONE_CALL: u64 = 250_000;
/// The longest pause before a lost renewal is repeated, T/12, rounded up.
const RETRY_PAUSE: u64 = 83_334;
/// … and its lower bound.
const RETRY_PAUSE_MIN_US: u64 = 20_000;

/// What an engine can express.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granularity {
    /// TTLs are whole multiples of this many milliseconds.
    pub step_ms: NonZeroU32,
    /// The engine grants nothing shorter than this many milliseconds ([`Ttl::MIN`] holds in any case).
    pub min_ms: NonZeroU32,
}

impl Granularity {
    /// Milliseconds: memory, SQLite, PostgreSQL, Redis.
    pub const MILLIS: Self = Self { step_ms: NonZeroU32::MIN, min_ms: NonZeroU32::MIN };

    /// Whole seconds, from two: etcd with its default election timeout of 1 s, of which it takes one and a half and rounds
    /// up.
    pub const ETCD: Self =
        Self { step_ms: NonZeroU32::new(1_000).unwrap(), min_ms: NonZeroU32::new(2_000).unwrap() };
}

/// The measurements. Durations cannot be negative; what is `None` was not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inputs {
    /// 99th percentile of one piece of protected work, from a histogram. Needed.
    pub work_p99: Option<Duration>,
    /// 99th percentile of one call to the coordinator, from send to answer. Needed.
    pub rtt_p99: Option<Duration>,
    /// Added for what no percentile covers. Needed; there is no default because it is a decision.
    pub margin: Option<Duration>,
    /// Added for steps and slews of time synchronisation where sites are far apart: zero, or 50 … 200 ms.
    pub drift: Duration,
    /// 99th percentile of the pauses of the holder's process: garbage collection, scheduling, a stolen virtual CPU. Counted as
    /// zero, and said so, when not measured.
    pub pause_p99: Option<Duration>,
    /// Sums are rounded up to a multiple of this: whole milliseconds, at least one.
    pub step: Duration,
    /// What the engine can express.
    pub engine: Granularity,
    /// What a holder gives away for clock error.
    pub clocks: Margin,
    /// The shortest window worth having; `None` for the larger of [`MIN_WINDOW`] and three round trips.
    pub min_window: Option<Duration>,
    /// The longest TTL that the namespace allows.
    pub max_ttl: Ttl,
}

impl Default for Inputs {
    /// Nothing measured, no drift buffer, a step of 500 ms, an engine that counts milliseconds, the default clock margin.
    fn default() -> Self {
        Self {
            work_p99: None,
            rtt_p99: None,
            margin: None,
            drift: Duration::ZERO,
            pause_p99: None,
            step: DEFAULT_STEP,
            engine: Granularity::MILLIS,
            clocks: Margin::DEFAULT,
            min_window: None,
            max_ttl: Ttl::MAX,
        }
    }
}

/// What a part of a TTL is there for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Component {
    /// The work's 99th percentile.
    Work,
    /// The round trip's 99th percentile, once or [`ATTEMPTS`] times.
    RoundTrip,
    /// The margin.
    Margin,
    /// The drift buffer.
    Drift,
    /// The pause's 99th percentile, [`ATTEMPTS`] times.
    Pause,
    /// What a second renewal needs beyond that to be answered before the window closes.
    SecondAttempt,
    /// What the smallest useful window needs beyond that.
    Window,
    /// Raised to the shortest TTL that the engine grants.
    EngineMinimum,
    /// Rounded up to the step and to the engine's own.
    Rounding,
}

impl Component {
    /// One stable lower-case word, for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Work => "work_p99",
            Self::RoundTrip => "rtt_p99",
            Self::Margin => "margin",
            Self::Drift => "drift",
            Self::Pause => "pause_p99",
            Self::SecondAttempt => "second_attempt",
            Self::Window => "window",
            Self::EngineMinimum => "engine_minimum",
            Self::Rounding => "rounding",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Work => "work p99",
            Self::RoundTrip => "round trip p99",
            Self::Margin => "margin",
            Self::Drift => "drift buffer",
            Self::Pause => "pause p99",
            Self::SecondAttempt => "room for a second renewal",
            Self::Window => "smallest useful window",
            Self::EngineMinimum => "minimum of the engine",
            Self::Rounding => "rounding up",
        })
    }
}

/// One part of a TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// What it is there for.
    pub component: Component,
    /// How much it adds.
    pub adds: Duration,
}

/// A derived TTL and how it came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Every part that was considered, also those that add nothing. They sum to `rounded`.
    pub parts: Vec<Part>,
    /// The part that adds most (the earlier one in a tie): where to look first when the TTL is too long.
    pub drives: Component,
    /// What the formula gives, before the engine's minimum and the rounding.
    pub exact: Duration,
    /// The result.
    pub rounded: Duration,
    /// The result as a TTL; `None` when it is above [`Ttl::MAX`], which is also a [`Finding`].
    pub ttl: Option<Ttl>,
    /// What is left of it for the holder after the clock margin; zero when there is no TTL.
    pub window: Duration,
}

/// Both figures, and what is questionable about them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Derivation {
    /// The TTL that covers one piece of work that nobody renews: for a script that acquires, works and releases.
    pub covering: Figure,
    /// The smallest sensible TTL of a lease that is renewed in the background.
    pub renewed: Figure,
    /// What is questionable, in a fixed order. Empty: nothing.
    pub findings: Vec<Finding>,
}

/// Why no TTL can be derived.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Underivable {
    /// These inputs are needed and were not given.
    #[error("cannot derive a TTL without: {}", listed(.0))]
    Missing(Vec<Component>),
    /// An input is out of bounds.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

fn listed(components: &[Component]) -> String {
    let mut out = String::new();
    for (at, component) in components.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(&mut out, format_args!("{comma}{component}"));
    }
    out
}

/// The inputs after their checks, in microseconds, each rounded up and at most 7 days: sums of a few, and their products
/// with a million, are far below 2^64.
#[derive(Clone, Copy, Debug)]
struct Checked {
    work: u64,
    rtt: u64,
    margin: u64,
    drift: u64,
    pause: u64,
    step: u64,
    min_window: u64,
    epsilon: u64,
    /// T·(1−2ρ), in parts per million of T.
    kept: u64,
    engine: Granularity,
}

/// Derives both figures.
///
/// # Errors
/// [`Underivable::Missing`] names *all* needed inputs that are `None`; [`Underivable::Invalid`] one that is out of bounds
/// (7 days for every duration, whole milliseconds for the step).
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use leasehold_core::derive_ttl::{Component, Inputs, derive};
///
/// let ms = |ms| Some(Duration::from_millis(ms));
/// let measured = Inputs { work_p99: ms(800), rtt_p99: ms(40), margin: ms(200), pause_p99: ms(60), ..Inputs::default() };
/// let derived = derive(&measured)?;
/// assert_eq!(derived.covering.exact, Duration::from_millis(1_040));
/// assert_eq!(derived.covering.rounded, Duration::from_millis(1_500));
/// assert_eq!(derived.covering.drives, Component::Work);
/// assert_eq!(derived.renewed.exact, Duration::from_millis(400)); // 4 × (40 + 60)
/// # Ok::<(), leasehold_core::derive_ttl::Underivable>(())
/// ```
pub fn derive(inputs: &Inputs) -> Result<Derivation, Underivable> {
    let checked = check(inputs)?;
    let covering = figure(covering_parts(&checked), &checked, inputs.clocks);
    let renewed = figure(renewed_parts(&checked), &checked, inputs.clocks);
    let findings = findings::judge(inputs, &covering, &renewed);
    Ok(Derivation { covering, renewed, findings })
}

fn check(inputs: &Inputs) -> Result<Checked, Underivable> {
    let needed = [
        (Component::Work, inputs.work_p99),
        (Component::RoundTrip, inputs.rtt_p99),
        (Component::Margin, inputs.margin),
    ];
    let (Some(work), Some(rtt), Some(margin)) = (inputs.work_p99, inputs.rtt_p99, inputs.margin) else {
        let missing = needed.iter().filter(|(_, given)| given.is_none());
        return Err(Underivable::Missing(missing.map(|&(component, _)| component).collect()));
    };
    let step = bounded(inputs.step, "step")?;
    if step == 0 || step % 1_000 != 0 {
        return Err(Invalid::new("step", "must be a whole number of milliseconds, at least one").into());
    }
    let rtt = bounded(rtt, "round trip p99")?;
    Ok(Checked {
        work: bounded(work, "work p99")?,
        rtt,
        margin: bounded(margin, "margin")?,
        drift: bounded(inputs.drift, "drift buffer")?,
        pause: bounded(inputs.pause_p99.unwrap_or_default(), "pause p99")?,
        step,
        min_window: match inputs.min_window {
            Some(window) => bounded(window, "smallest window")?,
            None => bounded(MIN_WINDOW, "smallest window")?.max(3 * rtt),
        },
        epsilon: bounded(inputs.clocks.epsilon(), "clock allowance")?,
        kept: WHOLE - 2 * u64::from(inputs.clocks.drift_ppm()),
        engine: inputs.engine,
    })
}

/// Microseconds, rounded up; refused above 7 days.
fn bounded(duration: Duration, what: &'static str) -> Result<u64, Invalid> {
    match u64::try_from(duration.as_nanos().div_ceil(1_000)) {
        Ok(us) if us <= Ttl::MAX.as_micros() => Ok(us),
        _ => Err(Invalid::new(what, "must be at most 7d")),
    }
}

fn covering_parts(c: &Checked) -> Vec<(Component, u64)> {
    alloc::vec![
        (Component::Work, c.work),
        (Component::RoundTrip, c.rtt),
        (Component::Margin, c.margin),
        (Component::Drift, c.drift),
    ]
}

fn renewed_parts(c: &Checked) -> Vec<(Component, u64)> {
    let attempts = u64::from(ATTEMPTS);
    let answered = attempts * (c.rtt + c.pause);
    // A second attempt: T·kept − ε − latest renewal − one call − pause before the retry ≥ round trip + pause.
    // Margin::MAX_DRIFT_PPM leaves `before_retry` − RETRY_PAUSE above 8 % of T, so neither divisor can be zero.
    let before_retry = c.kept - LATEST_RENEWAL - ONE_CALL;
    let needs = c.rtt + c.pause + c.epsilon;
    let second =
        share(needs, before_retry - RETRY_PAUSE).max(share(needs + RETRY_PAUSE_MIN_US, before_retry));
    let window = share(c.min_window + c.epsilon, c.kept);
    alloc::vec![
        (Component::RoundTrip, attempts * c.rtt),
        (Component::Pause, attempts * c.pause),
        (Component::SecondAttempt, second.saturating_sub(answered)),
        (Component::Window, window.saturating_sub(answered.max(second))),
    ]
}

/// The smallest whole of which `ppm` parts per million are at least `part`.
fn share(part: u64, ppm: u64) -> u64 {
    part.saturating_mul(WHOLE).div_ceil(ppm)
}

fn figure(mut parts: Vec<(Component, u64)>, c: &Checked, clocks: Margin) -> Figure {
    let exact: u64 = parts.iter().map(|&(_, us)| us).sum();
    let raised = exact.max(u64::from(c.engine.min_ms.get()) * 1_000).max(Ttl::MIN.as_micros());
    let engine_step = u64::from(c.engine.step_ms.get()) * 1_000;
    let rounded = raised.next_multiple_of(c.step).next_multiple_of(engine_step);
    parts.push((Component::EngineMinimum, raised - exact));
    parts.push((Component::Rounding, rounded - raised));

    let most = parts.iter().fold(parts[0], |most, &part| if part.1 > most.1 { part } else { most });
    let parts = parts.into_iter().map(|(component, us)| Part { component, adds: Duration::from_micros(us) });
    let rounded = Duration::from_micros(rounded);
    let ttl = Ttl::new(rounded).ok();
    Figure {
        parts: parts.collect(),
        drives: most.0,
        exact: Duration::from_micros(exact),
        rounded,
        ttl,
        window: ttl.map_or(Duration::ZERO, |ttl| clocks.window_of(ttl)),
    }
}
