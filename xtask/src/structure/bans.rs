//! Packages that `deny.toml` bans are not in `Cargo.lock`. `cargo deny` says more, but need not be installed for this.

use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let (Some(deny), Some(lock)) = (tree.text("deny.toml"), tree.text("Cargo.lock")) else {
        return vec!["deny.toml and Cargo.lock must both be there".into()];
    };
    let banned = banned(deny);
    if banned.is_empty() {
        return vec!["deny.toml: the list [bans] deny was not understood, or is empty".into()];
    }
    let locked = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    locked
        .filter(|name| banned.contains(name))
        .map(|name| {
            format!(
                "Cargo.lock: {name} is banned by deny.toml; find what brings it with cargo tree -i {name}"
            )
        })
        .collect()
}

/// The names in lines such as `{ crate = "openssl", reason = "…" },`.
fn banned(deny: &str) -> Vec<&str> {
    let entries = deny.lines().map(str::trim).filter_map(|line| line.strip_prefix("{ crate = \""));
    entries.filter_map(|rest| rest.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_package_is_found_in_the_lock() {
        let deny = "[bans]\ndeny = [\n  { crate = \"openssl\", reason = \"x\" },\n]\n";
        let lock = |name: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n");
        let problems = |name| check(&Tree::of(&[("deny.toml", deny), ("Cargo.lock", &lock(name))])).len();
        assert_eq!((problems("openssl"), problems("openssl-probe"), problems("rustls")), (1, 0, 0));
        assert_eq!(check(&Tree::of(&[("deny.toml", ""), ("Cargo.lock", "")])).len(), 1);
    }
}
