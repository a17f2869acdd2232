//! Links between Markdown pages lead to a file that is there and to a heading that is in it.

use std::collections::BTreeMap;

use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_page(path)) {
        for (number, target) in targets(text) {
            if let Err(why) = resolve(tree, path, &target) {
                problems.push(format!("{path}:{number}: link to {target}: {why}"));
            }
        }
    }
    problems
}

fn is_page(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("md"))
}

fn resolve(tree: &Tree, page: &str, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { joined(page, file)? };
    if !tree.exists(&path) {
        return Err(format!("there is no {path}"));
    }
    if heading.is_empty() || !is_page(&path) {
        return Ok(());
    }
    let headings = headings(tree.text(&path).unwrap_or_default());
    if headings.iter().any(|known| known == heading) {
        Ok(())
    } else {
        Err(format!("{path} has no heading #{heading}"))
    }
}

/// `file` as seen from `page`, as a path from the root.
fn joined(page: &str, file: &str) -> Result<String, String> {
    if file.starts_with('/') {
        return Err("is absolute; write it relative to the page".into());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or("leads out of the repository")?;
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// Lines outside fenced code, with inline code blanked, and their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        // Every second piece between back-ticks is code.
        let outside = line.split('`').enumerate().map(|(at, piece)| if at % 2 == 0 { piece } else { "x" });
        (!fenced).then(|| (at + 1, outside.collect()))
    })
}

/// The targets of `[text](target)`, `![text](target)` and `[name]: target`, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let named =
            line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
        let clean = |target: &str| (number, target.trim_matches(['<', '>']).to_owned());
        found.extend(inline.chain(named).map(clean));
    }
    found
}

/// The anchors of a page's headings, as forges make them: lower case, blanks to hyphens, other signs dropped, repeated
/// ones numbered.
fn headings(text: &str) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
        if fenced || !(1..=6).contains(&hashes) || !line[hashes..].starts_with(' ') {
            continue;
        }
        let kept =
            line[hashes..].trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String =
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let times: &mut u32 = seen.entry(anchor.clone()).or_insert(0);
        found.push(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        *times += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str) -> Vec<String> {
        let other = "# The title\n\n## What `run` does: a list\n\n## What `run` does: a list\n";
        check(&Tree::of(&[
            ("docs/a.md", page),
            ("docs/sub/b.md", other),
            ("README.md", ""),
            ("src/lib.rs", ""),
        ]))
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let page = "# Here\n[b](sub/b.md) [up](../README.md#) ![s](../src/lib.rs) [f](../src) [me](#here)\n\
                    [h](sub/b.md#what-run-does-a-list) [h2](sub/b.md#what-run-does-a-list-1) [web](https://example.org/x)\n\
                    `[code](nowhere.md)`\n```\n[fenced](nowhere.md)\n```\n[ref]: <sub/b.md>\n[t](sub/b.md \"title\")\n";
        assert_eq!(problems(page), [""; 0]);
    }

    #[test]
    fn dead_links_are_found_with_their_line() {
        for dead in ["sub/c.md", "sub/b.md#nothing", "#nothing", "../../x.md", "/README.md"] {
            let found = problems(&format!("\n[x]({dead})\n"));
            assert!(found.len() == 1 && found[0].starts_with("docs/a.md:2: "), "{dead}: {found:?}");
        }
        assert_eq!(problems("[x]: sub/c.md").len(), 1);
    }
}
