//! What a server says about itself, read once when a client connects and again when it is examined.

use std::collections::HashMap;

use redis::Value;

use super::{failure::Failure, node::Node};

/// What `INFO` says, and what `CONFIG GET` says where it is permitted.
#[derive(Clone, Default, Debug)]
pub(crate) struct Facts {
    info: HashMap<String, String>,
    config: Option<HashMap<String, String>>,
}

/// The settings that are asked for.
const SETTINGS: [&str; 6] = [
    "appendonly",
    "appendfsync",
    "save",
    "maxmemory-policy",
    "min-replicas-to-write",
    "min-replicas-max-lag",
];

impl Facts {
    /// Asks a server.
    pub(crate) async fn of(node: &Node) -> Result<Self, Failure> {
        let info = node.plain(redis::cmd("INFO")).await?;
        let info: String = redis::from_redis_value(info).unwrap_or_default();
        let mut config = HashMap::new();
        let mut allowed = true;
        for name in SETTINGS {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            match node.plain(command).await {
                Ok(value) => config.extend(pair(value)),
                // Forbidden, renamed or absent: what cannot be seen is said to be unknown.
                Err(failure) if failure.turn == super::failure::Turn::Stay => {
                    allowed = false;
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Self { info: parse(&info), config: allowed.then_some(config) })
    }

    /// What a server would say, for labels of deployments that are not there.
    pub(in crate::coordinator) fn assumed(info: &[(&str, &str)], config: &[(&str, &str)]) -> Self {
        let known = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Self { info: known(info), config: Some(known(config)) }
    }

    /// A line of `INFO`.
    pub(crate) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    /// A figure of `INFO`.
    pub(crate) fn figure(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// A setting; `None` where the server does not tell.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.get(name).map(String::as_str)
    }

    /// True when settings may be read.
    pub(crate) fn shows_settings(&self) -> bool {
        self.config.is_some()
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.info("role") == Some("slave")
    }

    pub(crate) fn replicas(&self) -> u64 {
        self.figure("connected_slaves").unwrap_or(0)
    }

    pub(crate) fn has_aof(&self) -> bool {
        self.info("aof_enabled") == Some("1")
    }

    /// Whether an answered change is on disk before it is answered; `None` where the server does not tell.
    pub(crate) fn syncs_always(&self) -> Option<bool> {
        if !self.has_aof() {
            return Some(false);
        }
        self.setting("appendfsync").map(|when| when == "always")
    }

    pub(crate) fn policy(&self) -> Option<&str> {
        self.info("maxmemory_policy").or_else(|| self.setting("maxmemory-policy"))
    }

    /// True when the server may throw leases away for want of memory.
    pub(crate) fn may_evict(&self) -> bool {
        let bounded = self.figure("maxmemory").is_none_or(|bytes| bytes > 0);
        bounded && self.policy().is_some_and(|policy| policy != "noeviction")
    }

    /// The version, as numbers that compare.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.info("redis_version")?.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    }
}

fn parse(info: &str) -> HashMap<String, String> {
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn pair(value: Value) -> HashMap<String, String> {
    redis::from_redis_value(value).unwrap_or_default()
}

#[cfg(test)]
impl Facts {
    pub(crate) fn from_text(info: &str, config: Option<&[(&str, &str)]>) -> Self {
        let config =
            config.map(|pairs| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect());
        Self { info: parse(info), config }
    }
}
