//! Time-bounded, renewable, fenced leases.

pub mod clock;
pub mod coordinator;
