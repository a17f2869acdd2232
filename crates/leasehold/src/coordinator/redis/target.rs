//! Who is to be asked: one server, or whoever Sentinel names as master just now.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, Kind};
use redis::{Cmd, Value};

use super::{
    dial::{self, Carrier, Login},
    failure::{self, Failure},
};
use crate::{address::Host, sync::lock};

/// A Sentinel that does not answer within this is passed over (ours: it only answers from memory).
const SENTINEL_LIMIT: Duration = Duration::from_secs(1);

/// How the server is found.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// It is this one.
    Fixed(Host, Login),
    /// The master of a group that Sentinels watch.
    Sentinel(Arc<Sentinels>),
    /// Any of those that are known, another one each time.
    Any(Arc<Known>, Login),
}

/// The nodes of a Cluster, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    hosts: Mutex<Vec<Host>>,
    turn: AtomicUsize,
}

impl Known {
    pub(crate) fn replace(&self, hosts: Vec<Host>) {
        *lock(&self.hosts) = hosts;
    }

    pub(crate) fn all(&self) -> Vec<Host> {
        lock(&self.hosts).clone()
    }

    fn next(&self) -> Option<Host> {
        let hosts = lock(&self.hosts);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        hosts.get(turn.checked_rem(hosts.len())?).cloned()
    }
}

/// The Sentinels of a group.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) hosts: Vec<Host>,
    /// The group's name.
    pub(crate) group: String,
    /// How to log in at the Sentinels.
    pub(crate) login: Login,
    /// How to log in at the master.
    pub(crate) master: Login,
}

/// A connection, with the server that it leads to.
pub(crate) struct Reached {
    pub(crate) host: Host,
    pub(crate) connection: redis::aio::MultiplexedConnection,
    pub(crate) carrier: Carrier,
}

impl Target {
    /// Connects. Not bounded in time.
    pub(crate) async fn reach(&self) -> Result<Reached, Failure> {
        let (host, login) = self.find().await?;
        let (connection, carrier) = dial::connection(&host, &login).await?;
        Ok(Reached { host, connection, carrier })
    }

    /// The server that is to be asked now.
    pub(crate) async fn find(&self) -> Result<(Host, Login), Failure> {
        match self {
            Self::Fixed(host, login) => Ok((host.clone(), login.clone())),
            Self::Sentinel(sentinels) => Ok((sentinels.master().await?, sentinels.master.clone())),
            Self::Any(known, login) => {
                let host = known.next().ok_or_else(|| Failure::unsent("no node of the Cluster is known"))?;
                Ok((host, login.clone()))
            }
        }
    }
}

impl Sentinels {
    /// Asks one after the other for the master.
    async fn master(&self) -> Result<Host, Failure> {
        let mut last = Failure::unsent("no Sentinel was asked");
        for host in &self.hosts {
            match tokio::time::timeout(SENTINEL_LIMIT, self.ask(host)).await {
                Ok(Ok(master)) => return Ok(master),
                Ok(Err(failure)) => last = failure,
                Err(_) => last = Failure::unsent(format!("the Sentinel at {host} does not answer")),
            }
        }
        Err(last)
    }

    async fn ask(&self, host: &Host) -> Result<Host, Failure> {
        let (mut connection, carrier) = dial::connection(host, &self.login).await?;
        let carrier = tokio::spawn(carrier);
        let mut command = Cmd::new();
        command.arg("SENTINEL").arg("get-master-addr-by-name").arg(&self.group);
        let answer = connection.send_packed_command(&command).await;
        carrier.abort();
        // What a Sentinel refuses comes as a value.
        let answer = answer.and_then(Value::extract_error).map_err(|error| {
            let failure = failure::of_request(&error);
            Failure { error: failure.error.without_effect(), ..failure }
        })?;
        let Value::Array(parts) = answer else {
            return Err(Error::new(
                Kind::Invalid,
                format!("Sentinel watches no group called {:?}", self.group),
            )
            .advise("write the name after `sentinel monitor` in the Sentinels' configuration")
            .into());
        };
        let words: Vec<String> =
            parts.iter().filter_map(|part| redis::from_redis_value_ref(part).ok()).collect();
        match words.as_slice() {
            [name, port] => failure::read_host(&format!("{name}:{port}")),
            _ => None,
        }
        .ok_or_else(|| Failure::unsent(format!("the Sentinel at {host} names no address")))
    }
}
