//! `PostgreSQL`, its standbys, and `PgBouncer` in front of it.
//!
//! `PostgreSQL` refuses to run as root: its programs then run as the user `postgres`, whom Debian's package makes. The first
//! server of a test process costs an `initdb`; the others start from a copy of what that made. `fsync` stays on; where there
//! is room, their files lie in memory, so that a busy disk does not decide how long a commit takes.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use nix::unistd::{User, chown, geteuid};
use tempfile::TempDir;

mod tls;

use super::{PATIENCE, Server, ServerClock, find_program, free_port, place, write_private};
use crate::{
    lock,
    process::{Signal, Spawn, wait_until},
};

const ADMIN: &str = "postgres";
/// How often a start is tried: one that comes right after a kill may find the dead server's shared memory in use.
const STARTS: u32 = 40;

/// Members of the role `with_password` must show one; everybody else on this machine is trusted.
const ACCESS: &str = "local all all trust\n\
    host all +with_password 127.0.0.1/32 scram-sha-256\n\
    host all all 127.0.0.1/32 trust\n\
    host replication all 127.0.0.1/32 trust\n";

/// A server with a database `postgres` and the administrator `postgres`.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    home: TempDir,
    port: u16,
    databases: AtomicU32,
    clock: Option<ServerClock>,
    /// Kept for the next server of this process.
    template: Option<Arc<TempDir>>,
}

/// A command that runs as the server's user.
fn unprivileged(program: &str) -> io::Result<(PathBuf, Vec<String>)> {
    let program = find_program(program)?;
    if !geteuid().is_root() {
        return Ok((program, Vec::new()));
    }
    let mut arguments: Vec<String> =
        ["--reuid", ADMIN, "--regid", ADMIN, "--init-groups", "--pdeathsig", "KILL", "--"]
            .map(str::to_owned)
            .to_vec();
    arguments.push(program.to_string_lossy().into_owned());
    Ok((find_program("setpriv")?, arguments))
}

fn run(program: &str, arguments: &[&str]) -> io::Result<Output> {
    let (program_path, mut all) = unprivileged(program)?;
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let output = Command::new(program_path).args(all).current_dir("/").env_remove("PGPASSFILE").output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(io::Error::other(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr))))
}

fn psql(port: u16, database: &str, sql: &str) -> io::Result<String> {
    let output = Command::new(find_program("psql")?)
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-U",
            ADMIN,
        ])
        .args(["-d", database, "-c", sql])
        .env("PGCONNECT_TIMEOUT", "20")
        .output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// A folder that the server's user owns.
fn owned_folder(name: &str, on_disk: bool) -> io::Result<TempDir> {
    let folder = place(name, on_disk)?;
    give(folder.path())?;
    Ok(folder)
}

fn give(path: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let user = User::from_name(ADMIN)?.ok_or_else(|| {
        io::Error::other("there is no user postgres; `cargo xtask test --install` installs the server")
    })?;
    Ok(chown(path, Some(user.uid), Some(user.gid))?)
}

/// The folder that `initdb` made: one for all servers of a process, removed with the last of them.
fn template() -> io::Result<Arc<TempDir>> {
    static MADE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut made = lock(&MADE);
    if let Some(home) = made.upgrade() {
        return Ok(home);
    }
    let home = Arc::new(owned_folder("postgres-template", false)?);
    let data = home.path().join("data");
    run(
        "initdb",
        &["-D", &data.to_string_lossy(), "-U", ADMIN, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
    )?;
    fs::write(data.join("pg_hba.conf"), ACCESS)?;
    *made = Arc::downgrade(&home);
    Ok(home)
}

/// A server's folder with a fresh data folder in it, and where that was copied from.
struct NewHome {
    home: TempDir,
    template: Arc<TempDir>,
}

fn new_home(on_disk: bool) -> io::Result<NewHome> {
    let home = owned_folder("postgres", on_disk)?;
    let data = home.path().join("data");
    let template = template()?;
    let from = template.path().join("data");
    run("cp", &["-a", "--reflink=auto", &from.to_string_lossy(), &data.to_string_lossy()])?;
    Ok(NewHome { home, template })
}

impl Postgres {
    /// Starts a private server.
    ///
    /// # Errors
    /// When the programs are missing or it does not start.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[])
    }

    /// The same with settings of `postgresql.conf`.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with(settings: &[(&str, &str)]) -> io::Result<Self> {
        Self::start_in(new_home(false)?, settings, None)
    }

    /// The same with its files on the disk, where tests do without: for whoever measures.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_on_disk() -> io::Result<Self> {
        Self::start_in(new_home(true)?, &[], None)
    }

    /// The same with a wall clock that can be stepped.
    ///
    /// # Errors
    /// As [`Postgres::start`], and when the clock cannot be made.
    pub fn start_with_clock() -> io::Result<Self> {
        let new = new_home(false)?;
        let clock = ServerClock::new(new.home.path())?;
        Self::start_in(new, &[], Some(clock))
    }

    fn start_in(new: NewHome, settings: &[(&str, &str)], clock: Option<ServerClock>) -> io::Result<Self> {
        let mut server = Self::in_home(new.home, settings, clock)?;
        server.template = Some(new.template);
        server.launch()?;
        Ok(server)
    }

    fn in_home(home: TempDir, settings: &[(&str, &str)], clock: Option<ServerClock>) -> io::Result<Self> {
        let port = free_port(0)?;
        let (program, mut arguments) = unprivileged("postgres")?;
        let data = home.path().join("data");
        arguments.extend([
            "-D".to_owned(),
            data.to_string_lossy().into_owned(),
            "-p".to_owned(),
            port.to_string(),
        ]);
        let folder = home.path().to_string_lossy().into_owned();
        let own = [
            ("unix_socket_directories", folder.as_str()),
            ("listen_addresses", "127.0.0.1"),
            ("max_connections", "600"),
            ("shared_buffers", "32MB"),
            ("hot_standby_feedback", "on"),
            // A copy must find the log that was written while it was made.
            ("wal_keep_size", "256MB"),
            ("max_wal_senders", "60"),
            ("max_replication_slots", "60"),
        ];
        for (name, value) in own.iter().chain(settings) {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        let mut spawn = Spawn::new(program).args(arguments);
        if let Some(clock) = &clock {
            spawn = clock.apply(spawn)?;
        }
        let server = Server::new("postgres", home.path(), spawn);
        Ok(Self { server, home, port, databases: AtomicU32::new(0), clock, template: None })
    }

    fn launch(&self) -> io::Result<()> {
        let mut last = None;
        for _ in 0..STARTS {
            // What a killed server left behind names a process that is gone.
            let _ = fs::remove_file(self.data().join("postmaster.pid"));
            match self.server.start(|| self.psql("postgres", "SELECT 1").is_ok()) {
                Ok(()) => return Ok(()),
                Err(error) if error.to_string().contains("shared memory") => last = Some(error),
                Err(error) => return Err(error),
            }
            crate::clock::pause(std::time::Duration::from_millis(100));
        }
        Err(last.unwrap_or_else(|| io::Error::other("not started")))
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
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

    /// The folder of its Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.home.path()
    }

    /// The URL of a database, as the administrator.
    pub fn url(&self, database: &str) -> String {
        Self::url_at(self.address(), database)
    }

    /// The URL of a database behind another address.
    pub fn url_at(address: SocketAddr, database: &str) -> String {
        format!("postgres://{ADMIN}@{address}/{database}")
    }

    /// Makes a database of a name that no other has.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn database(&self) -> io::Result<String> {
        let name = format!("leases_{}", self.databases.fetch_add(1, Ordering::SeqCst));
        self.psql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(name)
    }

    /// What `psql` prints for these statements, without headings.
    ///
    /// # Errors
    /// When the server refuses one; says why.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        psql(self.port, database, sql)
    }

    /// A `psql` that goes on until it is dropped.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn psql_session(&self, database: &str, sql: &str) -> io::Result<crate::process::Child> {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        let port = self.port.to_string();
        let name = format!("psql-{}", SESSIONS.fetch_add(1, Ordering::SeqCst));
        Spawn::new(find_program("psql")?)
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                ADMIN,
                "-d",
                database,
                "-c",
                sql,
            ])
            .start(&name, self.home.path())
    }

    /// `kill -9` of the whole server, and a start again.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn crash(&self) -> io::Result<()> {
        self.server.kill()?;
        self.launch()
    }

    /// `kill -9` of the whole server.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&self) -> io::Result<()> {
        self.server.kill()
    }

    /// Starts it again after an end.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn restart(&self) -> io::Result<()> {
        self.launch()
    }

    /// A standby that streams from this server, ready to read from. With a `name` it can be waited for
    /// (`synchronous_standby_names`). `upstream` is where it connects to, for a proxy in between.
    ///
    /// # Errors
    /// When the copy or the start fails.
    pub fn standby(&self, name: &str, upstream: Option<SocketAddr>) -> io::Result<Self> {
        let home = self.backup("postgres-standby")?;
        let data = home.path().join("data");
        fs::write(data.join("standby.signal"), "")?;
        give(&data.join("standby.signal"))?;
        let from = upstream.unwrap_or_else(|| self.address());
        let primary = format!("host={} port={} user={ADMIN} application_name={name}", from.ip(), from.port());
        let standby = Self::in_home(home, &[("primary_conninfo", &primary)], None)?;
        standby.launch()?;
        Ok(standby)
    }

    /// Waits until commits wait for a standby of this name, which `synchronous_standby_names` has.
    ///
    /// # Errors
    /// When it does not come about in [`PATIENCE`].
    pub fn until_synchronous(&self, name: &str) -> io::Result<()> {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{name}' AND sync_state = 'sync'"
        );
        wait_until("synchrony", PATIENCE, || (self.psql("postgres", &sql).ok()? == "1").then_some(()))
            .map_err(io::Error::other)
    }

    /// A server of its own that begins where this one is: all that it has on disk, found as after a crash.
    ///
    /// # Errors
    /// When the copy or the start fails.
    pub fn copy(&self) -> io::Result<Self> {
        let copy = Self::in_home(self.backup("postgres-copy")?, &[], None)?;
        copy.launch()?;
        Ok(copy)
    }

    fn backup(&self, name: &str) -> io::Result<TempDir> {
        let home = owned_folder(name, false)?;
        let (data, port) = (home.path().join("data"), self.port.to_string());
        run(
            "pg_basebackup",
            &[
                "-D",
                &data.to_string_lossy(),
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                ADMIN,
                "-c",
                "fast",
                "-X",
                "stream",
                "--no-sync",
            ],
        )?;
        Ok(home)
    }

    /// Makes a standby the primary.
    ///
    /// # Errors
    /// When it refuses.
    pub fn promote(&self) -> io::Result<()> {
        self.psql("postgres", "SELECT pg_promote(true, 60)")?;
        wait_until("the promotion", PATIENCE, || {
            (self.psql("postgres", "SELECT pg_is_in_recovery()").ok()? == "f").then_some(())
        })
        .map_err(io::Error::other)
    }

    /// Asks it to end at once but in good order (a fast shutdown).
    ///
    /// # Errors
    /// When it does not end.
    pub fn shut_down(&self) -> io::Result<()> {
        self.server.end(Signal::SIGINT)
    }
}

/// `PgBouncer` in transaction mode.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
    port: u16,
    _home: TempDir,
}

impl PgBouncer {
    /// Starts one in front of a server, with this many server connections for each database.
    ///
    /// # Errors
    /// When the program is missing or it does not start.
    pub fn start(postgres: &Postgres, pool: u16) -> io::Result<Self> {
        let home = owned_folder("pgbouncer", false)?;
        let port = free_port(0)?;
        let users = home.path().join("users.txt");
        let config = home.path().join("pgbouncer.ini");
        write_private(&users, &format!("\"{ADMIN}\" \"\"\n"))?;
        write_private(
            &config,
            &format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\n\
                 unix_socket_dir=\nauth_type=trust\nauth_file={}\npool_mode=transaction\ndefault_pool_size={pool}\n\
                 max_client_conn=1000\nserver_lifetime=3600\nadmin_users={ADMIN}\nignore_startup_parameters=\n",
                postgres.port,
                users.display()
            ),
        )?;
        give(&users)?;
        give(&config)?;
        let (program, mut arguments) = unprivileged("pgbouncer")?;
        arguments.push(config.to_string_lossy().into_owned());
        let server = Server::new("pgbouncer", home.path(), Spawn::new(program).args(arguments));
        let bouncer = Self { server, port, _home: home };
        bouncer.launch()?;
        Ok(bouncer)
    }

    fn launch(&self) -> io::Result<()> {
        self.server.start(|| std::net::TcpStream::connect(self.address()).is_ok())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Has a first client use a database, so that its pool has a session to lend out.
    ///
    /// # Errors
    /// When that fails.
    pub fn warm(&self, database: &str) -> io::Result<String> {
        psql(self.port, database, "SELECT 1")
    }

    /// The URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        Postgres::url_at(self.address(), database)
    }

    /// `kill -9`, and a start again.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn crash(&self) -> io::Result<()> {
        self.server.kill()?;
        self.launch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_its_standby_and_a_pooler_live_together() {
        let primary = Postgres::start().unwrap();
        let database = primary.database().unwrap();
        primary.psql(&database, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)").unwrap();
        let bouncer = PgBouncer::start(&primary, 2).unwrap();
        assert_ne!(bouncer.address(), primary.address());
        let standby = primary.standby("copy", None).unwrap();
        primary.psql(&database, "INSERT INTO t VALUES (2)").unwrap();
        wait_until("replication", PATIENCE, || {
            (standby.psql(&database, "SELECT sum(n) FROM t").ok()? == "3").then_some(())
        })
        .unwrap();
        primary.crash().unwrap();
        assert_eq!(primary.psql(&database, "SELECT sum(n) FROM t").unwrap(), "3");
        primary.kill().unwrap();
        standby.promote().unwrap();
        standby.psql(&database, "INSERT INTO t VALUES (4)").unwrap();
    }
}
