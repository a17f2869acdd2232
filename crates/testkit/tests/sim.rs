//! Tens of thousands of simulated deployments keep what is claimed of them; and every fault of design is found.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use leasehold_testkit::{
    broken,
    sim::{
        MUTANTS, SCENARIOS,
        campaign::{Campaign, explain},
        claims::NEEDS,
        scenario,
    },
};

const THREADS: usize = 2;
/// Runs of the real thing.
const RUNS: u64 = 50_000;
/// Within so many runs of its scenario every fault of design must be found.
const PATIENCE: u64 = 4_000;

#[test]
fn tens_of_thousands_of_deployments_keep_what_is_claimed_of_them() {
    let campaign =
        Campaign { first: 0, runs: RUNS, scenario: None, mutant: None, stop_after: 1, threads: THREADS };
    let tally = campaign.run();
    println!("{tally}");
    if let Some((&(name, _), seeds)) = tally.broken.iter().next() {
        panic!("{}", explain(&scenario::find(name).unwrap().schedule(seeds[0]), None));
    }
    // A simulator in which nothing happens proves nothing.
    assert!(
        tally.grants > 10 * RUNS && tally.handovers > 8 * RUNS && tally.extensions > 20 * RUNS,
        "{tally}"
    );
}

#[test]
fn every_fault_of_design_is_found() {
    let mut missed = Vec::new();
    for &mutant in MUTANTS {
        let campaign = Campaign {
            first: 0,
            runs: PATIENCE,
            scenario: None,
            mutant: Some(mutant),
            stop_after: 20,
            threads: THREADS,
        };
        let tally = campaign.run();
        // That the suite catches the twin is the business of the test of broken coordinators.
        let suite = mutant.twin().map_or("(no engine is at fault)", |twin| {
            broken::mutants().find(|broken| broken.name == twin).unwrap().clause
        });
        let invariants = tally.invariants().join(" ");
        println!("{:20} within {:5} runs: {invariants}; suite: {suite}", mutant.name(), tally.runs);
        if tally.broken.is_empty() {
            missed.push(mutant.name());
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_run_is_decided_by_its_seed_alone() {
    for seed in 0..50 {
        let schedule = scenario::of_seed(seed).schedule(seed);
        let again = scenario::of_seed(seed).schedule(seed);
        assert_eq!(schedule, again);
        let run = |schedule| leasehold_testkit::sim::history(schedule, None).events().to_vec();
        assert_eq!(run(&schedule), run(&again));
    }
}

#[test]
fn every_invariant_is_claimed_somewhere_and_every_scenario_claims_some() {
    let claimed = |name: &str, scenario: &leasehold_testkit::sim::Scenario| {
        (0..20).any(|seed| leasehold_testkit::sim::claims::claimed(name, &scenario.schedule(seed)))
    };
    for (name, _) in NEEDS {
        assert!(SCENARIOS.iter().any(|scenario| claimed(name, scenario)), "{name} is claimed nowhere");
    }
    for scenario in SCENARIOS {
        let count = NEEDS.iter().filter(|(name, _)| claimed(name, scenario)).count();
        assert!(count >= 7, "{} claims {count} only", scenario.name);
    }
}
