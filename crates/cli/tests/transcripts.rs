//! What the command line says, word for word: each file in `tests/transcripts` is a session, run anew in a folder and with a
//! lease file of its own; each file in `every` is run on every coordinator, which must all say the same; each in `briefly`, on a lease
//! file and on the coordinators that are reached in other ways or have something else behind them.
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
//! What differs from run to run stands as `<DIR>`, `<HOST>`, `<PID>`, `<TOKEN1>`, `<ID1>`, `<TIME>`, `<AGE>`, `<MS>`, `<PLACE>`, `<URL>`. To write
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
    sync::Arc,
};

use libtest_mimic::{Arguments, Failed, Trial};

mod engines;
mod normal;
#[path = "engines/others.rs"]
mod others;

use engines::Engine;
use normal::Normal;

/// Where one transcript is played.
struct Stage {
    /// `None`: a lease file in the folder, shown as it is.
    engine: Option<Arc<dyn Engine>>,
}

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let (own, every, briefly) =
        (files(&folder), files(&folder.join("every")), files(&folder.join("briefly")));
    let others = others::all();
    // A test that did not run must not look green.
    assert!(own.len() >= 9 && every.len() >= 6, "the transcripts are missing");
    let all: Vec<PathBuf> = own.iter().chain(&every).cloned().collect();
    assert!(!briefly.is_empty(), "the transcripts are missing");
    assert!(others.len() >= 4, "coordinators are missing");
    let mut trials: Vec<Trial> = own
        .into_iter()
        .map(|file| Trial::test(stem(&file), move || check(&file, &Stage { engine: None }, true)))
        .collect();
    trials.push(Trial::test("every_verb_has_a_transcript", move || every_verb_has_a_transcript(&all)));
    for engine in engines::all() {
        let engine: Arc<dyn Engine> = engine.into();
        let told = |file: &PathBuf| engine.has_queue() || stem(file) != "queue";
        trials.extend(every.iter().filter(|&file| told(file)).map(|file| trial(file, &engine)));
    }
    for engine in others.into_iter().chain([Box::new(engines::Sqlite) as Box<dyn Engine>]) {
        let engine: Arc<dyn Engine> = engine.into();
        trials.extend(briefly.iter().map(|file| trial(file, &engine)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Verbs whose words are tested beside what they do, and where.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bench", "tests/operate"),
    ("effects", "tests/effects.rs"),
    ("outbox", "tests/effects.rs"),
    ("preempt", "tests/run"),
    ("timeline", "tests/operate"),
    ("verify", "tests/verify"),
    ("watch", "tests/operate"),
];

fn every_verb_has_a_transcript(files: &[PathBuf]) -> Result<(), Failed> {
    let help = Command::new(env!("CARGO_BIN_EXE_leasehold")).arg("--help").output()?;
    let help = String::from_utf8(help.stdout)?;
    let listed = help.split_once("Commands:\n").ok_or("no list of verbs")?.1;
    let verbs: Vec<&str> = listed
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    let played: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let told = |verb: &&str| {
        let elsewhere = ELSEWHERE.iter().find(|(known, _)| known == verb);
        played.contains(&format!("leasehold {verb}"))
            || elsewhere.is_some_and(|(_, place)| root.join(place).exists())
    };
    let silent: Vec<&str> = verbs.iter().filter(|verb| !told(verb)).copied().collect();
    if verbs.len() < 15 || !silent.is_empty() {
        return Err(format!("of {} verbs these have no transcript: {silent:?}", verbs.len()).into());
    }
    Ok(())
}

fn trial(file: &Path, engine: &Arc<dyn Engine>) -> Trial {
    let (name, engine) = (format!("{}::{}", engine.name(), stem(file)), Arc::clone(engine));
    // What is written down is what SQLite says; the others must say the same.
    let (file, writes) = (file.to_owned(), engine.name() == "sqlite");
    Trial::test(name, move || check(&file, &Stage { engine: Some(engine) }, writes))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

fn check(file: &Path, stage: &Stage, writes: bool) -> Result<(), Failed> {
    let written = fs::read_to_string(file)?;
    let played = play(&written, stage)?;
    if writes && env::var_os("UPDATE").is_some() {
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
fn play(transcript: &str, stage: &Stage) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let mut normal = Normal::new(folder.path());
    let url = match &stage.engine {
        None => format!("sqlite:{}", folder.path().join("leases.db").display()),
        Some(engine) => {
            let url = engine.url(folder.path());
            normal.hide(&url);
            for namespace in ["default", "app"] {
                let init =
                    format!("leasehold init --fresh --max-ttl 24h --namespace {namespace} --url '{url}'");
                let said = perform(&init, folder.path(), &url, &mut normal)?;
                if said.lines().count() != 1 {
                    return Err(format!("{init}: {said}").into());
                }
            }
            url
        }
    };
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
        played.push_str(&perform(&command, folder.path(), &url, &mut normal)?);
    }
    Ok(played)
}

fn perform(command: &str, folder: &Path, url: &str, normal: &mut Normal) -> Result<String, Failed> {
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
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
