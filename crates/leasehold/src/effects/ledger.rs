//! The tables of the effects as seen from outside: by the relay, and by people who look at what is there and settle what is
//! stuck. Operations themselves run on the connections of their programs.

use std::{fmt::Debug, sync::Arc, time::Duration};

use leasehold_core::{Call, Error, Kind, Label, fence::Pass};
use serde_json::Value;

use super::{
    durability::Durability,
    key::Key,
    record::{Event, Record, State},
    relay::Bell,
};
use crate::{connect::Url, fence::NotAdmitted};

/// Which operations to list, in the order of scope and key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Only of this scope.
    pub scope: Option<String>,
    /// Only in this state.
    pub state: Option<State>,
    /// Those behind this one.
    pub after: Option<Key>,
    /// At most so many, up to [`Ledger::PAGE`].
    pub limit: u32,
}

/// Which events to list, in the order of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// Only those that are in this queue.
    pub queue: Option<Queue>,
    /// Those behind this one.
    pub after: u64,
    /// At most so many, up to [`Ledger::PAGE`].
    pub limit: u32,
}

/// Where an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Queue {
    /// It waits to be published.
    Waiting,
    /// It was set aside.
    SetAside,
    /// It was published.
    Published,
}

impl Queue {
    /// One stable lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::SetAside => "set_aside",
            Self::Published => "published",
        }
    }
}

impl Event {
    /// Where it is.
    pub fn queue(&self) -> Queue {
        match (self.published_us, self.set_aside_us) {
            (Some(_), _) => Queue::Published,
            (None, Some(_)) => Queue::SetAside,
            (None, None) => Queue::Waiting,
        }
    }
}

/// What a person has found out about an operation that is not done.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// It has happened: this is its response from now on.
    Done(Value),
    /// It has not happened: the key is forgotten, and the next request carries the operation out.
    NotDone,
}

/// What is to become of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Publish it, though it was set aside. It comes behind what was published meanwhile.
    Retry,
    /// Set it aside: it is not published, and does not hold the events behind it up.
    SetAside,
}

/// What the relay has to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Due {
    /// The next events, in the order of their commits.
    pub events: Vec<Event>,
    /// How many events wait in all.
    pub waiting: u64,
    /// For how long the oldest of them has waited; zero when none does.
    pub lag: Duration,
}

/// What became of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The far end has it.
    Published,
    /// It failed, and is tried again after this long. Events of its resource wait behind it.
    Failed {
        /// How long.
        again_in: Duration,
        /// Why it failed.
        why: String,
    },
    /// It failed too often.
    SetAside {
        /// Why it failed last.
        why: String,
    },
}

/// Where the tables are. Each call is one atomic step.
pub(super) trait Store: Send + Sync + Debug + 'static {
    fn place(&self) -> &str;
    fn durability(&self) -> Durability {
        Durability::Committed
    }
    fn install(&self, roles: Vec<String>) -> Call<'_, ()>;
    fn records(&self, which: Keys) -> Call<'_, Vec<Record>>;
    fn record(&self, key: Key) -> Call<'_, Option<Record>>;
    fn resolve(&self, key: Key, found: Found, by: Label) -> Call<'_, bool>;
    fn events(&self, which: Events) -> Call<'_, Vec<Event>>;
    fn event(&self, id: u64) -> Call<'_, Option<Event>>;
    fn decide(&self, id: u64, fate: Fate, by: Label) -> Call<'_, bool>;
    fn purge(&self) -> Call<'_, u64>;
    fn due(&self, limit: u32) -> Call<'_, Due>;
    /// Word of new events; `None` where the database gives none.
    fn bell(&self) -> Result<Option<Box<dyn Bell>>, Error> {
        Ok(None)
    }
    fn seal(&self, pass: Pass) -> Call<'_, Result<(), NotAdmitted>>;
    fn mark(&self, pass: Pass, deliveries: Vec<(u64, Delivery)>) -> Call<'_, Result<(), NotAdmitted>>;
}

fn elsewhere(url: &Url) -> Error {
    Error::new(Kind::Unsupported, "no effects are kept there")
        .at(&url.place())
        .advise("give the database of the data: sqlite:PATH, postgres://… or redis://…")
}

/// The tables of the effects in a database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<dyn Store>);

impl Ledger {
    /// Most rows of one page.
    pub const PAGE: u32 = 1_000;

    /// Opens the tables in the database at `url`: `sqlite:PATH` (the database of the data) or `postgres://…`; or what a Redis at
    /// `redis://…` keeps, where `?effects_tag=TAG` names another tag than [`redis::TAG`](super::redis::TAG).
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for other engines; what the database says. Whether the tables are there shows at the first question.
    #[allow(clippy::unused_async, reason = "databases behind a network are connected to")]
    pub async fn connect(url: &str) -> Result<Self, Error> {
        match Url::parse(url)? {
            #[cfg(feature = "sqlite")]
            Url::Sqlite { path: Some(path), .. } => {
                Ok(Self(Arc::new(super::sqlite::SqliteLedger::open(&path)?)))
            }
            #[cfg(feature = "postgres")]
            Url::Network(address) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => {
                Ok(Self(Arc::new(super::postgres::PostgresLedger::connect(&address).await?)))
            }
            #[cfg(feature = "redis")]
            Url::Network(address) if matches!(address.scheme.as_str(), "redis" | "rediss") => {
                Ok(Self(Arc::new(super::redis::RedisLedger::connect(&address).await?)))
            }
            other => Err(elsewhere(&other)),
        }
    }

    /// The SQL that [`Ledger::install`] would run in the database at `url`, as one transaction: for who reads it first, or has it run
    /// by somebody else. Connects to nothing.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for other engines, [`Kind::Invalid`] for what no schema or role can be called.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(unused_variables, reason = "roles are a database's")
    )]
    pub fn script(url: &str, roles: &[&str]) -> Result<String, Error> {
        match Url::parse(url)? {
            #[cfg(feature = "sqlite")]
            Url::Sqlite { path: Some(_), .. } if roles.is_empty() => Ok(super::sqlite::script()),
            #[cfg(feature = "sqlite")]
            Url::Sqlite { path: Some(_), .. } => Err(super::sqlite::no_roles()),
            #[cfg(feature = "postgres")]
            Url::Network(address) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => {
                super::postgres::whole_script(&address, roles)
            }
            #[cfg(feature = "redis")]
            Url::Network(address) if matches!(address.scheme.as_str(), "redis" | "rediss") => {
                Err(Error::new(Kind::Unsupported, "Redis has no tables, so that there is no SQL to print")
                    .at(&address.to_string())
                    .advise("begin at once; in an ACL allow the users the keys lheffects:* and lhfence:*"))
            }
            other => Err(elsewhere(&other)),
        }
    }

    /// Where it is, for people.
    pub fn place(&self) -> &str {
        self.0.place()
    }

    /// What an answer of the operations there is worth.
    pub fn durability(&self) -> Durability {
        self.0.durability()
    }

    /// Makes the tables of fence and effects where they are missing. `roles` run operations and own nothing (PostgreSQL only).
    ///
    /// # Errors
    /// What the database says.
    pub async fn install(&self, roles: Vec<String>) -> Result<(), Error> {
        self.0.install(roles).await
    }

    /// A page of operations.
    ///
    /// # Errors
    /// What the database says.
    pub async fn records(&self, mut which: Keys) -> Result<Vec<Record>, Error> {
        which.limit = which.limit.clamp(1, Self::PAGE);
        self.0.records(which).await.map_err(Error::without_effect)
    }

    /// One operation.
    ///
    /// # Errors
    /// What the database says.
    pub async fn record(&self, key: &Key) -> Result<Option<Record>, Error> {
        self.0.record(key.clone()).await.map_err(Error::without_effect)
    }

    /// Settles an operation that was begun and is not done, by what a person has found out at the far end. False when there is no
    /// such operation, or it is done.
    ///
    /// A holder that is still at work then finds the key taken from it, and stores nothing.
    ///
    /// # Errors
    /// What the database says.
    pub async fn resolve(&self, key: &Key, found: Found, by: &Label) -> Result<bool, Error> {
        self.0.resolve(key.clone(), found, by.clone()).await
    }

    /// A page of events.
    ///
    /// # Errors
    /// What the database says.
    pub async fn events(&self, mut which: Events) -> Result<Vec<Event>, Error> {
        which.limit = which.limit.clamp(1, Self::PAGE);
        self.0.events(which).await.map_err(Error::without_effect)
    }

    /// One event.
    ///
    /// # Errors
    /// What the database says.
    pub async fn event(&self, id: u64) -> Result<Option<Event>, Error> {
        self.0.event(id).await.map_err(Error::without_effect)
    }

    /// Decides about an event that is not published. False when there is no such event.
    ///
    /// # Errors
    /// What the database says.
    pub async fn decide(&self, id: u64, fate: Fate, by: &Label) -> Result<bool, Error> {
        self.0.decide(id, fate, by.clone()).await
    }

    /// Forgets keys that are done and whose time is over by the database's clock, with their published events; how many keys.
    ///
    /// # Errors
    /// What the database says.
    pub async fn purge(&self) -> Result<u64, Error> {
        self.0.purge().await
    }

    /// What is to be published next.
    ///
    /// # Errors
    /// What the database says.
    pub async fn due(&self, limit: u32) -> Result<Due, Error> {
        self.0.due(limit.clamp(1, Self::PAGE)).await.map_err(Error::without_effect)
    }

    /// Word of new events, for one relay; `None` where the database gives none.
    ///
    /// # Errors
    /// What the machine says.
    pub(super) fn bell(&self) -> Result<Option<Box<dyn Bell>>, Error> {
        self.0.bell()
    }

    /// Shuts older relays out.
    ///
    /// # Errors
    /// [`NotAdmitted`]: do not publish.
    pub(super) async fn seal(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.0.seal(pass.clone()).await?
    }

    /// Notes what became of events, unless a later relay is at work.
    ///
    /// # Errors
    /// [`NotAdmitted`]: nothing was noted, and the events are delivered once more.
    pub(super) async fn mark(
        &self,
        pass: &Pass,
        deliveries: Vec<(u64, Delivery)>,
    ) -> Result<(), NotAdmitted> {
        self.0.mark(pass.clone(), deliveries).await?
    }
}
