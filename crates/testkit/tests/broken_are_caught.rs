//! The suite is trusted because it catches every coordinator that was broken on purpose: a case of the clause that was
//! broken fails on it. Prints broken coordinator × cases that caught it.

#![allow(clippy::unwrap_used)] // helpers of tests, which may

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    thread,
};

use leasehold_testkit::{
    broken::{Mutant, mutants},
    suite::{CASES, Case, Cell, Engine, judge},
};

/// They mostly wait for one another, so many run at once on few processors.
const AT_ONCE: usize = 32;

/// Names of the cases that fail on this engine.
fn caught_by(mutant: &Mutant) -> Vec<&'static str> {
    let engine: Arc<dyn Engine> = Arc::new(mutant.engine());
    let cases: Vec<&'static Case> = CASES.iter().collect();
    let matrix = judge(&engine, &cases).unwrap();
    let failed = |case: &&Case| matches!(matrix.get(engine.name(), case.name), Some(Cell::Failed(_)));
    CASES.iter().filter(failed).map(|case| case.name).collect()
}

#[test]
fn every_broken_coordinator_is_caught_by_a_case_of_its_clause() {
    let waiting: Mutex<VecDeque<&'static Mutant>> = Mutex::new(mutants().collect());
    let caught: Mutex<Vec<(&'static Mutant, Vec<&'static str>)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(mutant) = waiting.lock().unwrap().pop_front() else { break };
                    let cases = caught_by(mutant);
                    caught.lock().unwrap().push((mutant, cases));
                }
            });
        }
    });
    let mut caught = caught.into_inner().unwrap();
    caught.sort_by_key(|(mutant, _)| (mutant.clause, mutant.name));
    let mut missed = Vec::new();
    for (mutant, cases) in &caught {
        let (own, others): (Vec<&str>, Vec<&str>) =
            cases.iter().partition(|case| case.starts_with(mutant.clause));
        println!("{:32} {} (and {} other cases)", mutant.name, own.join(" "), others.len());
        if own.is_empty() {
            missed.push(format!("{} breaks {}, caught only by {others:?}", mutant.name, mutant.clause));
        }
    }
    assert_eq!(caught.len(), mutants().count());
    assert!(missed.is_empty(), "not caught by a case of its clause:\n{}", missed.join("\n"));
}

#[test]
fn every_clause_has_a_broken_coordinator() {
    for clause in 1..=10 {
        let prefix = format!("clause_{clause:02}");
        assert!(CASES.iter().any(|case| case.name.starts_with(&prefix)), "{prefix} has no case");
        assert!(
            mutants().any(|mutant| mutant.clause.starts_with(&prefix)),
            "{prefix} has no broken coordinator"
        );
    }
    for mutant in mutants() {
        assert!(
            CASES.iter().any(|case| case.name.starts_with(mutant.clause)),
            "no case is called {}",
            mutant.clause
        );
    }
}
