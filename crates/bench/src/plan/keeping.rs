//! Leases that are held and renewed, and waiting: what it costs while nobody asks for anything.

use super::{Base, Curve, Entry, Goal, Group, OURS, Who, at_least, at_most, entry};
use crate::{
    stage::Stage,
    task::{What, figure},
};

const SHARED: Who = Who::ours("leasehold-shared", "Leasehold, `shared_lease`");

fn group(stage: Stage, title: &'static str, once: bool, entries: Vec<Entry>, goals: Vec<Goal>) -> Group {
    Group { stage, title, millis: 10_000, once, entries, goals }
}

fn keep(who: Who, size: u32) -> Entry {
    entry(who, What::Keep, size)
}

const MANY: u32 = 10_000;
const MOST: u32 = 100_000;

pub(super) fn groups(quick: bool) -> Vec<Group> {
    let client =
        |of, bound| at_most("10,000 leases: client, % of a core", of, figure::CLIENT, bound, Base::Itself);
    let engine =
        |of, bound| at_most("10,000 leases: engine, % of a core", of, figure::ENGINE, bound, Base::Itself);
    let (ours, shared) = (keep(OURS, MANY), keep(SHARED, MANY));
    let bytes = |what, of, figure, bound| at_most(what, of, figure, bound, Base::Itself);
    let lists: Vec<(Stage, Vec<Entry>, Vec<Goal>)> = vec![
        (Stage::Sqlite, vec![ours], vec![client(ours, 0.5)]),
        (
            Stage::Redis,
            vec![ours],
            vec![
                client(ours, 0.5),
                engine(ours, 1.0),
                bytes("engine memory for each lease, bytes", ours, figure::ENGINE_BYTES, 450.0),
            ],
        ),
        (
            Stage::Postgres,
            vec![ours],
            vec![
                client(ours, 0.5),
                engine(ours, 1.0),
                bytes("table and index for each row, bytes", ours, figure::ENGINE_BYTES, 300.0),
                at_least("HOT updates under renewal, %", ours, figure::HOT, 95.0, Base::Itself),
            ],
        ),
        (
            Stage::Etcd,
            vec![ours, shared],
            vec![
                client(ours, 3.0),
                // 20 MB for 10,000 leases.
                bytes("client memory for each lease, bytes", ours, figure::CLIENT_BYTES, 2_000.0),
                at_most(
                    "10,000 on `shared_lease`: client, % of a core",
                    shared,
                    figure::CLIENT,
                    0.1,
                    Base::Itself,
                ),
            ],
        ),
    ];
    let kept = lists.into_iter().map(|(stage, list, goals)| group(stage, "leases held", quick, list, goals));
    let mut groups: Vec<Group> = kept.collect();
    if !quick {
        groups.extend(growing());
        groups.extend(resting());
    }
    groups
}

fn growing() -> Vec<Group> {
    let sizes = |who: Who, sizes: &[u32]| sizes.iter().map(|&size| keep(who, size)).collect::<Vec<_>>();
    let most = |who| {
        vec![
            at_most(
                "100,000 leases: client memory for each, bytes",
                keep(who, MOST),
                figure::CLIENT_BYTES,
                1_024.0,
                Base::Itself,
            ),
            at_most("100,000 leases: lost", keep(who, MOST), figure::LOST, 0.0, Base::Itself),
        ]
    };
    let on_etcd = [sizes(OURS, &[100, 1_000]), sizes(SHARED, &[100, 1_000, MOST])].concat();
    let all = [100, 1_000, MOST];
    let growing = |stage, list, goals| group(stage, "leases held, growing", true, list, goals);
    vec![
        growing(Stage::Sqlite, sizes(OURS, &all), most(OURS)),
        growing(Stage::Redis, sizes(OURS, &all), most(OURS)),
        growing(Stage::Postgres, sizes(OURS, &all), most(OURS)),
        growing(Stage::Etcd, on_etcd, most(SHARED)),
    ]
}

fn resting() -> Vec<Group> {
    let rest = entry(OURS, What::Rest, 50);
    let goal = at_most(
        "one holder and 50 waiters at rest: client, % of a core",
        rest,
        figure::CLIENT,
        0.1,
        Base::Itself,
    );
    let stages = [Stage::Sqlite, Stage::Redis, Stage::Etcd, Stage::Postgres];
    stages.into_iter().map(|stage| group(stage, "at rest", true, vec![rest], vec![goal])).collect()
}

pub(crate) const CURVES: &[Curve] = &[Curve {
    file: "leases",
    title: "Keeping leases of 30 s alive: share of one core in the client",
    across: "leases held",
    up: "% of one core",
    what: What::Keep,
    figure: figure::CLIENT,
    lines: &[
        (Stage::Sqlite, "leasehold", "SQLite"),
        (Stage::Redis, "leasehold", "Redis"),
        (Stage::Postgres, "leasehold", "PostgreSQL"),
        (Stage::Etcd, "leasehold", "etcd, a lease each"),
        (Stage::Etcd, "leasehold-shared", "etcd, shared_lease"),
    ],
}];
