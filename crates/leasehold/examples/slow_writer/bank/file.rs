//! The account in a file that is replaced as a whole: what `leasehold fence file` does for shell jobs.

use std::{error::Error, fs, io::Write as _, path::Path};

use leasehold::{
    blocking::block_on,
    fence::{Draft, Fence, NotAdmitted, Pass, sqlite::SqliteStore},
};

use super::{Account, Bank};

/// One line for each write; the last one counts.
pub(crate) struct Book {
    path: String,
    fence: Fence,
}

pub(crate) fn set_up(path: &str) -> Result<(), Box<dyn Error>> {
    Ok(fs::write(path, "nobody (100)\n")?)
}

impl Book {
    pub(crate) fn open(path: &str) -> Result<Self, Box<dyn Error>> {
        let store = SqliteStore::open(Path::new(&format!("{path}.fences")))?;
        Ok(Self { path: path.to_owned(), fence: Fence::over(store) })
    }
}

impl Bank for Book {
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        block_on(self.fence.seal(pass))
    }

    fn account(&mut self) -> Result<Account, Box<dyn Error>> {
        Account::of(fs::read_to_string(&self.path)?.lines().map(str::to_owned).collect())
    }

    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>> {
        let mut lines = self.account()?.history;
        lines.push(format!("{} ({balance})", pass.holder));
        let draft = Draft::of(Path::new(&self.path))?;
        draft.file().write_all(format!("{}\n", lines.join("\n")).as_bytes())?;
        draft.sync()?;
        if fenced {
            block_on(self.fence.admit_and(pass, move || draft.place()))?;
        } else {
            draft.place()?;
        }
        Ok(())
    }
}
