//! The least that could work on several independent Redis servers: two round trips to all, each over when a majority has
//! answered; without token, quarantine or anything else.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leasehold_testkit::random;
use redis::aio::MultiplexedConnection;

use super::pairs::{Pair, rate};
use crate::task::{Answer, Failure, Task};

const TTL_MS: u64 = 30_000;
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

struct Floor {
    nodes: Vec<MultiplexedConnection>,
}

pub(super) async fn pairs(task: &Task) -> Result<Answer, Failure> {
    let mut nodes = Vec::new();
    for host in &task.hosts {
        let client = redis::Client::open(format!("redis://{host}"))?;
        nodes.push(client.get_multiplexed_async_connection().await?);
    }
    rate(Floor { nodes }, task).await
}

impl Pair for Floor {
    async fn pair(&self, at: usize) -> Result<(), Failure> {
        let (key, id) = (format!("floor/{at}"), random::lease_id().to_string());
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&id).arg("NX").arg("PX").arg(TTL_MS);
        self.majority(&set).await?;
        let mut delete = redis::cmd("EVAL");
        delete.arg(DELETE).arg(1).arg(&key).arg(&id);
        self.majority(&delete).await
    }
}

impl Floor {
    async fn majority(&self, command: &redis::Cmd) -> Result<(), Failure> {
        let mut asked: FuturesUnordered<_> =
            self.nodes.iter().map(|node| send(node.clone(), command.clone())).collect();
        for _ in 0..=self.nodes.len() / 2 {
            asked.next().await.ok_or("too few nodes")??;
        }
        // What was asked of the others is on its way.
        tokio::spawn(async move { while asked.next().await.is_some() {} });
        Ok(())
    }
}

async fn send(
    mut node: MultiplexedConnection,
    command: redis::Cmd,
) -> Result<redis::Value, redis::RedisError> {
    node.send_packed_command(&command).await
}
