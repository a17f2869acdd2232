//! Private Redis servers: one alone, with replicas, watched by Sentinels, or as a Cluster.

mod cluster;
mod sentinel;
mod wire;

use std::{io, net::SocketAddr};

use tempfile::TempDir;

pub use cluster::RedisCluster;
pub use sentinel::RedisSentinels;
pub use wire::{Reply, ask};

use super::{PATIENCE, Server, ServerClock, find_program, free_port, place};
use crate::process::{Spawn, wait_until};

/// How a server is to be started. Without persistence unless asked.
#[derive(Clone, Debug, Default)]
pub struct RedisSetup {
    settings: Vec<(String, String)>,
    clock: bool,
    secure: bool,
    on_disk: bool,
}

impl RedisSetup {
    /// The smallest: nothing is kept on disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A setting, as in the server's configuration file.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Keeps every change on disk before it is answered.
    #[must_use]
    pub fn durable(self) -> Self {
        self.with("appendonly", "yes").with("appendfsync", "always")
    }

    /// With its files on the disk, where tests do without: for whoever measures.
    #[must_use]
    pub fn on_disk(self) -> Self {
        Self { on_disk: true, ..self }
    }

    /// With a wall clock that can be stepped.
    #[must_use]
    pub fn with_clock(self) -> Self {
        Self { clock: true, ..self }
    }

    /// Its only port speaks TLS; the settings must name the certificates.
    #[must_use]
    pub fn over_tls(self) -> Self {
        Self { secure: true, ..self }
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the program is missing or the server does not start.
    pub fn start(self) -> io::Result<Redis> {
        on_free_port(0, |port| self.clone().start_at(port))
    }

    fn start_at(self, port: u16) -> io::Result<Redis> {
        let folder = place("redis", self.on_disk)?;
        let ports = if self.secure { ("0", port.to_string()) } else { ("", String::new()) };
        let mut spawn = Spawn::new(find_program("redis-server")?)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(folder.path());
        spawn = match ports {
            ("0", secure) => spawn.args(["--port", "0", "--tls-port"]).arg(secure),
            _ => spawn.arg("--port").arg(port.to_string()),
        };
        for (name, value) in &self.settings {
            spawn = spawn.arg(format!("--{name}"));
            // Some settings are several words.
            spawn = if value.is_empty() { spawn.arg("") } else { spawn.args(value.split(' ')) };
        }
        let clock = if self.clock { Some(ServerClock::new(folder.path())?) } else { None };
        if let Some(clock) = &clock {
            spawn = clock.apply(spawn)?;
        }
        let server = Server::new("redis", folder.path(), spawn);
        let redis = Redis { server, port, clock, secure: self.secure, folder };
        redis.start()?;
        Ok(redis)
    }
}

/// Starts a server on a free port, with `more` of them above. Another process may take one before the server does: then on
/// others.
fn on_free_port(more: u16, start: impl Fn(u16) -> io::Result<Redis>) -> io::Result<Redis> {
    let mut last = None;
    for _ in 0..5 {
        match start(free_port(more)?) {
            Err(error) if error.to_string().contains("Address already in use") => last = Some(error),
            outcome => return outcome,
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// One server.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    port: u16,
    clock: Option<ServerClock>,
    secure: bool,
    folder: TempDir,
}

impl Redis {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of the whole server.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The process, to be killed, stopped and started again.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its private folder.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Its wall clock.
    ///
    /// # Panics
    /// When it was started without one of its own.
    #[allow(clippy::panic, reason = "a test that steps a clock has asked for one")]
    pub fn clock(&self) -> &ServerClock {
        match &self.clock {
            Some(clock) => clock,
            None => panic!("the server was started without a clock of its own"),
        }
    }

    /// Starts it after it has ended.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self) -> io::Result<()> {
        let address = self.address();
        let secure = self.secure;
        self.server.start(|| {
            if secure {
                return std::net::TcpStream::connect(address).is_ok();
            }
            // A server that wants a password answers as well.
            match ask(address, &[b"PING"]) {
                Ok(_) => true,
                Err(error) => {
                    error.to_string().starts_with("NOAUTH") || error.to_string().starts_with("MASTERDOWN")
                }
            }
        })
    }

    /// `kill -9`, and starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn crash(&self) -> io::Result<()> {
        self.server.kill()?;
        self.start()
    }

    /// Asks it something.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn ask(&self, words: &[&str]) -> io::Result<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        ask(self.address(), &words)
    }

    /// A line of its `INFO`.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn info(&self, name: &str) -> io::Result<String> {
        let info = self.ask(&["INFO"])?.text();
        let found =
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
        Ok(found.unwrap_or_default())
    }

    /// Makes it a replica of what listens there, and waits until it has all of its data.
    ///
    /// # Errors
    /// When it does not come about.
    pub fn follow(&self, master: SocketAddr) -> io::Result<()> {
        self.ask(&["REPLICAOF", &master.ip().to_string(), &master.port().to_string()])?;
        self.until("the replica to be in step", || {
            self.info("master_link_status").is_ok_and(|status| status == "up")
        })
    }

    /// Waits until something holds.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> io::Result<()> {
        wait_until(what, PATIENCE, || holds().then_some(())).map_err(io::Error::other)
    }

    /// Makes a replica a master.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn promote(&self) -> io::Result<()> {
        self.ask(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }
}

/// A master and its replica.
///
/// # Errors
/// When they do not start.
pub fn redis_pair() -> io::Result<(Redis, Redis)> {
    pair_of(&RedisSetup::new())
}

/// As [`redis_pair`], of servers with these settings.
fn pair_of(setup: &RedisSetup) -> io::Result<(Redis, Redis)> {
    let setup = setup.clone().with("repl-diskless-sync-delay", "0");
    let (master, replica) = (setup.clone().start()?, setup.start()?);
    replica.follow(master.address())?;
    Ok((master, replica))
}
