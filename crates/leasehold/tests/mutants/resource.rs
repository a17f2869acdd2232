//! A holder that reads before it seals, and a fence that takes higher tokens only: a resource in a real Redis.

use std::time::Duration;

use leasehold::fence::{
    Pass,
    redis::{RedisFence, redis},
};
use leasehold_core::{LeaseId, Namespace, Token};
use leasehold_testkit::{
    check::{Event, History, Report, What},
    random,
    server::{Redis, RedisSetup},
    sim::Mutant,
};
use redis::aio::MultiplexedConnection;

use crate::{
    Caught,
    scene::{self, claim, client, note, resource, take},
};

/// A fence that refuses the token that it knows.
const HIGHER_ONLY: &str = "if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then \
    redis.call('SET', KEYS[1], ARGV[1]) return 1 end return 0";

/// A number in Redis behind a fence, and what happened to it.
struct Account {
    connection: MultiplexedConnection,
    fence: RedisFence,
    namespace: Namespace,
    higher_only: bool,
    version: u64,
    events: Vec<Event>,
}

impl Account {
    async fn new(server: &Redis, namespace: Namespace, higher_only: bool) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let (fence, events) = (RedisFence::default(), Vec::new());
        Self { connection, fence, namespace, higher_only, version: 0, events }
    }

    fn pass(&self, (lease_id, token): (LeaseId, Token)) -> Pass {
        Pass::new(self.namespace.clone(), resource(), token, lease_id)
    }

    async fn seal(&mut self, holder: (LeaseId, Token)) {
        let pass = self.pass(holder);
        let admitted = self.fence.seal(&mut self.connection, &pass).await.is_ok();
        let what = What::Sealed { token: holder.1, admitted, version: self.version };
        note(&mut self.events, "holder", holder.0, what);
    }

    /// Writes what was computed from this version.
    async fn write(&mut self, holder: (LeaseId, Token), based_on: u64) {
        let pass = self.pass(holder);
        let key = format!("{{{}}}:data", RedisFence::tag(&pass.namespace, &pass.resource));
        let admitted = if self.higher_only {
            let mut ask = redis::cmd("EVAL");
            ask.arg(HIGHER_ONLY).arg(1).arg(format!("{key}:naive")).arg(holder.1.get());
            let admitted: u8 = ask.query_async(&mut self.connection).await.unwrap();
            admitted == 1
        } else {
            let set = redis::cmd("SET").arg(&key).arg(based_on + 1).to_owned();
            self.fence.write(&mut self.connection, &pass, &set, &[key.as_str()]).await.is_ok()
        };
        self.version += u64::from(admitted);
        let (token, version) = (holder.1, self.version);
        let what = What::Write { token, admitted, version, op_seq: None, based_on: Some(based_on) };
        note(&mut self.events, "holder", holder.0, what);
    }
}

/// The first holder's last write arrives when the second one has read.
async fn handover(seals_first: bool) -> Report {
    let server = RedisSetup::new().start().unwrap();
    let namespace = random::namespace();
    let client = client(&server.url(), &namespace).await;
    let mut account = Account::new(&server, namespace, false).await;
    let (old, new) = (claim(Duration::from_millis(100)), claim(Duration::from_secs(30)));
    let old = (old.lease_id, take(&client, &old).await.0.token);
    account.seal(old).await;
    account.write(old, 0).await;
    let late = account.version;
    let new = (new.lease_id, take(&client, &new).await.0.token);
    if seals_first {
        account.seal(new).await;
    }
    let read = account.version;
    account.write(old, late).await;
    account.seal(new).await;
    account.write(new, read).await;
    History::new(account.events).judge()
}

/// One holder writes twice.
async fn two_writes(higher_only: bool) -> Report {
    let server = RedisSetup::new().start().unwrap();
    let namespace = random::namespace();
    let client = client(&server.url(), &namespace).await;
    let mut account = Account::new(&server, namespace, higher_only).await;
    let claim = claim(Duration::from_secs(30));
    let holder = (claim.lease_id, take(&client, &claim).await.0.token);
    account.seal(holder).await;
    for _ in 0..2 {
        account.write(holder, account.version).await;
    }
    History::new(account.events).judge()
}

pub(crate) fn caught() -> Vec<(Mutant, Caught)> {
    let on = crate::strict::On::new();
    let (right, wrong) = (on.0.block_on(handover(true)), on.0.block_on(handover(false)));
    let unsealed = scene::caught(&right, &wrong, &["S7"]);
    let (right, wrong) = (on.0.block_on(two_writes(false)), on.0.block_on(two_writes(true)));
    let fenced_out = scene::caught(&right, &wrong, &["L9"]);
    vec![(Mutant::NoSeal, Caught::on("redis", unsealed)), (Mutant::FenceLt, Caught::on("redis", fenced_out))]
}
