//! The director: starts the two, stops one, and says at the end what became of the account.

use std::{
    error::Error,
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    Setting,
    bank::{self, Place},
    person,
};

/// One of the two, in a process of their own.
struct Actor {
    name: &'static str,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
}

impl Actor {
    fn enter(name: &'static str, url: &str, place: &Place, fenced: bool) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .env(person::NAME, name)
            .env(person::URL, url)
            .env(person::PLACE, place.text())
            .env(person::FENCED, fenced.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take().ok_or("no stdin")?;
        let lines = BufReader::new(process.stdout.take().ok_or("no stdout")?).lines();
        Ok(Self { name, process, lines, stdin })
    }

    /// Relays what it says, up to the line that begins with `word`; false when it ends first.
    fn tells(&mut self, word: &str) -> Result<bool, Box<dyn Error>> {
        for line in self.lines.by_ref() {
            let line = line?;
            println!("  {:6} {line}", self.name);
            if line.starts_with(word) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn signal(&self, signal: Signal) -> Result<(), Box<dyn Error>> {
        Ok(kill(Pid::from_raw(i32::try_from(self.process.id())?), signal)?)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn perform(setting: &Setting) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let own = format!("sqlite:{}", folder.path().join("leases.db").display());
    let url = setting.url.as_ref().unwrap_or(&own);
    let place = Place::choose(setting, folder.path())?;
    let _service = bank::serve(&place, setting.fenced)?;
    place.set_up()?;
    let fence = if setting.fenced { "fenced" } else { "NOT fenced" };
    println!("the account is kept in {}, {fence}; the lease on it lasts 1 s unless renewed", place.kind());

    let mut alice = Actor::enter("alice", url, &place, setting.fenced)?;
    if !alice.tells("checked")? {
        return Err("alice did not get that far".into());
    }
    alice.signal(Signal::SIGSTOP)?;
    println!("  alice  is stopped (SIGSTOP), longer than her lease lasts");
    let mut bob = Actor::enter("bob", url, &place, setting.fenced)?;
    if !bob.tells("checked")? {
        return Err("bob did not get that far".into());
    }
    writeln!(bob.stdin, "go")?;
    let _ = bob.tells("done")?;
    println!("  alice  goes on (SIGCONT), and knows of nothing");
    writeln!(alice.stdin, "go")?;
    alice.signal(Signal::SIGCONT)?;
    let _ = alice.tells("done")?;

    let account = place.account()?;
    println!("the account says {}; it was written by {}", account.balance, account.history.join(", "));
    match account.balance {
        50 => println!("nothing is lost: what alice wrote bounced, and bob's 50 stands"),
        70 => println!("DAMAGE: bob's 50 is gone, overwritten by somebody whose lease had ended"),
        other => return Err(format!("nobody wrote {other}").into()),
    }
    Ok(())
}
