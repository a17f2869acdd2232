//! What the command line says, word for word: each file in `tests/transcripts` is a session, run anew in a folder and with a
//! lease file of its own.
//!
//! ```text
//! # prose
//! $ leasehold acquire nightly --ttl 1h          a command for bash; `> ` continues it
//! <TOKEN1>                                      its standard output
//! ! leasehold: …                                its standard error
//! ~                                             an empty line of either
//! = 75                                          its exit code, when it is not 0
//! ```
//!
//! What differs from run to run stands as `<DIR>`, `<HOST>`, `<PID>`, `<TOKEN1>`, `<ID1>`, `<TIME>`, `<AGE>`, `<MS>`. To write
//! down what the program says now, set `UPDATE=1`; then read the difference.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::format_push_string,
    reason = "a test"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Failed, Trial};

mod normal;

use normal::Normal;

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // A test that did not run must not look green.
    assert!(files.len() >= 10, "the transcripts are missing");
    let trials = files.into_iter().map(|file| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        Trial::test(name, move || check(&file))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn check(file: &Path) -> Result<(), Failed> {
    let written = fs::read_to_string(file)?;
    let played = play(&written)?;
    if env::var_os("UPDATE").is_some() {
        fs::write(file, &played)?;
        return Ok(());
    }
    if written == played {
        return Ok(());
    }
    Err(format!(
        "{} says something else (UPDATE=1 writes it down):\n{}",
        file.display(),
        difference(&written, &played)
    )
    .into())
}

/// From the first line that differs to the last.
fn difference(written: &str, played: &str) -> String {
    let (written, played): (Vec<&str>, Vec<&str>) = (written.lines().collect(), played.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let before = same(&mut written.iter().zip(&played));
    let room = written.len().min(played.len()) - before;
    let after = same(&mut written.iter().rev().zip(played.iter().rev())).min(room);
    let mut text = String::new();
    for (sign, lines) in [('-', &written), ('+', &played)] {
        for line in &lines[before..lines.len() - after] {
            text.push_str(&format!("{sign} {line}\n"));
        }
    }
    text
}

/// The transcript with what its commands say now.
fn play(transcript: &str) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let mut normal = Normal::new(folder.path());
    let mut played = String::new();
    let mut lines = transcript.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(start) = line.strip_prefix("$ ") else {
            // Prose and empty lines stay; what was said before is said anew.
            if line.is_empty() || line.starts_with('#') {
                played.push_str(line);
                played.push('\n');
            }
            continue;
        };
        let mut command = start.to_owned();
        played.push_str(&format!("$ {start}\n"));
        while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
            command.push_str(&format!("\n{}", &more[2..]));
            played.push_str(&format!("{more}\n"));
        }
        played.push_str(&perform(&command, folder.path(), &mut normal)?);
    }
    Ok(played)
}

fn perform(command: &str, folder: &Path, normal: &mut Normal) -> Result<String, Failed> {
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let url = format!("sqlite:{}", folder.join("leases.db").display());
    // A session that waits for what never comes must fail, not hang.
    let output = Command::new("timeout")
        .args(["--foreground", "60", "bash", "-c", command])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("HOME", folder.join("home"))
        .env("USER", "alice")
        .env("LC_ALL", "C.UTF-8")
        .env("LEASEHOLD_URL", url)
        .output()?;
    let mut said = String::new();
    for (prefix, bytes) in [("", output.stdout), ("! ", output.stderr)] {
        for line in String::from_utf8(bytes)?.lines() {
            let line = if line.is_empty() { "~".to_owned() } else { normal.line(line) };
            said.push_str(&format!("{prefix}{line}\n"));
        }
    }
    match output.status.code() {
        Some(0) => {}
        Some(code) => said.push_str(&format!("= {code}\n")),
        None => said.push_str(&format!("= {}\n", output.status)),
    }
    Ok(said)
}
