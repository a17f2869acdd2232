//! Every package inherits the lints of the workspace; without that line they would silently not apply. Packages that are a
//! workspace of their own stand outside: examples as third parties would write them, and what only benchmarks need.

use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let manifests = tree.texts().filter(|(path, text)| {
        let has = |name| sections(text).iter().any(|(section, _)| *section == name);
        path.ends_with("/Cargo.toml") && has("package") && !has("workspace")
    });
    manifests
        .filter(|(_, text)| {
            let lints = text.split("[lints]").nth(1).unwrap_or_default();
            !lints.trim_start().starts_with("workspace = true")
        })
        .map(|(path, _)| format!("{path}: must say [lints] workspace = true"))
        .collect()
}

/// The sections of a manifest with the keys in each, in order. Enough of TOML for the manifests we write ourselves.
pub(super) fn sections(manifest: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections = vec![("", Vec::new())];
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            sections.push((name.trim_start_matches('['), Vec::new()));
        } else if let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('#'))
            && let Some((_, keys)) = sections.last_mut()
        {
            let key = key.trim();
            keys.push(key.split('.').next().unwrap_or(key));
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_the_lints_is_found() {
        let with = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n";
        let without = "[package]\nname = \"b\"\n";
        let outside = "[package]\nname = \"c\"\n[workspace]\n";
        let tree = Tree::of(&[
            ("a/Cargo.toml", with),
            ("b/Cargo.toml", without),
            ("c/Cargo.toml", outside),
            ("Cargo.toml", "[workspace]\n"),
        ]);
        assert_eq!(check(&tree), ["b/Cargo.toml: must say [lints] workspace = true"]);
    }

    #[test]
    fn keys_are_found_in_their_sections() {
        let found = sections(
            "# a = 1\n[dependencies]\na = \"1\"\nb.workspace = true\n\n[dependencies.c]\nversion = \"2\"\n",
        );
        let expected = [("", vec![]), ("dependencies", vec!["a", "b"]), ("dependencies.c", vec!["version"])];
        assert_eq!(found, expected);
    }
}
