//! Waking another process: one datagram to a socket that only live processes have.
//!
//! Every coordinator binds a Unix datagram socket to an abstract name of 128 random bits. Whoever waits or holds leaves
//! that name in its record; after the commit that frees a resource, its releaser sends the first in line its lease id.
//! The kernel removes the name with the process, so "connection refused" is proof that the process is dead, provided that
//! we look from the same network namespace: the entry can then be dropped on the spot instead of being waited for.
//!
//! Nobody relies on a wake: it only says "ask again now". A false one costs a question.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::MetadataExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::Arc,
};

use leasehold_core::{LeaseId, record::Wake};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use tokio::runtime::Handle;

use crate::coordinator::mailbox::Mailbox;

const ADDRESS: usize = 24;
const VERSION: u8 = 1;

/// Where a process can be woken: the socket's random name, and the network namespace in which it is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address([u8; ADDRESS]);

impl Address {
    /// An address that nobody has.
    #[cfg(test)]
    pub(super) fn of_nobody(n: u8, namespace: [u8; 8]) -> Self {
        Self(std::array::from_fn(|at| if at < 16 { n } else { namespace[at - 16] }))
    }

    fn name(&self) -> io::Result<SocketAddr> {
        let id: [u8; 16] = std::array::from_fn(|at| self.0[at]);
        SocketAddr::from_abstract_name(format!("leasehold-{:032x}", u128::from_be_bytes(id)))
    }

    fn namespace(&self) -> &[u8] {
        &self.0[16..]
    }
}

impl ToSql for Address {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Address {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_blob()?.try_into().map(Self).map_err(|_| FromSqlError::InvalidType)
    }
}

/// The receiving end of one coordinator.
#[derive(Debug)]
pub(super) struct Bell {
    address: Address,
    mailbox: Arc<Mailbox>,
    ear: Ear,
}

/// Who listens.
#[derive(Debug)]
enum Ear {
    /// A thread, which sleeps in the kernel between wakes.
    Thread(Arc<UnixDatagram>),
    /// Whoever asks for the next wake, by way of a runtime's I/O: one thread fewer between the two processes.
    Reactor(tokio::net::UnixDatagram),
}

impl Bell {
    /// Binds a name and listens: on the I/O of `reactor`, or else on a thread of its own.
    pub(super) fn hang(mailbox: Arc<Mailbox>, reactor: Option<&Handle>) -> io::Result<Self> {
        let mut bytes = [0; ADDRESS];
        getrandom::fill(&mut bytes[..16]).map_err(io::Error::other)?;
        // A namespace that cannot be named is never the same as another's: nobody is then declared dead.
        let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
        bytes[16..].copy_from_slice(&namespace.to_be_bytes());
        let address = Address(bytes);
        let socket = UnixDatagram::bind_addr(&address.name()?)?;
        let ear = if let Some(reactor) = reactor {
            socket.set_nonblocking(true)?;
            let _context = reactor.enter();
            Ear::Reactor(tokio::net::UnixDatagram::from_std(socket)?)
        } else {
            let socket = Arc::new(socket);
            let (listener, mailbox) = (Arc::clone(&socket), Arc::clone(&mailbox));
            std::thread::Builder::new()
                .name("leasehold-bell".to_owned())
                .spawn(move || listen(&listener, &mailbox))?;
            Ear::Thread(socket)
        };
        Ok(Self { address, mailbox, ear })
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// The next wake, from another process or from this one.
    pub(super) async fn next(&self) -> Wake {
        match &self.ear {
            Ear::Thread(_) => self.mailbox.next().await,
            Ear::Reactor(socket) => tokio::select! {
                biased;
                wake = self.mailbox.next() => wake,
                wake = hear(socket) => wake,
            },
        }
    }

    /// Ends the listening thread, in the process that began it.
    pub(super) fn silence(&self) {
        if let Ear::Thread(socket) = &self.ear {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// What a datagram says; nothing, when it is none of ours.
fn read(message: &[u8]) -> Option<Wake> {
    let (version, id) = message.split_first()?;
    let id: [u8; 16] = id.try_into().ok().filter(|_| *version == VERSION)?;
    Some(Wake::Lease(LeaseId::from_bytes(id)))
}

/// One byte more than a message has, so that a longer one is seen to be none.
const BUFFER: usize = 18;

async fn hear(socket: &tokio::net::UnixDatagram) -> Wake {
    let mut buffer = [0; BUFFER];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                if let Some(wake) = read(&buffer[..length]) {
                    return wake;
                }
            }
            Err(error) => {
                deaf(&error);
                std::future::pending::<()>().await;
            }
        }
    }
}

fn listen(socket: &UnixDatagram, mailbox: &Mailbox) {
    let mut buffer = [0; BUFFER];
    loop {
        match socket.recv(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if let Some(wake) = read(&buffer[..length]) {
                    mailbox.push(wake);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return deaf(&error),
        }
    }
}

fn deaf(error: &io::Error) {
    tracing::warn!(%error, "no more wakes from other processes; waiting goes on by re-checks");
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Ringer {
    socket: UnixDatagram,
    own: Address,
    mailbox: Arc<Mailbox>,
}

impl Ringer {
    pub(super) fn new(own: Address, mailbox: Arc<Mailbox>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, own, mailbox })
    }

    /// True when a refusal at `address` is proof of death: we look from the network namespace that the address is of. One that
    /// could not be named is never the same as another.
    fn judges(&self, address: &Address) -> bool {
        self.own.namespace() == address.namespace() && self.own.namespace() != [0; 8]
    }

    /// True when the process behind `address` is certainly gone.
    pub(super) fn is_dead(&self, address: &Address) -> bool {
        if *address == self.own || !self.judges(address) {
            return false;
        }
        let refused =
            |name: SocketAddr| self.socket.connect_addr(&name).is_err_and(|error| is_refusal(&error));
        address.name().is_ok_and(refused)
    }

    /// Wakes whoever has `lease_id` at `address`. False when that process is certainly gone.
    pub(super) fn ring(&self, address: &Address, lease_id: LeaseId) -> bool {
        if *address == self.own {
            self.mailbox.push(Wake::Lease(lease_id));
            return true;
        }
        let mut message = [VERSION; 17];
        message[1..].copy_from_slice(lease_id.as_bytes());
        let sent = address.name().and_then(|name| self.socket.send_to_addr(&message, &name));
        match sent {
            Err(error) if is_refusal(&error) => !self.judges(address),
            // A full mailbox, a refusing sandbox: the waiter will ask by itself.
            _ => true,
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_arrives_and_a_dead_process_is_told_from_a_live_one() {
        let (mine, theirs) = (Arc::new(Mailbox::default()), Arc::new(Mailbox::default()));
        let (a, b) =
            (Bell::hang(mine.clone(), None).unwrap(), Bell::hang(theirs, Some(&Handle::current())).unwrap());
        let ringer = Ringer::new(a.address(), mine.clone()).unwrap();
        let id = LeaseId::from_bytes([7; 16]);
        assert!(ringer.ring(&b.address(), id) && ringer.ring(&a.address(), id));
        assert_eq!((a.next().await, b.next().await), (Wake::Lease(id), Wake::Lease(id)));
        assert!(!ringer.is_dead(&b.address()));
        let nobody = Address::of_nobody(3, a.address().namespace().try_into().unwrap());
        assert!(ringer.is_dead(&nobody) && !ringer.ring(&nobody, id));
        let elsewhere = Address([3; ADDRESS]);
        assert!(!ringer.is_dead(&elsewhere) && ringer.ring(&elsewhere, id));
        // Where nobody can tell their network namespaces, nobody is declared dead, in either way.
        let nameless = |n: u8| Address::of_nobody(n, [0; 8]);
        let ringer = Ringer::new(nameless(4), mine).unwrap();
        assert!(!ringer.is_dead(&nameless(5)) && ringer.ring(&nameless(5), id));
    }

    #[test]
    fn only_a_whole_message_is_a_wake() {
        let mut message = [VERSION; 17];
        message[1..].copy_from_slice(&[7; 16]);
        for message in leasehold_testkit::hostile::near(&message) {
            assert_eq!(read(&message).is_some(), message.len() == 17 && message[0] == VERSION);
        }
        for message in leasehold_testkit::hostile::bytes() {
            let _ = read(&message);
        }
    }
}
