//! Waiting for a condition, with an end.

use std::{fmt, time::Duration};

use crate::clock::{Stopwatch, pause};

/// Between two looks.
const GLANCE: Duration = Duration::from_millis(5);

/// What was waited for did not happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimedOut {
    what: String,
    limit: Duration,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} did not happen within {:?}", self.what, self.limit)
    }
}

impl std::error::Error for TimedOut {}

/// Waits until `condition` gives something, and at most for `limit`. Looks at least once, and once more at the end.
///
/// # Errors
/// [`TimedOut`], naming `what`.
pub fn wait_until<T>(
    what: impl Into<String>,
    limit: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> Result<T, TimedOut> {
    let since = Stopwatch::start();
    loop {
        let over = since.elapsed() >= limit;
        if let Some(found) = condition() {
            return Ok(found);
        }
        if over {
            return Err(TimedOut { what: what.into(), limit });
        }
        pause(GLANCE);
    }
}
