//! A payment that is asked for three times and happens once: key, effect and event in one SQLite transaction.
//!
//! ```text
//! cargo run -p leasehold --example pay_once
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;

use leasehold::{
    Leases, blocking,
    effects::{Events, Key, Ledger, NotDone, Request, Rules, sqlite::SqliteEffects, sqlite::SqliteTx},
    fence::sqlite::rusqlite::{self, Connection},
};
use serde_json::{Value, json};

/// The work: plain SQL on the transaction that it is given, and an event.
fn withdraw(tx: &SqliteTx<'_>, amount: i64) -> Result<Value, Box<dyn Error + Send + Sync>> {
    tx.execute("UPDATE account SET balance = balance - ?1 WHERE id = 7", [amount])?;
    let balance: i64 = tx.query_row("SELECT balance FROM account WHERE id = 7", [], |row| row.get(0))?;
    tx.emit("account.withdrawn", &json!({"account": 7, "amount": amount}))?;
    Ok(json!({"balance": balance}))
}

fn bank(path: &std::path::Path) -> Result<Connection, rusqlite::Error> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
         INSERT INTO account VALUES (7, 100)",
    )?;
    Ok(db)
}

async fn play(leases_at: &str, path: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let leases = Leases::connect(leases_at).await?;
    let effects = SqliteEffects::new(&leases, Rules::default())?;
    let mut db = bank(path)?;
    effects.install(&db)?;

    // The client chose the key, and repeats the request because it lost the answer.
    let key = Key::new("withdrawals", "b7c1a9")?;
    let request = Request::new("accounts/7", br#"{"account": 7, "amount": 30}"#)?;
    for attempt in 1..=3 {
        let answer = effects.run(&mut db, &key, &request, |tx| withdraw(tx, 30)).await;
        let answer = answer.map_err(|no| no.to_string())?;
        println!("attempt {attempt}: {} (replayed: {})", answer.response, answer.replayed);
    }

    // The same key for something else is a mistake, and is told.
    let other = Request::new("accounts/7", br#"{"account": 7, "amount": 99}"#)?;
    match effects.run(&mut db, &key, &other, |tx| withdraw(tx, 99)).await {
        Err(NotDone::KeyReused(_)) => println!("another request under the same key: refused"),
        other => return Err(format!("{other:?}").into()),
    }

    let ledger = Ledger::connect(&format!("sqlite:{}", path.display())).await?;
    let events = ledger.events(Events { limit: 10, ..Events::default() }).await?;
    println!("events to publish: {}", events.len());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let leases_at = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let path = std::env::temp_dir().join(format!("pay-once-{}.db", std::process::id()));
    let played = blocking::block_on(play(&leases_at, &path));
    for name in ["", "-wal", "-shm"] {
        // What is not there need not be removed.
        let _ = std::fs::remove_file(format!("{}{name}", path.display()));
    }
    played
}
