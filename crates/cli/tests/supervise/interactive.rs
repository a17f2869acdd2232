//! Interactive programs under the real program, with a real lease: as if started directly.

use crate::terminal::a_shell_in_a_shell;
use crate::tests;
use crate::tty::Tty;
use crate::world::World;

tests! {
    an_editor_works,
    a_pager_under_the_program_works,
    a_shell_under_the_program_works_and_can_suspend_itself,
    ctrl_z_and_fg_under_the_program,
    ctrl_c_under_the_program_ends_the_command_and_frees_the_resource,
}

/// The lease is over, and the terminal is the shell's again.
fn freed(tty: &mut Tty) {
    tty.type_line("run true; echo free=$?");
    tty.expect("free=0");
}

fn an_editor_works() {
    let world = World::new();
    let mut tty = Tty::program(&world);
    tty.type_line("run vi -u NONE $D/text; echo code=$?");
    tty.expect("[New");
    tty.type_keys("ihello from the editor\x1b:wq\r");
    tty.expect("code=0");
    assert_eq!(world.text("text"), "hello from the editor\n");
    freed(&mut tty);
}

fn a_pager_under_the_program_works() {
    let world = World::new();
    std::fs::write(world.path("text"), (0..500).map(|n| format!("line-{n}")).collect::<Vec<_>>().join("\n"))
        .unwrap();
    let mut tty = Tty::program(&world);
    tty.type_line("run less $D/text; echo code=$?");
    tty.expect("line-20");
    tty.type_keys("G");
    tty.expect("line-499");
    tty.type_keys("q");
    tty.expect("code=0");
    freed(&mut tty);
}

fn a_shell_under_the_program_works_and_can_suspend_itself() {
    let world = World::new();
    let mut tty = Tty::program(&world);
    a_shell_in_a_shell(&mut tty);
    freed(&mut tty);
}

fn ctrl_z_and_fg_under_the_program() {
    let world = World::new();
    std::fs::write(world.path("script"), "echo READY; read line; echo \"line is <$line>\"; exit 6").unwrap();
    let mut tty = Tty::program(&world);
    tty.type_line("run sh $D/script");
    tty.expect("READY");
    tty.type_keys("\x1a");
    tty.expect("Stopped");
    // A command that sleeps keeps its lease: another one is refused.
    tty.type_line("run true; echo busy=$?");
    tty.expect("busy=75");
    tty.type_line("fg");
    tty.type_line("hello");
    tty.expect("line is <hello>");
    tty.expect("prompt> ");
    tty.type_line("echo code=$?");
    tty.expect("code=6");
    freed(&mut tty);
}

fn ctrl_c_under_the_program_ends_the_command_and_frees_the_resource() {
    let world = World::new();
    let mut tty = Tty::program(&world);
    tty.type_line("run sh -c 'echo READY; exec sleep 600'");
    tty.expect("READY\r\n");
    tty.type_keys("\x03");
    tty.expect("prompt> ");
    tty.type_line("echo then=$?");
    tty.expect("then=130");
    freed(&mut tty);
}
