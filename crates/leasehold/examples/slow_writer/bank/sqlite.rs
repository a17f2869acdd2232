//! The account in a SQLite database: fence and write in one transaction.

use std::error::Error;

use leasehold::fence::{
    NotAdmitted, Pass,
    sqlite::{SqliteFence, rusqlite},
};
use rusqlite::{Connection, TransactionBehavior};

use super::{Account, Bank};

pub(crate) struct Database {
    db: Connection,
    fence: SqliteFence,
}

pub(crate) fn set_up(path: &str) -> Result<(), Box<dyn Error>> {
    let db = Connection::open(path)?;
    SqliteFence::default().install(&db)?;
    db.execute_batch(
        "CREATE TABLE account (balance INTEGER NOT NULL); INSERT INTO account VALUES (100);
         CREATE TABLE history (line TEXT NOT NULL); INSERT INTO history VALUES ('nobody (100)');",
    )?;
    Ok(())
}

impl Database {
    pub(crate) fn open(path: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self { db: Connection::open(path)?, fence: SqliteFence::default() })
    }
}

impl Bank for Database {
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.fence.seal(&mut self.db, pass)
    }

    fn account(&mut self) -> Result<Account, Box<dyn Error>> {
        let balance = self.db.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
        let mut lines = self.db.prepare("SELECT line FROM history ORDER BY rowid")?;
        let history = lines.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(Account { balance, history })
    }

    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if fenced {
            self.fence.check(&tx, pass)?;
        }
        tx.execute("UPDATE account SET balance = ?1", [balance])?;
        tx.execute("INSERT INTO history VALUES (?1)", [format!("{} ({balance})", pass.holder)])?;
        Ok(tx.commit()?)
    }
}
