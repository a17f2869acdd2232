//! The fence in a PostgreSQL database: SQL functions, callable from any language inside the caller's own transaction, and guards
//! that call them from Rust.
//!
//! ```sql
//! SELECT leasehold.fence_seal('orders/42', 1767323045678901, '00010203-0405-0607-0809-0a0b0c0d0e0f');   -- alone, first
//! BEGIN;
//! SELECT leasehold.fence_check('orders/42', 1767323045678901, '00010203-0405-0607-0809-0a0b0c0d0e0f');  -- raises, or not
//! UPDATE orders SET state = 'paid' WHERE id = 42;
//! COMMIT;
//! ```
//!
//! A check holds the fence's row `FOR KEY SHARE` until the transaction ends. Other transactions of the same grant take the same
//! lock and pass; a successor's seal changes a key, and waits. So the gap between check and commit is closed, at every isolation
//! level, and a check that finds itself overtaken is refused (`READ COMMITTED`) or fails to serialise (the others).
//!
//! Because a seal waits for the transactions before it, these need an end of their own: set `statement_timeout` and
//! `idle_in_transaction_session_timeout` of fenced sessions to less than the TTL.

mod answer;
mod failure;
mod guard;
#[cfg(feature = "sqlx")]
mod sqlx_guard;
mod store;

use leasehold_core::{Error, Invalid, Kind};

use super::FenceStore as _;
use crate::connect::Url;

pub use guard::PostgresFence;
#[cfg(feature = "sqlx")]
pub use sqlx_guard::SqlxFence;
pub use store::PostgresStore;

/// Makes the fence in the database at `url`, or brings it up to date: what `leasehold fence install` does. Where it was made.
///
/// # Errors
/// [`Kind::Invalid`] for a URL of something else; [`Kind::Denied`] where the role may not; what the server says.
pub async fn install(url: &str, strict: bool, roles: Vec<String>) -> Result<String, Error> {
    match Url::parse(url)? {
        Url::Network(address) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => {
            let store = PostgresStore::connect(&address).await?;
            store.install(strict, roles).await?;
            Ok(store.place().to_owned())
        }
        other => Err(Error::new(Kind::Invalid, "a fence is installed into a PostgreSQL database")
            .at(&other.place())
            .advise("give a postgres:// URL; other fences need no installation")),
    }
}

/// The schema that a postgres URL names.
///
/// # Errors
/// [`Kind::Invalid`] for a URL of something else.
pub fn schema_of(url: &str) -> Result<String, Error> {
    match Url::parse(url)? {
        Url::Network(address) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => {
            Ok(crate::coordinator::postgres::Options::read(&address)?.schema)
        }
        _ => Err(Error::new(Kind::Invalid, "a fence is installed into a PostgreSQL database")),
    }
}

/// The schema, unless another one is named.
pub const SCHEMA: &str = "leasehold";

const PARTS: [&str; 4] = [
    include_str!("sql/table.sql"),
    include_str!("sql/ask.sql"),
    include_str!("sql/people.sql"),
    include_str!("sql/trigger.sql"),
];
const STRICT: &str = include_str!("sql/strict.sql");

/// Nobody but the owner, until they are granted.
const REVOKE: &str = "
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE quote_ident(n.nspname) = quote_ident(%name%) AND (p.proname LIKE 'fence%' OR p.proname = 'unfence_table')
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END
$$;
";

/// What a role that writes needs: everything but raising tokens and fencing tables.
const GRANT: &str = "
GRANT USAGE ON SCHEMA %schema% TO %role%;
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE quote_ident(n.nspname) = quote_ident(%name%) AND p.proname LIKE 'fence%'
        AND p.proname NOT IN ('fence_raise', 'fence_table')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, %quoted_role%);
    END LOOP;
END
$$;
";

/// The statements that make a fence in `schema`, to be run by whoever will own it, in one transaction. They may be run again.
///
/// `strict` adds what looks at the lease itself; the lease table must be in the same schema. `roles` are those that write.
///
/// # Errors
/// [`Invalid`] for a schema with a character that means something inside SQL's own quotes.
pub fn script(schema: &str, strict: bool, roles: &[&str]) -> Result<String, Invalid> {
    if schema.is_empty() || schema.contains(['\'', '"', '%', '$', '\\', '\0']) {
        return Err(Invalid::new(
            "schema of the fence",
            "must not be empty or contain ' \" % $ or a backslash",
        ));
    }
    let mut script: String = PARTS.concat();
    if strict {
        script.push_str(STRICT);
    }
    script.push_str(REVOKE);
    let named =
        |text: &str| text.replace("%schema%", &identifier(schema)).replace("%name%", &literal(schema));
    let mut script = named(&script);
    for role in roles {
        let quoted = literal(&identifier(role));
        // Split, not replaced one after the other: a role may be called anything.
        let grant: Vec<String> = named(GRANT)
            .split("%quoted_role%")
            .map(|part| part.replace("%role%", &identifier(role)))
            .collect();
        script.push_str(&grant.join(&quoted));
    }
    Ok(script)
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
