//! Highest tokens on a Redis server, asked on their own.

use leasehold_core::{
    Call, Error, Kind, Label, Namespace, Resource, Token,
    fence::{Ask, Mark, Pass, Verdict},
};
use redis::{Cmd, Value};

use super::{
    RedisFence,
    script::{self, CHECK, RAISE},
};
use crate::{
    address::Address,
    coordinator::redis::{Node, Options, server},
    fence::FenceStore,
    room::Room,
};

/// Counts what was refused, whatever the resource. Not on a Cluster, where it would be in another slot.
const REFUSED: &str = "lhfence:stale_write_rejected_total";

/// Highest tokens on one server, or on the master that Sentinels name.
#[derive(Debug)]
pub struct RedisStore {
    node: Node,
    fence: RedisFence,
    place: String,
    _room: Room,
}

impl RedisStore {
    /// Connects to a URL as a coordinator would be connected to.
    ///
    /// # Errors
    /// As there; [`Kind::Unsupported`] for a Cluster.
    pub(crate) async fn connect(address: &Address) -> Result<Self, Error> {
        let options = Options::read(address)?;
        let mut fence = RedisFence::default();
        if let Some(tag) = options.effects_tag() {
            fence = fence.within(tag)?;
        }
        let room = Room::open()?;
        let node = room.run(async move { server(&options).await }).await.map_err(Error::without_effect)?;
        Ok(Self { node, fence, place: address.to_string(), _room: room })
    }

    /// Sends one command. Its task is on the room's runtime, which outlives this call.
    async fn send(&self, command: Cmd) -> Result<Value, Error> {
        self.node.plain(command).await.map_err(|failure| failure.error.at(&self.place))
    }

    async fn judge(&self, pass: Pass, ask: Ask) -> Result<Verdict, Error> {
        let mut command = redis::cmd("EVAL");
        command.arg(CHECK).arg(1).arg(self.fence.key_of(&pass.namespace, &pass.resource));
        for argument in script::arguments(&pass, ask) {
            command.arg(argument);
        }
        let (verdict, _) = script::read(self.send(command).await?)?;
        if matches!(verdict, Verdict::Refused(_)) {
            let mut count = redis::cmd("INCR");
            count.arg(REFUSED);
            // The refusal stands, counted or not.
            if let Err(error) = self.send(count).await {
                tracing::debug!(%error, "a refusal was not counted at the fence");
            }
        }
        Ok(verdict)
    }
}

impl FenceStore for RedisStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn ask(&self, pass: Pass, ask: Ask) -> Call<'_, Verdict> {
        Box::pin(self.judge(pass, ask))
    }

    fn look(&self, namespace: Namespace, resource: Resource) -> Call<'_, Option<Mark>> {
        Box::pin(async move {
            let mut command = redis::cmd("HMGET");
            command
                .arg(self.fence.key_of(&namespace, &resource))
                .arg(&["token", "lease_id", "op_seq", "holder"]);
            match self.send(command).await? {
                Value::Array(parts) => script::mark(&parts),
                _ => Err(script::corrupt()),
            }
        })
    }

    fn raise(&self, namespace: Namespace, resource: Resource, token: Token, by: Label) -> Call<'_, Mark> {
        Box::pin(async move {
            let mut command = redis::cmd("EVAL");
            command
                .arg(RAISE)
                .arg(1)
                .arg(self.fence.key_of(&namespace, &resource))
                .arg(token.to_string())
                .arg(by.as_str());
            match self.send(command).await? {
                Value::Array(parts) => script::mark(&parts)?.ok_or_else(script::corrupt),
                _ => Err(script::corrupt()),
            }
        })
    }

    fn refused(&self) -> Call<'_, u64> {
        Box::pin(async move {
            let mut command = redis::cmd("GET");
            command.arg(REFUSED);
            let answer = self.send(command).await?;
            let count = redis::from_redis_value::<Option<u64>>(answer);
            count
                .map(Option::unwrap_or_default)
                .map_err(|_| Error::new(Kind::Corrupt, "the count of refusals is none"))
        })
    }
}
