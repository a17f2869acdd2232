//! Several processes at once: this program again, in a role.

use std::process::{Child, Command, Stdio};

use super::sqlite;
use crate::task::{Answer, Failure, Task, What, failed, figure};

/// This program again.
pub(super) fn again(task: &Task, role: &str) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([role, &serde_json::to_string(task)?]);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// `size` processes on one file, each with a resource of its own.
pub(super) fn processes(task: &Task) -> Result<Answer, Failure> {
    let alone = Task { what: What::Pairs, size: 1, ..task.clone() };
    let mut children = Vec::new();
    for _ in 0..task.tasks() {
        children.push(again(&alone, "measure")?);
    }
    let mut rates = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer: Answer = serde_json::from_str(text.lines().last().unwrap_or_default())?;
        rates.push(answer.get(figure::RATE).copied().unwrap_or(0.0));
    }
    let all: f64 = rates.iter().sum();
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let fair = all / f64::from(task.size.max(1));
    Ok(Answer::from([(figure::RATE.to_owned(), all), (figure::SLOWEST.to_owned(), slowest / fair)]))
}

/// What the other side of a measurement does.
pub(crate) fn role(role: &str, task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    match role {
        "waiter" => sqlite::role_waiter(&task),
        other => failed(format!("there is no role {other}")),
    }
}
