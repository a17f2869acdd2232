//! Random operations in virtual time against the engine's rules, judged by the history checker; and the same against
//! broken rules, which must be found.

use leasehold_testkit::{
    broken::mutants,
    driver_random::{Op, run},
    reference::{Rules, Sound},
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};

fn op() -> impl Strategy<Value = Op> {
    let (actor, resource) = (0u8..4, 0u8..2);
    let ttl_ms = prop_oneof![50u16..3_000, Just(50), Just(1_000)];
    let delay = prop_oneof![3 => Just(0u16), 1 => 0u16..1_000];
    let flight = prop_oneof![3 => Just(0u16), 2 => 0u16..40, 1 => 0u16..2_000];
    prop_oneof![
        6 => (actor.clone(), resource.clone(), ttl_ms.clone(), delay, any::<bool>(), flight.clone()).prop_map(
            |(actor, resource, ttl_ms, lock_delay_ms, queue, flight_ms)| Op::Claim {
                actor, resource, ttl_ms, lock_delay_ms, queue, flight_ms
            }
        ),
        2 => actor.clone().prop_map(|actor| Op::Duplicate { actor }),
        3 => (actor.clone(), ttl_ms, flight).prop_map(|(actor, ttl_ms, flight_ms)| Op::Renew { actor, ttl_ms, flight_ms }),
        1 => actor.clone().prop_map(|actor| Op::LateRenewal { actor }),
        3 => (actor.clone(), any::<bool>()).prop_map(|(actor, succeeded)| Op::Release { actor, succeeded }),
        1 => actor.clone().prop_map(|actor| Op::LateRelease { actor }),
        1 => (resource, any::<bool>()).prop_map(|(resource, now)| Op::Revoke { resource, now }),
        2 => actor.clone().prop_map(|actor| Op::Write { actor }),
        1 => actor.clone().prop_map(|actor| Op::LateWrite { actor }),
        3 => prop_oneof![0u16..100, 0u16..3_000, Just(500), Just(45_000)].prop_map(|ms| Op::Advance { ms }),
        1 => actor.prop_map(|actor| Op::Crash { actor }),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 0..80)
}

/// What is wrong with a run, if anything.
fn wrong(rules: &dyn Rules, ops: &[Op]) -> Option<String> {
    let run = run(rules, ops);
    let report = run.history.judge();
    if !report.is_clean() {
        return Some(report.to_string());
    }
    run.complaints.first().cloned()
}

proptest! {
    #![proptest_config(Config { cases: 3_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_rules_keep_every_invariant(ops in ops()) {
        prop_assert_eq!(wrong(&Sound, &ops), None);
    }
}

/// Broken rules that show in what holders see, without anybody to look at queues, lists or answers' wording.
const VISIBLE: &[&str] = &[
    "GrantsTwice",
    "GrantsTwiceNowAndThen",
    "TokenRepeats",
    "RenewalDrawsAToken",
    "ReleasesByNameAlone",
    "RenewShortens",
    "RenewOnlySaysSo",
    "AdoptsNothing",
    "AdoptsUnderANewToken",
    "ForgetsTheSpent",
    "ExpiresEarly",
    "RenewalsExpireEarly",
    "NeverExpires",
    "RoundsTtlsDown",
    "WaitsForTheDead",
];

/// Leaves out, one by one, every operation without which it is wrong all the same, until none is left.
fn fewest(rules: &dyn Rules, mut ops: Vec<Op>) -> Vec<Op> {
    let mut place = 0;
    while place < ops.len() {
        let without = [&ops[..place], &ops[place + 1..]].concat();
        if wrong(rules, &without).is_some() {
            (ops, place) = (without, 0);
        } else {
            place += 1;
        }
    }
    ops
}

#[test]
fn broken_rules_are_found_and_shrunk() {
    let mut missed = Vec::new();
    for mutant in mutants().filter(|mutant| VISIBLE.contains(&mutant.name)) {
        let rules = mutant.rules();
        // From a fixed seed: whether so many cases find it must not be chance.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config { cases: 5_000, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let outcome = runner.run(&ops(), |ops| match wrong(&*rules, &ops) {
            None => Ok(()),
            Some(what) => Err(TestCaseError::fail(what)),
        });
        match outcome {
            Err(TestError::Fail(reason, ops)) => {
                let ops = fewest(&*rules, ops);
                let first = reason.message().lines().take(2).collect::<Vec<_>>().join(" ");
                println!(
                    "{:24} in {} operations: {}",
                    mutant.name,
                    ops.len(),
                    first.chars().take(120).collect::<String>()
                );
                assert!(ops.len() <= 12, "{} needs at most a dozen operations: {ops:?}", mutant.name);
            }
            _ => missed.push(mutant.name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
