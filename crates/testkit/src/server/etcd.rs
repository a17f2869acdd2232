//! etcd: one member, or a cluster whose members can be killed, stopped and started apart.

mod certificates;
mod cut;
mod figures;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use super::{PATIENCE, Server, find_program, free_port, place};
use crate::process::{Signal, Spawn, wait_until};

pub use cut::Cut;

/// How a cluster is made.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// With TLS, on certificates that openssl makes; clients must show one as well.
    pub tls: bool,
    /// The most that the database may hold, in bytes; 0 for etcd's own bound.
    pub quota: u64,
    /// For how many seconds a login's token is good that nobody uses; 0 for etcd's own five minutes.
    pub token_ttl_s: u64,
    /// On the disk, where tests do without: for whoever measures.
    pub on_disk: bool,
}

/// A cluster of etcd members on the loopback interface.
#[derive(Debug)]
pub struct Etcd {
    folder: TempDir,
    members: Vec<Member>,
    setup: Setup,
    /// Held while the files are copied: whoever resumed the member meanwhile would tear the copy of somebody else.
    copying: Mutex<()>,
}

#[derive(Debug)]
struct Member {
    name: String,
    server: Server,
    client: u16,
    peer: u16,
}

impl Etcd {
    /// Starts a cluster of so many members and waits until it takes requests.
    ///
    /// # Errors
    /// When etcd is missing or does not start.
    pub fn start(members: usize) -> io::Result<Self> {
        Self::with(members, Setup::default())
    }

    /// As [`Etcd::start`], made in this way.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn with(members: usize, setup: Setup) -> io::Result<Self> {
        let cluster = Self::lay_out(members, setup)?;
        cluster.start_all()?;
        Ok(cluster)
    }

    fn lay_out(members: usize, setup: Setup) -> io::Result<Self> {
        let program = find_program("etcd")?;
        let folder = place("etcd", setup.on_disk)?;
        if setup.tls {
            certificates::make(folder.path())?;
        }
        let mut ports = Vec::new();
        for _ in 0..members {
            ports.push(free_port(1)?);
        }
        let all: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, port)| format!("m{at}=http://127.0.0.1:{}", port + 1))
            .collect();
        let scheme = if setup.tls { "https" } else { "http" };
        let member = |(at, &client): (usize, &u16)| {
            let (name, peer) = (format!("m{at}"), client + 1);
            let mut spawn = Spawn::new(&program)
                .args(["--name", &name, "--data-dir"])
                .arg(folder.path().join(&name))
                .args(["--listen-client-urls", &format!("{scheme}://127.0.0.1:{client}")])
                .args(["--advertise-client-urls", &format!("{scheme}://127.0.0.1:{client}")])
                .args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")])
                .args(["--initial-advertise-peer-urls", &format!("http://127.0.0.1:{peer}")])
                .args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "test"])
                .args(["--logger", "zap", "--log-outputs", "stderr"]);
            if setup.tls {
                for (flag, file) in [
                    ("--cert-file", "server.pem"),
                    ("--key-file", "server.key"),
                    ("--trusted-ca-file", "ca.pem"),
                ] {
                    spawn = spawn.arg(flag).arg(folder.path().join(file));
                }
                spawn = spawn.arg("--client-cert-auth");
            }
            if setup.quota > 0 {
                spawn = spawn.args(["--quota-backend-bytes", &setup.quota.to_string()]);
            }
            if setup.token_ttl_s > 0 {
                spawn = spawn.args(["--auth-token-ttl", &setup.token_ttl_s.to_string()]);
            }
            let server = Server::new(&format!("etcd-{name}"), folder.path(), spawn);
            Member { name, server, client, peer }
        };
        let members: Vec<Member> = ports.iter().enumerate().map(member).collect();
        Ok(Self { folder, members, setup, copying: Mutex::new(()) })
    }

    /// Another server on a copy of the files of the only member, as `kill -9` at this moment would leave them.
    ///
    /// # Errors
    /// When there are several members, or a step fails.
    pub fn crashed_copy(&self) -> io::Result<Self> {
        if self.size() != 1 {
            return Err(io::Error::other("only a single member's files make a whole"));
        }
        let copy = Self::lay_out(1, self.setup.clone())?;
        let alone = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        self.pause(0)?;
        let copied = Command::new("cp").arg("-a").arg(self.data(0)).arg(copy.folder.path()).status();
        self.resume(0)?;
        drop(alone);
        if !copied?.success() {
            return Err(io::Error::other("the files could not be copied"));
        }
        copy.start_all()?;
        Ok(copy)
    }

    fn start_all(&self) -> io::Result<()> {
        for member in &self.members {
            // Alone, a member of several does not take requests; its peers can reach it.
            member.server.start(|| listens(member.peer))?;
        }
        (0..self.members.len()).try_for_each(|at| self.await_member(at, &[]))
    }

    fn await_member(&self, at: usize, login: &[&str]) -> io::Result<()> {
        let port = self.members[at].client;
        let status = [login, &["endpoint", "status"]].concat();
        wait_until(format!("etcd member {at}"), PATIENCE, || {
            (listens(port) && self.ctl_at(at, &status).is_ok()).then_some(())
        })
        .map_err(io::Error::other)
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Where clients reach a member.
    pub fn address(&self, at: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.members[at].client).into()
    }

    /// `host:port` of every member, separated by commas, as it stands in a URL.
    pub fn hosts(&self) -> String {
        let hosts: Vec<String> = (0..self.size()).map(|at| self.address(at).to_string()).collect();
        hosts.join(",")
    }

    /// The folder with `ca.pem`, `client.pem` and `client.key`, where there is TLS.
    pub fn certificates(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self, at: usize) -> PathBuf {
        self.folder.path().join(&self.members[at].name)
    }

    /// `kill -9` of a member.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&self, at: usize) -> io::Result<()> {
        self.members[at].server.kill()
    }

    /// `kill -9` of all members at once, and a start of all again on the files they left.
    ///
    /// # Errors
    /// When the system refuses, or the cluster does not come back.
    pub fn crash(&self) -> io::Result<()> {
        (0..self.size()).try_for_each(|at| self.kill(at))?;
        self.start_all()
    }

    /// Starts a member again that was ended, with the data it has.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&self, at: usize) -> io::Result<()> {
        self.restart_with(at, &[])
    }

    /// As [`Etcd::restart`], where etcdctl must log in to ask whether it is ready.
    ///
    /// # Errors
    /// As [`Etcd::restart`].
    pub fn restart_with(&self, at: usize, login: &[&str]) -> io::Result<()> {
        self.members[at].server.start(|| listens(self.members[at].peer))?;
        self.await_member(at, login)
    }

    /// Stops a member: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn pause(&self, at: usize) -> io::Result<()> {
        self.members[at].server.pause()
    }

    /// Lets a stopped member go on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn resume(&self, at: usize) -> io::Result<()> {
        self.members[at].server.resume()
    }

    /// The member that leads now.
    ///
    /// # Errors
    /// When none does within the usual patience.
    pub fn leader(&self) -> io::Result<usize> {
        wait_until("a leader", PATIENCE, || {
            (0..self.size()).find(|&at| self.members[at].server.is_running() && self.leads(at))
        })
        .map_err(io::Error::other)
    }

    fn leads(&self, at: usize) -> bool {
        let Ok(status) = self.ctl_at(at, &["endpoint", "status", "--write-out", "json"]) else {
            return false;
        };
        let number = |name: &str| {
            let from = status.find(&format!("\"{name}\":"))? + name.len() + 3;
            let digits: String = status[from..].chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        };
        number("leader").is_some() && number("leader") == number("member_id")
    }

    /// Runs etcdctl against the whole cluster. What it wrote.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn ctl(&self, args: &[&str]) -> io::Result<String> {
        self.run_ctl(&self.hosts(), args)
    }

    fn ctl_at(&self, at: usize, args: &[&str]) -> io::Result<String> {
        self.run_ctl(&self.address(at).to_string(), args)
    }

    fn run_ctl(&self, hosts: &str, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new(find_program("etcdctl")?);
        command.env("ETCDCTL_API", "3").args(["--endpoints", hosts, "--command-timeout", "10s"]);
        if self.setup.tls {
            for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
                command.arg(flag).arg(self.folder.path().join(file));
            }
        }
        let output = command.args(args).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(io::Error::other(format!("etcdctl {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr))))
    }

    /// Switches users on: `root`, and one who may read and write below a prefix. Both have this password.
    ///
    /// # Errors
    /// When etcdctl fails.
    pub fn enable_users(&self, user: &str, password: &str, prefix: &str) -> io::Result<()> {
        self.ctl(&["user", "add", &format!("root:{password}")])?;
        self.ctl(&["user", "grant-role", "root", "root"])?;
        self.ctl(&["user", "add", &format!("{user}:{password}")])?;
        self.ctl(&["role", "add", "writer"])?;
        self.ctl(&["role", "grant-permission", "writer", "--prefix=true", "readwrite", prefix])?;
        self.ctl(&["user", "grant-role", user, "writer"])?;
        self.ctl(&["auth", "enable"]).map(drop)
    }

    /// Saves a snapshot of a member.
    ///
    /// # Errors
    /// When etcdctl fails.
    pub fn snapshot(&self, name: &str) -> io::Result<PathBuf> {
        let file = self.folder.path().join(name);
        self.ctl_at(0, &["snapshot", "save", &file.to_string_lossy()])?;
        Ok(file)
    }

    /// Ends all members and starts them again from a snapshot, as an operator does after a loss.
    ///
    /// # Errors
    /// When a step fails.
    pub fn restore(&self, snapshot: &Path) -> io::Result<()> {
        let peer = |member: &Member| format!("http://127.0.0.1:{}", member.peer);
        let all: Vec<String> =
            self.members.iter().map(|member| format!("{}={}", member.name, peer(member))).collect();
        for member in &self.members {
            member.server.end(Signal::SIGTERM)?;
        }
        for (at, member) in self.members.iter().enumerate() {
            fs::remove_dir_all(self.data(at))?;
            self.ctl(&[
                "snapshot",
                "restore",
                &snapshot.to_string_lossy(),
                "--name",
                &member.name,
                "--data-dir",
                &self.data(at).to_string_lossy(),
                "--initial-cluster",
                &all.join(","),
                "--initial-cluster-token",
                "test",
                "--initial-advertise-peer-urls",
                &peer(member),
            ])?;
        }
        self.start_all()
    }
}

fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_survives_its_leader_and_a_member_its_death() {
        let etcd = Etcd::start(3).unwrap();
        etcd.ctl(&["put", "a", "b"]).unwrap();
        let leader = etcd.leader().unwrap();
        etcd.kill(leader).unwrap();
        assert_ne!(etcd.leader().unwrap(), leader);
        etcd.restart(leader).unwrap();
        assert!(etcd.ctl(&["get", "a"]).unwrap().contains('b'));
    }
}
