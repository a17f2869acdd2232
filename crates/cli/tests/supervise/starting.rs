//! What the command is born with, and what happens if it cannot be born.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::tests;
use crate::world::{World, is_alive};

tests! {
    a_command_that_is_not_there_gives_127,
    a_command_that_cannot_be_executed_gives_126,
    too_late_starts_nothing,
    a_script_without_a_first_line_is_run_by_the_shell,
    arguments_arrive_byte_by_byte,
    a_long_command_line_is_no_problem,
    the_environment_is_changed_as_asked,
    nothing_of_ours_leaks_into_the_command,
    group_and_session_are_the_front_s,
    signal_state_is_as_without_us,
    stdin_and_stdout_belong_to_the_command,
    a_pipe_closed_by_the_command_is_closed,
}

fn a_command_that_is_not_there_gives_127() {
    for name in ["no-such-command-anywhere", "/no/such/path", "./no-such-file", ""] {
        let world = World::new();
        assert_eq!(world.run(&mut world.front(&[], &[name])).code(), Some(127), "{name:?}");
    }
}

fn a_command_that_cannot_be_executed_gives_126() {
    let world = World::new();
    fs::write(world.path("plain"), "exit 0").unwrap();
    for name in [world.path("plain"), world.dir().to_owned()] {
        assert_eq!(world.run(&mut world.front(&[], &[&name])).code(), Some(126), "{}", name.display());
    }
    // Found in PATH, but not executable; and PATH is searched on.
    let mut front = world.front(&[], &["plain"]);
    front.env("PATH", world.dir());
    assert_eq!(world.run(&mut front).code(), Some(126));
    let mut front = world.front(&[], &["true"]);
    fs::write(world.path("true"), "").unwrap();
    front.env("PATH", format!("{}:/usr/bin:/bin", world.dir().display()));
    assert_eq!(world.run(&mut front).code(), Some(0));
}

fn too_late_starts_nothing() {
    let world = World::new();
    assert_eq!(world.sh(&["--ttl", "0"], "touch $D/started").code(), Some(126));
    assert!(!world.path("started").exists());
}

fn a_script_without_a_first_line_is_run_by_the_shell() {
    let world = World::new();
    fs::write(world.path("script"), "exit $(($# + 40))\n").unwrap();
    fs::set_permissions(world.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut front = world.front(&[], &[world.path("script").as_os_str(), OsStr::new("a"), OsStr::new("b")]);
    assert_eq!(world.run(&mut front).code(), Some(42));
}

fn output(mut command: Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn arguments_arrive_byte_by_byte() {
    let world = World::new();
    let odd = OsStr::from_bytes(b"\xff\n'\"$x");
    let words = [OsStr::new("printf"), OsStr::new("[%s]"), OsStr::new(""), OsStr::new("--ttl"), odd];
    let got = world.front(&[], &words).output().unwrap().stdout;
    assert_eq!(got, b"[][--ttl][\xff\n'\"$x]");
}

fn a_long_command_line_is_no_problem() {
    let world = World::new();
    let mut words = vec!["sh".to_owned(), "-c".to_owned(), "echo $#".to_owned()];
    words.extend((0..60_000).map(|number| format!("argument-{number}")));
    assert_eq!(output(world.front(&[], &words)), "59999\n");
}

fn the_environment_is_changed_as_asked() {
    let world = World::new();
    let text = output(world.front(&[], &["env"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"LEASE=mine") && lines.contains(&"CHANGED=new"), "{text}");
    assert!(!lines.iter().any(|line| line.starts_with("SECRET=") || *line == "CHANGED=old"), "{text}");
    assert!(lines.contains(&format!("D={}", world.dir().display()).as_str()), "the rest is inherited");
}

fn nothing_of_ours_leaks_into_the_command() {
    let world = World::new();
    let list = ["sh", "-c", "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> .*/\\1/p' | tr '\\n' ' '"];
    let mut plain = Command::new(list[0]);
    plain.args(&list[1..]).stdin(Stdio::null());
    assert_eq!(output(world.front(&[], &list)), output(plain));
}

fn group_and_session_are_the_front_s() {
    let world = World::new();
    let mut command = world
        .front(&[], &["sh", "-c", "cut -d' ' -f5,6 /proc/self/stat; sed -n 's/^PPid:.//p' /proc/$$/status"]);
    command.stdout(Stdio::piped());
    let mut front = world.run(&mut command);
    let mut text = String::new();
    front.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    front.wait();
    let session = nix::unistd::getsid(None).unwrap();
    assert_eq!(text, format!("{} {session}\n{}\n", front.pid(), world.guard()));
}

/// Mask and ignored signals, whatever our own parent had set.
fn signal_state_is_as_without_us() {
    let show = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    for wrapper in
        [vec!["env"], vec!["env", "--ignore-signal=HUP,INT,CHLD,RTMIN", "--block-signal=USR1,TERM"]]
    {
        let world = World::new();
        let run = |command: &Command| {
            let mut wrapped = Command::new(wrapper[0]);
            wrapped
                .args(&wrapper[1..])
                .arg(command.get_program())
                .args(command.get_args())
                .stdin(Stdio::null());
            output(wrapped)
        };
        // `env` starts one more program, so that what a Rust parent (this test) changes is the same for both.
        let plain = {
            let mut plain = Command::new("sh");
            plain.args(["-c", show]);
            run(&plain)
        };
        assert!(plain.contains("SigIgn"), "{plain}");
        assert_eq!(run(&world.front(&[], &["sh", "-c", show])), plain);
    }
}

fn stdin_and_stdout_belong_to_the_command() {
    let world = World::new();
    let mut command = world.front(&[], &["tr", "a-z", "A-Z"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut front = world.run(&mut command);
    front.child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let mut text = String::new();
    front.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), front.code()), ("HELLO", Some(0)));
    // `| head -1`: the command gets SIGPIPE as if we were not there.
    let world = World::new();
    let mut command = world.front(&[], &["yes"]);
    command.stdout(Stdio::piped());
    let mut front = world.run(&mut command);
    let mut first = [0; 2];
    front.child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&front.wait()), Some(libc::SIGPIPE));
}

fn a_pipe_closed_by_the_command_is_closed() {
    let world = World::new();
    let mut command = world.front(&[], &["sh", "-c", "exec <&- >&-; touch $D/closed; exec sleep 600 2>&-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut front = world.run(&mut command);
    // Ends although command, guard and front live on.
    let mut text = String::new();
    front.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    crate::world::wait_for("the closing", || world.path("closed").exists().then_some(()));
    assert!(is_alive(front.pid()) && is_alive(world.guard()));
    let mut stdin = front.child.stdin.take().unwrap();
    crate::world::wait_for("a broken pipe", || stdin.write_all(b"x").is_err().then_some(()));
}
