//! Hand-overs: from a release until the next waiter holds.

use super::{Base, Curve, Entry, Goal, Group, OURS, Program, Who, at_most, entries, entry};
use crate::{
    stage::Stage,
    task::{What, figure},
};

const FLOOR_REDIS: Who = Who::floor("floor", "floor: publish to one waiter");
const FLOOR_ETCD: Who = Who::floor("floor", "floor: watch on the predecessor");
const FLOOR_POSTGRES: Who = Who::floor("floor", "floor: LISTEN and NOTIFY, durable");
const FLOOR_SQLITE: Who = Who::floor("floor", "floor: one durable commit after a rest");
const PYTHON_LOCK: Who = Who::rival("python-redis-lock", "python-redis-lock", Program::Python);
const PYTHON: Who = Who::rival("redis-py", "redis-py Lock (asks every 100 ms)", Program::Python);
const RPC: Who = Who::rival("rpc-session", "etcd's Lock service", Program::Own);
const ADVISORY: Who = Who::rival("advisory", "blocking advisory locks (nothing durable)", Program::Own);
const FLOCK: Who = Who::rival("flock", "flock (nothing durable, no order)", Program::Own);

fn group(stage: Stage, quick: bool, entries: Vec<Entry>, goals: Vec<Goal>) -> Group {
    let millis = if quick { 500 } else { 1_200 };
    Group { stage, title: "hand-over", millis, once: false, entries, goals }
}

fn turns(who: Who, size: u32) -> Entry {
    entry(who, What::HandOver, size)
}

fn p50(what: &'static str, size: u32, bound: f64, floor: Who) -> Goal {
    at_most(what, turns(OURS, size), figure::P50, bound, Base::Of(turns(floor, size)))
}

pub(super) fn groups(quick: bool) -> Vec<Group> {
    let mut groups = vec![redis(quick), etcd(quick), etcd_three(quick), postgres(quick), sqlite(quick)];
    if !quick {
        groups.extend(growing());
    }
    groups
}

fn redis(quick: bool) -> Group {
    let mut list = entries(What::HandOver, 2, &[OURS, FLOOR_REDIS, PYTHON_LOCK, PYTHON]);
    list.extend(entries(What::HandOver, 50, &[OURS, FLOOR_REDIS, PYTHON_LOCK]));
    list.extend(entries(What::HandOver, 1_000, &[OURS, FLOOR_REDIS]));
    let itself = |what, size, figure, bound| at_most(what, turns(OURS, size), figure, bound, Base::Itself);
    let goals = vec![
        p50("hand-over, 2 waiters, p50", 2, 2.0, FLOOR_REDIS),
        p50("hand-over, 50 waiters, p50", 50, 2.0, FLOOR_REDIS),
        p50("hand-over, 1,000 waiters, p50", 1_000, 2.0, FLOOR_REDIS),
        itself("hand-over, 2 waiters, p99", 2, figure::P99, 1_000.0),
        itself("hand-over, 50 waiters, p99", 50, figure::P99, 1_000.0),
        itself("requests for each hand-over, 2 waiters", 2, figure::COMMANDS, 10.0),
        itself("requests for each hand-over, 50 waiters", 50, figure::COMMANDS, 10.0),
        itself("requests for each hand-over, 1,000 waiters", 1_000, figure::COMMANDS, 10.0),
        itself("longest wait of 50, in fair turns", 50, figure::TURN, 2.0),
    ];
    group(Stage::Redis, quick, list, goals)
}

fn etcd(quick: bool) -> Group {
    let mut list = entries(What::HandOver, 2, &[OURS, FLOOR_ETCD, RPC]);
    list.extend(entries(What::HandOver, 50, &[OURS, FLOOR_ETCD, RPC]));
    let p99 = |what, size| at_most(what, turns(OURS, size), figure::P99, 5_000.0, Base::Itself);
    let goals = vec![
        p50("hand-over, 2 waiters, p50", 2, 1.2, FLOOR_ETCD),
        p50("hand-over, 50 waiters, p50", 50, 1.2, FLOOR_ETCD),
        p99("hand-over, 2 waiters, p99", 2),
        p99("hand-over, 50 waiters, p99", 50),
        at_most("longest wait of 50, in fair turns", turns(OURS, 50), figure::TURN, 2.0, Base::Itself),
    ];
    group(Stage::Etcd, quick, list, goals)
}

fn etcd_three(quick: bool) -> Group {
    let mut list = entries(What::HandOver, 2, &[OURS, FLOOR_ETCD, RPC]);
    list.extend(entries(What::HandOver, 50, &[OURS, FLOOR_ETCD, RPC]));
    let goals = vec![
        p50("hand-over, 2 waiters, p50", 2, 1.2, FLOOR_ETCD),
        p50("hand-over, 50 waiters, p50", 50, 1.2, FLOOR_ETCD),
    ];
    group(Stage::EtcdThree, quick, list, goals)
}

fn postgres(quick: bool) -> Group {
    let mut list = entries(What::HandOver, 2, &[OURS, FLOOR_POSTGRES, ADVISORY]);
    list.extend(entries(What::HandOver, 50, &[OURS, FLOOR_POSTGRES, ADVISORY]));
    let goals = vec![
        p50("hand-over, 2 waiters, p50", 2, 1.3, FLOOR_POSTGRES),
        p50("hand-over, 50 waiters, p50", 50, 1.3, FLOOR_POSTGRES),
        at_most("longest wait of 50, in fair turns", turns(OURS, 50), figure::TURN, 2.0, Base::Itself),
    ];
    group(Stage::Postgres, quick, list, goals)
}

fn sqlite(quick: bool) -> Group {
    let list = entries(What::HandOver, 1, &[OURS, FLOOR_SQLITE, FLOCK]);
    let goals =
        vec![at_most("hand-over between processes, p50", turns(OURS, 1), figure::P50, 500.0, Base::Itself)];
    group(Stage::Sqlite, quick, list, goals)
}

/// Between the sizes that goals are about.
fn growing() -> Vec<Group> {
    let sizes = |sizes: &[u32]| sizes.iter().map(|&size| turns(OURS, size)).collect();
    let growing = |stage, list| Group {
        title: "hand-over, growing",
        millis: 800,
        ..group(stage, false, list, Vec::new())
    };
    vec![
        growing(Stage::Redis, sizes(&[1, 10, 200])),
        growing(Stage::Etcd, sizes(&[1, 10, 200, 1_000])),
        growing(Stage::Postgres, sizes(&[1, 10, 200, 1_000])),
    ]
}

pub(crate) const CURVES: &[Curve] = &[Curve {
    file: "waiters",
    title: "Hand-over, p50, by waiters of one resource",
    across: "waiters",
    up: "microseconds",
    what: What::HandOver,
    figure: figure::P50,
    lines: &[
        (Stage::Redis, "leasehold", "Redis"),
        (Stage::Redis, "floor", "Redis, floor"),
        (Stage::Etcd, "leasehold", "etcd"),
        (Stage::Postgres, "leasehold", "PostgreSQL"),
    ],
}];
