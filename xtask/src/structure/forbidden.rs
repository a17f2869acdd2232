//! Things that must not be committed: unfinished code, tests that are switched off, unresolved merges.

use crate::tree::Tree;

/// Put together so that this file does not contain what it forbids.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("to", "do!("), "unfinished code"),
    (concat!("un", "implemented!("), "unfinished code"),
    (concat!("#[ig", "nore"), "a test that is switched off; a test that does not run must not look green"),
    (concat!("<<<<", "<<< "), "an unresolved merge"),
    (concat!(">>>>", ">>> "), "an unresolved merge"),
];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        for (number, line) in text.lines().enumerate() {
            let found = FORBIDDEN.iter().filter(|(what, _)| line.contains(what));
            problems.extend(found.map(|(what, why)| format!("{path}:{}: '{what}' is {why}", number + 1)));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_forbidden_thing_is_found_with_its_line() {
        for (what, _) in FORBIDDEN {
            let tree = Tree::of(&[("src/a.rs", &format!("fn a() {{\n  {what}\n}}"))]);
            assert!(check(&tree)[0].starts_with("src/a.rs:2: "));
        }
        assert!(check(&Tree::of(&[("a.rs", "fn a() {}")])).is_empty());
    }
}
