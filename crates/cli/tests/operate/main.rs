//! What operators rely on: metrics and their alerts, logs and the timeline drawn from them, draining, standing by.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code)]

#[path = "../run/bench.rs"]
mod bench;
mod demo;
mod drain;
#[allow(dead_code, reason = "the cases of `run` choose among coordinators; these do not")]
#[path = "../engines/mod.rs"]
mod engines;
mod http;
mod logs;
mod measure;
mod metrics;
mod retune;
mod rules;
mod standby;
mod timeline;
mod ttl;
mod watch;
