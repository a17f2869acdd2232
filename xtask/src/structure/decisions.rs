//! Decision records are numbered without gaps, fit on a page, and are listed in their index.

use crate::tree::Tree;

const FOLDER: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";
/// One page.
const MAX_LINES: usize = 80;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(index) = tree.text(INDEX) else { return vec![format!("{INDEX} is missing")] };
    let mut problems = Vec::new();
    let mut next = 1;
    for (path, text) in tree.texts() {
        let Some(file) = path.strip_prefix(FOLDER).filter(|_| path != INDEX) else { continue };
        let number = format!("{next:04}");
        if !file.starts_with(&format!("{number}-")) {
            problems
                .push(format!("{path}: expected record {number} here; records are numbered without gaps"));
        }
        next += 1;
        let given = file.get(..4).unwrap_or(file);
        if !index.contains(&format!("]({file})")) {
            problems.push(format!("{INDEX}: does not list {file}"));
        }
        if !text.starts_with(&format!("# {given}: ")) {
            problems.push(format!("{path}: must begin with '# {given}: ' and its title"));
        }
        for section in ["Status:", "## Why", "## Decision", "## Consequences"] {
            if !text.lines().any(|line| line.starts_with(section)) {
                problems.push(format!("{path}: has no line '{section}'"));
            }
        }
        if text.lines().count() > MAX_LINES {
            problems.push(format!("{path}: is longer than a page ({MAX_LINES} lines)"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: &str) -> String {
        format!("# {number}: Title\n\nStatus: accepted\n\n## Why\n\n## Decision\n\n## Consequences\n")
    }

    fn problems(index: &str, records: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = records.iter().map(|(file, _)| format!("{FOLDER}{file}")).collect();
        let mut files: Vec<(&str, &str)> =
            paths.iter().map(String::as_str).zip(records.iter().map(|r| r.1)).collect();
        files.push((INDEX, index));
        check(&Tree::of(&files))
    }

    #[test]
    fn every_record_is_listed_numbered_and_complete() {
        let (one, two) = (record("0001"), record("0002"));
        let index = "[a](0001-a.md) [b](0002-b.md)";
        assert!(problems(index, &[("0001-a.md", &one), ("0002-b.md", &two)]).is_empty());
        assert_eq!(problems("[a](0001-a.md)", &[("0001-a.md", &one), ("0002-b.md", &two)]).len(), 1);
        assert_eq!(problems(index, &[("0002-b.md", &two)]).len(), 1);
        assert_eq!(problems(index, &[("0001-a.md", &two)]).len(), 1);
        assert_eq!(problems(index, &[("0001-a.md", &one.replace("## Why", ""))]).len(), 1);
        assert_eq!(problems(index, &[("0001-a.md", &(one + &"\n".repeat(MAX_LINES)))]).len(), 1);
        assert_eq!(check(&Tree::default()).len(), 1);
    }
}
