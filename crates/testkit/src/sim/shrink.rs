//! Makes a failing schedule small: leaves out actions, halves at a time and then one by one, as long as what is left still
//! fails in the same way.

use super::schedule::Schedule;

/// The smallest schedule found for which `fails` holds. `fails` must hold for the given one.
pub fn shrink(schedule: &Schedule, fails: impl Fn(&Schedule) -> bool) -> Schedule {
    let mut best = schedule.clone();
    let mut chunk = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut smaller = false;
        let mut at = 0;
        while at < best.steps.len() {
            let mut candidate = best.clone();
            candidate.steps.drain(at..(at + chunk).min(best.steps.len()));
            if fails(&candidate) {
                best = candidate;
                smaller = true;
            } else {
                at += chunk;
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !smaller {
            return best;
        }
    }
}
