//! Certificates for servers that speak TLS: an authority made for one test, and what it has signed.

use std::{
    io,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::{folder, write_private};

/// Files in PEM form: `ca.pem`, which has signed `server.pem` (for localhost and 127.0.0.1) and `client.pem`, their keys
/// (`server.key`, `client.key`), and `other-ca.pem`, which has signed nothing.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes them.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn new() -> io::Result<Self> {
        let folder = folder("certificates")?;
        let made = make(folder.path());
        made.map_err(io::Error::other)?;
        Ok(Self { folder })
    }

    /// The path of one of the files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

type Made<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn make(folder: &Path) -> Made<()> {
    let write = |name: &str, pem: &str| write_private(&folder.join(name), pem);
    let (issuer, pem) = authority("leasehold test authority")?;
    write("ca.pem", &pem)?;
    write("other-ca.pem", &authority("somebody else")?.1)?;
    let uses =
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)];
    for (name, purpose) in uses {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(purpose);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        write(&format!("{name}.pem"), &certificate.pem())?;
        write(&format!("{name}.key"), &key.serialize_pem())?;
    }
    Ok(())
}

fn authority(name: &str) -> Made<(Issuer<'static, KeyPair>, String)> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_made() {
        let certificates = Certificates::new().unwrap();
        for name in ["ca.pem", "other-ca.pem", "server.pem", "server.key", "client.pem", "client.key"] {
            assert!(
                std::fs::read_to_string(certificates.path(name)).unwrap().starts_with("-----BEGIN"),
                "{name}"
            );
        }
    }
}
