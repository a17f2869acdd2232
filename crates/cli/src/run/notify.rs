//! Tells the service manager how far things are: the protocol of systemd's `sd_notify`, a datagram to `$NOTIFY_SOCKET`.
//!
//! The service is ready when the lease is held and the command runs. It is this process that systemd watches, so the command
//! does not get the socket; `--no-sd-notify` leaves it to the command.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Whom to tell, if anybody.
#[derive(Clone, Default, Debug)]
pub(crate) struct Notify(Option<SocketAddr>);

/// The variable with the socket's name.
pub(super) const VARIABLE: &str = "NOTIFY_SOCKET";

impl Notify {
    /// The socket that the environment names. A name that is none is nobody's.
    pub(crate) fn from_name(name: Option<OsString>) -> Self {
        let address = name.and_then(|name| match name.as_bytes().split_first() {
            Some((b'@', rest)) => SocketAddr::from_abstract_name(rest).ok(),
            Some((b'/', _)) => SocketAddr::from_pathname(&name).ok(),
            _ => None,
        });
        Self(address)
    }

    /// True when somebody listens: the command must then not have the socket, too.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// There is no lease yet.
    pub(super) fn waiting(&self, resource: &str) {
        self.tell(&format!("STATUS=waiting for the lease on {}", line(resource)));
    }

    /// The lease is held, and the command runs.
    pub(super) fn ready(&self, resource: &str, token: u64) {
        self.tell(&format!("READY=1\nSTATUS=holding {} with fencing token {token}", line(resource)));
    }

    /// The end has begun.
    pub(super) fn stopping(&self, why: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={}", line(why)));
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.0 else { return };
        let send = || -> io::Result<()> {
            let socket = UnixDatagram::unbound()?;
            // A manager that does not read must not keep the command from its deadline.
            socket.set_nonblocking(true)?;
            socket.send_to_addr(state.as_bytes(), address).map(drop)
        };
        // It is told again at the next change.
        let _ = send();
    }
}

/// A new line would begin a new assignment.
fn line(text: &str) -> String {
    crate::people::visible(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_told_by_path_or_abstract_name_and_no_line_can_be_smuggled_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::from_name(Some(path.into_os_string()));
        notify.ready("a\nMAINPID=1", 7);
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).unwrap();
        let said = std::str::from_utf8(&buffer[..length]).unwrap();
        assert_eq!(said, "READY=1\nSTATUS=holding a\\u{a}MAINPID=1 with fencing token 7");
        let name = format!("leasehold-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notify::from_name(Some(format!("@{name}").into())).stopping("x");
        assert_eq!(socket.recv(&mut buffer).unwrap(), "STOPPING=1\nSTATUS=x".len());
        assert!(!Notify::from_name(Some("vsock:2".into())).is_on() && !Notify::from_name(None).is_on());
    }
}
