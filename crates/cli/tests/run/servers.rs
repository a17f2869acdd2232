//! A server that goes away under a command: for less than a lease lasts, and for longer.
//!
//! Each case has a server of its own, which others do not work on.

use std::{path::Path, sync::Arc, time::Duration};

use leasehold_testkit::{
    clock::Stopwatch,
    process::wait_until,
    server::{Etcd, Postgres, Redis, RedisSetup},
};

use crate::{
    bench::{self, Bench, LONG, code, is_alive},
    engines::Engine,
};

/// A coordinator that keeps on disk what it has answered, and how it goes away and comes back.
pub struct Away {
    name: &'static str,
    url: String,
    kill: Box<dyn Fn()>,
    start: Box<dyn Fn()>,
}

pub type Make = fn() -> Away;
pub type Case = fn(&Away);

pub const ALL: &[(&str, Make)] =
    &[("postgres", on_postgres), ("redis", on_redis), ("redlock", on_redlock), ("etcd", on_etcd)];

fn on_postgres() -> Away {
    let server = Arc::new(Postgres::start().unwrap());
    let url = format!("{}?max_ttl=24h", server.url(&server.database().unwrap()));
    let other = Arc::clone(&server);
    Away {
        name: "postgres",
        url,
        kill: Box::new(move || server.kill().unwrap()),
        start: Box::new(move || other.restart().unwrap()),
    }
}

fn on_redis() -> Away {
    let (urls, away) = of_redis("redis", 1);
    Away { url: format!("redis://{urls}?max_ttl=24h"), ..away }
}

fn on_redlock() -> Away {
    let (urls, away) = of_redis("redlock", 3);
    Away { url: format!("redlock://{urls}?max_ttl=24h"), ..away }
}

fn of_redis(name: &'static str, many: usize) -> (String, Away) {
    let servers: Arc<Vec<Redis>> =
        Arc::new((0..many).map(|_| RedisSetup::new().durable().start().unwrap()).collect());
    let hosts: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let others = Arc::clone(&servers);
    let away = Away {
        name,
        url: String::new(),
        kill: Box::new(move || servers.iter().for_each(|server| server.server().kill().unwrap())),
        start: Box::new(move || others.iter().for_each(|server| server.start().unwrap())),
    };
    (hosts.join(","), away)
}

fn on_etcd() -> Away {
    let server = Arc::new(Etcd::start(1).unwrap());
    let (url, other) = (format!("etcd://{}/?max_ttl=24h", server.hosts()), Arc::clone(&server));
    Away {
        name: "etcd",
        url,
        kill: Box::new(move || server.kill(0).unwrap()),
        start: Box::new(move || other.restart(0).unwrap()),
    }
}

/// The coordinator of a case.
struct Fixed(&'static str, String);

impl Engine for Fixed {
    fn name(&self) -> &'static str {
        self.0
    }

    fn url(&self, _: &Path) -> String {
        self.1.clone()
    }
}

impl Away {
    /// A test's folder, on this coordinator.
    fn bench(&self) -> Bench {
        bench::on(Arc::new(Fixed(self.name, self.url.clone())));
        Bench::new()
    }
}

const UNTIL_TOLD: &str = "trap 'echo told >$D/told' TERM; echo $LEASEHOLD_TOKEN >$D/token; \
                          until [ -e $D/finish ]; do sleep 0.05; done; exit 5";
/// How long a server is away: a renewal of the lease falls due meanwhile, a third of the TTL after the last.
const OUTAGE: Duration = Duration::from_secs(12);

/// Killed, and started again before the lease is over: the command hears nothing of it.
pub fn a_server_that_is_back_within_the_ttl_costs_the_command_nothing(away: &Away) {
    let mut bench = away.bench();
    let run = bench.start("run", &["run", "r", "--ttl", "30s", "--", "sh", "-c", UNTIL_TOLD]);
    let token = bench.line("token");
    (away.kill)();
    let since = Stopwatch::start();
    wait_until("the outage", LONG, || (since.elapsed() >= OUTAGE).then_some(())).unwrap();
    (away.start)();
    // More than could be left of what it had before: it has been renewed since.
    let renewed = || {
        let shown = bench.leasehold(&["show", "r", "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).ok()?;
        (shown["remaining_ms"].as_u64()? > 20_000).then_some(())
    };
    wait_until("a renewal", LONG, renewed).unwrap_or_else(|error| panic!("{error}: {}", run.outcome()));
    assert_eq!(code(&bench.leasehold(&["check", "r", "--token", &token, "-q"])), 0);
    std::fs::write(bench.path("finish"), "").unwrap();
    assert_eq!(run.wait(LONG).unwrap().code(), Some(5), "{}", run.outcome());
    assert_eq!((bench.text("told"), run.stderr().unwrap()), (String::new(), String::new()));
}

/// Killed, and not back in time: the command is ended before the lease is over, and whoever reads the message knows of what and where.
pub fn a_server_that_is_away_for_longer_than_the_ttl_ends_the_command(away: &Away) {
    let mut bench = away.bench();
    let script = "echo $$ >$D/command; exec sleep 1000";
    let run = bench.start("run", &["run", "r", "--ttl", "6s", "--", "sh", "-c", script]);
    let command = bench.line("command");
    (away.kill)();
    assert_eq!(run.wait(LONG).unwrap().code(), Some(79), "{}", run.outcome());
    assert!(!is_alive(&command));
    let said = run.stderr().unwrap();
    let place = bench.url().split('?').next().unwrap().trim_end_matches('/').to_owned();
    for part in ["the lease on r was lost", "no renewal succeeded before the local deadline", &place] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}
