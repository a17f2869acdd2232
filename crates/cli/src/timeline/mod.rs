//! Who held what, and when, rebuilt from the logs of several machines.
//!
//! ```text
//!   files ── read ──▶ entries ── story ──▶ grants ── findings ──▶ text, picture, JSON
//! ```
//!
//! The fencing token orders the grants of a resource; no clock does. Times are put on one scale by the one clock that all
//! logs share: each grant carries the coordinator's time beside the machine's own, and the smallest difference between the
//! two is what that machine's clock is off by.

pub(crate) mod draw;
pub(crate) mod findings;
mod picture;
pub(crate) mod read;
mod story;

pub(crate) use picture::{escaped, html, svg};
pub(crate) use story::{Finish, Grant, Story, Tale};
