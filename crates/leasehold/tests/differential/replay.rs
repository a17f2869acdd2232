//! Runs random scripts, and makes a failing one small. Its seed is printed: `LEASEHOLD_SCRIPT_SEED=…` runs the same again.

use std::fmt::Debug;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

const SEED: &str = "LEASEHOLD_SCRIPT_SEED";
/// A failing script is tried so often in smaller forms: each costs a run on a server.
const SHRINKS: u32 = 600;

/// Runs so many scripts, none of which may tell of a difference.
pub(crate) fn scripts<S>(cases: u32, strategy: &S, run: impl Fn(&S::Value) -> Option<String>)
where
    S: Strategy,
    S::Value: Debug,
{
    if let Some(difference) = first_difference(cases, SHRINKS, strategy, run) {
        panic!("{difference}");
    }
}

/// The first difference that so many scripts find, with the script in as small a form as so many attempts find.
pub(crate) fn first_difference<S>(
    cases: u32,
    shrinks: u32,
    strategy: &S,
    run: impl Fn(&S::Value) -> Option<String>,
) -> Option<String>
where
    S: Strategy,
    S::Value: Debug,
{
    let seed = std::env::var(SEED).ok().map_or_else(leasehold_testkit::random::seed, |seed| {
        seed.parse().unwrap_or_else(|_| panic!("{SEED} is a number, and not {seed:?}"))
    });
    println!("{SEED}={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, max_shrink_iters: shrinks, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let judged =
        runner.run(strategy, |script| run(&script).map_or(Ok(()), |why| Err(TestCaseError::fail(why))));
    match judged {
        Ok(()) => None,
        Err(TestError::Fail(why, script)) => {
            Some(format!("{SEED}={seed}\n{why}\nafter the script {script:#?}"))
        }
        Err(TestError::Abort(why)) => Some(format!("{SEED}={seed}\n{why}")),
    }
}
