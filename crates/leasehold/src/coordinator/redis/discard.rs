//! The end of a throwaway namespace: all its keys, name by name.
//!
//! A key is ended by a TTL of zero, because a login that may do what leases need may do that and need not be able to delete. The
//! shard's own record and the list of names go last: who is interrupted begins anew.

use leasehold_core::{Error, Namespace};
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::{
    Servers,
    dial::CONNECT_LIMIT,
    failure::Failure,
    options::Options,
    reach,
    space::{Space, slot_of},
};

/// Names read at a time.
const NAMES: usize = 256;

/// Removes all keys of a namespace. How many there were.
///
/// # Errors
/// As [`super::connect`] when the server cannot be reached; what it says of a command.
pub(crate) async fn discard(options: Options, namespace: &Namespace) -> Result<u64, Error> {
    let limited = timeout(CONNECT_LIMIT * 2, all(&options, namespace)).await;
    let late = || Err(Failure::unanswered("the server did not answer in time"));
    limited.unwrap_or_else(|_| late()).map_err(|failure| failure.error.at(&options.place))
}

async fn all(options: &Options, namespace: &Namespace) -> Result<u64, Failure> {
    let (desk, _) = reach(options, namespace).await?;
    let mut ended = 0;
    for space in desk.layout.shards() {
        ended += shard(&desk.servers, space).await?;
    }
    Ok(ended)
}

async fn shard(servers: &Servers, space: &Space) -> Result<u64, Failure> {
    let (mut ended, mut from) = (0, "-".to_owned());
    loop {
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(space.index()).arg(&from).arg("+").arg("LIMIT").arg(0).arg(NAMES);
        let names: Vec<String> = read(ask(servers, space, command).await?)?;
        for name in &names {
            // The record last: while it is there, its name is not forgotten by anybody's tidying.
            let keys = [space.line(name), space.entries(name), space.past(name), space.record(name)];
            ended += end(servers, space, &keys).await?;
        }
        let Some(last) = names.last().filter(|_| names.len() == NAMES) else { break };
        from = format!("({last}");
    }
    ended += end(servers, space, &[space.index(), space.meta()]).await?;
    Ok(ended)
}

/// Ends keys. How many were there.
async fn end(servers: &Servers, space: &Space, keys: &[String]) -> Result<u64, Failure> {
    let mut ended = 0;
    for key in keys {
        let mut command = redis::cmd("PEXPIRE");
        command.arg(key).arg(0);
        ended += read::<u64>(ask(servers, space, command).await?)?;
    }
    Ok(ended)
}

async fn ask(servers: &Servers, space: &Space, command: Cmd) -> Result<Value, Failure> {
    match servers {
        Servers::One(node) => node.plain(command).await,
        Servers::Cluster(cluster) => cluster.plain(slot_of(&space.meta()), &command).await,
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Failure> {
    redis::from_redis_value(value)
        .map_err(|_| Failure::unanswered("the server gave an answer that is no number and no list"))
}
