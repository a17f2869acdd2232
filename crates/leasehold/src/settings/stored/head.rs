//! The line that says which settings count: it fits into a label.

use leasehold_core::{Label, LeaseId, name::MAX_NAME_BYTES};

use super::{Change, MAX_BYTES};

/// The first word.
const MARK: &str = "settings";
/// How the rest is written. Whoever changes it changes this number, so that older programs keep what they have.
const FORM: &str = "1";
/// No text needs more parts than this: each but the last has at least 252 bytes.
pub(super) const MAX_PARTS: usize = MAX_BYTES / (MAX_NAME_BYTES - 3) + 1;

/// Which text counts, and who has said so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) change: Change,
    /// How many parts the text has.
    pub(super) parts: usize,
    /// What the names of the parts have in common, and those of no other text.
    pub(super) id: LeaseId,
}

impl Head {
    /// As a label. Who made the change is cut where there is no more room.
    pub(super) fn write(&self) -> Label {
        let Change { version, by, at_us, bytes } = &self.change;
        let (parts, id, by) = (self.parts, self.id, by.as_str());
        Label::from_lossy(&format!("{MARK} {FORM} {version} {at_us} {bytes} {parts} {id} {by}"))
    }

    /// Reads it back. `None` where nothing was ever written.
    ///
    /// # Errors
    /// What this is instead, in words.
    pub(super) fn read(line: &str) -> Result<Option<Self>, String> {
        if line.is_empty() {
            return Ok(None);
        }
        let Some(rest) = line.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' ')) else {
            let by = Label::from_lossy(line);
            return Err(format!("{} was taken by {by}, and says no more which settings count", super::NAME));
        };
        match rest.split_once(' ') {
            Some((FORM, rest)) => fields(rest).map(Some).ok_or_else(|| "they are damaged".to_owned()),
            _ => {
                Err("they were written by another version of Leasehold, which this one cannot read"
                    .to_owned())
            }
        }
    }
}

fn fields(rest: &str) -> Option<Head> {
    let mut fields = rest.splitn(6, ' ');
    let version = fields.next()?.parse().ok()?;
    let at_us = fields.next()?.parse().ok()?;
    let bytes = fields.next()?.parse().ok().filter(|bytes| *bytes <= MAX_BYTES)?;
    let parts = fields.next()?.parse().ok().filter(|parts| *parts <= MAX_PARTS)?;
    let id = fields.next()?.parse().ok()?;
    let by = Label::from_lossy(fields.next()?);
    Some(Head { change: Change { version, by, at_us, bytes }, parts, id })
}

/// A text in parts that fit into labels.
pub(super) fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let mut end = rest.len().min(MAX_NAME_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(by: &str) -> Head {
        let change =
            Change { version: 3, by: Label::from_lossy(by), at_us: 1_767_323_045_678_901, bytes: 700 };
        Head { change, parts: 3, id: LeaseId::from_bytes([7; 16]) }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for by in ["alice@web1", "", "two words", "two\nlines", "🦀"] {
            assert_eq!(Head::read(head(by).write().as_str()), Ok(Some(head(by))));
        }
        let largest = Head {
            change: Change {
                version: u64::MAX,
                at_us: u64::MAX,
                bytes: MAX_BYTES,
                ..head(&"é".repeat(120)).change
            },
            parts: MAX_PARTS,
            ..head("")
        };
        let read = Head::read(largest.write().as_str()).unwrap().unwrap();
        assert!(
            !read.change.by.is_empty() && largest.change.by.as_str().starts_with(read.change.by.as_str())
        );
        assert_eq!((read.change.version, read.parts), (u64::MAX, MAX_PARTS));
    }

    #[test]
    fn what_was_not_written_here_is_told_apart() {
        assert_eq!(Head::read(""), Ok(None));
        let refused = |line: &str| Head::read(line).unwrap_err();
        assert!(refused("ops@web1").contains("was taken by ops@web1"));
        assert!(refused("settings 2 anything").contains("another version"));
        assert!(refused("settings 1 1 1 1 1").contains("damaged"));
        assert!(refused(&head("x").write().as_str().replace(" 700 ", " 9999 ")).contains("damaged"));
        assert!(refused(&head("x").write().as_str().replace(" 3 07", " 99 07")).contains("damaged"));
    }

    proptest! {
        #[test]
        fn a_text_is_the_sum_of_its_parts(text in "\\PC{0,3000}") {
            let parts = parts(&text);
            prop_assert_eq!(parts.concat(), text.clone());
            prop_assert!(parts.iter().all(|part| (1..=MAX_NAME_BYTES).contains(&part.len())));
            prop_assert!(text.len() > MAX_BYTES || parts.len() <= MAX_PARTS);
        }

        #[test]
        fn reading_a_label_of_somebody_else_never_panics(line in "\\PC{0,80}|settings 1( [0-9a-f]{0,33}){0,8}") {
            if let Ok(Some(head)) = Head::read(&line) {
                prop_assert!(head.parts <= MAX_PARTS && head.change.bytes <= MAX_BYTES);
            }
        }
    }
}
