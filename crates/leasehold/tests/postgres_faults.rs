//! What `PostgreSQL`, its standbys, its pooler and the network between can do to leases.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "postgres_faults/advisory.rs"]
mod advisory;
#[path = "postgres_faults/clock.rs"]
mod clock;
#[path = "postgres_faults/doctor.rs"]
mod doctor;
#[path = "postgres_faults/failover.rs"]
mod failover;
#[path = "postgres_faults/formats.rs"]
mod formats;
#[path = "postgres_faults/hammer.rs"]
mod hammer;
#[path = "postgres_faults/network.rs"]
mod network;
#[path = "postgres_faults/operators.rs"]
mod operators;
#[path = "postgres_faults/pool.rs"]
mod pool;
#[path = "postgres_faults/purge.rs"]
mod purge;
#[path = "postgres_faults/scene.rs"]
mod scene;
#[path = "postgres_faults/tls.rs"]
mod tls;
#[path = "postgres_faults/trips.rs"]
mod trips;
