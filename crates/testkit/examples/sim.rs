//! Runs the simulator for as long as one likes: `cargo xtask sim` says how.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

use std::{process::ExitCode, time::Duration};

use leasehold_testkit::{
    clock::Stopwatch,
    sim::{
        MUTANTS, Mutant, SCENARIOS, Scenario,
        campaign::{Campaign, Tally, explain, transcript},
        scenario,
    },
};

/// Runs between two looks at the watch.
const ROUND: u64 = 5_000;

#[derive(Default)]
struct Wish {
    seed: Option<u64>,
    first: u64,
    runs: Option<u64>,
    within: Option<Duration>,
    scenario: Option<&'static Scenario>,
    mutant: Option<Mutant>,
    transcript: bool,
}

fn main() -> ExitCode {
    match wish(std::env::args().skip(1)) {
        Ok(wish) => fulfil(&wish),
        Err(problem) => {
            eprintln!("sim: {problem}");
            ExitCode::from(64)
        }
    }
}

fn wish(mut args: impl Iterator<Item = String>) -> Result<Wish, String> {
    let mut wish = Wish::default();
    while let Some(flag) = args.next() {
        if flag == "--transcript" {
            wish.transcript = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{flag} needs a number, not '{value}'"));
        match flag.as_str() {
            "--seed" => wish.seed = Some(number()?),
            "--first" => wish.first = number()?,
            "--runs" => wish.runs = Some(number()?),
            "--for" => wish.within = Some(duration(&value)?),
            "--scenario" => wish.scenario = Some(scenario::find(&value).ok_or_else(no_scenario)?),
            "--mutant" => {
                let found = MUTANTS.iter().find(|mutant| mutant.name() == value);
                wish.mutant = Some(*found.ok_or_else(no_mutant)?);
            }
            _ => return Err(format!("'{flag}' is not an argument")),
        }
    }
    Ok(wish)
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(format!("'{text}' is no duration such as 90s, 10m or 1h")),
    };
    number
        .parse()
        .map(|n: u64| Duration::from_secs(n * seconds))
        .map_err(|_| format!("'{text}' is no duration"))
}

fn no_scenario() -> String {
    let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    format!("scenarios: {}", names.join(", "))
}

fn no_mutant() -> String {
    let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name()).collect();
    format!("mutants: {}", names.join(", "))
}

fn fulfil(wish: &Wish) -> ExitCode {
    if let Some(seed) = wish.seed {
        let schedule = wish.scenario.unwrap_or_else(|| scenario::of_seed(seed)).schedule(seed);
        if wish.transcript {
            print!("{}", transcript(&schedule, wish.mutant));
        }
        println!("{}", explain(&schedule, wish.mutant));
        return ExitCode::SUCCESS;
    }
    let watch = Stopwatch::start();
    let mut total = Tally::default();
    let mut first = wish.first;
    loop {
        let left = wish.runs.map_or(ROUND, |runs| runs - total.runs);
        let runs = left.min(ROUND);
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let campaign = Campaign {
            first,
            runs,
            scenario: wish.scenario,
            mutant: wish.mutant,
            stop_after: usize::MAX,
            threads,
        };
        total.add(campaign.run());
        first += runs;
        let over = match (wish.within, wish.runs) {
            (Some(within), _) => watch.elapsed() >= within,
            (None, runs) => total.runs >= runs.unwrap_or(10 * ROUND),
        };
        if over {
            break;
        }
    }
    println!(
        "{total}\n{:?}, {:?} a run",
        watch.elapsed(),
        watch.elapsed() / u32::try_from(total.runs).unwrap_or(1)
    );
    let Some((&(name, _), seeds)) = total.broken.iter().next() else { return ExitCode::SUCCESS };
    if let (Some(scenario), Some(&seed)) = (scenario::find(name), seeds.first()) {
        println!("\n{}", explain(&scenario.schedule(seed), wish.mutant));
    }
    ExitCode::FAILURE
}
