//! A TTL that changes under a running command.

use std::{fs, time::Duration};

use leasehold_testkit::{clock::Stopwatch, process::wait_until};

use crate::bench::{Bench, LONG, code, stderr};

#[test]
fn a_ttl_in_the_file_counts_from_the_next_renewal_and_a_wrong_one_changes_nothing() {
    let mut bench = Bench::new();
    let file = bench.path("leasehold.toml");
    let say = |text: &str| {
        // Moved into place, as whoever manages files does.
        let beside = file.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &file).unwrap();
    };
    say("ttl = \"12s\"\n");
    let (config, log) = (file.to_str().unwrap().to_owned(), bench.path("log"));
    let script = "echo up >$D/up; until [ -e $D/go ]; do sleep 0.05; done";
    let log = log.to_str().unwrap();
    let words = ["--config", &config, "--log-file", log, "run", "r", "--", "sh", "-c", script];
    let run = bench.start("run", &words);
    bench.line("up");
    bench.shows("r", "\"ttl_ms\":12000");
    say("ttl = \"18s\"\n");
    bench.shows("r", "\"ttl_ms\":18000");
    let refused = |part: &str| {
        wait_until(format!("a line with {part}"), LONG, || {
            run.stderr().unwrap().contains(part).then_some(())
        })
        .unwrap();
    };
    // Below three times the grace of 4 s; longer than the namespace allows; no configuration at all.
    say("ttl = \"9s\"\n");
    refused("ttl: 9s is less than three times the grace of this run, 4s; the TTL stays 18s");
    say("ttl = \"7d\"\n");
    refused("is above the longest that this namespace allows");
    say("ttl = 5\n");
    refused("ttl must be a text in quotes, not integer; the TTL stays 18s");
    bench.shows("r", "\"ttl_ms\":18000");
    say("ttl = \"15s\"\nholder = \"x\"\n");
    bench.shows("r", "\"ttl_ms\":15000");
    fs::write(bench.path("go"), "").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{}", run.outcome());
    assert_eq!(run.stderr().unwrap().matches("the TTL stays").count(), 3, "each change is refused once");
    let log = bench.text("log");
    assert_eq!(log.matches("has another TTL").count(), 2, "{log}");
    assert!(log.contains("\"was_ms\":12000") && log.contains("changed and is refused"), "{log}");
    assert!(!log.contains("the lease is lost"), "{log}");
}

#[test]
fn a_ttl_on_the_command_line_is_the_last_word() {
    let mut bench = Bench::new();
    let file = bench.path("leasehold.toml");
    fs::write(&file, "ttl = \"12s\"\n").unwrap();
    let config = file.to_str().unwrap().to_owned();
    let script = "echo up >$D/up; until [ -e $D/go ]; do sleep 0.05; done";
    let words = ["--config", &config, "run", "r", "--ttl", "6s", "--", "sh", "-c", script];
    let run = bench.start("run", &words);
    bench.line("up");
    fs::write(&file, "nonsense").unwrap();
    // Three renewals later it is as it was.
    let since = Stopwatch::start();
    wait_until("a while", LONG, || (since.elapsed() > Duration::from_secs(7)).then_some(())).unwrap();
    bench.shows("r", "\"ttl_ms\":6000");
    fs::write(bench.path("go"), "").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{}", run.outcome());
    assert_eq!(run.stderr().unwrap(), "");
}

/// Each resource has the settings of its most specific pattern; another pattern's change is none of its business.
#[test]
fn patterns_say_what_counts_for_which_resource() {
    let mut bench = Bench::new();
    let file = bench.path("leasehold.toml");
    let say = |text: &str| {
        let beside = file.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &file).unwrap();
    };
    say(
        "ttl = \"12s\"\n[resource.\"nightly/*\"]\nttl = \"18s\"\nwait = \"1m\"\n[resource.\"nightly/short\"]\nmax_hold = \"2s\"\n",
    );
    let config = file.to_str().unwrap().to_owned();
    let log = bench.path("log").to_str().unwrap().to_owned();
    let script = "echo up >$D/up; until [ -e $D/go ]; do sleep 0.05; done";
    let words = ["--config", &config, "--log-file", &log, "run", "nightly/a", "--", "sh", "-c", script];
    let run = bench.start("run", &words);
    bench.line("up");
    bench.shows("nightly/a", "\"ttl_ms\":18000");
    // A second one waits by the file's word; a third is told by its own to try once.
    let waiter = bench.start("waiter", &["--config", &config, "run", "nightly/a", "--", "true"]);
    bench.shows("nightly/a", "\"waiting\":1");
    let once = bench.leasehold(&["--config", &config, "run", "nightly/a", "--wait", "1ms", "--", "true"]);
    assert_eq!(code(&once), 75);
    let ended = bench.leasehold(&["--config", &config, "run", "nightly/short", "--", "sleep", "1000"]);
    assert_eq!(code(&ended), 79, "{}", stderr(&ended));
    say("ttl = \"15s\"\n[resource.\"nightly/*\"]\nttl = \"21s\"\n");
    bench.shows("nightly/a", "\"ttl_ms\":21000");
    say("ttl = \"9s\"\n[resource.\"nightly/*\"]\nttl = \"21s\"\n");
    // A wrong pattern anywhere refuses the whole file.
    say("ttl = \"9s\"\n[resource.\"nightly/*\"]\nttl = \"24s\"\n[resource.\"a*b\"]\nttl = \"1s\"\n");
    wait_until("a refusal", LONG, || {
        run.stderr().unwrap().contains("may have a * at its end only").then_some(())
    })
    .unwrap();
    bench.shows("nightly/a", "\"ttl_ms\":21000");
    fs::write(bench.path("go"), "").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{}", run.outcome());
    assert!(waiter.wait(LONG).unwrap().success(), "{}", waiter.outcome());
}

/// What the coordinator keeps counts for whoever leaves it open, and one nearer wins.
#[test]
fn settings_at_the_coordinator_count_from_the_next_renewal_too() {
    let mut bench = Bench::new();
    let set = |text: &str| {
        let file = bench.path("all.toml");
        fs::write(&file, text).unwrap();
        let set = bench.leasehold(&["settings", "set", file.to_str().unwrap(), "--holder", "ops"]);
        assert_eq!(code(&set), 0, "{}", stderr(&set));
    };
    set("ttl = \"12s\"\n[resource.\"nightly/*\"]\nttl = \"18s\"\nwait = \"1m\"\nmax_hold = \"1h\"\n");
    let log = bench.path("log").to_str().unwrap().to_owned();
    let script = "echo up >$D/$0; until [ -e $D/go ]; do sleep 0.05; done";
    let words = ["--log-file", &log, "run", "nightly/a", "--", "sh", "-c", script, "up"];
    let run = bench.start("run", &words);
    bench.line("up");
    bench.shows("nightly/a", "\"ttl_ms\":18000");
    // One whose option is the last word, and one who has a file of its own.
    let own = bench.start("own", &["run", "nightly/b", "--ttl", "24s", "--", "sh", "-c", script, "up_own"]);
    let file = bench.path("leasehold.toml");
    fs::write(&file, "ttl = \"15s\"\n").unwrap();
    let config = file.to_str().unwrap();
    let words = ["--config", config, "run", "nightly/c", "--", "sh", "-c", script, "up_file"];
    let nearer = bench.start("nearer", &words);
    bench.line("up_own");
    bench.line("up_file");
    // It waits by the coordinator's word.
    let waiter = bench.start("waiter", &["run", "nightly/a", "--", "true"]);
    bench.shows("nightly/a", "\"waiting\":1");
    let set = |text: &str| {
        let file = bench.path("all.toml");
        fs::write(&file, text).unwrap();
        let set = bench.leasehold(&["settings", "set", file.to_str().unwrap(), "--holder", "ops"]);
        assert_eq!(code(&set), 0, "{}", stderr(&set));
    };
    set("ttl = \"12s\"\n[resource.\"nightly/*\"]\nttl = \"21s\"\n");
    bench.shows("nightly/a", "\"ttl_ms\":21000");
    // Below three times the grace of 5 s.
    set("[resource.\"nightly/*\"]\nttl = \"9s\"\n");
    wait_until("a refusal", LONG, || {
        let said = run.stderr().unwrap();
        said.contains("ttl: 9s is less than three times the grace of this run, 5s; the TTL stays 21s")
            .then_some(())
    })
    .unwrap();
    set("[resource.\"nightly/*\"]\nttl = \"27s\"\n");
    bench.shows("nightly/a", "\"ttl_ms\":27000");
    bench.shows("nightly/b", "\"ttl_ms\":24000");
    bench.shows("nightly/c", "\"ttl_ms\":15000");
    fs::write(bench.path("go"), "").unwrap();
    for child in [&run, &own, &nearer, &waiter] {
        assert!(child.wait(LONG).unwrap().success(), "{}", child.outcome());
    }
    assert_eq!(run.stderr().unwrap().matches("the TTL stays").count(), 1, "each change is refused once");
    let log = bench.text("log");
    assert!(
        log.contains("the coordinator's settings have changed") && log.contains("\"by\":\"ops\""),
        "{log}"
    );
    assert!(!log.contains("the lease is lost"), "{log}");
}
