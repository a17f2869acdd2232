//! The library builds without warnings with any one engine and with none: users choose.

use crate::{
    Failure,
    run::{self, Gate, cargo},
};

pub(crate) const GATE: Gate =
    Gate { name: "builds", advice: "see which feature is missing a cfg", run: every_engine_alone };

/// The features of `crates/leasehold`, engines first; the empty one is memory alone. Effects need a database, and are built with
/// each and with none.
const ENGINES: &[&str] = &[
    "",
    "sqlite",
    "postgres",
    "redis",
    "etcd",
    "http",
    "tickets",
    "sqlx",
    "metrics",
    "settings",
    "webhook",
    "effects,sqlite",
    "effects,redis",
    "webhook,postgres",
];

fn every_engine_alone() -> Result<(), Failure> {
    for engine in ENGINES {
        let mut command = cargo(&["clippy", "--locked", "-p", "leasehold", "--lib", "--no-default-features"]);
        command.args(["--features", engine, "--", "-D", "warnings"]);
        run::run(&mut command)?;
    }
    // What the command line takes of the test kit brings nothing heavy.
    let light = ["clippy", "--locked", "-p", "leasehold-testkit", "--lib", "--no-default-features"];
    run::run(cargo(&light).args(["--", "-D", "warnings"]))
}
