//! `preempt`, and what a command under `run` is told: on every coordinator.

use std::time::Duration;

use leasehold_testkit::{clock::Stopwatch, process::wait_until};

use crate::bench::{Bench, LONG, code, stderr};

/// Says that it is up; on TERM shows what it can read, and ends well.
const OBEDIENT: &str = r#"trap 'cat "$LEASEHOLD_PREEMPT_FILE" >$D/told; echo done >$D/done; exit 0' TERM
[ -e "$LEASEHOLD_PREEMPT_FILE" ] || echo up >$D/up; while :; do sleep 0.05; done"#;
const STUBBORN: &str = "trap 'echo got >$D/term' TERM; echo up >$D/up; while :; do sleep 0.05; done";

pub fn a_preempted_command_is_told_who_asks_and_why_and_hands_over() {
    let mut bench = Bench::new();
    let run =
        bench.start("run", &["run", "r", "--ttl", "30s", "--once-per", "1h", "--", "sh", "-c", OBEDIENT]);
    bench.line("up");
    let words = ["preempt", "r", "--by", "sre@ops", "--reason", "deploy of \"3.1\"", "--within", "50s"];
    let asked = bench.leasehold(&words);
    assert_eq!(code(&asked), 0, "{}", stderr(&asked));
    assert!(String::from_utf8_lossy(&asked.stdout).contains("has handed over token"), "{asked:?}");
    assert_eq!(run.wait(LONG).unwrap().code(), Some(0), "{}", run.outcome());
    let told = bench.line("told");
    assert!(told.starts_with(r#"{"by":"sre@ops","reason":"deploy of \"3.1\"","within_ms":"#), "{told}");
    assert!(
        run.stderr().unwrap().contains("was asked for by sre@ops (deploy of \"3.1\")"),
        "{}",
        run.outcome()
    );
    let shown = bench.leasehold(&["show", "r", "--json"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for part in [r#""reason":"revoked","by":"sre@ops""#, r#"preempted: deploy of \"3.1\""#] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains(r#""last_success_at":null"#), "the success counts: {shown}");
    let history = bench.leasehold(&["history", "r"]);
    if code(&history) == 0 {
        let text = String::from_utf8_lossy(&history.stdout).into_owned();
        assert!(text.contains("preempted") && text.contains("sre@ops (deploy of \"3.1\")"), "{text}");
    }
    let listed = bench.leasehold(&["ls", "--all"]);
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("~preempt"), "{listed:?}");
}

pub fn a_refused_wish_leaves_the_holder_alone_and_names_the_command_that_revokes() {
    let mut bench = Bench::new();
    let words = ["run", "r", "--ttl", "30s", "--on-preempt", "refuse", "--", "sh", "-c", OBEDIENT];
    let run = bench.start("run", &words);
    bench.line("up");
    let asked = bench.leasehold(&["preempt", "r", "--reason", "x", "--within", "1m", "--json"]);
    assert_eq!(code(&asked), 75, "{}", stderr(&asked));
    let said = stderr(&asked);
    assert!(said.contains(r#""kind":"declined""#) && said.contains("leasehold revoke r --token "), "{said}");
    assert!(said.contains("by --on-preempt refuse"), "{said}");
    assert!(run.ended().unwrap().is_none() && bench.text("done").is_empty(), "{}", run.outcome());
}

pub fn a_preempted_command_that_does_not_end_is_ended_by_the_deadline() {
    let mut bench = Bench::new();
    let words = [
        "run",
        "r",
        "--ttl",
        "10m",
        "--grace",
        "500ms",
        "--drain-timeout",
        "forever",
        "--",
        "sh",
        "-c",
        STUBBORN,
    ];
    let run = bench.start("run", &words);
    bench.line("up");
    let since = Stopwatch::start();
    let asked = bench.start("asked", &["preempt", "r", "--within", "6s"]);
    assert_eq!(run.wait(LONG).unwrap().code(), None, "{}", run.outcome());
    assert!(since.elapsed() >= Duration::from_secs(4), "not before its time is nearly over");
    asked.wait(LONG).unwrap();
    assert_eq!(bench.line("term"), "got");
    // Released, and not left to ten minutes of TTL.
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

pub fn a_holder_that_does_not_listen_is_said_to_and_an_operator_that_gives_up_takes_the_wish_back() {
    let mut bench = Bench::new();
    assert_eq!(code(&bench.leasehold(&["acquire", "r", "--ttl", "10m"])), 0);
    let asked = bench.leasehold(&["preempt", "r", "--within", "1s"]);
    assert_eq!(code(&asked), 75);
    assert!(stderr(&asked).contains("has not answered within 1s"), "{}", stderr(&asked));
    assert!(stderr(&asked).contains("leasehold revoke r --token "), "{}", stderr(&asked));
    let waits = bench.start("waits", &["preempt", "r", "--within", "10m"]);
    let stands = || {
        let listed = bench.leasehold(&["ls", "~preempt/"]);
        (!String::from_utf8_lossy(&listed.stdout).contains("nothing") && listed.stdout.len() > 1)
            .then_some(())
    };
    wait_until("a wish that stands", LONG, stands).unwrap();
    let again = bench.leasehold(&["preempt", "r", "--within", "10m", "--json"]);
    assert_eq!(code(&again), 75);
    assert!(stderr(&again).contains(r#""kind":"asked""#), "{}", stderr(&again));
    waits.signal(leasehold_testkit::process::Signal::SIGINT).unwrap();
    waits.wait(LONG).unwrap();
    assert!(bench.leasehold(&["ls", "~preempt/"]).stdout.is_empty(), "it was taken back");
    let nobody = bench.leasehold(&["preempt", "free"]);
    assert_eq!(code(&nobody), 79, "{}", stderr(&nobody));
}
