//! Events to a Redis stream, one entry each.
//!
//! Redis numbers entries itself, in the order in which they come, so an entry that is added twice has two numbers. What stays the
//! same is in its fields: `source` and `id`, and both in one word of fixed length, `dedup`.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_core::{Error, Invalid, Kind};
use redis::{Cmd, RedisError, Value as Answer, aio::MultiplexedConnection};
use serde_json::Value;
use tokio::{sync::Mutex, task::JoinHandle, time::timeout};

use super::{NotPublished, Sink};
use crate::{
    address::{Secret, visible},
    connect::Url,
    coordinator::redis::{
        Options,
        dial::CONNECT_LIMIT,
        failure::{self, Turn},
        target::Target,
    },
    effects::{
        Event, Working,
        key::{self, Fingerprint},
    },
    room::Room,
};

/// An answer that takes longer is none (ours: beyond a busy server's worst day, below a lease's TTL).
const LIMIT: Duration = Duration::from_secs(10);
/// So often a Cluster may send an entry on.
const MAX_HOPS: u32 = 3;

/// Events as entries of a Redis stream (`XADD`), with these fields:
///
/// | field | is |
/// | --- | --- |
/// | `source`, `id` | those of the `CloudEvents` envelope |
/// | `dedup` | both as one word of 64 hexadecimal digits, the same at every delivery |
/// | `event` | the envelope, as JSON |
///
/// **At least once**: an entry may be added again, with another number of Redis' own and the same `dedup`.
///
/// A refusal of Redis' is never about one event: the server is full, is a replica, wants a password, or has something else under
/// the stream's name. So nothing is ever set aside here: all events wait until that is mended.
///
/// **Guarantee.** What is noted as published was acknowledged by the server. Whether that survives the server is its persistence:
/// `appendfsync always`, or `?wait_replicas=N` in the URL, with which an entry counts when so many replicas have it.
pub struct RedisStream {
    inner: Arc<Inner>,
    room: Room,
}

struct Inner {
    options: Options,
    targets: Vec<Target>,
    name: String,
    at_most: Option<u64>,
    standing: Mutex<Option<Standing>>,
}

/// A connection, with the task that carries it.
struct Standing {
    connection: MultiplexedConnection,
    carrier: JoinHandle<()>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

impl fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStream").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// What is added.
struct Entry {
    source: String,
    id: String,
    dedup: String,
    event: String,
}

/// Why it was not.
enum NotAdded {
    /// The Cluster keeps the stream there.
    Moved(Box<crate::address::Host>),
    /// The server said no, on a connection that is fine.
    Refused(String),
    /// The connection is not.
    Broken(String),
}

impl RedisStream {
    /// Adds to the stream `name` on the server of `url`: `redis://…` or `rediss://…`, as a coordinator's URL, also with
    /// `?sentinel=NAME` and `?cluster=true`. Connects when there is first something to publish.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for another URL, and for a name that is not 1–255 bytes; what the machine says about TLS files.
    pub fn new(url: &str, name: &str) -> Result<Self, Error> {
        Self::open(url, name, None)
    }

    /// The same with a password from elsewhere: a URL on a command line is for everybody to see.
    ///
    /// # Errors
    /// As [`RedisStream::new`].
    pub fn with_password(url: &str, name: &str, password: &Secret) -> Result<Self, Error> {
        Self::open(url, name, Some(password))
    }

    fn open(url: &str, name: &str, password: Option<&Secret>) -> Result<Self, Error> {
        let not_a_url = || Error::from(Invalid::new("stream's URL", "must begin with redis:// or rediss://"));
        key::text("name of a stream", name)?;
        let address = match Url::parse(url)? {
            Url::Network(address) if matches!(address.scheme.as_str(), "redis" | "rediss") => address,
            _ => return Err(not_a_url()),
        };
        let mut options = Options::read(&address)?;
        if let Some(password) = password {
            options = options.with_password(password.clone());
        }
        let targets = options.targets()?;
        let inner =
            Inner { options, targets, name: name.to_owned(), at_most: None, standing: Mutex::default() };
        Ok(Self { inner: Arc::new(inner), room: Room::open()? })
    }

    /// Lets Redis forget the oldest entries when there are clearly more than `entries`, **read or not**. Without it the stream grows
    /// until somebody trims it.
    #[must_use]
    pub fn at_most(mut self, entries: u64) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.at_most = Some(entries.max(1));
        }
        self
    }
}

impl Sink for RedisStream {
    fn publish<'a>(&'a mut self, event: &'a Event, envelope: &'a Value) -> Working<'a, (), NotPublished> {
        let entry = Entry::of(event, envelope);
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let added = self.room.run(async move {
                let added = timeout(LIMIT, inner.add(&entry)).await;
                Ok(added.unwrap_or_else(|_| Err(format!("the server has not answered within {LIMIT:?}"))))
            });
            let added = added.await.unwrap_or_else(|error| Err(error.to_string()));
            added.map_err(|why| NotPublished::Down { why, again_in: None })
        })
    }
}

impl Entry {
    fn of(event: &Event, envelope: &Value) -> Self {
        let (source, id) = (envelope["source"].as_str().unwrap_or_default().to_owned(), event.id.to_string());
        let dedup = Fingerprint::of("leasehold event 1", &[source.as_bytes(), id.as_bytes()]).to_string();
        Self { source, id, dedup, event: envelope.to_string() }
    }
}

impl Inner {
    /// Adds an entry on a connection that stands, or on a new one. One that failed is given up.
    async fn add(&self, entry: &Entry) -> Result<(), String> {
        let mut slot = self.standing.lock().await;
        let mut standing = match slot.take() {
            Some(standing) => standing,
            None => self.reach().await?,
        };
        for _ in 0..MAX_HOPS {
            match self.add_on(&mut standing, entry).await {
                Ok(()) => {
                    *slot = Some(standing);
                    return Ok(());
                }
                Err(NotAdded::Moved(host)) => {
                    let login = self.options.login().map_err(|error| error.to_string())?;
                    standing = dial(&Target::Fixed(*host, login)).await?;
                }
                Err(NotAdded::Refused(why)) => {
                    *slot = Some(standing);
                    return Err(why);
                }
                Err(NotAdded::Broken(why)) => return Err(why),
            }
        }
        Err("the nodes of the Cluster send the entry to one another".to_owned())
    }

    async fn reach(&self) -> Result<Standing, String> {
        let mut last = "the URL names no host".to_owned();
        for target in &self.targets {
            match dial(target).await {
                Ok(standing) => return Ok(standing),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn ask(&self, standing: &mut Standing, command: &Cmd) -> Result<Answer, NotAdded> {
        let answer = standing.connection.send_packed_command(command).await;
        certain(answer).map_err(|error| judge(&self.name, &error))
    }

    async fn add_on(&self, standing: &mut Standing, entry: &Entry) -> Result<(), NotAdded> {
        let mut command = redis::cmd("XADD");
        command.arg(&self.name);
        if let Some(at_most) = self.at_most {
            command.arg("MAXLEN").arg("~").arg(at_most);
        }
        command.arg("*");
        for (field, value) in
            [("source", &entry.source), ("id", &entry.id), ("dedup", &entry.dedup), ("event", &entry.event)]
        {
            command.arg(field).arg(value);
        }
        let _number = self.ask(standing, &command).await?;
        let Some((count, limit)) = self.options.replicas() else { return Ok(()) };
        // Counts what came on this very connection.
        let mut wait = redis::cmd("WAIT");
        wait.arg(count).arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        match self.ask(standing, &wait).await? {
            Answer::Int(have) if have >= i64::from(count) => Ok(()),
            Answer::Int(have) => Err(NotAdded::Refused(format!(
                "only {have} of {count} replicas have the entry within {limit:?}; it is added again"
            ))),
            _ => Err(NotAdded::Broken("the server does not say how many replicas have the entry".to_owned())),
        }
    }
}

/// An answer that is none of the errors that come as one.
fn certain(answer: Result<Answer, RedisError>) -> Result<Answer, RedisError> {
    answer.and_then(|value| match value {
        Answer::ServerError(error) => Err(error.into()),
        value => Ok(value),
    })
}

async fn dial(target: &Target) -> Result<Standing, String> {
    let reached = timeout(CONNECT_LIMIT, target.reach()).await;
    let late = |_| format!("the server was not reached within {CONNECT_LIMIT:?}");
    let reached = reached.map_err(late)?.map_err(|failure| failure.error.what().to_owned())?;
    Ok(Standing { connection: reached.connection, carrier: tokio::spawn(reached.carrier) })
}

/// What an error means, in words that fit a stream.
fn judge(name: &str, error: &RedisError) -> NotAdded {
    let failure = failure::of_request(error);
    let why = match error.code() {
        Some("WRONGTYPE") => format!("the key {} holds something else than a stream", visible(name)),
        Some("NOPERM") => format!("the server does not permit this user to XADD to {}", visible(name)),
        _ if failure.error.kind() == Kind::Unsupported => {
            "the server has no streams: they came with version 5".to_owned()
        }
        _ => failure.error.what().to_owned(),
    };
    match failure.turn {
        Turn::Moved(host) => NotAdded::Moved(host),
        Turn::Redial => NotAdded::Broken(why),
        _ => NotAdded::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_redis_urls_are_streams_and_secrets_stay_secret() {
        for bad in
            ["", "http://x", "redlock://a,b,c", "sqlite:x", "redis://", "redis://a?stream=x", "redis://a,b"]
        {
            assert!(RedisStream::new(bad, "events").is_err(), "{bad}");
        }
        assert!(RedisStream::new("redis://a", "").is_err());
        assert!(RedisStream::new("redis://a", &"x".repeat(256)).is_err());
        let told = RedisStream::new("redis://u:s3cret@:6/9?x=y", "events").unwrap_err().to_string();
        assert!(!told.contains("s3cret"), "{told}");
        let stream =
            RedisStream::with_password("redis://u:s3cret@h", "events", &Secret::new("hunter2")).unwrap();
        let shown = format!("{stream:?}");
        assert!(
            shown.contains("events") && !shown.contains("s3cret") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
