//! Effects that happen exactly once: a repeated request is answered and not carried out again, and what it has to tell the world
//! is told if, and only if, it has happened.
//!
//! Delivery is at least once wherever there are networks, so every request may come twice. Three things together make its
//! *effect* happen once, and each does a part that the others cannot:
//!
//! | what | does |
//! | --- | --- |
//! | the **key**, unique, in one transaction with effect, events and response | makes it happen once |
//! | the **fence** in that transaction | keeps a late holder from writing behind its successor |
//! | the **lease** | keeps operations out of each other's way; correctness does not need it |
//!
//! | the data live in | use |
//! | --- | --- |
//! | a PostgreSQL database | [`postgres::PostgresEffects`] |
//! | a SQLite database | [`sqlite::SqliteEffects`] |
//! | Redis | [`redis::RedisEffects`], which is [weaker](Durability::Forgettable) |
//! | somebody else's service | `call` of each, with a [`Provider`]: see [`external`] |
//!
//! Events leave the outbox through a [`relay`]; people look at what is there, and settle what is stuck, through a [`Ledger`].

mod answer;
mod compensate;
mod durability;
pub mod external;
#[cfg(feature = "failpoints")]
pub mod failpoint;
#[cfg(not(feature = "failpoints"))]
mod failpoint;
mod flow;
#[cfg(feature = "http")]
pub mod http;
mod key;
mod ledger;
#[cfg(feature = "postgres")]
pub mod postgres;
mod record;
#[cfg(feature = "redis")]
pub mod redis;
pub mod relay;
mod rules;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use answer::NotDone;
pub use durability::Durability;
pub use external::{Provider, Repeat, Working};
pub use key::{Fingerprint, Key, Request};
pub use ledger::{Delivery, Due, Events, Fate, Found, Keys, Ledger, Queue};
pub use record::{Answer, Event, MAX_EVENTS, MAX_JSON_BYTES, Record, State};
pub use rules::{Keep, Rules};

/// The guide, whose code is compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/effects.md")]
mod guide {}
