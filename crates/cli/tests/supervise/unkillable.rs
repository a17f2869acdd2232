//! The real program over a process that its guard cannot kill: another user's, to an unprivileged guard. It takes root to
//! make one, so without root these are listed as ignored.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::tests;
use crate::world::{Running, World, kill, wait_for};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

tests! {
    needs_root_max_hold_over_what_cannot_be_killed_releases_nothing,
    needs_root_what_a_killed_guard_left_and_cannot_be_killed_is_79_and_not_released,
    needs_root_what_cannot_be_killed_nor_seen_is_not_taken_for_dead,
}

const SCRIPT: &str = "echo $PPID > $D/guard_; echo $LEASEHOLD_TOKEN > $D/token; echo $$ >> $D/pids; \
     $D/setpriv --reuid 0 --keep-groups sh -c 'echo $$ >> $D/pids; exec sleep 600'";

fn tool(name: &str) -> String {
    let places = ["/usr/bin", "/bin"].map(|folder| format!("{folder}/{name}"));
    places.into_iter().find(|path| Path::new(path).exists()).unwrap()
}

fn url(world: &World) -> String {
    format!("sqlite:{}", world.path("leases.db").display())
}

/// `leasehold run r` as a user without rights, over a command that gains them.
fn start<'a>(world: &'a World, before: &str, options: &[&str]) -> Running<'a> {
    std::fs::set_permissions(world.dir(), Permissions::from_mode(0o777)).unwrap();
    std::fs::copy(tool("setpriv"), world.path("setpriv")).unwrap();
    std::fs::set_permissions(world.path("setpriv"), Permissions::from_mode(0o4755)).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), world.path("leasehold")).unwrap();
    // Nobody reads it before the test does: until then the program has not ended.
    mkfifo(&world.path("report"), Mode::all()).unwrap();
    std::fs::set_permissions(world.path("report"), Permissions::from_mode(0o666)).unwrap();
    let mut command = Command::new(tool("unshare"));
    let drop_rights = "exec setpriv --reuid 65533 --regid 65533 --clear-groups -- \"$@\"";
    command.args(["--mount", "sh", "-c", &format!("{before}{drop_rights}"), "sh"]);
    command
        .arg(world.path("leasehold"))
        .args(["run", "r", "--report", "report"])
        .args(options)
        .args(["--", "sh", "-c", SCRIPT]);
    command.env("HOME", world.dir()).env_remove("XDG_CONFIG_HOME").env_remove("LEASEHOLD_CONFIG");
    command.env("D", world.dir()).env("LEASEHOLD_URL", url(world)).current_dir(world.dir());
    command.stdin(Stdio::null()).stderr(std::fs::File::create(world.path("said")).unwrap());
    world.run(&mut command)
}

fn leasehold(world: &World, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env("HOME", world.dir()).env_remove("XDG_CONFIG_HOME").env_remove("LEASEHOLD_CONFIG");
    command.args(words).env("LEASEHOLD_URL", url(world)).current_dir(world.dir()).output().unwrap()
}

/// It ends with 79, names the survivor, and nobody else gets in; not even while the program itself lingers, and would have
/// the time to release in the background.
fn assert_not_released(world: &World, mut run: Running<'_>, survivor: i32, name: &str) {
    let named = format!("could not end {name}");
    wait_for("the end of the guard", || world.text("said").contains("lost while").then_some(()));
    let next = leasehold(world, &["run", "r", "-q", "--wait", "1s", "--", "true"]);
    assert_eq!(next.status.code(), Some(75), "{next:?}; {}", world.text("said"));
    assert!(std::fs::read_to_string(world.path("report")).unwrap().contains("\"exit_code\":79"));
    assert_eq!(run.code(), Some(79), "{}", world.text("said"));
    assert!(world.text("said").contains(&named), "{}", world.text("said"));
    assert_eq!(world.alive(), [survivor]);
    kill(survivor, libc::SIGKILL);
}

fn needs_root_max_hold_over_what_cannot_be_killed_releases_nothing() {
    let world = World::new();
    let run = start(&world, "", &["--ttl", "1m", "--max-hold", "2s", "--grace", "500ms"]);
    let survivor = world.pids(2)[1];
    assert_not_released(&world, run, survivor, &format!("sleep ({survivor})"));
}

fn needs_root_what_a_killed_guard_left_and_cannot_be_killed_is_79_and_not_released() {
    let world = World::new();
    let run = start(&world, "", &["--ttl", "1m"]);
    let survivor = world.pids(2)[1];
    kill(world.wait_for_file("guard_").trim().parse().unwrap(), libc::SIGKILL);
    assert_not_released(&world, run, survivor, &format!("sleep ({survivor})"));
}

/// Where /proc shows each user only their own processes.
fn needs_root_what_cannot_be_killed_nor_seen_is_not_taken_for_dead() {
    let world = World::new();
    let run = start(
        &world,
        "mount -t proc -o hidepid=2 proc /proc && ",
        &["--ttl", "1m", "--max-hold", "2s", "--grace", "500ms"],
    );
    let survivor = world.pids(2)[1];
    assert_not_released(&world, run, survivor, "a process that cannot be seen");
}
