//! The columns of the suite against what is promised in public.
//!
//! The README's table has a row for each kind of deployment. A row that no column shows is a promise without evidence, so each
//! names its columns here, and the suite does not begin while one is missing.

use leasehold_testkit::suite::Engine;

/// Columns of the suite, for one row.
struct Shown {
    url: &'static str,
    what: &'static str,
    columns: &'static [&'static str],
}

const fn by(url: &'static str, what: &'static str, columns: &'static [&'static str]) -> Shown {
    Shown { url, what, columns }
}

/// Rows without a column: what makes them different is no answer of a call. Fault tests show it, in the file that is named.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("postgres://HOST/DB", "with an asynchronous standby", "postgres_faults/failover.rs"),
    (
        "postgres://HOST/DB?expiry=observed",
        "the same, with an asynchronous standby",
        "postgres_faults/failover.rs",
    ),
    ("redis://HOST", "one server that syncs each change (AOF)", "redis_faults/memory.rs"),
    ("etcd://A,B,C", "the same, before 3.4.31 and 3.5.13", "etcd_faults/doctor.rs"),
];

const SHOWN: &[Shown] = &[
    by("sqlite:PATH", "the processes of one machine", &["sqlite"]),
    by("postgres://HOST/DB", "one server", &["postgres", "postgres-bouncer"]),
    by("postgres://HOST/DB", "with a synchronous standby", &["postgres-standby"]),
    by(
        "postgres://HOST/DB?expiry=observed",
        "alone or with a synchronous standby, with a wall clock that may step",
        &["postgres-observed"],
    ),
    by(
        "postgres://HOST/DB?mode=advisory",
        "sessions as the proof of life, with or without a standby",
        &["postgres-advisory"],
    ),
    by("redis://HOST", "one server without persistence", &["redis"]),
    by("redis://A,B,C?sentinel=NAME", "replicas watched by Sentinels", &["redis-sentinel"]),
    by("redis://A,B,C?cluster=true", "a Cluster", &["redis-cluster"]),
    by("redlock://A,B,C", "three or five independent Redis servers", &["redlock"]),
    by("etcd://A,B,C", "three members or more", &["etcd-three"]),
    by("etcd://A,B,C", "one member", &["etcd", "etcd-shared"]),
    by("memory:NAME", "the tasks of one process, tests", &["memory"]),
];

/// Holds the list of engines to the promises.
///
/// # Errors
/// Says which promise has no column, or which column nothing is promised for.
pub(crate) fn check(engines: &[Box<dyn Engine>]) -> Result<(), String> {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let rows = leasehold::guarantees::deployments();
    for row in &rows {
        let is_row = |url: &str, what: &str| (row.url, row.what) == (url, what);
        let shown = SHOWN.iter().any(|shown| is_row(shown.url, shown.what));
        let elsewhere =
            ELSEWHERE.iter().any(|&(url, what, file)| is_row(url, what) && tests.join(file).is_file());
        if !shown && !elsewhere {
            return Err(format!("`{}` ({}) is promised, and nothing shows it", row.url, row.what));
        }
    }
    let known = SHOWN.iter().map(|shown| (shown.url, shown.what));
    for (url, what) in known.chain(ELSEWHERE.iter().map(|&(url, what, _)| (url, what))) {
        if !rows.iter().any(|row| (row.url, row.what) == (url, what)) {
            return Err(format!("`{url}` ({what}) is shown, and not promised any more"));
        }
    }
    let promised: Vec<&str> = SHOWN.iter().flat_map(|shown| shown.columns.iter().copied()).collect();
    let there: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
    if let Some(name) = promised.iter().find(|name| !there.contains(name)) {
        return Err(format!("the column {name} is promised, and not in the list of engines"));
    }
    match there.iter().find(|name| !promised.contains(name)) {
        Some(name) => Err(format!("the column {name} stands for no promise: name it in promised.rs")),
        None => Ok(()),
    }
}
