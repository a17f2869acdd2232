//! The pages that name the test for each promise name tests that are there: a promise whose test was renamed or removed
//! must not go on looking kept.

use std::collections::BTreeSet;

use crate::tree::Tree;

/// Pages whose promises stand on named tests.
const PAGES: &[&str] = &["docs/guarantees.md", "docs/lessons.md", "docs/proof.md"];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let known = known(tree);
    let mut problems = Vec::new();
    for page in PAGES {
        let Some(text) = tree.text(page) else {
            problems.push(format!("{page} is missing"));
            continue;
        };
        let named = named(text);
        if named.is_empty() {
            problems.push(format!("{page}: names no test; a test is named as `like_this_one`"));
        }
        let missing = named.into_iter().filter(|(_, name)| !known.contains(name));
        problems.extend(missing.map(|(number, name)| {
            format!("{page}:{number}: there is no test `{name}`; name the one that shows it, or take the promise back")
        }));
    }
    problems
}

/// The names of tests in a page, with their lines: words in back-ticks that have two underscores or more, as the names of
/// our tests do and those of settings do not.
fn named(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // Every second piece between back-ticks is code.
            let code = line.split('`').skip(1).step_by(2).filter(|word| is_name(word));
            found.extend(code.map(|name| (at + 1, name)));
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    let snake = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.bytes().all(snake) && word.bytes().filter(|byte| *byte == b'_').count() >= 2
}

/// What a test can be called: the functions of the crates, and the strings that programs with their own harness may give
/// to a trial.
fn known(tree: &Tree) -> BTreeSet<&str> {
    let sources = tree.texts().filter(|(path, _)| {
        path.starts_with("crates/") && path.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs")
    });
    let mut known = BTreeSet::new();
    for (_, text) in sources {
        for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
            let function = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            known.extend(
                function.into_iter().chain(line.split('"').skip(1).step_by(2)).filter(|name| is_name(name)),
            );
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[tokio::test]\nasync fn a_test_of_ours() {\n    Trial::test(\"a_trial_of_ours\", run);\n}\n\
                          // fn only_a_comment_says_so()\n";

    fn problems(page: &str, source: &str) -> Vec<String> {
        let tree = Tree::of(&[(PAGES[0], page), (PAGES[1], page), ("crates/a/tests/b.rs", source)]);
        check(&tree).into_iter().filter(|problem| problem.starts_with(PAGES[0])).collect()
    }

    #[test]
    fn tests_that_are_there_may_be_named() {
        let page = "| a | `a_test_of_ours`, `a_trial_of_ours` |\n`max_ttl` `run` `LEASEHOLD_LEASE_ID`\n\
                    ```\n`not_a_test_at_all`\n```\n";
        assert_eq!(problems(page, SOURCE), [""; 0]);
    }

    #[test]
    fn a_test_that_is_not_there_is_found_with_its_line() {
        for gone in ["a_test_that_was_renamed", "only_a_comment_says_so", "a_test_of_our"] {
            let found = problems(&format!("`a_test_of_ours`\n\n| x | `{gone}` |\n"), SOURCE);
            assert!(found.len() == 1 && found[0].starts_with("docs/guarantees.md:3: "), "{gone}: {found:?}");
            assert!(found[0].contains(gone));
        }
        assert_eq!(problems("`a_test_of_ours`", "").len(), 1);
    }

    #[test]
    fn a_page_must_be_there_and_name_something() {
        assert_eq!(problems("nothing at all", SOURCE).len(), 1);
        assert_eq!(check(&Tree::default()).len(), PAGES.len());
    }
}
