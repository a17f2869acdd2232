//! A master and a replica, watched by three Sentinels.

use std::{io, net::SocketAddr, time::Duration};

use tempfile::TempDir;

use super::{super::write_private, Redis, RedisSetup, Reply, ask, pair_of};
use crate::{
    process::{Spawn, wait_until},
    server::{PATIENCE, Server, find_program, folder, free_port},
};

/// What the Sentinels call the group.
const GROUP: &str = "main";

/// Three Sentinels and what they watch.
#[derive(Debug)]
pub struct RedisSentinels {
    /// The two servers; the first starts as master.
    pub servers: [Redis; 2],
    sentinels: Vec<(Server, u16)>,
    _folder: TempDir,
}

impl RedisSentinels {
    /// Starts all of it, and waits until the Sentinels know one another and both servers.
    ///
    /// # Errors
    /// When a program is missing or does not start.
    pub fn start() -> io::Result<Self> {
        Self::of(&RedisSetup::new(), Duration::from_secs(1))
    }

    /// As [`RedisSentinels::start`], of servers with these settings, which are called down when they are silent for so long.
    ///
    /// # Errors
    /// As [`RedisSentinels::start`].
    pub fn of(setup: &RedisSetup, silence: Duration) -> io::Result<Self> {
        let (master, replica) = pair_of(setup)?;
        let folder = folder("sentinel")?;
        let program = find_program("redis-server")?;
        let silence_ms = silence.as_millis();
        let mut sentinels = Vec::new();
        for at in 0..3 {
            let port = free_port(0)?;
            let file = folder.path().join(format!("sentinel-{at}.conf"));
            let watched = master.address().port();
            let config = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {GROUP} 127.0.0.1 {watched} 2\n\
                 sentinel down-after-milliseconds {GROUP} {silence_ms}\nsentinel failover-timeout {GROUP} 5000\n",
                folder.path().display()
            );
            write_private(&file, &config)?;
            let spawn = Spawn::new(&program).arg(&file).arg("--sentinel");
            sentinels.push((Server::new(&format!("sentinel-{at}"), folder.path(), spawn), port));
        }
        let group = Self { servers: [master, replica], sentinels, _folder: folder };
        group.start_sentinels()?;
        Ok(group)
    }

    fn start_sentinels(&self) -> io::Result<()> {
        for (server, port) in &self.sentinels {
            server.start(|| ask(local(*port), &[b"PING"]).is_ok())?;
        }
        wait_until("the Sentinels to know everything", PATIENCE, || self.is_complete().then_some(()))
            .map_err(io::Error::other)
    }

    /// `kill -9` of everything at once, and a start of all again on the files they left, before anybody misses the master.
    ///
    /// # Errors
    /// When the system refuses, or the group does not come back.
    pub fn crash(&self) -> io::Result<()> {
        let [master, replica] = &self.servers;
        let sentinels = self.sentinels.iter().map(|(server, _)| server);
        sentinels.chain([master.server(), replica.server()]).try_for_each(Server::kill)?;
        master.start()?;
        replica.start()?;
        // Whom it followed was said to it, and is in no file.
        replica.follow(master.address())?;
        self.start_sentinels()
    }

    /// A URL that names the Sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        format!("redis://{}?sentinel={GROUP}", hosts.join(","))
    }

    /// The address of whom the Sentinels call master.
    ///
    /// # Errors
    /// When none answers.
    pub fn master(&self) -> io::Result<SocketAddr> {
        let (_, port) = self.sentinels[0];
        let reply = ask(local(port), &[b"SENTINEL", b"get-master-addr-by-name", GROUP.as_bytes()])?;
        let text = reply.text().replace('\n', ":");
        text.parse().map_err(|_| io::Error::other(format!("no address: {text}")))
    }

    /// The server that is master, as the Sentinels see it.
    ///
    /// # Errors
    /// When they cannot say.
    pub fn master_server(&self) -> io::Result<&Redis> {
        let master = self.master()?;
        let found = self.servers.iter().find(|server| server.address() == master);
        found.ok_or_else(|| io::Error::other("the Sentinels name a server that is not ours"))
    }

    /// Asks the Sentinels for a failover, as an operator does before maintenance.
    ///
    /// # Errors
    /// When they refuse.
    pub fn fail_over(&self) -> io::Result<()> {
        let (_, port) = self.sentinels[0];
        ask(local(port), &[b"SENTINEL", b"FAILOVER", GROUP.as_bytes()]).map(drop)
    }

    fn is_complete(&self) -> bool {
        self.sentinels.iter().all(|(_, port)| {
            let reply = ask(local(*port), &[b"SENTINEL", b"master", GROUP.as_bytes()]);
            let Ok(Reply::Many(parts)) = reply else { return false };
            let words: Vec<String> = parts.iter().map(Reply::text).collect();
            let value =
                |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
            value("num-slaves").is_some_and(|count| count == "1")
                && value("num-other-sentinels").is_some_and(|count| count == "2")
        })
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
