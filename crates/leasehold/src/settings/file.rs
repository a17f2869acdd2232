//! Settings in a file that is looked at while the program runs.
//!
//! The file is found anew by its path at every look: whoever manages files moves new ones into place, or changes where a link
//! leads. One `stat` each two seconds tells whether there is something to read.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Error, Kind};
use toml::{Table, Value};

use super::{Follower, Rules, Tuning, parse};
use crate::{Leases, leases::Client, observe};

/// Between two looks (ours: whoever changes a file waits for seconds).
const EVERY: Duration = Duration::from_secs(2);
/// Settings are a few lines; whatever is larger is another file (ours: one megabyte).
const MAX_BYTES: u64 = 1 << 20;
/// The table of settings by resource.
const TABLE: &str = "resource";

impl Rules {
    /// Reads settings as TOML: [their words](super::setting) for every resource, and tables such as `[resource."nightly/*"]` for
    /// those that a pattern names. Keys in `others` are somebody else's and left alone.
    ///
    /// # Errors
    /// Why these are no settings, in words that show no value of another key.
    pub fn parse(text: &str, others: &[&str]) -> Result<Self, String> {
        let mut table: Table = toml::from_str(text).map_err(|error| {
            // Not the parser's own picture of the line: it may show a password.
            let line =
                error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            format!("line {line}: {}", error.message().lines().next().unwrap_or("is no TOML"))
        })?;
        let special = table.remove(TABLE);
        table.retain(|key, _| !others.contains(&key));
        let rules = Self::general(tuning(&table)?);
        match special {
            None => Ok(rules),
            Some(Value::Table(special)) => {
                special.into_iter().try_fold(rules, |rules, (pattern, settings)| {
                    let of = |problem: String| format!("{TABLE}.{pattern:?}: {problem}");
                    let Value::Table(settings) = settings else {
                        return Err(of("must be a table of settings".to_owned()));
                    };
                    rules
                        .with(&pattern, tuning(&settings).map_err(of)?)
                        .map_err(|invalid| of(invalid.to_string()))
                })
            }
            Some(other) => Err(format!("{TABLE} must be a table of patterns, not {}", other.type_str())),
        }
    }
}

fn tuning(table: &Table) -> Result<Tuning, String> {
    let mut tuning = Tuning::default();
    for (key, value) in table {
        let Value::String(text) = value else {
            return Err(format!("{key} must be a text in quotes, not {}", value.type_str()));
        };
        if !parse::setting(&mut tuning, key, text)? {
            return Err(format!("unknown setting {key}; known settings: {}", parse::WORDS.join(", ")));
        }
    }
    Ok(tuning)
}

/// What tells one state of a file from another.
type Stamp = (u64, u64, i64, i64, u64);

/// A file that may change.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    seen: Option<Stamp>,
}

impl File {
    /// The file at this path. Nothing has been looked at yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: None }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next look reads it, whether or not it has changed.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// What `read` makes of the text, or why it cannot be read, when the file is another than at the look before. A file that is
    /// not there now is no change: it may be on its way.
    pub fn look<T>(&mut self, read: impl FnOnce(&str) -> Result<T, String>) -> Option<Result<T, String>> {
        let stamp = stamp(&self.path)?;
        if self.seen.replace(stamp) == Some(stamp) {
            return None;
        }
        Some(text(&self.path).map_err(|error| error.to_string()).and_then(|text| read(&text)))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than a megabyte"));
    }
    Ok(text)
}

impl Leases {
    /// Takes the settings from a file ([`Rules::parse`]), now and whenever it changes, for as long as this client lives: it is
    /// looked at every two seconds. One that is refused, for whatever reason, changes nothing, which is said once in the log.
    /// `others` are keys of the file that mean something to somebody else.
    ///
    /// **Cancel safety.** Dropping the future follows nothing.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: the file cannot be read now, or is refused.
    pub async fn follow(&self, path: &Path, others: &'static [&'static str]) -> Result<Follower, Error> {
        let (file, found) = look(File::new(path), others).await;
        let what = |problem: &str| Error::new(Kind::Invalid, format!("{}: {problem}", path.display()));
        let rules = found.unwrap_or_else(|| Err("there is no such file".to_owned()));
        self.retune(rules.map_err(|problem| what(&problem))?)?;
        let follower = Follower::default();
        let client = Arc::downgrade(self.client());
        self.client().driver.spawn(attend(client, file, others, follower.clone()));
        Ok(follower)
    }
}

/// Looks again and again, until the client is gone.
async fn attend(client: Weak<Client>, mut file: File, others: &'static [&'static str], follower: Follower) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = follower.rung() => {}
        }
        let (again, found) = look(file, others).await;
        file = again;
        let Some(client) = client.upgrade() else { return };
        let answer = match found {
            None => continue,
            Some(Err(problem)) => Err(problem),
            Some(Ok(rules)) => Leases::of(client).retune(rules).map_err(|error| error.to_string()),
        };
        match &answer {
            Ok(()) => observe::settings(file.path()),
            Err(problem) => observe::settings_refused(file.path(), problem),
        }
        follower.tell(answer.err());
    }
}

/// On a thread of its own: a file system that hangs must not keep renewals waiting.
async fn look(mut file: File, others: &'static [&'static str]) -> (File, Option<Result<Rules, String>>) {
    let path = file.path.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let look = move || {
        let found = file.look(|text| Rules::parse(text, others));
        // Nobody waits any more when the client is gone.
        let _ = tell.send((file, found));
    };
    let started = std::thread::Builder::new().name("leasehold-file".to_owned()).spawn(look);
    let none = |problem: String| (File::new(&path), Some(Err(problem)));
    match started {
        Ok(_) => told.await.unwrap_or_else(|_| none("it could not be looked at".to_owned())),
        Err(error) => none(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Resource, Ttl};

    use super::*;

    fn problem(text: &str) -> String {
        Rules::parse(text, &["url"]).unwrap_err()
    }

    #[test]
    fn a_file_has_general_settings_and_those_of_patterns() {
        let text = "url = \"redis://:secret@h\"\nttl = \"20s\"\n[resource.\"nightly/*\"]\nttl = \"1m\"\n[resource.x]\nwait = \"no\"\n";
        let rules = Rules::parse(text, &["url"]).unwrap();
        let ttl = |name: &str| rules.of(&Resource::new(name).unwrap()).ttl.map(Ttl::as_millis);
        assert_eq!((ttl("nightly/a"), ttl("x"), ttl("y")), (Some(60_000), Some(20_000), Some(20_000)));
        assert_eq!(Rules::parse("", &[]).unwrap(), Rules::default());
    }

    #[test]
    fn what_is_no_setting_is_refused_whole_and_shows_no_secret() {
        assert_eq!(
            problem("tll = \"1s\""),
            "unknown setting tll; known settings: ttl, jitter, wait, max_hold, drain_timeout"
        );
        assert_eq!(problem("ttl = 5"), "ttl must be a text in quotes, not integer");
        assert_eq!(problem("resource = 5"), "resource must be a table of patterns, not integer");
        assert_eq!(problem("[resource]\nx = 5"), "resource.\"x\": must be a table of settings");
        assert_eq!(
            problem("[resource.x]\nttl = \"5\""),
            "resource.\"x\": ttl: 5 has no unit; write 5s (or 5ms)"
        );
        assert!(problem("[resource.\"a*b\"]\n").contains("may have a * at its end only"));
        let shown = problem("ttl = \"1s\"\nurl = redis://:secret@host\n");
        assert!(shown.starts_with("line 2: ") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_file_is_read_when_it_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings");
        let mut file = File::new(&path);
        let mut look = || file.look(|text| Ok(text.to_owned()));
        assert_eq!(look(), None, "there is none");
        fs::write(&path, "one").unwrap();
        assert_eq!((look(), look()), (Some(Ok("one".to_owned())), None));
        fs::write(folder.path().join("new"), "two").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!((look(), look()), (Some(Ok("two".to_owned())), None));
        fs::remove_file(&path).unwrap();
        assert_eq!(look(), None, "it may be on its way");
        fs::write(&path, "x".repeat(2 << 20)).unwrap();
        assert!(look().unwrap().unwrap_err().contains("megabyte"));
    }
}
