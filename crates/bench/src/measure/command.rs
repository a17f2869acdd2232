//! What a command costs that is run under a lease, from its start to its end.

use std::{process::Command, process::Stdio};

use leasehold_testkit::clock::boot_ns;

use super::who;
use crate::task::{Answer, Failure, Task, failed, figure, number};

/// So many are run for each second that a task gives.
const PER_SECOND: u64 = 20;

/// Where the runner is told to find our own program.
const PROGRAM: &str = "LEASEHOLD_PROGRAM";

pub(super) fn command(task: &Task) -> Result<Answer, Failure> {
    let mut took_ms = Vec::new();
    for _ in 0..(task.millis * PER_SECOND / 1_000).max(10) {
        let mut command = program(task)?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let begun = boot_ns();
        let status = command.status()?;
        took_ms.push(number(boot_ns().saturating_sub(begun)) / 1e6);
        if !status.success() {
            return failed(format!("{} ended with {status}", task.who));
        }
    }
    took_ms.sort_by(f64::total_cmp);
    let middle = took_ms.get(took_ms.len() / 2).copied().unwrap_or_default();
    Ok(Answer::from([(figure::WALL.to_owned(), middle)]))
}

fn program(task: &Task) -> Result<Command, Failure> {
    let mut command = match task.who.as_str() {
        who::OURS => {
            let program = std::env::var_os(PROGRAM).ok_or("the leasehold program was not built")?;
            let mut command = Command::new(program);
            command.args(["run", "command", "--url", &task.url, "--namespace", "bench", "--"]);
            command
        }
        who::FLOCK => {
            let mut command = Command::new("flock");
            command.arg("-n").arg(task.folder.join("command"));
            command
        }
        who::ETCDCTL => {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", task.host(), "lock", "command"]);
            command
        }
        other => return failed(format!("nobody called {other} runs commands")),
    };
    command.arg("true");
    Ok(command)
}
