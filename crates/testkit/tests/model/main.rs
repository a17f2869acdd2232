//! The protocol, searched exhaustively: every order in which messages, ticks and losses can come, within small bounds. Good
//! variants hold; each bad one must fail, so that the models are known to have teeth.
//!
//! `cargo xtask sim --model` searches further than continuous integration does.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // helpers of tests, which may

mod lease;
mod observed;
mod queue;
mod redlock;

use stateright::{Checker as _, HasDiscoveries, Model};

/// True when there is time for more.
fn deep() -> bool {
    std::env::var_os("LEASEHOLD_MODEL_DEEP").is_some()
}

/// Searches a model, and says which of its `always` properties fail. `sometimes` properties must be reached.
fn violated<M>(name: &str, model: M) -> Vec<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: Send + Sync + std::hash::Hash + Clone + std::fmt::Debug + PartialEq,
    M::Action: Send + Sync + std::fmt::Debug + Clone + PartialEq,
{
    use stateright::Expectation;
    let expected: Vec<(&'static str, Expectation)> =
        model.properties().iter().map(|property| (property.name, property.expectation.clone())).collect();
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    let mut broken = Vec::new();
    for (property, expectation) in expected {
        match expectation {
            Expectation::Always if found.contains_key(property) => broken.push(property),
            // A search that stopped at a failure need not have been everywhere.
            Expectation::Sometimes
                if !found.contains_key(property) && broken.is_empty() && found.is_empty() =>
            {
                panic!("{name}: '{property}' was never reached: the model shows nothing")
            }
            _ => {}
        }
    }
    println!("{name:34} {:>9} states  {broken:?}", checker.unique_state_count());
    broken
}
