//! Nothing but a place for `benches`.
