//! Faults on real etcd servers: members that die and come back, answers that are lost, streams that are cut, snapshots that are
//! restored, a database that is full.
#![cfg(feature = "etcd")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chaos;
mod doctor;
mod leases;
mod login;
mod members;
mod network;
mod storage;
mod trips;
mod world;
