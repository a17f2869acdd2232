//! Certificates for a server on the loopback interface and for its clients, made by openssl.

use std::{fs, io, path::Path, process::Command};

use crate::server::find_program;

/// Makes `ca.pem`, `server.pem`, `server.key`, `client.pem` and `client.key` in a folder.
///
/// # Errors
/// When openssl is missing or refuses.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n")?;
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let own = ["-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(folder, &[&["req"], &key[..], &own[..]].concat())?;
    for name in ["server", "client"] {
        let file = |end: &str| format!("{name}.{end}");
        let (request, certificate, private) = (file("csr"), file("pem"), file("key"));
        let subject = format!("/CN={name}");
        let ask = ["-subj", &subject, "-keyout", &private, "-out", &request];
        openssl(folder, &[&["req"], &key[..], &ask[..]].concat())?;
        let sign = [
            "x509",
            "-req",
            "-days",
            "2",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "names",
        ];
        openssl(folder, &[&sign[..], &["-in", &request, "-out", &certificate]].concat())?;
    }
    Ok(())
}

fn openssl(folder: &Path, args: &[&str]) -> io::Result<()> {
    let output = Command::new(find_program("openssl")?).current_dir(folder).args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr))))
}
