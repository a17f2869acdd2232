//! What SQLite leases cost, beside the least that could work: two durable commits of one row, by the same library, in one
//! thread, on the same file system.
//!
//! ```sh
//! cargo xtask bench sqlite [-- FOLDER]
//! ```
//!
//! Rounds are short and interleaved, and ratios are taken within a round: disks and neighbours are noisy. Each row says
//! what must be reached; nothing here fails, because no absolute time means anything on somebody else's machine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods)]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use leasehold::{Leases, blocking};

const SECONDS: f64 = 0.5;
const ROUNDS: usize = 9;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pairs", path, seconds] => role_pairs(path, seconds.parse().unwrap()),
        ["waiter", path] => role_waiter(path),
        _ => report(words.first().map_or("target", String::as_str)),
    }
}

fn report(folder: &str) {
    let folder = tempfile::tempdir_in(PathBuf::from(folder)).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    println!("{:<58} {:>12} {:>18}  must reach", "", "median", "ratio");
    rates(&path);
    processes(&path);
    handover(&path);
    check();
    renewals(&path);
    start_up(&path);
}

fn row(what: &str, value: &str, ratio: &str, target: &str) {
    println!("{what:<58} {value:>12} {ratio:>18}  {target}");
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Pairs of acquire and release per second.
fn rates(path: &dyn Fn(&str) -> String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let floor = floor(&path(&format!("floor-{round}")));
        let thread = thread_pairs(&path(&format!("thread-{round}")), SECONDS);
        let task = single.block_on(task_pairs(&path(&format!("task-{round}")), 1));
        let many = runtime.block_on(task_pairs(&path(&format!("many-{round}")), 64));
        rounds.push([floor, thread, task, many]);
    }
    let rate = |at: usize| format!("{:.0}/s", median(rounds.iter().map(|round| round[at])));
    let ratio = |at: usize, over: usize| median(rounds.iter().map(|round| round[at] / round[over]));
    row("floor: two durable commits, one thread", &rate(0), "1", "");
    row(
        "pairs, one thread, blocking API",
        &rate(1),
        &format!("{:.2} x floor", ratio(1, 0)),
        ">= 0.8 x floor",
    );
    row("pairs, one task, async API", &rate(2), &format!("{:.2} x floor", ratio(2, 0)), "");
    row("pairs, 64 tasks, one process", &rate(3), &format!("{:.1} x one thread", ratio(3, 1)), ">= 12 x one");
}

/// The least that could work: one row in a file that is written as durably as ours.
fn one_row(path: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             CREATE TABLE t (k TEXT PRIMARY KEY, v INTEGER); INSERT INTO t VALUES ('a', 0)",
        )
        .unwrap();
    connection
}

fn floor(path: &str) -> f64 {
    let connection = one_row(path);
    per_second(SECONDS, || {
        for _ in 0..2 {
            connection.prepare_cached("UPDATE t SET v = v + 1 WHERE k = 'a'").unwrap().execute([]).unwrap();
        }
    })
}

fn per_second(seconds: f64, mut once: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0.0;
    while start.elapsed().as_secs_f64() < seconds {
        once();
        count += 1.0;
    }
    count / start.elapsed().as_secs_f64()
}

fn thread_pairs(path: &str, seconds: f64) -> f64 {
    let leases = blocking::Leases::connect(&format!("sqlite:{path}")).unwrap();
    per_second(seconds, || {
        let _ = leases.lease("orders/1", |lease| lease).acquire().unwrap().release().unwrap();
    })
}

async fn task_pairs(path: &str, tasks: u32) -> f64 {
    let leases = Leases::connect(&format!("sqlite:{path}")).await.unwrap();
    let start = Instant::now();
    let workers: Vec<_> = (0..tasks)
        .map(|task| {
            let leases = leases.clone();
            tokio::spawn(async move {
                let name = format!("orders/{task}");
                let mut done = 0.0;
                while start.elapsed().as_secs_f64() < SECONDS {
                    let lease = leases.lease(&name).acquire().await.unwrap();
                    let _ = lease.release().await.unwrap();
                    done += 1.0;
                }
                done
            })
        })
        .collect();
    let mut total = 0.0;
    for worker in workers {
        total += worker.await.unwrap();
    }
    total / start.elapsed().as_secs_f64()
}

/// This program again, in a role.
fn again(words: &[&str]) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Eight processes, each with a resource of its own.
fn processes(path: &dyn Fn(&str) -> String) {
    let mut rounds = Vec::new();
    for round in 0..3 {
        let floor = floor(&path(&format!("floor8-{round}")));
        let file = path(&format!("eight-{round}"));
        let children: Vec<Child> = (0..8).map(|_| again(&["pairs", &file, "2"])).collect();
        let rates: Vec<f64> = children
            .into_iter()
            .map(|child| {
                String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().parse().unwrap()
            })
            .collect();
        let total: f64 = rates.iter().sum();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        rounds.push([total, total / floor, least / (total / 8.0)]);
    }
    let of = |at: usize| median(rounds.iter().map(|round| round[at]));
    row("pairs, 8 processes", &format!("{:.0}/s", of(0)), &format!("{:.2} x floor", of(1)), ">= 0.8 x floor");
    row("  the slowest of them", "", &format!("{:.2} x fair share", of(2)), ">= 0.25 x fair share");
}

fn role_pairs(path: &str, seconds: f64) {
    let leases = blocking::Leases::connect(&format!("sqlite:{path}")).unwrap();
    let name = format!("own/{}", std::process::id());
    let rate = per_second(seconds, || {
        let _ = leases.lease(&name, LeaseRequestExt::patient).acquire().unwrap().release().unwrap();
    });
    println!("{rate}");
}

struct LeaseRequestExt;

impl LeaseRequestExt {
    fn patient(request: leasehold::LeaseRequest) -> leasehold::LeaseRequest {
        request.wait(Duration::from_secs(60))
    }
}

/// Two durable commits by a thread that has slept for as long as those of a hand-over have: caches, processor and disk are
/// cold, as they are when somebody has waited.
fn cold_commits(path: &str) -> f64 {
    let connection = one_row(path);
    let commit = || {
        std::thread::park_timeout(Duration::from_millis(3));
        let start = Instant::now();
        connection.prepare_cached("UPDATE t SET v = v + 1 WHERE k = 'a'").unwrap().execute([]).unwrap();
        start.elapsed().as_secs_f64() * 1e6
    };
    2.0 * median((0..200).map(|_| commit()))
}

/// From the release in one process to the grant in another that waits for it.
fn handover(path: &dyn Fn(&str) -> String) {
    let file = path("handover");
    let floor = cold_commits(&path("cold"));
    row("floor of a hand-over: two durable commits after a rest", &format!("{floor:.0} us"), "1", "");
    let leases = blocking::Leases::connect(&format!("sqlite:{file}")).unwrap();
    let mut waiter = again(&["waiter", &file]);
    let mut answers = BufReader::new(waiter.stdout.take().unwrap()).lines();
    let mut times = Vec::new();
    for _ in 0..200 {
        let lease = leases.lease("r", LeaseRequestExt::patient).acquire().unwrap();
        writeln!(waiter.stdin.as_mut().unwrap()).unwrap();
        let resource = leasehold::Resource::new("r").unwrap();
        while blocking::block_on(leases.inner().inspect(&resource)).unwrap().waiting == 0 {
            std::thread::yield_now();
        }
        // The waiter has settled down to wait.
        std::thread::park_timeout(Duration::from_millis(2));
        let released_us = leasehold::clock::boot_us();
        let _ = lease.release().unwrap();
        let granted_us: u64 = answers.next().unwrap().unwrap().parse().unwrap();
        times.push((granted_us - released_us) as f64);
    }
    drop(waiter.stdin.take());
    let _ = waiter.wait();
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let what = "hand-over between two processes, p50";
    row(what, &format!("{p50:.0} us"), &format!("{:.2} x floor", p50 / floor), "<= 500 us");
    row("  p99", &format!("{p99:.0} us"), "", "");
}

fn role_waiter(path: &str) {
    let leases = blocking::Leases::connect(&format!("sqlite:{path}")).unwrap();
    for _ in std::io::stdin().lines() {
        let lease = leases.lease("r", LeaseRequestExt::patient).acquire().unwrap();
        println!("{}", leasehold::clock::boot_us());
        let _ = lease.release().unwrap();
    }
}

fn check() {
    let leases = blocking::Leases::connect("memory:bench").unwrap();
    let lease = leases.lease("r", |lease| lease).acquire().unwrap();
    let each = median((0..9).map(|_| {
        let start = Instant::now();
        for _ in 0..100_000 {
            assert!(std::hint::black_box(&lease).check().is_ok());
        }
        start.elapsed().as_nanos() as f64 / 1e5
    }));
    row("check()", &format!("{each:.0} ns"), "", "< 200 ns");
}

/// The processor time of the whole process while it only renews.
fn renewals(path: &dyn Fn(&str) -> String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let leases = runtime.block_on(Leases::connect(&format!("sqlite:{}", path("renewals")))).unwrap();
    let held: Vec<_> = runtime.block_on(async {
        let mut asked = tokio::task::JoinSet::new();
        for n in 0..10_000 {
            let leases = leases.clone();
            asked.spawn(async move { leases.lease(&format!("orders/{n}")).acquire().await.unwrap() });
        }
        asked.join_all().await
    });
    // Two rounds of renewals at TTL 30 s.
    let (before, start) = (processor_seconds(), Instant::now());
    std::thread::park_timeout(Duration::from_secs(20));
    let share = 100.0 * (processor_seconds() - before) / start.elapsed().as_secs_f64();
    assert!(held.iter().all(|lease| lease.check().is_ok()));
    row("10,000 leases, TTL 30 s: share of one core", &format!("{share:.2} %"), "", "<= 0.5 %");
    runtime.block_on(async move { drop(held) });
}

fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    // USER_HZ is 100 on every Linux.
    ticks / 100.0
}

/// `leasehold run x -- true` against `flock -n f true`, when the program is there.
fn start_up(path: &dyn Fn(&str) -> String) {
    let Some(program) = std::env::var_os("LEASEHOLD_PROGRAM") else { return };
    let url = format!("sqlite:{}", path("run"));
    let timed = |command: &mut Command| {
        let start = Instant::now();
        assert!(command.status().unwrap().success());
        start.elapsed().as_secs_f64() * 1e3
    };
    let mut rounds = Vec::new();
    for _ in 0..60 {
        let ours = timed(Command::new(&program).args(["run", "x", "--url", &url, "--", "true"]));
        let flock = timed(Command::new("flock").args(["-n", &path("flock"), "true"]));
        rounds.push([ours, flock, ours / flock]);
    }
    let of = |at: usize| median(rounds.iter().map(|round| round[at]));
    row("flock -n f true", &format!("{:.2} ms", of(1)), "1", "");
    row(
        "leasehold run x -- true",
        &format!("{:.2} ms", of(0)),
        &format!("{:.2} x flock", of(2)),
        "<= 3 x flock",
    );
}
