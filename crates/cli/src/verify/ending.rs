//! The end of a run's namespace at the coordinator.

use std::{future, time::Duration};

use leasehold::Throwaway;

use crate::interrupt::run_for;

/// Before the random number of a run's namespace.
pub(super) const PREFIX: &str = "__verify_";
/// How long one attempt may take: a coordinator that is cut off is not waited for longer.
const LIMIT: Duration = Duration::from_secs(20);
/// Between two looks. What a worker sent before it was killed may still be on its way, and makes a record again.
const BETWEEN: Duration = Duration::from_millis(200);
/// So many looks that find something, and it is said that something is left.
const LOOKS: u32 = 10;

/// Discards it, until a look finds nothing. Why something may be left; `None` when nothing is.
pub(super) fn discard(throwaway: &Throwaway, url: &str) -> Option<String> {
    for look in 0..LOOKS {
        if look > 0 {
            let _ = run_for(BETWEEN, future::pending::<()>());
        }
        match run_for(LIMIT, throwaway.discard(url)) {
            Some(Ok(0)) => return None,
            Some(Ok(_)) => {}
            Some(Err(error)) => return Some(error.to_string()),
            None => return Some(format!("the coordinator did not answer within {LIMIT:?}")),
        }
    }
    Some("requests of this run still arrive".to_owned())
}
