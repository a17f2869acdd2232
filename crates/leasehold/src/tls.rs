//! TLS towards the engines: rustls with ring, the system's roots or the ones given, and a client certificate where asked.
//!
//! Files are read once, when a connection is set up, and every failure names the file and never its content.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use leasehold_core::{Error, Kind};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::address::Settings;

/// The longest PEM file that is read (ours: a bundle of all public roots is about 250 kB).
const MAX_PEM: u64 = 4 << 20;

/// The files that a URL names for TLS: `ca`, `cert` and `key`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlsFiles {
    /// Certificates that sign the engine's; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What the files hold, as PEM.
#[derive(Clone)]
pub struct TlsPem {
    /// Certificates that sign the engine's; `None` for the system's.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate chain and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for TlsPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsPem").finish_non_exhaustive()
    }
}

impl TlsFiles {
    /// Takes `ca`, `cert` and `key` out of a URL's settings.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a certificate without its key, or a key without its certificate.
    pub fn take(settings: &mut Settings<'_>) -> Result<Self, Error> {
        let (ca, cert, key) = (settings.path("ca"), settings.path("cert"), settings.path("key"));
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(Error::new(Kind::Invalid, "cert and key in the URL belong together")
                    .advise("name both files, or neither"));
            }
        };
        Ok(Self { ca, identity })
    }

    /// True when nothing is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`Kind::Invalid`] naming the file that cannot be read.
    pub fn read(&self) -> Result<TlsPem, Error> {
        let ca = self.ca.as_deref().map(read).transpose()?;
        let identity = match &self.identity {
            Some((cert, key)) => Some((read(cert)?, read(key)?)),
            None => None,
        };
        Ok(TlsPem { ca, identity })
    }
}

impl TlsPem {
    /// The settings of a connection that checks the engine's certificate.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for files that hold no certificates or no key, or when the system has no roots.
    pub fn client_config(&self) -> Result<ClientConfig, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|reason| invalid(format!("TLS cannot be set up: {reason}")))?
            .with_root_certificates(self.roots()?);
        let Some((cert, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(cert, "cert")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| invalid("the file that key names holds no private key in PEM form"))?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|reason| invalid(format!("the client certificate cannot be used: {reason}")))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let certificates = match &self.ca {
            Some(pem) => certificates(pem, "ca")?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(invalid("there is no root certificate to check the engine's certificate with")
                .advise("install the system's ca-certificates, or name a file with ca=FILE in the URL"));
        }
        Ok(roots)
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

fn certificates(pem: &[u8], setting: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.ok()
        .filter(|read| !read.is_empty())
        .ok_or_else(|| invalid(format!("the file that {setting} names holds no certificate in PEM form")))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |reason: &dyn std::fmt::Display| {
        invalid(format!(
            "cannot read the TLS file {}: {reason}",
            crate::address::visible(&path.to_string_lossy())
        ))
    };
    let meta = std::fs::metadata(path).map_err(|reason| fail(&reason))?;
    if !meta.is_file() {
        return Err(fail(&"it is not a regular file"));
    }
    let mut content = Vec::new();
    let file = File::open(path).map_err(|reason| fail(&reason))?;
    file.take(MAX_PEM + 1).read_to_end(&mut content).map_err(|reason| fail(&reason))?;
    if content.len() as u64 > MAX_PEM {
        return Err(fail(&"it is too long"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let files = TlsFiles { ca: Some(path.clone()), identity: None };
        assert!(files.read().unwrap_err().to_string().contains("ca.pem"));
        std::fs::write(&path, "nothing").unwrap();
        let error = files.read().unwrap().client_config().unwrap_err().to_string();
        assert!(error.contains("no certificate"), "{error}");
    }
}
