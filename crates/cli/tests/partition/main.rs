//! A machine that is cut off from its coordinator while its command runs, and another that waits for the resource.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub
)]

#[path = "../engines/mod.rs"]
mod engines;
mod wire;

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use leasehold_testkit::process::{Spawn, wait_until};
use tempfile::TempDir;

use wire::Wire;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
/// Far beyond anything a healthy run needs.
const LONG: Duration = Duration::from_secs(120);
/// Writes down, again and again, what the clock shows that all processes of one machine share.
const BEAT: &str = "echo $LEASEHOLD_TOKEN >$D/first; while :; do read up rest </proc/uptime; echo $up >>$D/beats; \
                    sleep 0.02; done";
const FOLLOW: &str = "read up rest </proc/uptime; echo $up $LEASEHOLD_TOKEN >$D/second";

#[test]
fn a_machine_cut_off_from_redis_ends_its_command_before_another_begins() {
    cut_off("redis");
}

#[test]
fn a_machine_cut_off_from_postgres_ends_its_command_before_another_begins() {
    cut_off("postgres");
}

#[test]
fn a_machine_cut_off_from_redlock_ends_its_command_before_another_begins() {
    cut_off("redlock");
}

#[test]
fn a_machine_cut_off_from_etcd_ends_its_command_before_another_begins() {
    cut_off("etcd");
}

fn cut_off(name: &str) {
    let folder = TempDir::with_prefix("partition-").unwrap();
    let engine = engines::all().into_iter().find(|engine| engine.name() == name).unwrap();
    let near = engine.url(folder.path());
    let servers = servers(&near);
    let wire = Wire::to(&servers);
    let mut far = servers.iter().enumerate().fold(near.clone(), |url, (n, server)| {
        url.replace(&server.to_string(), &wire.address(n, *server).to_string())
    });
    if name == "postgres" {
        // Beyond the loopback it is TLS, unless somebody says that this network is to be trusted.
        far.push_str("&sslmode=disable");
    }
    let init = Command::new(LEASEHOLD).args(["init", "--fresh", "--max-ttl", "24h", "--url", &near]).output();
    assert!(init.as_ref().unwrap().status.success(), "{init:?}");

    let run = |words: &[&str], url: &str, spawn: Spawn| {
        let spawn = spawn.args(["run", "job", "--ttl", "4s", "--url", url]).args(words);
        spawn.env("D", folder.path()).without_env("LEASEHOLD_URL").without_env("LEASEHOLD_RESOURCE")
    };
    let cut_off = run(&["--", "sh", "-c", BEAT], &far, wire.spawn(LEASEHOLD));
    let cut_off = cut_off.start("cut-off", folder.path()).unwrap();
    let beat = wait_until("the first beat", LONG, || last_line(&folder.path().join("beats")));
    assert!(beat.is_ok(), "{}", cut_off.stderr().unwrap());
    wire.cut();
    let waiter = run(&["--wait", "1m", "--", "sh", "-c", FOLLOW], &near, Spawn::new(LEASEHOLD));
    let waiter = waiter.start("waiter", folder.path()).unwrap();
    assert!(waiter.wait(LONG).unwrap().success(), "{}", waiter.stderr().unwrap());
    assert_eq!(cut_off.wait(LONG).unwrap().code(), Some(79), "{}", cut_off.stderr().unwrap());
    let said = cut_off.stderr().unwrap();
    assert!(said.contains("job"), "{said}");

    let second = last_line(&folder.path().join("second")).unwrap();
    let (began, token) = second.split_once(' ').unwrap();
    let last_beat = last_line(&folder.path().join("beats")).unwrap();
    assert!(seconds(&last_beat) <= seconds(began), "two at work: until {last_beat}, and from {began}");
    let first = last_line(&folder.path().join("first")).unwrap();
    assert!(first.parse::<u64>().unwrap() < token.parse().unwrap(), "{first}, then {token}");

    wire.mend();
    let back = run(&["--wait", "1m", "--", "true"], &far, wire.spawn(LEASEHOLD));
    let back = back.start("back", folder.path()).unwrap();
    assert!(back.wait(LONG).unwrap().success(), "{}", back.stderr().unwrap());
}

/// The addresses in a URL.
fn servers(url: &str) -> Vec<SocketAddr> {
    let parts = url.split(['/', ',', '@', '?']);
    let found: Vec<SocketAddr> = parts.filter_map(|part| part.parse().ok()).collect();
    assert!(!found.is_empty(), "{url}");
    found
}

/// The last line that is whole.
fn last_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let whole = text.rsplit_once('\n')?.0;
    whole.lines().last().map(str::to_owned)
}

fn seconds(uptime: &str) -> f64 {
    uptime.parse().unwrap()
}
