//! The bank in Redis: lists and a hash in place of tables, all under one hash tag.

use std::time::Duration;

use leasehold::{
    Leases,
    effects::{Event, Key, NotDone, Request, Rules, redis::RedisEffects},
    fence::redis::redis::{self, AsyncConnectionConfig, ToRedisArgs, aio::MultiplexedConnection},
};
use serde_json::json;

use crate::{Failure, bank::NAME};

/// Beyond what a server takes whose machine does much else.
const PATIENCE: Duration = Duration::from_secs(60);
/// A moment's work at the server.
const WORK: &str = "local sum = 0 for i = 1, 20000 do sum = sum + i end return sum";
/// The inbox, and what the consumer does, in one step.
const RECEIVE: &str = "if redis.call('SADD', KEYS[1], ARGV[1]) == 0 then return 0 end
    redis.call('RPUSH', KEYS[2], ARGV[2]) return 1";
const DISTINCT: &str = "local seen, many = {}, 0
    for _, key in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
        if not seen[key] then seen[key], many = true, many + 1 end
    end
    return many";
/// Payments that are done: neither the operations of others nor those that are open.
const KEYS: &str = "local function many(name)
        return redis.call('ZLEXCOUNT', KEYS[1] .. name, '[payments\\0', '(payments\\1')
    end
    return many('keys') - many('open')";
const FORGET: &str = "for _, pattern in ipairs({'lheffects:{' .. ARGV[1] .. '}:*', 'lhfence:{' .. ARGV[1] .. '}*', '{' .. ARGV[1] .. '}:*'}) do
        for _, key in ipairs(redis.call('KEYS', pattern)) do redis.call('DEL', key) end
    end
    return 0";

/// A connection.
#[derive(Clone)]
pub(crate) struct Vault {
    db: MultiplexedConnection,
    effects: RedisEffects,
}

fn list(name: &str) -> String {
    format!("{{{NAME}}}:{name}")
}

impl Vault {
    pub(crate) async fn open(url: &str, leases: &Leases, rules: Rules) -> Result<Self, Failure> {
        let patient = AsyncConnectionConfig::new()
            .set_response_timeout(Some(PATIENCE))
            .set_connection_timeout(Some(PATIENCE));
        let client = redis::Client::open(url)?;
        let db = client.get_multiplexed_async_connection_with_config(&patient).await?;
        Ok(Self { db, effects: RedisEffects::new(leases, rules)?.within(NAME)? })
    }

    /// Forgets what an earlier storm has left.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        self.script(FORGET, &[], &[NAME]).await.map(drop)
    }

    async fn script(&self, text: &str, keys: &[String], words: &[&str]) -> Result<i64, Failure> {
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(keys.len()).arg(keys).arg(words);
        Ok(command.query_async(&mut self.db.clone()).await?)
    }

    pub(crate) async fn pay(
        &mut self,
        name: &str,
        key: &Key,
        request: &Request,
    ) -> Result<bool, NotDone<Failure>> {
        let name = name.to_owned();
        let ran = self.effects.run(&mut self.db, key, request, |tx| {
            Box::pin(async move {
                let mut charge = redis::cmd("RPUSH");
                charge.arg(list("effect")).arg(&name);
                tx.command(&charge, &[&list("effect")])?;
                tokio::time::sleep(crate::teller::BETWEEN).await;
                tx.emit("paid", &json!({"payment": name}))?;
                Ok::<_, Failure>(json!({"paid": name}))
            })
        });
        Ok(ran.await?.replayed)
    }

    pub(crate) async fn has_seen(&self, name: &str) -> Result<bool, Failure> {
        Ok(redis::cmd("HEXISTS").arg(list("seen")).arg(name).query_async(&mut self.db.clone()).await?)
    }

    pub(crate) async fn charge(&self, name: &str) -> Result<(), Failure> {
        self.add("RPUSH", "effect", name).await
    }

    pub(crate) async fn see(&self, name: &str) -> Result<(), Failure> {
        self.add("HSET", "seen", &[name, "paid"]).await
    }

    pub(crate) async fn tell(&self, name: &str) -> Result<(), Failure> {
        self.add("RPUSH", "told", name).await
    }

    async fn add(&self, command: &str, to: &str, words: impl ToRedisArgs) -> Result<(), Failure> {
        let mut command = redis::cmd(command);
        Ok(command.arg(list(to)).arg(words).query_async::<i64>(&mut self.db.clone()).await.map(drop)?)
    }

    pub(crate) async fn work(&self) -> Result<(), Failure> {
        self.script(WORK, &[], &[]).await.map(drop)
    }

    pub(crate) async fn receive(&self, source: &str, event: &Event) -> Result<bool, Failure> {
        let id = format!("{source} {}", event.id);
        Ok(self.script(RECEIVE, &[list("inbox"), list("told")], &[&id, event.key.as_str()]).await? == 1)
    }

    /// How many keys are done; in the naive flow, were seen.
    pub(crate) async fn keys(&self, naive: bool) -> Result<i64, Failure> {
        if naive {
            return Ok(redis::cmd("HLEN").arg(list("seen")).query_async(&mut self.db.clone()).await?);
        }
        self.script(KEYS, &[format!("lheffects:{{{NAME}}}:")], &[]).await
    }

    /// How many entries a list has, and how many different ones.
    pub(crate) async fn count(&self, name: &str) -> Result<(i64, i64), Failure> {
        let all = redis::cmd("LLEN").arg(list(name)).query_async(&mut self.db.clone()).await?;
        Ok((all, self.script(DISTINCT, &[list(name)], &[]).await?))
    }
}
