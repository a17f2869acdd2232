//! The least that could work on one Redis: one connection, two requests, no promise.

use std::sync::Arc;

use futures_util::StreamExt as _;
use leasehold_testkit::random;
use redis::{AsyncCommands as _, Client, Script, aio::MultiplexedConnection};

use super::{
    hand_over::{Turn, hand_overs},
    pairs::{Pair, rate},
    who,
};
use crate::task::{Answer, Failure, Task, failed};

const TTL_MS: u64 = 30_000;
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// With a fencing counter beside the lock.
const TAKE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                    return redis.call('INCR', KEYS[2]) end return 0";
const HAND_ON: &str =
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return redis.call('PUBLISH', ARGV[3], '')";

async fn client(task: &Task) -> Result<MultiplexedConnection, Failure> {
    Ok(Client::open(format!("redis://{}", task.host()))?.get_multiplexed_async_connection().await?)
}

struct Floor {
    connection: MultiplexedConnection,
    take: Option<Script>,
    delete: Script,
}

impl Pair for Floor {
    async fn pair(&self, at: usize) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        let (key, id) = (format!("floor/{at}"), random::lease_id().to_string());
        let taken: bool = match &self.take {
            None => {
                let mut set = redis::cmd("SET");
                set.arg(&key).arg(&id).arg("NX").arg("PX").arg(TTL_MS);
                set.query_async::<Option<String>>(&mut connection).await?.is_some()
            }
            Some(take) => {
                let mut call = take.key(&key);
                call.key(format!("{key}/token")).arg(&id).arg(TTL_MS);
                call.invoke_async::<i64>(&mut connection).await? > 0
            }
        };
        let freed: i64 = self.delete.key(&key).arg(&id).invoke_async(&mut connection).await?;
        if taken && freed == 1 { Ok(()) } else { failed("the floor's key was taken") }
    }
}

pub(super) async fn pairs(task: &Task) -> Result<Answer, Failure> {
    let take = match task.who.as_str() {
        who::FLOOR => None,
        who::FLOOR_FENCED => Some(Script::new(TAKE)),
        other => return failed(format!("nobody called {other} does pairs on redis")),
    };
    let floor = Floor { connection: client(task).await?, take, delete: Script::new(DELETE) };
    rate(floor, task).await
}

/// One of a ring: whoever releases names the next holder and wakes nobody else.
struct Neighbour {
    connection: MultiplexedConnection,
    woken: redis::aio::PubSub,
    hand_on: Arc<Script>,
    at: usize,
    next: usize,
    holds: bool,
}

impl Turn for Neighbour {
    async fn take(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.holds) && self.woken.on_message().next().await.is_none() {
            return failed("the subscription ended");
        }
        Ok(())
    }

    async fn give(&mut self) -> Result<(), Failure> {
        let mut call = self.hand_on.key("floor/handed-over");
        call.arg(format!("{}->{}", self.at, self.next)).arg(TTL_MS).arg(channel(self.next));
        let _told: i64 = call.invoke_async(&mut self.connection).await?;
        Ok(())
    }
}

fn channel(at: usize) -> String {
    format!("floor/wake/{at}")
}

pub(super) async fn hand_over(task: &Task) -> Result<Answer, Failure> {
    let members = task.tasks() + 1;
    let client = Client::open(format!("redis://{}", task.host()))?;
    let hand_on = Arc::new(Script::new(HAND_ON));
    let mut ring = Vec::new();
    for at in 0..members {
        let mut woken = client.get_async_pubsub().await?;
        woken.subscribe(channel(at)).await?;
        let connection = client.get_multiplexed_async_connection().await?;
        let (hand_on, next) = (Arc::clone(&hand_on), (at + 1) % members);
        ring.push(Neighbour { connection, woken, hand_on, at, next, holds: at == 0 });
    }
    hand_overs(ring, task).await
}

/// Counts what clients ask; what scripts call inside the server is not among it.
#[derive(Clone)]
pub(super) struct Requests(MultiplexedConnection);

impl Requests {
    pub(super) async fn connect(task: &Task) -> Result<Self, Failure> {
        Ok(Self(client(task).await?))
    }

    pub(super) async fn until_now(&mut self) -> Option<f64> {
        const ASKED: [&str; 6] = ["eval", "evalsha", "fcall", "subscribe", "unsubscribe", "ping"];
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut self.0).await.ok()?;
        let calls = |name: &&str| -> Option<f64> {
            let line = stats
                .lines()
                .find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(*name)?.strip_prefix(":calls="));
            line?.split(',').next()?.parse().ok()
        };
        Some(ASKED.iter().filter_map(calls).sum())
    }
}

/// Bytes that the server's data occupies.
pub(super) async fn memory(task: &Task) -> Result<f64, Failure> {
    let mut connection = client(task).await?;
    let _answer: String = connection.ping().await?;
    let info: String = redis::cmd("INFO").arg("memory").query_async(&mut connection).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.ok_or("the server does not say what it occupies")?.trim().parse()?)
}
