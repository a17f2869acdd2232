//! The five promises of `run`, each by a test of its name.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::tests;
use crate::world::{World, is_alive, kill, nap, wait_for};
use leasehold_cli::supervise::boottime_ns;

tests! {
    promise_1_the_whole_tree_is_stopped_before_the_deadline,
    promise_1_even_when_the_front_hangs,
    promise_1_even_when_the_machine_slept,
    promise_2_all_signals_reach_the_command_and_term_drains,
    promise_3_if_the_wrapper_is_killed_the_tree_dies_too,
    promise_4_a_daemonised_grandchild_neither_keeps_nor_delays,
    promise_5_an_exit_code_is_never_mangled,
}

/// Three generations, a daemon in a session of its own whose parents are gone, and one that ignores SIGTERM. Each
/// writes down its pid; seven lines in all.
pub(crate) const FAMILY: &str = r#"
    echo $$ >> $D/pids
    sh -c '
        echo $$ >> $D/pids
        sh -c "echo \$\$ >> \$D/pids; sleep 600 & echo \$! >> \$D/pids; wait" &
        wait' &
    setsid sh -c '(setsid sh -c "echo \$\$ >> \$D/pids; sleep 600 & echo \$! >> \$D/pids; wait" &) ' &
    sh -c 'trap "" TERM; echo $$ >> $D/pids; while :; do sleep 1; done' &
    wait
"#;
pub(crate) const FAMILY_SIZE: usize = 7;

fn promise_1_the_whole_tree_is_stopped_before_the_deadline() {
    let world = World::new();
    let mut front = world.sh(&["--ttl", "4000", "--grace", "1000"], FAMILY);
    world.pids(FAMILY_SIZE);
    world.assert_dead_at_the_deadline();
    assert_eq!(front.code(), Some(79));
    world.wait_for_log("killed: true");
}

fn promise_1_even_when_the_front_hangs() {
    let world = World::new();
    let mut front = world.sh(&["--ttl", "4000", "--grace", "1000", "--renew"], FAMILY);
    world.pids(FAMILY_SIZE);
    front.kill(libc::SIGSTOP);
    // Renewals end with the front; the last of them sets a deadline at most this far away.
    let latest = boottime_ns() + 4_000_000_000;
    while boottime_ns() < latest {
        nap();
    }
    assert_eq!(world.alive(), Vec::<i32>::new(), "log:\n{}", world.text("log"));
    front.kill(libc::SIGCONT);
    assert_eq!(front.code(), Some(79));
}

/// A guard that did not run over the deadline sees what it would see after a sleep of the machine.
fn promise_1_even_when_the_machine_slept() {
    let world = World::new();
    let script =
        "trap 'touch $D/asked; exit' TERM; echo $$ >> $D/pids; touch $D/ready; while :; do sleep 0.01; done";
    let mut front = world.sh(&["--ttl", "2000", "--grace", "500"], script);
    world.pids(1);
    wait_for("the trap", || world.path("ready").exists().then_some(()));
    kill(world.guard(), libc::SIGSTOP);
    let deadline = world.logged("deadline");
    while boottime_ns() < deadline + 10_000_000 {
        nap();
    }
    assert_eq!(world.alive().len(), 1);
    kill(world.guard(), libc::SIGCONT);
    world.wait_all_dead();
    assert_eq!(front.code(), Some(79));
    assert!(!world.path("asked").exists(), "after the deadline there is no time for asking");
}

fn promise_2_all_signals_reach_the_command_and_term_drains() {
    let world = World::new();
    let script = "trap 'touch $D/draining; while ! [ -e $D/drained ]; do sleep 0.01; done; exit 7' TERM
        touch $D/ready; while :; do sleep 0.01; done";
    // Short, so that a drain without renewals would be cut off.
    let mut front = world.sh(&["--ttl", "1500", "--grace", "300", "--renew"], script);
    wait_for("the trap", || world.path("ready").exists().then_some(()));
    front.kill(libc::SIGTERM);
    wait_for("the drain", || world.path("draining").exists().then_some(()));
    let later = boottime_ns() + 2_500_000_000;
    while boottime_ns() < later {
        assert!(front.child.try_wait().unwrap().is_none(), "the lease is kept while the command drains");
        nap();
    }
    world.touch("drained");
    assert_eq!(front.code(), Some(7));
    assert!(world.text("log").contains("stopped: None"));
}

fn promise_3_if_the_wrapper_is_killed_the_tree_dies_too() {
    let world = World::new();
    let mut front = world.sh(&[], FAMILY);
    world.pids(FAMILY_SIZE);
    let guard = world.guard();
    front.kill(libc::SIGKILL);
    front.wait();
    world.wait_for_log("release");
    // The caretaker itself looked who was alive when it was asked to release.
    assert!(world.text("log").contains("release first alive=[]"), "log:\n{}", world.text("log"));
    assert_eq!(world.alive(), Vec::<i32>::new());
    wait_for("the end of the guard", || (!is_alive(guard)).then_some(()));
}

fn promise_4_a_daemonised_grandchild_neither_keeps_nor_delays() {
    let world = World::new();
    let mut command =
        world.front(&[], &["sh", "-c", "setsid sh -c 'echo $$ >> $D/pids; exec sleep 600' & exit 3"]);
    command.stdout(Stdio::piped());
    let mut front = world.run(&mut command);
    assert_eq!(front.code(), Some(3));
    let daemon = world.pids(1)[0];
    assert!(is_alive(daemon), "left alone");
    assert!(!is_alive(world.guard()), "nothing of us waits for it");
    // It still has the pipe; the front ended nevertheless.
    kill(daemon, libc::SIGKILL);
    let mut rest = String::new();
    front.child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

fn promise_5_an_exit_code_is_never_mangled() {
    for code in [0, 1, 2, 64, 69, 75, 79, 80, 126, 127, 128, 137, 143, 255] {
        let world = World::new();
        assert_eq!(world.sh(&[], &format!("exit {code}")).code(), Some(code));
    }
    for signal in
        [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGSEGV, libc::SIGABRT, libc::SIGPIPE, 40]
    {
        let world = World::new();
        let status = world.sh(&[], &format!("ulimit -c 0; kill -{signal} $$")).wait();
        assert_eq!(status.signal(), Some(signal), "dies as its command did");
        assert!(!status.core_dumped(), "one core is enough");
    }
}
