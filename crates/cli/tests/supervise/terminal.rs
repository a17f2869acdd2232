//! On a terminal, `run a -- b` is like `b`: keys, job control, interactive programs.

use crate::tests;
use crate::tty::Tty;
use crate::world::{World, wait_for};

tests! {
    ctrl_c_reaches_the_command_exactly_once,
    ctrl_c_ends_the_loop_of_the_shell,
    no_ctrl_c_is_lost_while_the_command_starts,
    ctrl_c_while_waiting_does_not_kill_the_guard,
    ctrl_z_and_fg,
    ctrl_z_and_bg_and_a_read_in_the_background,
    a_lease_lost_under_ctrl_z_ends_the_command,
    a_pager_works,
    a_shell_works_and_can_suspend_itself,
    a_pipeline_of_two_works,
    a_resize_arrives_once,
    a_hang_up_of_the_terminal_reaches_the_command,
}

const COUNT_INT: &str =
    "trap 'echo >> $D/count' INT; echo READY; while ! [ -e $D/end ]; do sleep 0.02; done; exit 5";

fn ctrl_c_reaches_the_command_exactly_once() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "");
    std::fs::write(world.path("script"), COUNT_INT).unwrap();
    tty.type_line("run sh $D/script");
    tty.expect("READY");
    for count in 1..4 {
        tty.type_keys("\x03");
        wait_for("the signal", || (world.text("count").len() == count).then_some(()));
        wait_for("the front's copy", || {
            (world.text("log").matches("signo: 2,").count() == count).then_some(())
        });
    }
    world.touch("end");
    tty.type_line("echo code=$?");
    tty.expect("code=5");
    assert_eq!(world.text("count").len(), 3);
    assert!(!world.text("log").contains("forwarded: true"), "log:\n{}", world.text("log"));
}

fn ctrl_c_ends_the_loop_of_the_shell() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "");
    tty.type_line("for i in 1 2 3; do echo round$i; run sleep 600; done; echo en''d code=$?");
    tty.expect("round1\r\n");
    world.wait_for_log("Started");
    tty.type_keys("\x03");
    tty.expect("prompt> ");
    tty.type_line("echo then=$?");
    tty.expect("then=130");
    wait_for("no second round", || (world.text("log").matches("guard").count() == 1).then_some(()));
}

fn no_ctrl_c_is_lost_while_the_command_starts() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "--wait");
    for round in 0..25 {
        for name in ["log", "go"] {
            let _absent = std::fs::remove_file(world.path(name));
        }
        tty.type_line("run sleep 600");
        world.wait_for_log("waiting");
        world.touch("go");
        wait_for("the grant", || world.text("log").contains("deadline").then_some(()));
        for _ in 0..round * 800 {
            std::hint::spin_loop();
        }
        tty.type_keys("\x03");
        tty.expect("prompt> ");
        tty.type_line(&format!("echo then{round}=$?"));
        tty.expect(&format!("then{round}=130"));
    }
}

fn ctrl_c_while_waiting_does_not_kill_the_guard() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "--wait");
    tty.type_line("run sh -c 'echo \"got\" it'");
    world.wait_for_log("waiting");
    tty.type_keys("\x03");
    world.wait_for_log("signo: 2, origin: Terminal, forwarded: false");
    world.touch("go");
    tty.expect("got it");
}

fn ctrl_z_and_fg() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "--ttl 1500 --grace 300 --renew");
    std::fs::write(world.path("script"), "echo READY; read line; echo \"line is <$line>\"; exit 6").unwrap();
    tty.type_line("run sh $D/script");
    tty.expect("READY");
    for round in 1..4 {
        tty.type_keys("\x1a");
        tty.expect("Stopped");
        // Longer than any deadline the front had set: the guard renews.
        let before = world.text("log").matches("renewed").count();
        wait_for("renewals", || (world.text("log").matches("renewed").count() > before + 4).then_some(()));
        tty.type_line("fg");
        wait_for("taken back", || (world.text("log").matches("lost: false").count() == round).then_some(()));
    }
    tty.type_line("hello");
    tty.expect("line is <hello>");
    tty.type_line("echo code=$?");
    tty.expect("code=6");
    assert!(world.text("log").contains("stopped: None"));
}

fn ctrl_z_and_bg_and_a_read_in_the_background() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "--ttl 1500 --grace 300 --renew");
    std::fs::write(
        world.path("script"),
        "echo READY; while ! [ -e $D/on ]; do sleep 0.02; done; read line; echo \"<$line>\"",
    )
    .unwrap();
    tty.type_line("run bash $D/script");
    tty.expect("READY");
    tty.type_keys("\x1a");
    tty.expect("Stopped");
    tty.type_line("bg");
    wait_for("taken back", || (world.text("log").matches("lost: false").count() == 1).then_some(()));
    world.touch("on");
    world.wait_for_log(&format!("ChildStopped {{ signal: {} }}", libc::SIGTTIN));
    wait_for("the suspension", || world.text("log").contains("keep second").then_some(()));
    wait_for("the shell's word", || {
        tty.type_line("jobs");
        (0..50).find_map(|_| {
            crate::world::nap();
            tty.has("Stopped").then_some(())
        })
    });
    tty.type_line("fg");
    wait_for("taken back", || (world.text("log").matches("lost: false").count() == 2).then_some(()));
    tty.type_line("hello");
    tty.expect("<hello>");
}

fn a_lease_lost_under_ctrl_z_ends_the_command() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "--ttl 1500 --grace 300 --renew");
    tty.type_line("run sh -c 'echo $$ >> $D/pids; exec sleep 600'");
    world.pids(1);
    tty.type_keys("\x1a");
    tty.expect("Stopped");
    world.touch("lose");
    world.wait_all_dead();
    tty.type_line("fg; echo code=$?");
    // bash forgets a job that ended by itself after `fg` was typed or before; both are right.
    wait_for("the front's end", || world.text("log").contains("stopped: Some(LeaseLost)").then_some(()));
    assert!(!world.text("log").contains(" release "));
}

fn a_pager_works() {
    let world = World::new();
    std::fs::write(world.path("text"), (0..500).map(|n| format!("line-{n}")).collect::<Vec<_>>().join("\n"))
        .unwrap();
    let mut tty = Tty::bash(&world, "");
    tty.type_line("run less $D/text; echo code=$?");
    tty.expect("line-20");
    tty.type_keys("G");
    tty.expect("line-499");
    // A pager that is still painting may overlook the key, with us or without.
    let pid = wait_for("the pager's pid", || {
        let log = world.text("log");
        log.split_once("pid: ")?.1.split_once(' ').map(|(pid, _)| pid.to_owned())
    });
    let asleep = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") S ");
    wait_for("a pager that waits", || {
        let still = (0..20).all(|_| {
            crate::world::nap();
            asleep()
        });
        still.then_some(())
    });
    tty.type_keys("\x1a");
    tty.expect("Stopped");
    tty.type_line("fg");
    tty.expect("line-499");
    tty.type_keys("q");
    tty.type_line("echo al''ive");
    tty.expect("alive");
}

fn a_shell_works_and_can_suspend_itself() {
    let world = World::new();
    a_shell_in_a_shell(&mut Tty::bash(&world, "--ttl 1500 --grace 300 --renew"));
}

/// A shell under `run` interrupts its own command, suspends itself, goes on and ends with a code.
pub(crate) fn a_shell_in_a_shell(tty: &mut Tty) {
    tty.type_line("PS1='in''ner> ' run bash --norc --noprofile --noediting -i");
    tty.expect("inner> ");
    tty.type_line("sh -c 'echo $((40 + 2)); exec sleep 600'");
    tty.expect("42");
    tty.type_keys("\x03");
    tty.expect("inner> ");
    tty.type_line("suspend");
    tty.expect("Stopped");
    tty.type_line("fg");
    tty.type_line("echo still he''re");
    tty.expect("still here");
    tty.type_line("exit 9");
    tty.expect("prompt> ");
    tty.type_line("echo code=$?");
    tty.expect("code=9");
}

fn a_pipeline_of_two_works() {
    let world = World::new();
    let mut tty = Tty::bash(&world, "");
    tty.type_line("run yes | head -2 | tr y z; echo codes=${PIPESTATUS[@]}");
    tty.expect("z\r\nz\r\n");
    tty.expect("codes=141 0 0");
    tty.type_line("run seq 300 | less; echo al''ive");
    tty.expect("20\r\n");
    tty.type_keys("q");
    tty.expect("alive");
    tty.type_line("run sleep 600 | cat; echo co''des=${PIPESTATUS[@]}");
    wait_for("the third", || (world.text("log").matches("Started").count() == 3).then_some(()));
    tty.type_keys("\x03");
    tty.type_line("echo af''ter");
    tty.expect("after");
}

fn a_resize_arrives_once() {
    let world = World::new();
    let exe = std::env::current_exe().unwrap();
    let mut tty = Tty::bash(&world, "");
    tty.type_line(&format!("run '{}' receiver", exe.display()));
    let command: i32 = world.wait_for_file("ready").parse().unwrap();
    let winch = format!("{} 0\n", libc::SIGWINCH);
    for count in 1..4_u16 {
        tty.resize(30 + count);
        wait_for("the resize", || (world.text("got") == winch.repeat(count.into())).then_some(()));
        wait_for("the front's copy", || {
            (world.text("log").matches("signo: 28, origin: Terminal, forwarded: false").count()
                == usize::from(count))
            .then_some(())
        });
    }
    crate::world::kill(command, libc::SIGKILL);
    tty.expect("Killed");
    assert_eq!(world.text("got"), winch.repeat(3));
}

/// The kernel tells the leader of the session only; a plain command would be that leader.
fn a_hang_up_of_the_terminal_reaches_the_command() {
    let world = World::new();
    let script = "trap 'touch $D/hung; exit 3' HUP; echo READY; while :; do sleep 0.02; done";
    let mut tty = Tty::run(&world.front(&[], &["sh", "-c", script]));
    tty.expect("READY");
    tty.hang_up();
    wait_for("the hang-up", || world.path("hung").exists().then_some(()));
    world.wait_for_log("status: Some(Code(3))");
}
