//! The fences that need no server: memory, a table in a SQLite database, a file of its own.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use leasehold::{
    Error, Kind, Label, Resource,
    blocking::block_on,
    fence::{
        Ask, Fence, FenceStore, MemoryFence, NotAdmitted, Pass, Policy, Refusal,
        sqlite::{SqliteFence, SqliteStore, rusqlite},
        stale_writes_rejected,
    },
};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use crate::table::{Answer, Door, keeps, pass, word};

fn key(pass: &Pass) -> (String, String) {
    (pass.namespace.as_str().to_owned(), pass.resource.as_str().to_owned())
}

/// Data in this process's memory, behind a fence that holds its step open.
struct Local {
    fence: Fence,
    data: Arc<Mutex<HashMap<(String, String), String>>>,
}

impl Door for Local {
    fn seal(&mut self, pass: &Pass) -> Answer {
        word(block_on(self.fence.seal(pass)))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        let (data, key, value) = (self.data.clone(), key(pass), value.to_owned());
        word(block_on(self.fence.admit_and(pass, move || {
            data.lock().unwrap().insert(key, value);
            Ok(())
        })))
    }

    fn write_without_token(&mut self, _: &Resource, _: &str) -> Option<Answer> {
        None
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        self.data.lock().unwrap().get(&key(pass)).cloned()
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        let raised =
            block_on(self.fence.raise(&pass.namespace, &pass.resource, pass.token, &Label::default()));
        raised.unwrap().token.to_string()
    }
}

#[test]
fn memory_keeps_the_table() {
    keeps("memory", &mut Local { fence: Fence::over(MemoryFence::default()), data: Arc::default() });
}

#[test]
fn a_file_of_its_own_keeps_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("new/fences.db")).unwrap();
    keeps("sqlite file", &mut Local { fence: Fence::over(store), data: Arc::default() });
}

/// Data and fence in one SQLite database, in one transaction.
struct Table {
    fence: SqliteFence,
    db: Connection,
}

impl Table {
    fn open(path: &Path) -> Self {
        let (fence, db) = (SqliteFence::default(), Connection::open(path).unwrap());
        fence.install(&db).unwrap();
        fence.install(&db).unwrap();
        let sql =
            "CREATE TABLE IF NOT EXISTS data (space TEXT, name TEXT, value TEXT, PRIMARY KEY (space, name))";
        db.execute(sql, []).unwrap();
        Self { fence, db }
    }

    fn try_write(&mut self, pass: &Pass, value: &str) -> Result<(), NotAdmitted> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        // The data first: a refusal must take it back.
        let (space, name) = key(pass);
        tx.execute("INSERT OR REPLACE INTO data VALUES (?1, ?2, ?3)", [&space, &name, value]).unwrap();
        self.fence.check(&tx, pass)?;
        tx.commit().unwrap();
        Ok(())
    }
}

impl Door for Table {
    fn seal(&mut self, pass: &Pass) -> Answer {
        word(self.fence.seal(&mut self.db, pass))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        word(self.try_write(pass, value))
    }

    fn write_without_token(&mut self, _: &Resource, _: &str) -> Option<Answer> {
        None
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        let (space, name) = key(pass);
        let sql = "SELECT value FROM data WHERE space = ?1 AND name = ?2";
        self.db.query_row(sql, [space, name], |row| row.get(0)).optional().unwrap()
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        let tx = self.db.transaction().unwrap();
        let mark =
            self.fence.raise(&tx, &pass.namespace, &pass.resource, pass.token, &Label::default()).unwrap();
        tx.commit().unwrap();
        mark.token.to_string()
    }
}

#[test]
fn sqlite_keeps_the_table() {
    let folder = tempfile::tempdir().unwrap();
    keeps("sqlite transaction", &mut Table::open(&folder.path().join("app.db")));
}

#[test]
fn a_rejected_stale_write_is_counted_and_says_who_and_what() {
    let stale = || stale_writes_rejected().iter().find(|(reason, _)| *reason == "stale").unwrap().1;
    let fence = Fence::over(MemoryFence::default());
    let named = |token, grant, name| pass("orders/42", token, grant).held_by(Label::new(name).unwrap());
    block_on(fence.seal(&named(20, 2, "bob"))).unwrap();
    let before = stale();
    let refused = block_on(fence.check(&named(10, 1, "alice"))).unwrap_err();
    assert!(stale() > before && refused.is_stale());
    assert_eq!(
        refused.to_string(),
        "the write to orders/42 under fencing token 10 does not count (on memory): a later write was admitted, under fencing \
         token 20 of bob; it came too late: stop, and acquire the lease anew (unless the later write was your own)"
    );
    let Refusal::Stale { stored } = refused.refusal().unwrap() else { panic!("{refused:?}") };
    assert_eq!((stored.token.get(), stored.holder.as_str()), (20, "bob"));
}

/// Two connections: a seal waits for a transaction that was admitted, and never lands between its check and its commit.
#[test]
fn a_seal_never_lands_between_a_check_and_its_commit_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let (mut first, mut second) = (Table::open(&path), Table::open(&path));
    let (old, new) = (pass("r", 10, 1), pass("r", 20, 2));
    assert_eq!(first.seal(&old), "admitted");
    second.db.busy_timeout(std::time::Duration::ZERO).unwrap();
    let tx = first.db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    first.fence.check(&tx, &old).unwrap();
    let waiting = second.fence.seal(&mut second.db, &new).unwrap_err();
    let NotAdmitted::Failed(error) = waiting else { panic!("{waiting}") };
    assert_eq!(error.kind(), Kind::Unavailable);
    tx.commit().unwrap();
    assert_eq!(second.seal(&new), "admitted");
    assert_eq!(first.write(&old, "damage"), "stale");
}

/// A deferred transaction that looked before the seal and writes after it cannot commit.
#[test]
fn a_deferred_transaction_that_slept_over_a_seal_cannot_write() {
    for mode in ["WAL", "DELETE"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let (mut first, mut second) = (Table::open(&path), Table::open(&path));
        first.db.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(())).unwrap();
        for table in [&first, &second] {
            table.db.busy_timeout(std::time::Duration::ZERO).unwrap();
        }
        let (old, new) = (pass("r", 10, 1), pass("r", 20, 2));
        assert_eq!(first.seal(&old), "admitted");
        let tx = first.db.transaction().unwrap();
        first.fence.check(&tx, &old).unwrap();
        let sealed = second.fence.seal(&mut second.db, &new).is_ok();
        let written = tx.execute("INSERT INTO data VALUES ('', 'r', 'damage')", []).and_then(|_| tx.commit());
        assert!(written.is_err() || !sealed, "{mode}: the seal was answered and the older write landed");
    }
}

#[test]
fn a_refused_step_does_no_work_and_failed_work_leaves_no_mark() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteStore::open(&folder.path().join("fences.db")).unwrap();
    for fence in [Fence::over(MemoryFence::default()), Fence::over(file)] {
        block_on(fence.seal(&pass("r", 10, 1))).unwrap();
        let failing = || Err(Error::new(Kind::Unavailable, "no room"));
        let failed = block_on(fence.admit_and(&pass("r", 20, 2), failing)).unwrap_err();
        assert!(matches!(failed, NotAdmitted::Failed(_)), "{failed}");
        block_on(fence.check(&pass("r", 10, 1))).expect("nothing was remembered of it");
        let ran = Arc::new(Mutex::new(false));
        let note = ran.clone();
        let work = move || {
            *note.lock().unwrap() = true;
            Ok(())
        };
        block_on(fence.admit_and(&pass("r", 9, 3), work)).unwrap_err();
        assert!(!*ran.lock().unwrap());
    }
}

#[test]
fn what_is_no_fence_file_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "not a database, and long enough to have a header of one if it were one").unwrap();
    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute("CREATE TABLE t (x)", []).unwrap();
    for path in [&text, &other, &folder.path().to_owned()] {
        let before = fs::read(path).ok();
        let error = SqliteStore::open(path).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert_eq!(fs::read(path).ok(), before);
    }
}

#[test]
fn a_fence_file_that_was_taken_away_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fences.db");
    let store = SqliteStore::open(&path).unwrap();
    let _ = block_on(store.ask(pass("r", 10, 1), Ask::Seal)).unwrap();
    fs::remove_file(&path).unwrap();
    let error = block_on(store.ask(pass("r", 10, 1), Ask::Write)).unwrap_err();
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

/// The row is protected against other programs too.
#[test]
fn a_token_in_the_table_never_goes_back_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::open(&folder.path().join("app.db"));
    assert_eq!(table.seal(&pass("r", 20, 1)), "admitted");
    let error = table.db.execute("UPDATE leasehold_fence SET token = 10", []).unwrap_err();
    assert!(error.to_string().contains("never goes back"), "{error}");
}

#[test]
fn a_policy_without_a_bound_believes_any_token() {
    let policy = Policy::default().bound(leasehold::fence::Bound::NONE);
    let fence = Fence::over(MemoryFence::default()).policy(policy);
    block_on(fence.seal(&pass("r", leasehold::Token::MAX, 1))).unwrap();
}

#[test]
fn a_store_of_its_own_counts_what_it_refused_for_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fences.db");
    let fence = Fence::over(SqliteStore::open(&path).unwrap());
    block_on(fence.seal(&pass("r", 10, 1))).unwrap();
    for _ in 0..3 {
        block_on(fence.check(&pass("r", 9, 2))).unwrap_err();
    }
    block_on(fence.check(&pass("r", 10, 2))).unwrap_err();
    let other = Fence::over(SqliteStore::open(&path).unwrap());
    assert_eq!(block_on(other.refused()).unwrap(), 4);
    let memory = Fence::over(MemoryFence::default());
    block_on(memory.check(&pass("r", 9, 2))).unwrap_err();
    assert_eq!(block_on(memory.refused()).unwrap(), 1);
}
