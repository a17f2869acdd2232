//! Every way in which a run can end without its command's own code, each a different, documented outcome.

use std::os::unix::process::ExitStatusExt as _;

use leasehold_testkit::process::{Signal, wait_until};

use crate::bench::{Bench, LONG, code, is_alive, stderr};

pub fn a_busy_resource_is_75_and_says_who_since_when_which_token_and_what_to_do() {
    let mut bench = Bench::new();
    let _holder = bench
        .start("holder", &["run", "r", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN >$D/token; exec sleep 1000"]);
    let token = bench.line("token");
    let output = bench.leasehold(&["run", "r", "--", "true"]);
    let said = stderr(&output);
    assert_eq!((code(&output), output.stdout.is_empty()), (75, true));
    for part in [
        "r is held by",
        ":sh",
        "since",
        &token,
        "--wait",
        &format!("leasehold revoke r --token {token}"),
        &bench.url(),
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(code(&bench.leasehold(&["run", "r", "--wait", "200ms", "-q", "--", "true"])), 75);
}

pub fn a_command_that_cannot_start_is_127_or_126_and_holds_nothing() {
    let bench = Bench::new();
    let missing = bench.leasehold(&["run", "r", "--", "no-such-command-here"]);
    assert_eq!(code(&missing), 127);
    assert!(stderr(&missing).contains("cannot run no-such-command-here: No such file or directory"));
    let folder = bench.leasehold(&["run", "r", "--", "/"]);
    assert_eq!(code(&folder), 126);
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

pub fn bad_words_are_64_and_ask_nobody() {
    let bench = Bench::new();
    let cases: [&[&str]; 11] = [
        &["run", "r", "--ttl", "0s", "--", "true"],
        &["run", "r", "--ttl", "30", "--", "true"],
        &["run", "r", "--ttl", "8d", "--", "true"],
        &["run", "r", "--ttl", "6s", "--grace", "3s", "--", "true"],
        &["run", "r", "--wait", "soon", "--", "true"],
        &["run", "r", "--once-per", "0s", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "r"],
        &["run", "r", "--no-such-flag", "--", "true"],
        &["run", "r", "--namespace", "a b", "--", "true"],
        &["run", "r", "--url", "leases.db", "--", "true"],
    ];
    for words in cases {
        let output = bench.leasehold(words);
        assert_eq!((code(&output), output.stdout.is_empty()), (64, true), "{words:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
    assert!(!bench.path("leases.db").exists());
}

pub fn an_unreachable_coordinator_is_not_75() {
    let bench = Bench::new();
    std::fs::write(bench.path("foreign.db"), "this is a diary, not a lease file\n").unwrap();
    let url = format!("sqlite:{}", bench.path("foreign.db").display());
    let foreign = bench.leasehold(&["run", "r", "--url", &url, "--", "true"]);
    assert_eq!(code(&foreign), 64, "{foreign:?}");
    assert_eq!(bench.text("foreign.db"), "this is a diary, not a lease file\n");
    let below_a_file = format!("{url}/leases.db");
    let nowhere = bench.leasehold(&["run", "r", "--url", &below_a_file, "--", "true"]);
    assert_eq!(code(&nowhere), 64, "{nowhere:?}");
    let ran = bench.path("ran").display().to_string();
    for url in ["sqlite:/proc/no/leases.db", "redis://127.0.0.1:9"] {
        let away = bench.leasehold(&["run", "r", "--url", url, "--", "touch", &ran]);
        assert_eq!(code(&away), 69, "{away:?}");
        assert!(stderr(&away).contains("nothing was changed"), "{away:?}");
    }
    assert!(!bench.path("ran").exists(), "what could not be asked ran nothing");
}

pub fn a_revoked_holder_is_79_and_its_command_ends_within_the_grace() {
    let mut bench = Bench::new();
    let script = "trap 'echo term >$D/term; exit 0' TERM; echo $LEASEHOLD_TOKEN >$D/token; while :; do sleep 0.05; done";
    let holder = bench.start("holder", &["run", "r", "--ttl", "1m", "--", "sh", "-c", script]);
    let token = bench.line("token");
    let revoked =
        bench.leasehold(&["revoke", "r", "--token", &token, "--reason", "stuck", "--holder", "ops"]);
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(holder.wait(LONG).unwrap().code(), Some(79));
    let said = holder.stderr().unwrap();
    assert!(said.contains("stuck"), "{said}");
    bench.line("term");
    assert_eq!(
        code(&bench.leasehold(&["run", "r", "--wait", "10s", "--", "true"])),
        0,
        "its end freed the resource"
    );
}

pub fn the_lease_file_taken_away_ends_the_command() {
    let mut bench = Bench::new();
    let holder = bench.start(
        "holder",
        &["run", "r", "--ttl", "1s", "--", "sh", "-c", "echo $$ >$D/command; exec sleep 1000"],
    );
    let command = bench.line("command");
    for name in ["leases.db", "leases.db-wal", "leases.db-shm"] {
        let _ = std::fs::remove_file(bench.path(name));
    }
    assert_eq!(holder.wait(LONG).unwrap().code(), Some(79));
    assert!(!is_alive(&command));
}

pub fn max_hold_ends_a_command_that_takes_too_long() {
    let bench = Bench::new();
    let output = bench.leasehold(&["run", "r", "--ttl", "2s", "--max-hold", "1s", "--", "sleep", "1000"]);
    assert_eq!(code(&output), 79);
    assert!(stderr(&output).contains("max-hold"), "{}", stderr(&output));
}

pub fn once_per_runs_once_and_says_nothing_the_second_time() {
    let bench = Bench::new();
    let failing = bench.leasehold(&["run", "r", "--once-per", "1h", "--", "false"]);
    assert_eq!(code(&failing), 1);
    let first = bench.leasehold(&["run", "r", "--once-per", "1h", "--", "echo", "ran"]);
    assert_eq!((code(&first), first.stdout.as_slice()), (0, b"ran\n".as_slice()), "a failure does not count");
    let second = bench.leasehold(&["run", "r", "--once-per", "1h", "--", "echo", "ran"]);
    assert_eq!((code(&second), second.stdout.is_empty(), second.stderr.is_empty()), (0, true, true));
    let short = bench.leasehold(&["run", "r", "--once-per", "1ms", "--", "echo", "ran"]);
    assert_eq!(short.stdout, b"ran\n", "the period is over");
}

pub fn once_per_runs_once_whichever_of_several_fires_first() {
    let mut bench = Bench::new();
    let job = r#"echo "$LEASEHOLD_TOKEN" >>"$D/ran"; sleep 0.3"#;
    let words = ["run", "r", "--once-per", "1h", "--wait", "1m", "--", "sh", "-c", job];
    let crons: Vec<_> = (0..4).map(|n| bench.start(&format!("cron{n}"), &words)).collect();
    for cron in crons {
        assert!(cron.wait(LONG).unwrap().success(), "{}", cron.outcome());
    }
    assert_eq!(bench.text("ran").lines().count(), 1, "{}", bench.text("ran"));
}

pub fn a_signal_while_waiting_gives_the_place_up_and_is_died_of() {
    let mut bench = Bench::new();
    let _holder = bench.start("holder", &["run", "r", "--", "sh", "-c", "echo up >$D/up; exec sleep 1000"]);
    bench.line("up");
    let waiter = bench.start("waiter", &["run", "r", "--wait", "forever", "--", "true"]);
    bench.shows("r", "\"waiting\":1");
    waiter.signal(Signal::SIGINT).unwrap();
    assert_eq!(waiter.wait(LONG).unwrap().signal(), Some(2));
    bench.shows("r", "\"waiting\":0");
}

pub fn a_run_inside_a_run_of_the_same_resource_does_not_wait_for_itself() {
    let bench = Bench::new();
    let inner = env!("CARGO_BIN_EXE_leasehold");
    let output = bench.leasehold(&["run", "r", "--", inner, "run", "r", "--wait", "forever", "--", "true"]);
    assert_eq!(code(&output), 75);
    assert!(stderr(&output).contains("would wait for itself"));
    let other = bench.leasehold(&["run", "r", "--", inner, "run", "s", "--", "echo", "inner"]);
    assert_eq!(other.stdout, b"inner\n");
}

pub fn the_command_can_ask_whether_the_lease_is_still_its_own() {
    let bench = Bench::new();
    let inner = env!("CARGO_BIN_EXE_leasehold");
    let script =
        format!("cd / && {inner} check \"$LEASEHOLD_RESOURCE\" --token $LEASEHOLD_TOKEN -q && echo mine");
    for name in ["r", "a name with\nhostile {parts} -- '\"$(x)"] {
        let output = bench.leasehold(&["run", name, "--", "sh", "-c", &script]);
        assert_eq!(output.stdout, b"mine\n", "{output:?}");
    }
}

pub fn json_goes_to_the_standard_error_and_the_standard_output_is_the_commands() {
    let bench = Bench::new();
    let output = bench.leasehold(&["run", "r", "--json", "--", "echo", "mine"]);
    assert_eq!(output.stdout, b"mine\n");
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((report["source"].as_str(), report["exit_code"].as_u64()), (Some("command"), Some(0)));
    assert!(report["fencing_token"].as_u64().is_some_and(|token| token > 0));
}

pub fn no_secret_and_no_stray_variable_reaches_the_command() {
    let bench = Bench::new();
    let output = bench.leasehold(&["run", "r", "--ttl", "7s", "--", "env"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let ours: Vec<&str> = said.lines().filter(|line| line.starts_with("LEASEHOLD_")).collect();
    assert_eq!(ours.len(), 8, "{ours:?}");
    assert!(ours.iter().any(|line| line.starts_with("LEASEHOLD_PREEMPT_FILE=")), "{ours:?}");
    for part in ["RESOURCE=r", "TTL_MS=7000", "NAMESPACE=default", &format!("URL={}", bench.url())] {
        assert!(ours.iter().any(|line| line.ends_with(part)), "{part}: {ours:?}");
    }
}

pub fn a_wrapper_told_to_end_ends_a_command_that_obeys() {
    let mut bench = Bench::new();
    let holder =
        bench.start("holder", &["run", "r", "--", "sh", "-c", "echo $$ >$D/command; exec sleep 1000"]);
    let command = bench.line("command");
    holder.signal(Signal::SIGTERM).unwrap();
    assert_eq!(holder.wait(LONG).unwrap().signal(), Some(15), "it dies of what the command died of");
    wait_until("the command's end", LONG, || (!is_alive(&command)).then_some(())).unwrap();
}

/// A namespace with a longer TTL than the usual can only be used by those who know of it.
pub fn the_command_finds_the_coordinator_with_its_settings() {
    let bench = Bench::new();
    let url = format!("{}?max_ttl=48h", bench.url());
    assert!(bench.leasehold(&["init", "--max-ttl", "48h"]).status.success());
    let inner = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "cd / && {inner} check r --token $LEASEHOLD_TOKEN -q && {inner} acquire s --ttl 40h >/dev/null && echo mine"
    );
    let output = bench.leasehold(&["--url", &url, "run", "r", "--ttl", "40h", "--", "sh", "-c", &script]);
    assert_eq!(output.stdout, b"mine\n", "{output:?}");
}

pub fn a_folder_that_no_url_can_say_does_not_keep_the_command_from_asking() {
    let bench = Bench::new();
    let folder = bench.path("what?now");
    std::fs::create_dir(&folder).unwrap();
    let inner = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("{inner} check r --token $LEASEHOLD_TOKEN -q && echo mine");
    let mut command = bench.command(&["run", "r", "--url", "sqlite:l.db", "--", "sh", "-c", &script]);
    let output = command.current_dir(&folder).output().unwrap();
    assert_eq!(output.stdout, b"mine\n", "{output:?}");
}

/// A token that nobody can read is worth nothing: the lease is given back.
pub fn acquire_with_its_output_closed_gives_the_lease_back() {
    let bench = Bench::new();
    let script = format!("{} acquire r --ttl 1h >&-", env!("CARGO_BIN_EXE_leasehold"));
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("LEASEHOLD_URL", bench.url())
        .output()
        .unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0, "the resource is free");
    assert_eq!(code(&bench.leasehold(&["acquire", "r", "--ttl", "1h"])), 0);
}
