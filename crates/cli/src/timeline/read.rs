//! From lines to entries. What is no line of ours is counted and left out: logs of other programs may be in between.

use std::{
    io::{self, BufRead},
    time::UNIX_EPOCH,
};

use serde::Deserialize;

/// One event, as it was logged; `docs/logs.md` has the fields.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Entry {
    timestamp: String,
    /// The timestamp, µs since 1970.
    #[serde(skip)]
    pub(crate) at_us: i64,
    pub(crate) message: String,
    pub(crate) resource: Option<String>,
    pub(crate) lease_id: Option<String>,
    pub(crate) holder_id: Option<String>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) to: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) granted_us: Option<i64>,
    pub(crate) label: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) failures: Option<u64>,
    pub(crate) stored_token: Option<u64>,
}

/// All entries of some files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<Entry>,
    /// Lines that were none of ours.
    pub(crate) strange: usize,
}

impl Entries {
    /// Reads one file to its end.
    pub(crate) fn add(&mut self, lines: impl BufRead) -> io::Result<()> {
        for line in lines.split(b'\n') {
            let line = line?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match entry(&line) {
                Some(entry) => self.entries.push(entry),
                None => self.strange += 1,
            }
        }
        Ok(())
    }
}

fn entry(line: &[u8]) -> Option<Entry> {
    let mut entry: Entry = serde_json::from_slice(line).ok()?;
    let time = humantime::parse_rfc3339_weak(&entry.timestamp).ok()?;
    entry.at_us = i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()?;
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_others_are_counted_and_left_out() {
        let mut read = Entries::default();
        let text = "Starting up…\n{\"timestamp\":\"2026-01-02T03:04:05.5Z\",\"message\":\"connected\"}\n\n{\"x\":1}\n\
                    {\"timestamp\":\"soon\",\"message\":\"x\"}\n\u{fffd}";
        read.add(text.as_bytes()).unwrap();
        assert_eq!((read.entries.len(), read.strange), (1, 4));
        assert_eq!(read.entries[0].at_us, 1_767_323_045_500_000);
    }

    #[test]
    fn no_hostile_line_is_taken_for_an_event() {
        let line =
            r#"{"timestamp":"2027-01-01T00:00:00.5Z","message":"acquired","resource":"r","fencing_token":7}"#;
        let near = leasehold_testkit::hostile::near(line.as_bytes());
        for line in near.into_iter().chain(leasehold_testkit::hostile::bytes()) {
            let mut read = Entries::default();
            read.add(line.as_slice()).unwrap();
            assert!(read.entries.iter().all(|entry| !entry.timestamp.is_empty()));
        }
    }
}
