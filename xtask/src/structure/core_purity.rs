//! The core decides and cannot act: it is `no_std`, and its dependencies are the ones listed here.

use super::manifests::sections;
use crate::tree::Tree;

const MANIFEST: &str = "crates/core/Cargo.toml";
const ROOT: &str = "crates/core/src/lib.rs";
/// What the core may depend on. None of these can read a clock, open a socket, draw a random number or start a task.
const ALLOWED: &[&str] = &["thiserror"];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(manifest) = tree.text(MANIFEST) else { return vec![format!("{MANIFEST} is missing")] };
    let mut found: Vec<&str> = Vec::new();
    for (section, keys) in sections(manifest) {
        if section == "dependencies" {
            found.extend(keys);
        } else if let Some(name) = section.strip_prefix("dependencies.") {
            found.push(name);
        } else if section.contains("build-dependencies")
            || (section.starts_with("target.") && section.contains("dependencies"))
        {
            problems.push(format!("{MANIFEST}: [{section}] is not allowed in the pure core"));
        }
    }
    found.sort_unstable();
    if found != ALLOWED {
        problems.push(format!("{MANIFEST}: dependencies are {found:?}, must be exactly {ALLOWED:?}"));
    }
    if !tree.text(ROOT).is_some_and(|text| text.lines().any(|line| line.trim() == "#![no_std]")) {
        problems.push(format!("{ROOT}: must say #![no_std]"));
    }
    let core = tree.texts().filter(|(path, _)| path.starts_with("crates/core/src/"));
    for (path, text) in core {
        if text.lines().any(|line| line.trim_start().starts_with("extern crate std")) {
            problems.push(format!("{path}: brings std back into the pure core"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"x\"\n[dependencies]\nthiserror = { workspace = true }\n[dev-dependencies]\nproptest = \"1\"\n";
    const LIB: &str = "//! x\n\n#![no_std]\n";

    fn problems(manifest: &str, lib: &str) -> usize {
        check(&Tree::of(&[(MANIFEST, manifest), (ROOT, lib)])).len()
    }

    #[test]
    fn every_way_to_break_purity_is_found() {
        assert_eq!(problems(GOOD, LIB), 0);
        assert_eq!(problems(&GOOD.replace("[dev", "tokio = \"1\"\n[dev"), LIB), 1);
        assert_eq!(problems(&format!("{GOOD}[dependencies.rand]\nversion = \"1\"\n"), LIB), 1);
        assert_eq!(problems(&format!("{GOOD}[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n"), LIB), 1);
        assert_eq!(problems(&format!("{GOOD}[build-dependencies]\ncc = \"1\"\n"), LIB), 1);
        assert_eq!(problems(GOOD, "//! x\n"), 1);
        assert_eq!(problems(GOOD, &format!("{LIB}extern crate std;\n")), 1);
        assert_eq!(check(&Tree::default()).len(), 1);
    }
}
