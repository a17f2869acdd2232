//! Faults that are the same whatever the engine is, on all of them for real: bytes that drip, requests that come a second time,
//! holders that are killed at any step, programs that end in the middle, crowds. What was believed is written down and judged.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "etcd"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod again;
mod crowd;
mod diary;
mod drip;
mod endings;
mod killed;
mod place;
