//! When a refused claimant asks again.
