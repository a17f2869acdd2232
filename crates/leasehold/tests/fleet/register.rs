//! The protected resource: a register that knows the highest fencing token it has seen.
//!
//! Its content is its own history, one [`What::Write`] a line in the order in which it took them, so that the judge hears
//! what was written from the register and not from those who wrote.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
};

use leasehold::{LeaseId, Token};
use leasehold_testkit::check::{Event, What};

/// A register in a file, for all processes of a fleet.
pub struct Register {
    file: File,
    fenced: bool,
}

impl Register {
    /// The register of `resource`. One that is not `fenced` lets everybody in.
    pub fn open(folder: &Path, resource: &str, fenced: bool) -> Self {
        let path = folder.join(format!("register-{resource}.jsonl"));
        let file = OpenOptions::new().create(true).read(true).append(true).open(path).unwrap();
        Self { file, fenced }
    }

    /// Writes under `token`; true when the register let it in. Equal tokens are one grant's, and are let in.
    pub fn write(&mut self, resource: &str, lease_id: LeaseId, token: Token) -> bool {
        // The kernel gives the lock back when its holder dies, and the line is one write: it is whole or not there.
        self.file.lock().unwrap();
        let last = self.last_admitted();
        let highest = last.map(|(token, _)| token);
        let admitted = !self.fenced || highest.is_none_or(|highest| token >= highest);
        let version = last.map_or(0, |(_, version)| version) + u64::from(admitted);
        let event = Event::now(
            "register",
            resource,
            lease_id,
            What::Write { token, admitted, version, op_seq: None, based_on: None },
        );
        self.file.write_all(event.line().unwrap().as_bytes()).unwrap();
        self.file.unlock().unwrap();
        admitted
    }

    fn last_admitted(&mut self) -> Option<(Token, u64)> {
        use std::io::{Seek as _, SeekFrom};
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(0)).unwrap();
        self.file.read_to_string(&mut text).unwrap();
        text.lines().rev().find_map(|line| match serde_json::from_str::<Event>(line).unwrap().what {
            What::Write { token, admitted: true, version, .. } => Some((token, version)),
            _ => None,
        })
    }
}
