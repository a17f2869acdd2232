//! One connection: how it is made, and what comes out of it unasked.
//!
//! The driver's own task reads and writes; statements go through [`tokio_postgres::Client`]. Only one worker uses a link at a
//! time. A link that was given up is closed: its session ends, and with it whatever it had begun.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, Kind};
use tokio::{sync::watch, task::JoinHandle};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Notification,
    config::{SslMode, TargetSessionAttrs},
    error::Severity,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    failure::Advice,
    options::{Target, Tls},
    passfile,
};
use crate::address::Host;

/// A peer that says nothing is asked whether it lives after this long, so that a dead one is noticed in a minute and not in
/// the two hours of the system's default.
const KEEPALIVE: Duration = Duration::from_secs(20);
const PORT: u16 = 5432;

/// What is done with notifications.
pub(crate) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;

/// How to make connections to a target.
#[derive(Clone)]
pub(crate) struct Dialler {
    target: Target,
    tls: Option<MakeRustlsConnect>,
    pub(super) advice: Arc<Advice>,
}

impl std::fmt::Debug for Dialler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialler").field("target", &self.target).finish_non_exhaustive()
    }
}

/// A live connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    task: JoinHandle<()>,
    /// Its other end is dropped with the connection's task.
    over: watch::Receiver<()>,
    /// How many warnings of a cancelled wait for a standby have come.
    warnings: Arc<AtomicU64>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("closed", &self.client.is_closed()).finish_non_exhaustive()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Not a polite goodbye behind what may be stuck, and never a cancel request: the session ends with its socket.
        self.task.abort();
    }
}

impl Link {
    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Ready when the connection has ended.
    pub(in crate::coordinator) async fn ended(&self) {
        self.over.clone().changed().await.unwrap_or_default();
    }

    /// Ends when the connection does: its other end is dropped.
    #[cfg(feature = "effects")]
    pub(crate) fn over(&self) -> watch::Receiver<()> {
        self.over.clone()
    }

    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }
}

impl Dialler {
    /// # Errors
    /// [`Kind::Invalid`] for TLS files that cannot be used.
    pub(crate) fn new(target: &Target, schema: String) -> Result<Self, Error> {
        let tls = match target.tls {
            Tls::Off => None,
            Tls::Offered | Tls::Always => {
                Some(MakeRustlsConnect::new(target.tls_files.read()?.client_config()?))
            }
        };
        let role = target.user.clone().or_else(system_user).unwrap_or_default();
        let database = target.database.clone().unwrap_or_else(|| role.clone());
        let advice = Arc::new(Advice { schema, role, database });
        Ok(Self { target: target.clone(), tls, advice })
    }

    /// Makes a connection to the first host that is a primary.
    ///
    /// # Errors
    /// The last host's; [`Kind::Unavailable`] when it takes too long.
    pub(crate) async fn dial(&self, heard: OnNotification) -> Result<Link, Error> {
        let limit = self.target.connect_timeout;
        let mut last = None;
        for host in &self.target.hosts {
            let attempt = tokio::time::timeout(limit, self.dial_host(host, &heard)).await;
            match attempt {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => last = Some(error),
                Err(_) => {
                    last = Some(Error::new(
                        Kind::Unavailable,
                        format!("no connection to {host} within {limit:?}"),
                    ));
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::new(Kind::Invalid, "the URL names no host")))
    }

    async fn dial_host(&self, host: &Host, heard: &OnNotification) -> Result<Link, Error> {
        let config = self.config(host)?;
        let warnings = Arc::new(AtomicU64::new(0));
        let (alive, over) = watch::channel(());
        let (client, task) = match &self.tls {
            None => {
                let (client, connection) =
                    config.connect(NoTls).await.map_err(|error| self.refused(host, &error))?;
                (client, tokio::spawn(carry(connection, Arc::clone(&warnings), Arc::clone(heard), alive)))
            }
            Some(tls) => {
                let (client, connection) =
                    config.connect(tls.clone()).await.map_err(|error| self.refused(host, &error))?;
                (client, tokio::spawn(carry(connection, Arc::clone(&warnings), Arc::clone(heard), alive)))
            }
        };
        Ok(Link { client, task, over, warnings })
    }

    fn refused(&self, host: &Host, error: &tokio_postgres::Error) -> Error {
        let error = Advice::of_connecting(error);
        let what = format!("{} ({host})", error.what());
        let told = Error::new(error.kind(), what.clone());
        if what.contains("does not allow writes") || what.contains("read-write") {
            return told
                .advise("it is a standby; name the primary in the URL, or all hosts separated by commas");
        }
        if error.kind() == Kind::Denied && (what.contains("no encryption") || what.contains("SSL off")) {
            return told.advise(
                "the server wants TLS: say sslmode=verify-full, and name its authority with ca=FILE",
            );
        }
        if self.target.tls == Tls::Always && error.kind() == Kind::Unavailable && what.contains("TLS") {
            return told.advise(
                "the server's certificate must be valid for the host in the URL: name its authority with ca=FILE; where the \
                 server has no TLS and the network is trusted, say sslmode=disable",
            );
        }
        match error.advice() {
            Some(advice) => told.advise(advice.to_owned()),
            None => told,
        }
    }

    fn config(&self, host: &Host) -> Result<Config, Error> {
        let target = &self.target;
        let port = host.port.unwrap_or(PORT);
        let mut config = Config::new();
        if host.name.starts_with('/') {
            config.host_path(&host.name);
        } else {
            config.host(&host.name);
        }
        config.port(port).user(&self.advice.role).dbname(&self.advice.database).application_name("leasehold");
        let password = match &target.password {
            Some(password) => Some(password.reveal().to_owned()),
            None => passfile::look_up(target.passfile.as_deref(), &host.name, port, &self.advice)?,
        };
        if let Some(password) = password {
            config.password(password);
        }
        config.ssl_mode(match target.tls {
            Tls::Off => SslMode::Disable,
            Tls::Offered => SslMode::Prefer,
            Tls::Always => SslMode::Require,
        });
        config
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(target.connect_timeout)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE / 4)
            .keepalives_retries(4);
        Ok(config)
    }
}

fn system_user() -> Option<String> {
    let named = std::env::var("PGUSER").ok().filter(|name| !name.is_empty());
    named.or_else(|| Some(nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()??.name))
}

/// Carries a connection's traffic until it ends.
async fn carry<S, T>(
    mut connection: Connection<S, T>,
    warnings: Arc<AtomicU64>,
    heard: OnNotification,
    _alive: watch::Sender<()>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        let message = std::future::poll_fn(|context| connection.poll_message(context)).await;
        match message {
            Some(Ok(AsyncMessage::Notification(notification))) => heard(&notification),
            // Ours raise none, so whatever warns us inside a transaction speaks of its commit: a cancelled wait for the
            // standby is told in no other way. Counted here before the answer behind it is passed on.
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    warnings.fetch_add(1, Ordering::Release);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}
