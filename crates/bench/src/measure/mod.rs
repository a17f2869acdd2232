//! A measured program: one task, one process, one line of figures.
//!
//! ```text
//!   Task ──▶ who is it? ──▶ ours (the library) │ a floor (the engine's own driver) ──▶ pairs, hand_over, keep ──▶ Answer
//! ```
//!
//! The loops are the same for all; what differs is a [`pairs::Pair`] or a [`hand_over::Turn`].

mod command;
mod etcd;
mod etcd_wire;
mod hand_over;
mod keep;
mod ours;
mod pairs;
mod postgres;
mod processes;
mod redis;
mod redlock;
mod sqlite;
mod usage;

pub(crate) use processes::role;
pub(crate) use usage::own_children;

use crate::task::{Answer, Failure, Task, What, failed};

/// Who is measured, in the words of a task.
pub(crate) mod who {
    pub(crate) const OURS: &str = "leasehold";
    /// On etcd with `shared_lease`.
    pub(crate) const OURS_SHARED: &str = "leasehold-shared";
    pub(crate) const FLOOR: &str = "floor";
    /// A floor with a fencing counter.
    pub(crate) const FLOOR_FENCED: &str = "floor-fenced";
    pub(crate) const FLOOR_PUTS: &str = "floor-puts";
    /// On etcd: many locks on one lease.
    pub(crate) const FLOOR_SESSION: &str = "floor-session";
    /// On etcd: a lease for each lock.
    pub(crate) const FLOOR_EACH: &str = "floor-each";
    /// etcd's own Lock service.
    pub(crate) const RPC_SESSION: &str = "rpc-session";
    pub(crate) const RPC_EACH: &str = "rpc-each";
    pub(crate) const ADVISORY: &str = "advisory";
    pub(crate) const FLOCK: &str = "flock";
    pub(crate) const ETCDCTL: &str = "etcdctl";
}

/// Measures and prints.
pub(crate) fn measure(task: &str) -> Result<Answer, Failure> {
    let task: Task = serde_json::from_str(task)?;
    match task.what {
        What::Command => command::command(&task),
        What::Check => ours::check(),
        What::Processes => processes::processes(&task),
        _ if task.engine == "sqlite" => sqlite::measure(&task),
        _ => runtime()?.block_on(within(&task)),
    }
}

/// As many threads as the machine of the published figures has.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

async fn within(task: &Task) -> Result<Answer, Failure> {
    let ours = task.who == who::OURS || task.who == who::OURS_SHARED;
    match (task.what, task.engine.as_str()) {
        (What::Pairs | What::Stalled, _) if ours => pairs::rate(ours::Ours::connect(task).await?, task).await,
        (What::HandOver, _) if ours => ours::hand_over(task).await,
        (What::Keep, _) if ours => keep::keep(task).await,
        (What::Rest, _) if ours => keep::rest(task).await,
        (What::Pairs, "redis") => redis::pairs(task).await,
        (What::HandOver, "redis") => redis::hand_over(task).await,
        (What::Pairs, "redlock") => redlock::pairs(task).await,
        (What::Pairs, "etcd") => etcd::pairs(task).await,
        (What::HandOver, "etcd") => etcd::hand_over(task).await,
        (What::Pairs, "postgres") => postgres::pairs(task).await,
        (What::HandOver, "postgres") => postgres::hand_over(task).await,
        (what, engine) => failed(format!("nobody called {} does {what:?} on {engine}", task.who)),
    }
}
