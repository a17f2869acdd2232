//! Pairs of one acquire and one release, per second.

use super::{Base, Curve, Entry, Group, OURS, Program, Who, at_least, at_most, entries, entry};
use crate::{
    stage::Stage,
    task::{What, figure},
};

const SHARED: Who = Who::ours("leasehold-shared", "Leasehold, `shared_lease`");
const EACH: Who = Who::ours("leasehold", "Leasehold, a lease each");
const FLOOR_REDIS: Who = Who::floor("floor", "floor: SET NX, compare and delete");
const FLOOR_FENCED: Who = Who::floor("floor-fenced", "floor with a fencing counter");
const FLOOR_REDLOCK: Who = Who::floor("floor", "floor: two round trips to all nodes");
const FLOOR_PUTS: Who = Who::floor("floor-puts", "floor: two puts");
const FLOOR_SESSION: Who = Who::floor("floor-session", "floor: txn + txn on one lease");
const FLOOR_EACH: Who = Who::floor("floor-each", "floor: grant + txn + revoke");
const FLOOR_POSTGRES: Who = Who::floor("floor", "floor: one statement for each change");
const FLOOR_SQLITE: Who = Who::floor("floor", "floor: two durable commits, one thread");
const RSLOCK: Who = Who::rival("rslock", "rslock", Program::Rust);
const NODE: Who = Who::rival("node-redlock", "node-redlock", Program::Node);
const PYTHON: Who = Who::rival("redis-py", "redis-py Lock", Program::Python);
const PYTHON_LOCK: Who = Who::rival("python-redis-lock", "python-redis-lock", Program::Python);
const RPC_SESSION: Who = Who::rival("rpc-session", "etcd's Lock service, one lease", Program::Own);
const RPC_EACH: Who = Who::rival("rpc-each", "etcd's Lock service, a lease each", Program::Own);
const ADVISORY: Who = Who::rival("advisory", "advisory locks (nothing durable)", Program::Own);
const REDB: Who = Who::rival("redb", "redb (one process only)", Program::Rust);
const FJALL: Who = Who::rival("fjall", "fjall (one process only)", Program::Rust);
const SLED: Who = Who::rival("sled", "sled (one process only)", Program::Rust);
const FLOCK: Who = Who::rival("flock", "`flock -n f true`", Program::Own);
const ETCDCTL: Who = Who::rival("etcdctl", "`etcdctl lock x true`", Program::Own);
const COMMAND: Who = Who::ours("leasehold", "`leasehold run x -- true`");

const RATE: &str = figure::RATE;

fn group(stage: Stage, title: &'static str, quick: bool, entries: Vec<Entry>) -> Group {
    let millis = if quick { 500 } else { 1_200 };
    Group { stage, title, millis, once: false, entries, goals: Vec::new() }
}

fn pairs(who: Who, size: u32) -> Entry {
    entry(who, What::Pairs, size)
}

pub(super) fn groups(quick: bool) -> Vec<Group> {
    let mut groups = vec![sqlite(quick), redis(quick), redis_aof(quick), redlock(quick)];
    groups.extend([
        etcd(quick),
        etcd_three(quick),
        postgres(quick),
        start(quick),
        start_etcd(quick),
        check(quick),
    ]);
    if !quick {
        groups.extend(curves());
    }
    groups
}

fn sqlite(quick: bool) -> Group {
    let (floor, one, many) = (pairs(FLOOR_SQLITE, 1), pairs(OURS, 1), pairs(OURS, 64));
    let eight = entry(OURS, What::Processes, 8);
    let mut list = vec![floor, one, many, eight];
    list.extend(entries(What::Pairs, 1, &[REDB, FJALL, SLED]));
    Group {
        goals: vec![
            at_least("pairs, one thread", one, RATE, 0.8, Base::Of(floor)),
            at_least("pairs, 64 tasks", many, RATE, 12.0, Base::Of(one)),
            at_least("pairs, 8 processes", eight, RATE, 0.8, Base::Of(floor)),
            at_least(
                "the slowest of 8 processes, of its fair share",
                eight,
                figure::SLOWEST,
                0.25,
                Base::Itself,
            ),
        ],
        ..group(Stage::Sqlite, "pairs", quick, list)
    }
}

fn redis(quick: bool) -> Group {
    let mut list =
        entries(What::Pairs, 1, &[OURS, FLOOR_REDIS, FLOOR_FENCED, RSLOCK, NODE, PYTHON, PYTHON_LOCK]);
    list.extend(entries(
        What::Pairs,
        64,
        &[OURS, FLOOR_REDIS, FLOOR_FENCED, RSLOCK, NODE, PYTHON, PYTHON_LOCK],
    ));
    Group {
        goals: vec![
            at_least("pairs, 1 task", pairs(OURS, 1), RATE, 0.85, Base::Of(pairs(RSLOCK, 1))),
            at_least("pairs, 64 tasks", pairs(OURS, 64), RATE, 0.6, Base::Of(pairs(RSLOCK, 64))),
        ],
        ..group(Stage::Redis, "pairs", quick, list)
    }
}

fn redis_aof(quick: bool) -> Group {
    Group {
        goals: vec![at_least(
            "pairs, 64 tasks",
            pairs(OURS, 64),
            RATE,
            0.9,
            Base::Of(pairs(FLOOR_REDIS, 64)),
        )],
        ..group(Stage::RedisAof, "pairs", quick, entries(What::Pairs, 64, &[OURS, FLOOR_REDIS]))
    }
}

fn redlock(quick: bool) -> Group {
    let mut list = entries(What::Pairs, 1, &[OURS, FLOOR_REDLOCK, RSLOCK, NODE]);
    list.extend(entries(What::Pairs, 64, &[OURS, FLOOR_REDLOCK, RSLOCK, NODE]));
    list.extend(entries(What::Stalled, 64, &[OURS, RSLOCK, NODE]));
    let stalled = entry(OURS, What::Stalled, 64);
    Group {
        goals: vec![
            at_least("pairs, 1 task", pairs(OURS, 1), RATE, 0.6, Base::Of(pairs(RSLOCK, 1))),
            at_least("pairs, 64 tasks", pairs(OURS, 64), RATE, 0.7, Base::Of(pairs(RSLOCK, 64))),
            at_least("pairs, 64 tasks, one node of 5 stalled", stalled, RATE, 0.8, Base::Of(pairs(OURS, 64))),
        ],
        ..group(Stage::Redlock, "pairs", quick, list)
    }
}

const ON_ETCD: [Who; 7] = [EACH, SHARED, FLOOR_PUTS, FLOOR_SESSION, FLOOR_EACH, RPC_SESSION, RPC_EACH];

fn etcd(quick: bool) -> Group {
    let mut list = entries(What::Pairs, 1, &ON_ETCD);
    list.extend(entries(What::Pairs, 64, &ON_ETCD));
    let of = |who, size| Base::Of(pairs(who, size));
    Group {
        goals: vec![
            at_least("pairs, 1 task, a lease each", pairs(EACH, 1), RATE, 1.0, of(FLOOR_EACH, 1)),
            at_least("pairs, 1 task, `shared_lease`", pairs(SHARED, 1), RATE, 1.0, of(FLOOR_SESSION, 1)),
            at_least("pairs, 64 tasks, a lease each", pairs(EACH, 64), RATE, 1.5, of(RPC_EACH, 64)),
            at_least("pairs, 64 tasks, `shared_lease`", pairs(SHARED, 64), RATE, 3.0, of(RPC_SESSION, 64)),
        ],
        ..group(Stage::Etcd, "pairs", quick, list)
    }
}

fn etcd_three(quick: bool) -> Group {
    let of = |who| Base::Of(pairs(who, 64));
    Group {
        goals: vec![
            at_least("pairs, 64 tasks, a lease each", pairs(EACH, 64), RATE, 1.5, of(RPC_EACH)),
            at_least("pairs, 64 tasks, `shared_lease`", pairs(SHARED, 64), RATE, 3.0, of(RPC_SESSION)),
        ],
        ..group(Stage::EtcdThree, "pairs", quick, entries(What::Pairs, 64, &ON_ETCD))
    }
}

fn postgres(quick: bool) -> Group {
    let mut list = entries(What::Pairs, 1, &[OURS, FLOOR_POSTGRES, ADVISORY]);
    list.extend(entries(What::Pairs, 64, &[OURS, FLOOR_POSTGRES, ADVISORY]));
    let floor = |size| Base::Of(pairs(FLOOR_POSTGRES, size));
    Group {
        goals: vec![
            at_least("pairs, 1 task", pairs(OURS, 1), RATE, 0.75, floor(1)),
            at_least("pairs, 64 tasks", pairs(OURS, 64), RATE, 3.0, floor(64)),
        ],
        ..group(Stage::Postgres, "pairs", quick, list)
    }
}

fn start(quick: bool) -> Group {
    let (ours, flock) = (entry(COMMAND, What::Command, 1), entry(FLOCK, What::Command, 1));
    Group {
        goals: vec![at_most("`leasehold run x -- true`", ours, figure::WALL, 3.0, Base::Of(flock))],
        ..group(Stage::Sqlite, "a command under a lease", quick, vec![ours, flock])
    }
}

fn start_etcd(quick: bool) -> Group {
    let (ours, etcdctl) = (entry(COMMAND, What::Command, 1), entry(ETCDCTL, What::Command, 1));
    Group {
        goals: vec![at_most("`leasehold run x -- true`", ours, figure::WALL, 0.5, Base::Of(etcdctl))],
        ..group(Stage::Etcd, "a command under a lease", quick, vec![ours, etcdctl])
    }
}

fn check(quick: bool) -> Group {
    let check = entry(OURS, What::Check, 1);
    Group {
        goals: vec![at_most("`check()`", check, figure::NANOSECONDS, 200.0, Base::Itself)],
        ..group(Stage::Local, "a holder's own check", quick, vec![check])
    }
}

/// Between the sizes that goals are about.
fn curves() -> Vec<Group> {
    const SIZES: [u32; 3] = [4, 16, 256];
    let lists: [(Stage, &[Who]); 5] = [
        (Stage::Sqlite, &[OURS]),
        (Stage::Redis, &[OURS, FLOOR_REDIS, RSLOCK]),
        (Stage::Redlock, &[OURS, RSLOCK]),
        (Stage::Etcd, &[EACH, SHARED, RPC_SESSION]),
        (Stage::Postgres, &[OURS, FLOOR_POSTGRES, ADVISORY]),
    ];
    let sizes = |who| SIZES.iter().flat_map(move |&size| entries(What::Pairs, size, who)).collect();
    let growing = |stage, list| Group { millis: 500, ..group(stage, "pairs, growing", false, list) };
    lists.into_iter().map(|(stage, who)| growing(stage, sizes(who))).collect()
}

pub(crate) const CURVES: &[Curve] = &[Curve {
    file: "tasks",
    title: "Pairs per second, by tasks of one client",
    across: "tasks",
    up: "pairs per second",
    what: What::Pairs,
    figure: RATE,
    lines: &[
        (Stage::Redis, "leasehold", "Redis"),
        (Stage::Redis, "rslock", "Redis, rslock"),
        (Stage::Redlock, "leasehold", "Redlock, 5 nodes"),
        (Stage::Redlock, "rslock", "Redlock, rslock"),
        (Stage::Etcd, "leasehold-shared", "etcd, shared_lease"),
        (Stage::Etcd, "rpc-session", "etcd, its Lock service"),
        (Stage::Postgres, "leasehold", "PostgreSQL"),
        (Stage::Postgres, "advisory", "PostgreSQL, advisory"),
        (Stage::Sqlite, "leasehold", "SQLite"),
    ],
}];
