//! `cargo xtask bench`: what Leasehold costs, beside the least that could work and beside what users would pick instead.
//!
//! ```text
//!   plan (data) ──▶ run: engine by engine, round by round, everybody in turn ──▶ results (lines of JSON)
//!                        │                                                          │
//!                        └─▶ measured programs: this one again, and rivals          └─▶ judge ──▶ tables, plots, page
//! ```
//!
//! A package of its own: nothing that is shipped depends on it, and only `cargo xtask bench` builds it with optimisation.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal; printing is its work"
)]

mod judge;
mod measure;
mod plan;
mod report;
mod results;
mod rivals;
mod run;
mod stage;
mod task;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use plan::Group;
use results::Results;
use rivals::Rivals;
use run::Runner;
use task::{Failure, failed};

const ROUNDS: u32 = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["measure", task] => measured(task),
        ["spin"] => run::spin(),
        [role @ "waiter", task] => measure::role(role, task),
        _ => Options::read(&words).and_then(|options| bench(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measured(task: &str) -> Result<(), Failure> {
    println!("{}", serde_json::to_string(&measure::measure(task)?)?);
    Ok(())
}

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Options {
    rounds: u32,
    quick: bool,
    rivals: bool,
    /// The page is written.
    page: bool,
    /// One engine alone, and of it the groups whose title begins so.
    only: Option<String>,
    group: Option<String>,
    /// Nothing is measured; the figures of the last run are shown or written again.
    again: bool,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self, Failure> {
        let (rounds, rivals) = (ROUNDS, true);
        let mut options =
            Self { rounds, quick: false, rivals, page: false, only: None, group: None, again: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Failure::from(format!("{word} wants a value")));
            match *word {
                "--rounds" => options.rounds = rounds_of(value()?)?,
                "--quick" => (options.quick, options.rounds) = (true, 1),
                "--no-rivals" => options.rivals = false,
                "--write" => options.page = true,
                "--again" => options.again = true,
                "--group" => options.group = Some((*value()?).to_owned()),
                name if !name.starts_with('-') && options.only.is_none() => {
                    options.only = Some(name.to_owned());
                }
                other => return failed(format!("'{other}' is not understood; see cargo xtask help bench")),
            }
        }
        Ok(options)
    }

    /// The groups that were asked for.
    fn groups(&self) -> Result<Vec<Group>, Failure> {
        let is_wanted = |group: &Group| {
            self.only.as_deref().is_none_or(|only| only == "all" || only == group.stage.engine())
                && self.group.as_deref().is_none_or(|title| group.title.starts_with(title))
        };
        let groups: Vec<Group> = plan::groups(self.quick).into_iter().filter(is_wanted).collect();
        if groups.is_empty() {
            return failed(
                "nothing of that name is measured; there are: all, local, sqlite, redis, redlock, etcd, postgres",
            );
        }
        Ok(groups)
    }
}

fn rounds_of(text: &str) -> Result<u32, Failure> {
    let rounds = text.parse().ok().filter(|rounds| (1..=50).contains(rounds));
    rounds.ok_or_else(|| "--rounds: must be 1 to 50".into())
}

fn bench(options: &Options) -> Result<(), Failure> {
    let package = rivals::package();
    let root = package.ancestors().nth(2).ok_or("the package is not in its workspace")?.to_owned();
    let folder = root.join("target/bench");
    fs::create_dir_all(&folder)?;
    let groups = options.groups()?;
    let (lines, machine) = (folder.join("results.jsonl"), folder.join("machine.md"));
    if !options.again {
        let files = leasehold_testkit::server::folder("bench")?;
        fs::write(&machine, report::describe(files.path(), options.rounds, options.quick))?;
        measure_all(options, &groups, &folder, &lines)?;
    }
    let results = Results::parse(&fs::read_to_string(&lines)?)?;
    let machine = fs::read_to_string(&machine)?;
    println!("\n{machine}\n{}", report::text(&groups, &results));
    if options.page {
        report::write(&root, &groups, &results, &machine)?;
        println!("written: docs/performance.md and docs/performance/*.svg");
    }
    Ok(())
}

fn measure_all(options: &Options, groups: &[Group], folder: &Path, lines: &PathBuf) -> Result<(), Failure> {
    let rivals = if options.rivals {
        eprintln!("installing rivals below target/bench");
        Rivals::install(folder)
    } else {
        Rivals::none()
    };
    let mut log = fs::File::create(lines)?;
    let mut runner = Runner { rivals: &rivals, rounds: options.rounds, log: &mut log, folder };
    runner.run(groups, |what| eprintln!("{what}")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = Options::read(&["redis", "--rounds", "5", "--write"]).unwrap();
        assert_eq!((options.rounds, options.page, options.only.as_deref()), (5, true, Some("redis")));
        assert_eq!(Options::read(&["--quick"]).unwrap().rounds, 1);
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--slow"], &["redis", "etcd"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_engine_is_asked_for_by_name() {
        let options = |words: &[&str]| Options::read(words).unwrap().groups();
        assert!(options(&["etcd"]).unwrap().iter().all(|group| group.stage.engine() == "etcd"));
        assert!(options(&[]).unwrap().len() > options(&["--quick"]).unwrap().len());
        assert!(options(&["consul"]).is_err());
    }
}
