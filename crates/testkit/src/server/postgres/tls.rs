//! A server that speaks TLS and asks its clients for certificates.

use std::{fs, io, path::Path};

use super::{Postgres, give, new_home};
use crate::server::{Certificates, write_private};

/// Everybody but the administrator, whom the tests' own `psql` is, must come over TLS with a certificate that names the role.
const ACCESS: &str = "local all all trust\n\
    host all postgres 127.0.0.1/32 trust\n\
    hostssl all all 127.0.0.1/32 cert\n";

impl Postgres {
    /// Starts a private server with a certificate of these, on which the role `client` logs in by the certificate `client.pem` and
    /// in no other way.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_over_tls(certificates: &Certificates) -> io::Result<Self> {
        let new = new_home(false)?;
        let folder = new.home.path();
        fs::write(folder.join("data/pg_hba.conf"), ACCESS)?;
        let mut paths = Vec::new();
        for name in ["server.pem", "server.key", "ca.pem"] {
            paths.push(copied(&certificates.path(name), &folder.join(name))?);
        }
        let settings = [
            ("ssl", "on"),
            ("ssl_cert_file", paths[0].as_str()),
            ("ssl_key_file", paths[1].as_str()),
            ("ssl_ca_file", paths[2].as_str()),
        ];
        let server = Self::start_in(new, &settings, None)?;
        server.psql("postgres", "CREATE ROLE client LOGIN")?;
        Ok(server)
    }
}

/// The server reads its key only where it is its own and nobody else's.
fn copied(from: &Path, to: &Path) -> io::Result<String> {
    write_private(to, &fs::read_to_string(from)?)?;
    give(to)?;
    Ok(to.to_string_lossy().into_owned())
}
