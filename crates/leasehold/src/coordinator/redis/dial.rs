//! From an address to a connection: TCP, a Unix socket or TLS, then the login.

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{Error, Kind};
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, RedisConnectionInfo,
    aio::{MultiplexedConnection, PubSub},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

use super::failure::{self, Failure};
use crate::address::{Host, Secret};

/// Connecting takes this long at most (the default of every engine behind a network).
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const PORT: u16 = 6379;

/// Who logs in, and how the way is protected.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: i64,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tls = self.tls.is_some();
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("database", &self.database)
            .field("tls", &tls)
            .finish_non_exhaustive()
    }
}

impl Login {
    fn info(&self, protocol: ProtocolVersion) -> RedisConnectionInfo {
        let info = RedisConnectionInfo::default().set_protocol(protocol).set_db(self.database);
        let info = info.set_skip_set_lib_name();
        let info = match &self.user {
            Some(user) => info.set_username(user),
            None => info,
        };
        match &self.password {
            Some(password) => info.set_password(password.reveal()),
            None => info,
        }
    }
}

/// What carries the connection: it runs until the connection has ended.
pub(crate) type Carrier = Pin<Box<dyn Future<Output = ()> + Send>>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection for requests. RESP3 where the server has it, else RESP2. Not bounded in time.
pub(crate) async fn connection(
    host: &Host,
    login: &Login,
) -> Result<(MultiplexedConnection, Carrier), Failure> {
    let mut last = None;
    for protocol in [ProtocolVersion::RESP3, ProtocolVersion::RESP2] {
        let stream = stream(host, login).await?;
        // A time-out of its own would need the caller's runtime, and every call has its outer one anyway.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        match MultiplexedConnection::new_with_config(&login.info(protocol), stream, config).await {
            Ok((connection, carrier)) => return Ok((connection, Box::pin(carrier))),
            Err(error) if lacks_hello(&error) => last = Some(error),
            Err(error) => return Err(failure::of_login(&error)),
        }
    }
    Err(last.map_or_else(|| Failure::unsent("no protocol was tried"), |error| failure::of_login(&error)))
}

fn lacks_hello(error: &redis::RedisError) -> bool {
    let unknown = |error: &redis::RedisError| {
        error.code() == Some("NOPROTO")
            || error.detail().is_some_and(|detail| detail.contains("unknown command"))
    };
    error.kind() == ErrorKind::RESP3NotSupported || unknown(error)
}

/// A connection for messages. Not bounded in time.
pub(crate) async fn messages(host: &Host, login: &Login) -> Result<PubSub, Failure> {
    let stream = stream(host, login).await?;
    let info = login.info(ProtocolVersion::RESP2);
    PubSub::new(&info, stream).await.map_err(|error| failure::of_login(&error))
}

async fn stream(host: &Host, login: &Login) -> Result<Box<dyn Stream>, Failure> {
    let refused = |error: &io::Error| Failure::unsent(format!("cannot connect to {host}: {}", reason(error)));
    if host.name.starts_with('/') {
        let stream = UnixStream::connect(&host.name).await.map_err(|error| refused(&error))?;
        return Ok(Box::new(stream));
    }
    let port = host.port.unwrap_or(PORT);
    let stream = TcpStream::connect((host.name.as_str(), port)).await.map_err(|error| refused(&error))?;
    // Small messages must not wait for one another.
    stream.set_nodelay(true).map_err(|error| refused(&error))?;
    let Some(config) = &login.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.name.clone()).map_err(|_| {
        let what = format!("{host} is no name that a certificate could be for");
        Failure::from(Error::new(Kind::Invalid, what).advise("name the server as its certificate does"))
    })?;
    let stream = TlsConnector::from(Arc::clone(config))
        .connect(name, stream)
        .await
        .map_err(|error| untrusted(host, &error))?;
    Ok(Box::new(stream))
}

/// A handshake that failed: for a certificate that is not to be trusted no trying again will help.
fn untrusted(host: &Host, error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => Error::new(
            Kind::Denied,
            format!("the certificate of {host} is not accepted: {why:?}"),
        )
        .advise("name the certificate that signs it with ca=FILE in the URL, and the host as the certificate does")
        .into(),
        Some(rustls::Error::AlertReceived(alert)) => {
            Error::new(Kind::Denied, format!("{host} refuses the TLS connection: {alert:?}"))
                .advise("a server that asks for a client certificate needs cert=FILE and key=FILE in the URL")
                .into()
        }
        _ => Failure::unsent(format!("no TLS connection to {host}: {}", reason(error))),
    }
}

fn reason(error: &io::Error) -> String {
    crate::address::visible(&error.to_string())
}
