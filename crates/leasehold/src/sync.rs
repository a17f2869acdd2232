//! Small pieces of synchronisation shared by the rooms.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what cannot be left half-changed: a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
