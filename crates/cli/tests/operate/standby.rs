//! Copies that stand by, take over, and stand by again.

use std::{fs, sync::Arc};

use leasehold_testkit::process::{Child, Signal, wait_until};

use crate::bench::{Bench, LONG, code};

/// Writes who leads, under which token.
const LEAD: &str = "echo $1 $LEASEHOLD_TOKEN >>$D/terms; trap 'exit 3' TERM; while :; do sleep 0.02; done";

fn terms(bench: &Bench) -> Vec<(String, u64)> {
    let text = bench.text("terms");
    let whole = text.lines().filter_map(|line| line.split_once(' '));
    whole.map(|(name, token)| (name.to_owned(), token.parse().unwrap())).collect()
}

fn nth(bench: &Bench, n: usize) -> (String, u64) {
    wait_until(format!("term {n}"), LONG, || {
        terms(bench).get(n).cloned().filter(|_| bench.text("terms").ends_with('\n'))
    })
    .unwrap()
}

fn standby(bench: &mut Bench, name: &str) -> Arc<Child> {
    bench.start(
        name,
        &[
            "run",
            "r",
            "--holder",
            name,
            "--ttl",
            "10s",
            "--grace",
            "200ms",
            "--restart",
            "--",
            "sh",
            "-c",
            LEAD,
            "sh",
            name,
        ],
    )
}

/// However often it loses, it stands by again: nobody is left who cannot lead.
#[test]
fn ten_losses_in_a_row_leave_every_copy_electable() {
    let mut bench = Bench::new();
    let copies = [standby(&mut bench, "a"), standby(&mut bench, "b")];
    for n in 0..10 {
        let (_, token) = nth(&bench, n);
        let revoked = bench.leasehold(&["revoke", "r", "--token", &token.to_string(), "--now"]);
        assert_eq!(code(&revoked), 0, "{revoked:?}");
    }
    nth(&bench, 10);
    let terms = terms(&bench);
    assert!(terms.windows(2).all(|pair| pair[0].1 < pair[1].1), "{terms:?}");
    for name in ["a", "b"] {
        assert!(terms.iter().any(|(leader, _)| leader == name), "{name} never led: {terms:?}");
    }
    for copy in &copies {
        assert!(copy.ended().unwrap().is_none(), "{}", copy.outcome());
    }
}

/// A signal ends the copy that leads, with its command's own code, and the other takes over; one that waits ends at once.
#[test]
fn sigterm_ends_a_copy_for_good_whether_it_leads_or_waits() {
    let mut bench = Bench::new();
    let first = standby(&mut bench, "a");
    nth(&bench, 0);
    let second = standby(&mut bench, "b");
    let third = standby(&mut bench, "c");
    bench.shows("r", "\"waiting\":2");
    third.signal(Signal::SIGTERM).unwrap();
    third.wait(LONG).unwrap();
    first.signal(Signal::SIGTERM).unwrap();
    assert_eq!(first.wait(LONG).unwrap().code(), Some(3), "{}", first.outcome());
    assert_eq!(nth(&bench, 1).0, "b");
    assert!(second.ended().unwrap().is_none());
}

/// With `always` a command that ends is started again, by the same process, and keeps its pipes.
#[test]
fn always_starts_an_ended_command_again_in_the_same_process() {
    let mut bench = Bench::new();
    let script = "echo term; echo $LEASEHOLD_TOKEN >>$D/tokens; [ $(wc -l <$D/tokens) -lt 3 ] && exit 1; \
                  echo ${LEASEHOLD_SHORT_TERMS:-hidden}; trap 'exit 4' TERM; while :; do sleep 0.02; done";
    let run = bench.start("run", &["run", "r", "--restart=always", "--", "sh", "-c", script]);
    wait_until("the third term", LONG, || run.stdout().unwrap().contains("hidden").then_some(())).unwrap();
    assert_eq!(run.stdout().unwrap(), "term\nterm\nterm\nhidden\n");
    run.signal(Signal::SIGTERM).unwrap();
    assert_eq!(run.wait(LONG).unwrap().code(), Some(4), "{}", run.outcome());
    let tokens: Vec<u64> = bench.text("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.len() == 3 && tokens.is_sorted());
    fs::remove_file(bench.path("tokens")).unwrap();
    // A command that ends by itself ends the program where only losses are followed by another term.
    assert_eq!(code(&bench.leasehold(&["run", "r", "--restart", "--", "sh", "-c", "exit 6"])), 6);
    assert_eq!(code(&bench.leasehold(&["run", "r", "--restart=sometimes", "--", "true"])), 64);
}
