//! The account in Redis: the write is one command inside the fence's script.

use std::error::Error;

use leasehold::{
    Namespace, Resource,
    fence::{
        NotAdmitted, Pass,
        redis::{RedisFence, redis},
    },
};
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};

use super::{Account, Bank};
use crate::person::ACCOUNT;

/// A list of writes; the last one counts. In the fence's slot, as a Cluster would want it.
fn key() -> Result<String, leasehold::Invalid> {
    Ok(format!("{{{}}}:account", RedisFence::tag(&Namespace::default(), &Resource::new(ACCOUNT)?)))
}

pub(crate) struct Server {
    runtime: Runtime,
    connection: MultiplexedConnection,
    fence: RedisFence,
}

pub(crate) fn set_up(url: &str) -> Result<(), Box<dyn Error>> {
    let mut server = Server::open(url)?;
    let key = key()?;
    let mut commands = redis::pipe();
    commands.cmd("DEL").arg(&key).cmd("RPUSH").arg(&key).arg("nobody (100)");
    Ok(server.runtime.block_on(commands.exec_async(&mut server.connection))?)
}

impl Server {
    pub(crate) fn open(url: &str) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let connection = runtime.block_on(redis::Client::open(url)?.get_multiplexed_async_connection())?;
        Ok(Self { runtime, connection, fence: RedisFence::default() })
    }
}

impl Bank for Server {
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.runtime.block_on(self.fence.seal(&mut self.connection, pass))
    }

    fn account(&mut self) -> Result<Account, Box<dyn Error>> {
        let mut command = redis::cmd("LRANGE");
        command.arg(key()?).arg(0).arg(-1);
        let history: Vec<String> = self.runtime.block_on(command.query_async(&mut self.connection))?;
        Account::of(history)
    }

    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>> {
        let key = key()?;
        let mut command = redis::cmd("RPUSH");
        command.arg(&key).arg(format!("{} ({balance})", pass.holder));
        let keys = [key.as_str()];
        if fenced {
            self.runtime.block_on(self.fence.write(&mut self.connection, pass, &command, &keys))?;
        } else {
            self.runtime.block_on(command.exec_async(&mut self.connection))?;
        }
        Ok(())
    }
}
