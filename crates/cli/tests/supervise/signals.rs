//! Every signal reaches the command, once.

use crate::tests;
use crate::world::{World, is_alive, kill, nap, wait_for};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

tests! {
    every_forwardable_signal_arrives_exactly_once,
    a_queued_signal_keeps_its_value,
    a_second_term_is_passed_on_too,
    no_signal_is_lost_while_the_command_starts,
    what_nohup_ignores_stays_ignored,
    kill_0_by_the_command_comes_back_once,
    a_stop_aimed_at_the_front_stops_and_continues_both,
    a_stop_of_the_whole_group_keeps_the_lease,
    an_alarm_set_before_us_is_the_command_s,
}

const FORWARDABLE: [i32; 22] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGWINCH,
    libc::SIGIO,
    libc::SIGPWR,
];

/// This very program as a command that writes down what it gets.
fn receiver(world: &World) -> Command {
    let exe = std::env::current_exe().unwrap();
    world.front(&[], &[exe.as_os_str(), "receiver".as_ref()])
}

fn every_forwardable_signal_arrives_exactly_once() {
    let world = World::new();
    let front = world.run(&mut receiver(&world));
    world.wait_for_file("ready");
    let mut expected = String::new();
    let signals = FORWARDABLE.into_iter().chain([libc::SIGRTMIN(), libc::SIGRTMIN() + 1, libc::SIGRTMAX()]);
    for signo in signals {
        front.kill(signo);
        expected = format!("{expected}{signo} 0\n");
        // One at a time: the kernel promises no order among several. A double would be in front of the next one.
        wait_for(&format!("signal {signo} after {:?}", world.text("got")), || {
            let got = world.text("got");
            assert!(expected.starts_with(&got), "{got}");
            (got == expected).then_some(())
        });
    }
    front.kill(libc::SIGUSR1);
    wait_for("a last one", || {
        (world.text("got") == format!("{expected}{} 0\n", libc::SIGUSR1)).then_some(())
    });
    kill(world.wait_for_file("ready").parse().unwrap(), libc::SIGKILL);
}

fn a_queued_signal_keeps_its_value() {
    let world = World::new();
    let front = world.run(&mut receiver(&world));
    world.wait_for_file("ready");
    let signo = libc::SIGRTMIN() + 5;
    for value in [1, 77, 12345] {
        let arguments = [format!("-{signo}"), "-q".into(), format!("{value}"), front.pid().to_string()];
        assert!(Command::new("/bin/kill").args(arguments).status().unwrap().success());
    }
    let expected = format!("{signo} 1\n{signo} 77\n{signo} 12345\n");
    wait_for("three values", || (world.text("got") == expected).then_some(()));
}

fn a_second_term_is_passed_on_too() {
    let world = World::new();
    let script = "n=0; trap 'n=$((n+1)); echo $n > $D/count; [ $n = 2 ] && exit 5' TERM; touch $D/ready
        while :; do sleep 0.01; done";
    let mut front = world.sh(&[], script);
    wait_for("the trap", || world.path("ready").exists().then_some(()));
    front.kill(libc::SIGTERM);
    wait_for("the first", || (world.text("count") == "1\n").then_some(()));
    front.kill(libc::SIGTERM);
    assert_eq!(front.code(), Some(5));
}

fn no_signal_is_lost_while_the_command_starts() {
    for round in 0..40 {
        let world = World::new();
        let mut front = world.run(&mut world.front(&["--wait"], &["sleep", "600"]));
        world.wait_for_log("waiting");
        world.touch("go");
        // The grant is noticed within two milliseconds; the signals fall before, into and after the start.
        wait_for("the grant", || world.text("log").contains("deadline").then_some(()));
        for _ in 0..round * 500 {
            std::hint::spin_loop();
        }
        front.kill(libc::SIGTERM);
        assert_eq!(front.wait().signal(), Some(libc::SIGTERM), "round {round}; log:\n{}", world.text("log"));
    }
}

fn what_nohup_ignores_stays_ignored() {
    let world = World::new();
    let front = receiver(&world);
    let mut nohup = Command::new("nohup");
    nohup.arg(front.get_program()).args(front.get_args()).env("D", world.dir());
    nohup.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let front = world.run(&mut nohup);
    let command: i32 = world.wait_for_file("ready").parse().unwrap();
    front.kill(libc::SIGHUP);
    front.kill(libc::SIGUSR1);
    // Sent later, so if HUP had been passed on it would be here already.
    wait_for("the signal after", || (world.text("got") == format!("{} 0\n", libc::SIGUSR1)).then_some(()));
    assert!(is_alive(front.pid()));
    let status = std::fs::read_to_string(format!("/proc/{command}/status")).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1);
}

fn kill_0_by_the_command_comes_back_once() {
    let world = World::new();
    let script = "trap 'echo >> $D/count' USR1; kill -USR1 0; touch $D/sent; while :; do sleep 0.01; done";
    let front = world.sh(&[], script);
    wait_for("the signal", || world.path("sent").exists().then_some(()));
    world.wait_for_log("origin: Tree, forwarded: false");
    front.kill(libc::SIGTERM);
    world.wait_for_log("Ended");
    assert_eq!(world.text("count"), "\n");
}

fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('X')
}

fn a_stop_aimed_at_the_front_stops_and_continues_both() {
    let world = World::new();
    let options = ["--ttl", "1500", "--grace", "300", "--renew"];
    let script = "echo $$ >> $D/pids; while ! [ -e $D/end ]; do sleep 0.01; done; exit 6";
    let mut front = world.run(&mut world.front(&options, &["bash", "-c", script]));
    let command = world.pids(1)[0];
    for _ in 0..5 {
        front.kill(libc::SIGTSTP);
        wait_for("both stopped", || (state(front.pid()) == 'T' && state(command) == 'T').then_some(()));
        front.kill(libc::SIGCONT);
        wait_for("both running", || (state(front.pid()) != 'T' && state(command) != 'T').then_some(()));
    }
    // The guard renews for longer than any deadline that the front had set.
    front.kill(libc::SIGTSTP);
    wait_for("renewals by the guard", || (world.text("log").matches("renewed").count() > 12).then_some(()));
    assert_eq!((state(front.pid()), state(command)), ('T', 'T'), "log:\n{}", world.text("log"));
    // Continuing the command alone wakes the front.
    kill(command, libc::SIGCONT);
    wait_for("both running", || (state(front.pid()) != 'T' && state(command) != 'T').then_some(()));
    wait_for("taken back", || (world.text("log").matches("Held {").count() == 6).then_some(()));
    let kept = world.text("log").matches("renewed").count();
    let log = world.text("log");
    world.touch("end");
    assert_eq!(front.code(), Some(6), "log:\n{log}");
    assert!(world.text("log").matches("renewed").count() <= kept + 1, "one may have been under way");
    nap();
}

fn a_stop_of_the_whole_group_keeps_the_lease() {
    let world = World::new();
    let options = ["--ttl", "1500", "--grace", "300", "--renew"];
    // Not dash: it starts programs by vfork, and a stop in that instant leaves it unstoppable, with us or without.
    let script = "echo $$ >> $D/pids; while ! [ -e $D/end ]; do sleep 0.01; done; exit 6";
    let mut front = world.run(&mut world.front(&options, &["bash", "-c", script]));
    let command = world.pids(1)[0];
    // The guard leaves the group right after the start.
    wait_for("the guard's own session", || {
        let guard = nix::unistd::Pid::from_raw(world.guard());
        (nix::unistd::getsid(Some(guard)).unwrap() == guard).then_some(())
    });
    kill(-front.pid(), libc::SIGSTOP);
    wait_for("both stopped", || (state(front.pid()) == 'T' && state(command) == 'T').then_some(()));
    wait_for("renewals by the guard", || (world.text("log").matches("renewed").count() > 8).then_some(()));
    assert_eq!((state(front.pid()), state(command)), ('T', 'T'), "log:\n{}", world.text("log"));
    kill(-front.pid(), libc::SIGCONT);
    wait_for("taken back", || world.text("log").contains("Held {").then_some(()));
    wait_for("both running", || (state(front.pid()) != 'T' && state(command) != 'T').then_some(()));
    world.touch("end");
    assert_eq!(front.code(), Some(6), "log:\n{}", world.text("log"));
}

fn an_alarm_set_before_us_is_the_command_s() {
    let world = World::new();
    let front = world.front(&[], &["sleep", "600"]);
    let mut alarm = Command::new("perl");
    alarm
        .args(["-e", "alarm 1; exec @ARGV"])
        .arg(front.get_program())
        .args(front.get_args())
        .env("D", world.dir());
    assert_eq!(world.run(&mut alarm).wait().signal(), Some(libc::SIGALRM));
}
