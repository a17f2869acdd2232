//! The changelog has a section for what is not released yet, and says what changed in words of a fixed set.

use crate::tree::Tree;

const FILE: &str = "CHANGELOG.md";
const SECTIONS: &[&str] = &["Added", "Changed", "Fixed", "Guarantees"];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.text(FILE) else { return vec![format!("{FILE} is missing")] };
    let mut problems = Vec::new();
    let releases: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    if releases.first().is_none_or(|first| first.trim_matches(['[', ']']) != "Unreleased") {
        problems.push(format!("{FILE}: the first section must be '## Unreleased'"));
    }
    let unknown =
        text.lines().filter_map(|line| line.strip_prefix("### ")).filter(|name| !SECTIONS.contains(name));
    problems.extend(unknown.map(|name| format!("{FILE}: '### {name}' is none of {}", SECTIONS.join(", "))));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changelog_needs_an_unreleased_section_and_known_words() {
        let problems = |text| check(&Tree::of(&[(FILE, text)])).len();
        assert_eq!(problems("# Changelog\n\n## Unreleased\n\n### Added\n"), 0);
        assert_eq!(problems("# Changelog\n\n## [Unreleased]\n"), 0);
        assert_eq!(problems("# Changelog\n\n## 0.1.0\n"), 1);
        assert_eq!(problems("# Changelog\n\n## Unreleased\n\n### Misc\n"), 1);
        assert_eq!(check(&Tree::default()).len(), 1);
    }
}
