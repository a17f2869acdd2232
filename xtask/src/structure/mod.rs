//! Rules about the tree that neither the compiler nor clippy can hold. One file each, over a [`Tree`], giving problems as
//! sentences that name the file.

pub(crate) mod links;

mod bans;
mod changelog;
mod core_purity;
mod decisions;
mod forbidden;
mod manifests;
mod named_tests;

use crate::{Failure, run, tree::Tree};

const RULES: &[fn(&Tree) -> Vec<String>] = &[
    core_purity::check,
    manifests::check,
    bans::check,
    forbidden::check,
    links::check,
    decisions::check,
    changelog::check,
    named_tests::check,
];

/// Checks every rule.
pub(crate) fn check() -> Result<(), Failure> {
    let tree = Tree::read(&run::root())?;
    let problems: Vec<String> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    report(&problems)
}

/// Fails when there are problems, listing them.
pub(crate) fn report(problems: &[String]) -> Result<(), Failure> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::new(problems.join("\n")))
}
