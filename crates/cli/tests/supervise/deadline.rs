//! What ends a command, and how: deadline, request, loss, the death of either of us.

use crate::promises::{FAMILY, FAMILY_SIZE};
use crate::tests;
use crate::world::{World, is_alive, kill, nap, wait_for};
use leasehold_cli::supervise::boottime_ns;

tests! {
    term_that_is_honoured_ends_it_without_a_kill,
    a_stopped_command_hears_term_too,
    renewals_move_the_deadline,
    the_front_can_ask_for_the_end,
    leftovers_are_killed_on_request,
    a_command_that_restarts_its_workers_is_frozen_first,
    a_fork_bomb_is_caught,
    a_killed_guard_takes_the_tree_with_it,
    a_front_that_dies_while_waiting_leaves_nothing,
    what_cannot_be_killed_is_named_and_not_released,
    a_front_killed_during_a_stop_still_releases_after_the_last_death,
    an_end_of_the_command_during_a_suspension_is_released_by_the_guard,
    a_release_that_failed_during_a_suspension_is_left_to_the_front,
}

const TRAPPED: &str = "trap 'touch $D/asked; exit 9' TERM; echo $$ >> $D/pids; while :; do sleep 0.01; done";

fn term_that_is_honoured_ends_it_without_a_kill() {
    let world = World::new();
    let mut front = world.sh(&["--ttl", "3000", "--grace", "1500"], TRAPPED);
    world.pids(1);
    assert_eq!(front.code(), Some(79));
    assert!(boottime_ns() < world.logged("deadline"));
    assert!(world.path("asked").exists());
    world.wait_for_log("status: Some(Code(9))");
    assert!(world.text("log").contains("killed: false"), "log:\n{}", world.text("log"));
}

fn a_stopped_command_hears_term_too() {
    let world = World::new();
    // In a session of its own, so that its stop is not the command's.
    let script = format!("setsid sh -c \"{}\" & wait", TRAPPED.replace('$', "\\$"));
    let mut front = world.sh(&["--ttl", "3000", "--grace", "1500"], &script);
    kill(world.pids(1)[0], libc::SIGSTOP);
    assert_eq!(front.code(), Some(79));
    assert!(world.path("asked").exists());
}

fn renewals_move_the_deadline() {
    let world = World::new();
    let mut front = world.sh(&["--ttl", "1000", "--grace", "300", "--renew"], "sleep 3; exit 4");
    assert_eq!(front.code(), Some(4));
    assert!(boottime_ns() > world.logged("deadline") + 1_000_000_000);
}

fn the_front_can_ask_for_the_end() {
    let world = World::new();
    world.touch("stop");
    let mut front = world.sh(&["--grace", "300"], FAMILY);
    world.pids(FAMILY_SIZE);
    world.touch("stop-now");
    front.wait();
    assert_eq!(world.alive(), Vec::<i32>::new());
    world.wait_for_log("stopped: Some(Asked), killed: true");
}

fn leftovers_are_killed_on_request() {
    let world = World::new();
    let script = "setsid sh -c 'echo $$ >> $D/pids; exec sleep 600' & until [ -s $D/pids ]; do sleep 0.01; done; exit 3";
    let mut front = world.sh(&["--kill-leftovers"], script);
    assert_eq!(front.code(), Some(3), "the code is still the command's");
    assert_eq!(world.alive(), Vec::<i32>::new());
    world.wait_for_log("stopped: Some(Leftovers), killed: false");
}

fn a_command_that_restarts_its_workers_is_frozen_first() {
    let world = World::new();
    let script = "trap '' TERM; echo $$ >> $D/pids
        while :; do sh -c 'trap \"\" TERM; echo $$ >> $D/pids; echo >> $D/births; sleep 600; :'; done";
    let mut front = world.sh(&[], script);
    world.pids(2);
    front.kill(libc::SIGKILL);
    front.wait();
    world.wait_for_log("release first alive=[]");
    // The sleep dies of SIGTERM, so a second worker is born in the dying breath; none is born by the killing.
    assert!(world.text("births").len() <= 2, "{}", world.text("births").len());
}

fn a_fork_bomb_is_caught() {
    let world = World::new();
    // Every process replaces itself by two, one of them in a session of its own; tamed by a file and by its pace.
    std::fs::write(
        world.path("bomb"),
        "trap '' TERM; echo $$ >> $D/pids; sleep 0.2; [ -e $D/enough ] || { setsid sh $D/bomb & sh $D/bomb & }; sleep 600; :",
    )
    .unwrap();
    let mut front = world.sh(&[], "sh $D/bomb");
    wait_for("a crowd", || (world.text("pids").lines().count() > 30).then_some(()));
    front.kill(libc::SIGKILL);
    front.wait();
    world.wait_for_log("release first");
    world.touch("enough");
    assert!(world.text("log").contains("release first alive=[]"), "log:\n{}", world.text("log"));
    assert_eq!(world.alive(), Vec::<i32>::new());
}

fn a_killed_guard_takes_the_tree_with_it() {
    let world = World::new();
    let mut front = world.sh(&[], FAMILY);
    world.pids(FAMILY_SIZE);
    kill(world.guard(), libc::SIGKILL);
    assert_eq!(front.code(), Some(80));
    world.wait_for_log("left=[] alive=[]");
}

fn a_front_that_dies_while_waiting_leaves_nothing() {
    let world = World::new();
    let mut front = world.sh(&["--wait"], "touch $D/started");
    world.wait_for_log("waiting");
    let guard = world.guard();
    front.kill(libc::SIGKILL);
    front.wait();
    wait_for("the end of the guard", || (!is_alive(guard)).then_some(()));
    assert!(!world.path("started").exists());
    assert!(!world.text("log").contains(" release "), "there was nothing to release");
}

/// Another user's process, to an unprivileged guard. It takes root to make one, so without root this is listed as
/// ignored.
fn what_cannot_be_killed_is_named_and_not_released() {
    let world = World::new();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(world.dir(), mode).unwrap();
    let tool = world.path("setpriv");
    let real =
        ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|path| std::path::Path::new(path).exists());
    std::fs::copy(real.unwrap(), &tool).unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let exe = world.path("supervise");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let script =
        "echo $$ >> $D/pids; $D/setpriv --reuid 0 --keep-groups sh -c 'echo $$ >> $D/pids; exec sleep 600'";
    let mut command = std::process::Command::new(real.unwrap());
    command.args(["--reuid", "65533", "--regid", "65533", "--clear-groups", "--"]).arg(&exe).arg("front");
    command.arg(world.dir()).args(["--ttl", "2000", "--grace", "500", "--", "sh", "-c", script]);
    command.env("D", world.dir());
    let mut front = world.run(&mut command);
    let pids = world.pids(2);
    assert_eq!(front.code(), Some(79));
    assert_eq!(world.alive(), [pids[1]]);
    world.wait_for_log(&format!("left: [Process {{ pid: {}, name: \"sleep\" }}]", pids[1]));
    assert!(!world.text("log").contains(" release "), "log:\n{}", world.text("log"));
    kill(pids[1], libc::SIGKILL);
}

fn a_front_killed_during_a_stop_still_releases_after_the_last_death() {
    let world = World::new();
    world.touch("stop");
    let mut front = world.sh(&["--grace", "20000"], FAMILY);
    world.pids(FAMILY_SIZE);
    world.touch("stop-now");
    world.wait_for_log("Stopping");
    front.kill(libc::SIGKILL);
    front.wait();
    world.wait_for_log("release first alive=[]");
}

fn an_end_of_the_command_during_a_suspension_is_released_by_the_guard() {
    end_while_suspended(&World::new(), "released: true");
}

fn a_release_that_failed_during_a_suspension_is_left_to_the_front() {
    let world = World::new();
    world.touch("unreachable");
    end_while_suspended(&world, "released: false");
}

fn end_while_suspended(world: &World, released: &str) {
    let mut front =
        world.sh(&["--ttl", "3000", "--grace", "500", "--renew"], "echo $$ >> $D/pids; exec sleep 600");
    let command = world.pids(1)[0];
    kill(command, libc::SIGSTOP);
    world.wait_for_log("renewed");
    wait_for("the stop of the front", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", front.pid())).ok()?;
        stat.contains(") T ").then_some(())
    });
    kill(command, libc::SIGKILL);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&front.wait()), Some(libc::SIGKILL));
    let log = world.text("log");
    assert!(log.contains("release second alive=[]") && log.contains(released), "log:\n{log}");
    nap();
}
