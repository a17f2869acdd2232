//! Each promise of `run` by a test of that name.

use leasehold_testkit::process::{Signal, wait_until};

use crate::bench::{Bench, LONG, code, is_alive};

/// Three generations: the command, a child of it, and a daemon in a session of its own that nobody waits for. Each writes
/// its pid and would run for ever; the command ignores TERM.
const FAMILY: &str = r#"
    trap '' TERM
    sh -c 'echo $$ >"$D/child"; exec sleep 1000' &
    setsid sh -c 'echo $$ >"$D/daemon"; exec sleep 1000' </dev/null >/dev/null 2>&1 &
    echo $$ >"$D/command"
    while :; do sleep 1000; done
"#;

fn family(bench: &Bench) -> Vec<String> {
    ["command", "child", "daemon"].iter().map(|name| bench.line(name)).collect()
}

/// Notes when the command began, in seconds since the machine did.
const NOTE: &str = r#"cut -d' ' -f1 /proc/uptime >"$D/granted"; "#;
/// What starting a few programs may take on a busy machine, in seconds.
const BUSY: f64 = 10.0;

fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// 1: the whole tree is stopped before the local deadline, although the wrapper does not run.
pub fn promise_1_a_holder_stopped_past_its_ttl_finds_its_tree_dead_and_itself_lost() {
    let mut bench = Bench::new();
    let holder = bench.start("holder", &["run", "r", "--ttl", "2s", "--", "sh", "-c", FAMILY]);
    let pids = family(&bench);
    holder.stop().unwrap();
    // The successor is let in by the TTL alone; by then nothing of the tree may be left.
    let successor = bench.leasehold(&["run", "r", "--wait", "1m", "--", "sh", "-c", &dead_or_alive(&pids)]);
    assert_eq!(String::from_utf8_lossy(&successor.stdout), "all dead\n", "{successor:?}");
    holder.resume().unwrap();
    assert_eq!(holder.wait(LONG).unwrap().code(), Some(79), "{}", holder.outcome());
    assert!(holder.stderr().unwrap().contains("the lease on r was lost"), "{}", holder.outcome());
}

/// A script that says whether any of these is alive.
fn dead_or_alive(pids: &[String]) -> String {
    let look = |pid: &String| format!("grep -qs '^State:.[^ZX]' /proc/{pid}/status && left=\"$left {pid}\";");
    let script: String = std::iter::once("left=;".to_owned()).chain(pids.iter().map(look)).collect();
    script + "if [ -z \"$left\" ]; then echo all dead; else echo \"alive:$left\"; fi"
}

/// 2: signals reach the command, and TERM begins a drain: the lease is kept until the command has really ended.
pub fn promise_2_term_reaches_the_command_and_the_lease_is_kept_until_it_has_ended() {
    let mut bench = Bench::new();
    let script = r#"trap 'echo got >"$D/term"' TERM; echo up >"$D/up"
        while [ ! -e "$D/go" ]; do sleep 0.02; done; exit 5"#;
    let holder = bench
        .start("holder", &["run", "r", "--ttl", "1s", "--drain-timeout", "1m", "--", "sh", "-c", script]);
    bench.line("up");
    holder.signal(Signal::SIGTERM).unwrap();
    bench.line("term");
    // Well past the TTL it is still held: renewals go on.
    for _ in 0..15 {
        std::process::Command::new("sleep").arg("0.1").status().unwrap();
        assert_eq!(code(&bench.leasehold(&["run", "r", "-q", "--", "true"])), 75);
    }
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!(holder.wait(LONG).unwrap().code(), Some(5));
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

/// 3: kill -9 of the wrapper ends the tree and lets the waiter in at once, long before the TTL.
pub fn promise_3_kill_9_of_the_wrapper_ends_the_tree_and_lets_the_waiter_in() {
    let mut bench = Bench::new();
    let holder = bench.start("holder", &["run", "r", "--ttl", "10m", "--", "sh", "-c", FAMILY]);
    let pids = family(&bench);
    let script = dead_or_alive(&pids);
    let waiter =
        bench.start("waiter", &["run", "r", "--wait", "5m", "--", "sh", "-c", &(NOTE.to_owned() + &script)]);
    bench.shows("r", "\"waiting\":1");
    let killed = uptime();
    holder.kill().unwrap();
    assert!(waiter.wait(LONG).unwrap().success(), "{}", waiter.outcome());
    assert_eq!(waiter.stdout().unwrap(), "all dead\n");
    // At once, which on a busy machine is some moments: by the TTL it would be ten minutes.
    let took = bench.line("granted").parse::<f64>().unwrap() - killed;
    assert!(took < BUSY, "the waiter was let in after {took} s");
}

/// 3, with the guard killed too: within the TTL and a second.
pub fn promise_3_with_the_guard_killed_too_the_ttl_lets_the_waiter_in() {
    let mut bench = Bench::new();
    let holder = bench.start(
        "holder",
        &[
            "run",
            "r",
            "--ttl",
            "2s",
            "--",
            "sh",
            "-c",
            "echo $PPID >$D/guard; echo $$ >$D/command; exec sleep 1000",
        ],
    );
    let (guard, command) = (bench.line("guard"), bench.line("command"));
    let script = NOTE.to_owned() + &dead_or_alive(&[command]);
    let waiter = bench.start("waiter", &["run", "r", "--wait", "1m", "--", "sh", "-c", &script]);
    bench.shows("r", "\"waiting\":1");
    let killed = uptime();
    // The front first, so that it cannot clean up after the guard; both before either could act.
    holder.stop().unwrap();
    std::process::Command::new("sh")
        .args(["-c", &format!("kill -9 {guard} {}", holder.pid())])
        .status()
        .unwrap();
    assert!(waiter.wait(LONG).unwrap().success(), "{}", waiter.outcome());
    assert_eq!(waiter.stdout().unwrap(), "all dead\n");
    let took = bench.line("granted").parse::<f64>().unwrap() - killed;
    assert!(took < 2.0 + 1.0 + BUSY, "the waiter was let in {took} s after the deaths, at a TTL of 2 s");
}

/// 4: a daemonised grandchild neither keeps the lease nor makes the wrapper wait for a pipe it inherited.
pub fn promise_4_a_daemon_left_behind_keeps_neither_the_lease_nor_the_wrapper() {
    let bench = Bench::new();
    let script = r#"setsid sh -c 'echo $$ >"$D/daemon"; exec sleep 1000' & while [ ! -s "$D/daemon" ]; do sleep 0.01; done"#;
    let mut command = bench.command(&["run", "r", "--", "sh", "-c", script]);
    command
        .env("D", bench.path(""))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut wrapper = command.spawn().unwrap();
    let status = wait_until("the wrapper's end", LONG, || wrapper.try_wait().unwrap()).unwrap();
    assert!(status.success());
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0, "the lease is free");
    let daemon = bench.line("daemon");
    assert!(is_alive(&daemon), "it is left alone");
    std::process::Command::new("kill").args(["-9", &daemon]).status().unwrap();
    let output = wrapper.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("left running without it") && said.contains(&daemon), "{said}");
}

pub fn promise_4_leftovers_are_ended_on_request() {
    let bench = Bench::new();
    let script = r#"setsid sh -c 'echo $$ >"$D/daemon"; exec sleep 1000' & while [ ! -s "$D/daemon" ]; do sleep 0.01; done"#;
    let output = bench
        .command(&["run", "r", "--kill-leftovers", "--", "sh", "-c", script])
        .env("D", bench.path(""))
        .output()
        .unwrap();
    assert_eq!((code(&output), is_alive(&bench.line("daemon"))), (0, false));
}

/// 5: an exit code is never mangled, and a report says whose it is.
pub fn promise_5_exit_codes_pass_unchanged_and_the_report_says_whose_they_are() {
    let bench = Bench::new();
    for expected in [0, 1, 2, 64, 69, 75, 79, 80, 125, 126, 127, 130, 255] {
        let script = format!("exit {expected}");
        let output =
            bench.leasehold(&["run", "r", "--report", "report.json", "-E", "9", "--", "sh", "-c", &script]);
        assert_eq!((code(&output), output.stderr.is_empty()), (expected, true), "{output:?}");
        assert!(bench.text("report.json").contains("\"source\":\"command\""));
    }
    for signal in ["TERM", "KILL", "INT", "SEGV"] {
        let output =
            bench.leasehold(&["run", "r", "--", "sh", "-c", &format!("ulimit -c 0; kill -{signal} $$")]);
        assert!(output.status.code().is_none(), "the wrapper dies of SIG{signal} too: {output:?}");
    }
    let held = bench.leasehold(&["acquire", "r", "--ttl", "1h"]);
    assert!(held.status.success());
    let refused = bench.leasehold(&["run", "r", "--report", "report.json", "--", "true"]);
    assert_eq!(code(&refused), 75);
    assert!(bench.text("report.json").contains("\"source\":\"leasehold\""));
    assert_eq!(code(&bench.leasehold(&["run", "r", "-E", "9", "--", "true"])), 9, "-E moves ours");
}

/// The lease outlives its TTL for as long as the command runs.
pub fn a_command_longer_than_the_ttl_is_renewed_through() {
    let bench = Bench::new();
    let output = bench.leasehold(&[
        "run",
        "r",
        "--ttl",
        "500ms",
        "--",
        "sh",
        "-c",
        "sleep 2; leasehold=$LEASEHOLD_TOKEN; echo done $leasehold",
    ]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).starts_with("done 1"),
        "{output:?}"
    );
}

/// A consumer sees the end of a pipe when the command closes it, although the command works on.
pub fn a_pipe_that_the_command_closes_is_closed() {
    let bench = Bench::new();
    let script = "echo out; exec >&-; while [ ! -e go ]; do sleep 0.02; done";
    let mut command = bench.command(&["run", "r", "--", "sh", "-c", script]);
    let mut wrapper = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(wrapper.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert!(wrapper.try_wait().unwrap().is_none(), "the command still works");
    std::fs::write(bench.path("go"), "").unwrap();
    assert!(wrapper.wait().unwrap().success());
    assert_eq!(said, "out\n");
}

/// In a container whose first process reaps nobody, a guard that nobody waits for would stay for ever.
pub fn no_guard_is_left_for_the_first_process_of_a_container_to_reap() {
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    // perl is the first process of a namespace of its own, inherits what is left behind, and waits only for what it started.
    let script = r#"
        my $program = shift;
        system("$program acquire held --ttl 1h >/dev/null");
        for (1 .. 5) {
            system("$program run r -- true");
            system("$program run r -- no-such-command 2>/dev/null");
            system("$program run held -- true 2>/dev/null");
        }
        for my $comm (glob "/proc/[0-9]*/comm") { open my $file, "<", $comm or next; print <$file>; }
    "#;
    let output = std::process::Command::new("unshare")
        .args(["--map-root-user", "--pid", "--fork", "--mount-proc", "perl", "-e", script, program])
        .env("LEASEHOLD_URL", bench.url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "perl\n");
}

/// A wrapper that cannot go on (its wait for events fails) lets go of the command; the lease goes last.
pub fn a_wrapper_that_fails_frees_the_resource_only_after_the_last_death() {
    let mut bench = Bench::new();
    // Its last words do not fit into the pipe: the program has the time to release in the background.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, &vec![b'.'; 65536]).unwrap();
    let mut command = bench.command(&["run", "r", "--ttl", "10m", "--", "sh", "-c", FAMILY]);
    let mut holder = command.env("D", bench.path("")).stderr(writer).spawn().unwrap();
    drop(command);
    let pids = family(&bench);
    let script = dead_or_alive(&pids);
    let waiter = bench.start("waiter", &["run", "r", "--wait", "5m", "--", "sh", "-c", &script]);
    bench.shows("r", "\"waiting\":1");
    // poll(2) refuses more descriptors than the process may have.
    let limit = ["--nofile=2", "--pid", &holder.id().to_string()];
    assert!(std::process::Command::new("prlimit").args(limit).status().unwrap().success());
    let winch = ["-WINCH", &holder.id().to_string()];
    assert!(std::process::Command::new("kill").args(winch).status().unwrap().success());
    assert!(waiter.wait(LONG).unwrap().success(), "{}", waiter.outcome());
    assert_eq!(waiter.stdout().unwrap(), "all dead\n");
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut said).unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(69), "{}", String::from_utf8_lossy(&said[65536..]));
}

/// A guard that somebody has stopped is made to go on by the front: at each renewal, and before the deadline.
pub fn a_stopped_guard_is_roused_and_keeps_its_promises() {
    let mut bench = Bench::new();
    let stop = "kill -STOP $PPID; echo $$ >$D/command;";
    // The command ends under a stopped guard: the wrapper must not wait for ever.
    let ending =
        bench.start("ending", &["run", "a", "--ttl", "1s", "--", "sh", "-c", &format!("{stop} exit 3")]);
    assert_eq!(ending.wait(LONG).unwrap().code(), Some(3), "{}", ending.outcome());
    // The hold limit comes under a stopped guard: the command must be dead before another is let in.
    std::fs::remove_file(bench.path("command")).unwrap();
    let words = ["run", "b", "--ttl", "3s", "--max-hold", "2s", "--", "sh", "-c"];
    let script = format!("{stop} while :; do sleep 1; done");
    let held = bench.start("held", &[&words[..], &[&script]].concat());
    let command = bench.line("command");
    let look = dead_or_alive(std::slice::from_ref(&command));
    let next = bench.leasehold(&["run", "b", "--wait", "1m", "--", "sh", "-c", &look]);
    assert_eq!(String::from_utf8_lossy(&next.stdout), "all dead\n");
    assert_eq!(held.wait(LONG).unwrap().code(), Some(79), "{}", held.outcome());
}
