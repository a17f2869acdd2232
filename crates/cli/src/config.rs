//! The configuration file `leasehold.toml`, and where it is looked for.
//!
//! `--config FILE`, else `$LEASEHOLD_CONFIG`, else `leasehold/leasehold.toml` in the user's configuration folder. Never in
//! the working folder: a job must ask the same coordinator wherever it is started, and a folder of somebody else must
//! not choose it. A file that was named must be there; the user's own may be absent.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use leasehold::{Url, settings::Rules};

use crate::failure::Failure;

/// What the file may say of the coordinator and its asker.
pub(crate) const OWN: &[&str] = &["url", "namespace", "holder"];
/// All that it may say; the rest are settings of leases, which the library reads.
const KEYS: [&str; 9] =
    ["url", "namespace", "holder", "ttl", "jitter", "wait", "max_hold", "drain_timeout", "resource"];
/// A configuration is a few lines; whatever is larger is another file (ours: one megabyte).
const MAX_BYTES: u64 = 1 << 20;

/// What the file says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Config {
    pub(crate) url: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) holder: Option<String>,
    /// The settings of leases, where the command line says nothing.
    pub(crate) rules: Rules,
}

/// Reads an environment variable; an empty one counts as absent.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where the file is, or would be.
pub(crate) fn place(named: Option<&Path>, variable: Lookup<'_>) -> Option<PathBuf> {
    let named = named.map(Path::to_owned).or_else(|| variable("LEASEHOLD_CONFIG").map(PathBuf::from));
    named.or_else(|| users_own(variable))
}

/// Finds and reads the file.
pub(crate) fn load(named: Option<&Path>, variable: Lookup<'_>) -> Result<Config, Failure> {
    let named = named.map(Path::to_owned).or_else(|| variable("LEASEHOLD_CONFIG").map(PathBuf::from));
    let Some(path) = named.clone().or_else(|| users_own(variable)) else { return Ok(Config::default()) };
    match read(&path) {
        Ok(text) => parse(&text).map_err(|problem| Failure::usage(format!("{}: {problem}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(Config::default()),
        Err(error) => {
            Err(Failure::usage(format!("cannot read the configuration file {}: {error}", path.display())))
        }
    }
}

fn users_own(variable: Lookup<'_>) -> Option<PathBuf> {
    let folder = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(folder.join("leasehold/leasehold.toml"))
}

fn read(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than a megabyte"));
    }
    Ok(text)
}

/// Reads what a file says.
///
/// # Errors
/// Why it is no configuration, in words that show no secret.
pub(crate) fn parse(text: &str) -> Result<Config, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        // Not the parser's own picture of the line: it may show a password.
        let line =
            error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        format!("line {line}: {}", error.message().lines().next().unwrap_or("is no TOML"))
    })?;
    let mut config = Config::default();
    for (key, value) in table {
        let place = match key.as_str() {
            "url" => &mut config.url,
            "namespace" => &mut config.namespace,
            "holder" => &mut config.holder,
            known if KEYS.contains(&known) => continue,
            _ => return Err(unknown(&key)),
        };
        match value {
            toml::Value::String(text) => *place = Some(text),
            other => return Err(format!("{key} must be a text in quotes, not {}", other.type_str())),
        }
    }
    config.url.as_deref().map_or(Ok(()), check_url)?;
    config.rules = Rules::parse(text, OWN)?;
    Ok(config)
}

fn unknown(key: &str) -> String {
    let nearest = KEYS.iter().map(|known| (distance(key, known), known)).min();
    let advice = match nearest {
        Some((far, known)) if far <= 3 => format!("did you mean {known}?"),
        _ => format!("known keys: {}", KEYS.join(", ")),
    };
    format!("unknown key {key}; {advice}")
}

/// A relative path would mean another file in every folder that a job is started in.
fn check_url(url: &str) -> Result<(), String> {
    match Url::parse(url) {
        Ok(Url::Sqlite { path: Some(path), .. }) if path.is_relative() => {
            Err("url: the path of a lease file must be absolute in a configuration file".to_owned())
        }
        // What is no URL is refused where the URL is used, with the reason.
        _ => Ok(()),
    }
}

/// How many letters must be changed, added or left out (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    // Only short names are near to a known one.
    for (at, left) in a.chars().take(32).enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, right) in b.iter().enumerate() {
            let changed = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn known_keys_are_read() {
        let config = parse("url = \"sqlite:/a\"\nnamespace = \"n\"\nholder = \"h\"\n").unwrap();
        assert_eq!(config.url.as_deref(), Some("sqlite:/a"));
        assert_eq!((config.namespace.as_deref(), config.holder.as_deref()), (Some("n"), Some("h")));
        assert_eq!(parse("").unwrap(), Config::default());
        let text = "url = \"sqlite:/a\"\nttl = \"20s\"\n[resource.\"a/*\"]\nttl = \"1m\"\n";
        let ttl = |name: &str| {
            let resource = leasehold::Resource::new(name).unwrap();
            parse(text).unwrap().rules.of(&resource).ttl.unwrap().as_millis()
        };
        assert_eq!((ttl("a/b"), ttl("b")), (60_000, 20_000));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        assert_eq!(problem("namspace = \"x\""), "unknown key namspace; did you mean namespace?");
        assert_eq!(problem("uri = \"x\""), "unknown key uri; did you mean url?");
        assert!(
            problem("completely_different = 1")
                .contains("known keys: url, namespace, holder, ttl, jitter, wait")
        );
        assert!(problem(&format!("{} = 1", "x".repeat(100_000))).contains("known keys"));
    }

    #[test]
    fn what_is_no_configuration_is_refused_without_showing_secrets() {
        let shown = problem("namespace = \"n\"\nurl = redis://:secret@host\n");
        assert!(shown.starts_with("line 2: ") && !shown.contains("secret"), "{shown}");
        assert_eq!(problem("url = 5"), "url must be a text in quotes, not integer");
        assert_eq!(problem("ttl = \"5\""), "ttl: 5 has no unit; write 5s (or 5ms)");
        assert!(
            problem("[resource.x]\nurl = \"redis://:secret@h\"")
                .starts_with("resource.\"x\": unknown setting url")
        );
        assert!(problem("url = \"sqlite:leases.db\"").contains("must be absolute"));
    }

    #[test]
    fn a_named_file_must_be_there_and_the_users_own_need_not() {
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/nonexistent"));
        assert_eq!(load(None, &home).unwrap(), Config::default());
        assert_eq!(load(None, &|_| None).unwrap(), Config::default());
        assert!(load(Some(Path::new("/nonexistent/x.toml")), &home).is_err());
        let named = |name: &str| (name == "LEASEHOLD_CONFIG").then(|| OsString::from("/nonexistent/y.toml"));
        assert!(load(None, &named).unwrap_err().what().contains("y.toml"));
    }

    #[test]
    fn distances() {
        assert_eq!((distance("url", "url"), distance("", "abc"), distance("kitten", "sitting")), (0, 3, 3));
    }

    #[test]
    fn no_hostile_file_makes_reading_panic_or_show_what_stands_in_it() {
        for text in leasehold_testkit::hostile::texts() {
            let set = format!("url = \"{text}\"\n");
            for text in [set, format!("{text} = 1"), format!("namespace = '{text}'"), text] {
                if let Err(problem) = parse(&text) {
                    assert!(!problem.is_empty() && !problem.contains("secret"), "{problem}");
                }
            }
        }
    }
}
