//! The changes of a key, each inside a transaction that has been let in by the fence.

use leasehold_core::{Error, fence::Pass};
use rusqlite::{Transaction, params};
use serde_json::Value;

use super::failure;
use crate::{
    clock,
    effects::{
        key::{Key, Request},
        record::{json_text, signed},
    },
};

/// Takes the key. False when somebody has it already.
pub(super) fn insert(tx: &Transaction<'_>, pass: &Pass, key: &Key, request: &Request) -> Result<bool, Error> {
    const SQL: &str = "INSERT INTO leasehold_idempotency (scope, key, request_hash, state, namespace, resource, token, lease_id, \
         holder, created_unix) VALUES (?1, ?2, ?3, 'started', ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (scope, key) DO NOTHING";
    let failed = |error| failure::of("the key could not be written", &error).on(&pass.resource);
    let changed = tx.prepare_cached(SQL).map_err(failed)?.execute(params![
        key.scope(),
        key.as_str(),
        request.fingerprint().as_bytes().as_slice(),
        pass.namespace.as_str(),
        pass.resource.as_str(),
        signed(pass.token.get()),
        pass.lease_id.as_bytes().as_slice(),
        pass.holder.as_str(),
        signed(clock::unix_us()),
    ]);
    Ok(changed.map_err(failed)? == 1)
}

/// Stores the response. False when the key is not ours any more.
pub(super) fn complete(
    tx: &Transaction<'_>,
    pass: &Pass,
    key: &Key,
    response: &Value,
    kept_us: Option<i64>,
) -> Result<bool, Error> {
    const SQL: &str = "UPDATE leasehold_idempotency SET state = 'done', response = ?5, done_unix = ?6, expires_unix = ?6 + ?7 \
         WHERE scope = ?1 AND key = ?2 AND state = 'started' AND token = ?3 AND lease_id = ?4";
    let failed = |error| failure::of("the response could not be stored", &error).on(&pass.resource);
    let response = json_text("the response", response)?;
    let changed = tx.prepare_cached(SQL).map_err(failed)?.execute(params![
        key.scope(),
        key.as_str(),
        signed(pass.token.get()),
        pass.lease_id.as_bytes().as_slice(),
        response,
        signed(clock::unix_us()),
        kept_us,
    ]);
    Ok(changed.map_err(failed)? == 1)
}

/// Takes a key over that an older grant has started. False when it is not to be had.
pub(super) fn take_over(tx: &Transaction<'_>, pass: &Pass, key: &Key) -> Result<bool, Error> {
    const SQL: &str = "UPDATE leasehold_idempotency SET token = ?3, lease_id = ?4, holder = ?5 \
         WHERE scope = ?1 AND key = ?2 AND state = 'started' AND token < ?3";
    let failed = |error| failure::of("the key could not be taken over", &error).on(&pass.resource);
    let changed = tx.prepare_cached(SQL).map_err(failed)?.execute(params![
        key.scope(),
        key.as_str(),
        signed(pass.token.get()),
        pass.lease_id.as_bytes().as_slice(),
        pass.holder.as_str(),
    ]);
    Ok(changed.map_err(failed)? == 1)
}

/// Leaves a key that we have started for a person to decide.
pub(super) fn park(tx: &Transaction<'_>, pass: &Pass, key: &Key, note: &str) -> Result<bool, Error> {
    const SQL: &str = "UPDATE leasehold_idempotency SET state = 'needs_reconciliation', note = ?4 \
         WHERE scope = ?1 AND key = ?2 AND state = 'started' AND token = ?3";
    let failed = |error| failure::of("the key could not be set aside", &error).on(&pass.resource);
    let changed = tx.prepare_cached(SQL).map_err(failed)?.execute(params![
        key.scope(),
        key.as_str(),
        signed(pass.token.get()),
        note
    ]);
    Ok(changed.map_err(failed)? == 1)
}

/// Forgets a key that we have started, because certainly nothing has happened under it.
pub(super) fn forget(tx: &Transaction<'_>, pass: &Pass, key: &Key) -> Result<bool, Error> {
    const SQL: &str = "DELETE FROM leasehold_idempotency WHERE scope = ?1 AND key = ?2 AND state = 'started' AND token = ?3";
    let failed = |error| failure::of("the key could not be given back", &error).on(&pass.resource);
    let changed = tx.prepare_cached(SQL).map_err(failed)?.execute(params![
        key.scope(),
        key.as_str(),
        signed(pass.token.get())
    ]);
    Ok(changed.map_err(failed)? == 1)
}
