//! A proxy that lets etcd make a change and then cuts the connection before the answer is through.
//!
//! It reads the frames of HTTP/2 as far as it must: which stream a frame belongs to, and whether a request changes something. A
//! change is a transaction with a put or a deletion, or a request that names a lease (a keepalive, a revocation). Reads and new
//! leases pass.
//!
//! It can also let events vanish: what comes back on a stream of watches, while everything else passes.

use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
};

use crate::lock;

/// The bytes with which a client begins.
const PREFACE: usize = 24;
/// The head of a frame.
const HEAD: usize = 9;
/// The type of a frame that carries a part of a message.
const DATA: u8 = 0;
/// Below this a number is a duration in seconds, and above it a lease: etcd draws those from 63 bits.
const SMALLEST_LEASE: u64 = 1 << 32;

/// The proxy. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Cut {
    address: SocketAddr,
    shared: Arc<Shared>,
    _alive: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct Shared {
    on: AtomicBool,
    cuts: AtomicU64,
    deaf: AtomicBool,
    unheard: AtomicU64,
}

/// The streams of one connection that are of interest.
#[derive(Debug, Default)]
struct Streams {
    /// Their answers must not come through. There may be several: changes are under way together.
    doomed: HashSet<u64>,
    watches: HashSet<u64>,
}

impl Cut {
    /// A proxy in front of `server`, that cuts from the beginning.
    ///
    /// # Errors
    /// When there is no port or no thread for it.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let port = crate::server::free_port(0)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { on: AtomicBool::new(true), ..Shared::default() });
        let (alive, gone) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = Arc::clone(&shared);
        thread::Builder::new().name("cut".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, server, serving) => {}
                    _ = gone => {}
                }
            });
        })?;
        Ok(Self { address, shared, _alive: alive })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether answers to changes are cut off.
    pub fn set(&self, on: bool) {
        self.shared.on.store(on, Ordering::SeqCst);
    }

    /// How often an answer was cut off.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Whether what watches are told vanishes.
    pub fn deafen(&self, deaf: bool) {
        self.shared.deaf.store(deaf, Ordering::SeqCst);
    }

    /// How many messages to watches have vanished.
    pub fn unheard(&self) -> u64 {
        self.shared.unheard.load(Ordering::SeqCst)
    }
}

async fn serve(listener: std::net::TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, server, Arc::clone(&shared)));
        }
    }
}

async fn carry(client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true), client.set_zero_linger());
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let streams = Mutex::default();
    let _ = tokio::select! {
        end = forward(from_client, to_server, &shared, &streams) => end,
        end = back(from_server, to_client, &shared, &streams) => end,
    };
}

/// Requests.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    streams: &Mutex<Streams>,
) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let frame = read_frame(&mut from).await?;
        if shared.on.load(Ordering::SeqCst) && is_change(&frame) {
            lock(streams).doomed.insert(stream_of(&frame));
        }
        if message_of(&frame).is_some_and(is_watch) {
            lock(streams).watches.insert(stream_of(&frame));
        }
        to.write_all(&frame).await?;
    }
}

/// Answers.
async fn back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    streams: &Mutex<Streams>,
) -> io::Result<()> {
    loop {
        let frame = read_frame(&mut from).await?;
        // Headers or data of the answer: the request has been carried out.
        if frame[3] <= 1 && lock(streams).doomed.contains(&stream_of(&frame)) {
            shared.cuts.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        let deaf = shared.deaf.load(Ordering::SeqCst) && frame[3] == DATA;
        if deaf && lock(streams).watches.contains(&stream_of(&frame)) {
            shared.unheard.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        to.write_all(&frame).await?;
    }
}

async fn read_frame(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEAD];
    from.read_exact(&mut frame).await?;
    let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
    frame.resize(HEAD + length, 0);
    from.read_exact(&mut frame[HEAD..]).await?;
    Ok(frame)
}

fn stream_of(frame: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]) & 0x7fff_ffff)
}

/// The first message in a frame of data, behind its flag byte and its length.
fn message_of(frame: &[u8]) -> Option<&[u8]> {
    let is_data = frame[3] == DATA;
    frame.get(HEAD + 5..).filter(|message| is_data && !message.is_empty())
}

/// True for data whose message changes something.
fn is_change(frame: &[u8]) -> bool {
    message_of(frame).is_some_and(|message| message_changes(message).unwrap_or(false))
}

/// True for an order to watch a key: its first field is a message whose first field is the key. A range, a put and a login have text
/// there, and a transaction has a comparison, which begins otherwise.
fn is_watch(mut message: &[u8]) -> bool {
    const FIRST: u64 = 1 << 3 | 2;
    let mut field = || {
        (number(&mut message)? == FIRST).then_some(())?;
        let length = usize::try_from(number(&mut message)?).ok()?;
        (length <= message.len()).then_some(())
    };
    field().is_some() && field().is_some()
}

/// Reads the outermost fields of a protobuf message; `None` where it is none.
fn message_changes(mut rest: &[u8]) -> Option<bool> {
    let first = number(&mut rest)?;
    if first == 1 << 3 {
        return Some(number(&mut rest)? >= SMALLEST_LEASE && rest.is_empty());
    }
    let mut tag = first;
    loop {
        if tag & 7 != 2 {
            return Some(false);
        }
        let length = usize::try_from(number(&mut rest)?).ok()?;
        let field = rest.get(..length)?;
        rest = &rest[length..];
        // The operations of a transaction that applies: a put or a deletion among them.
        if tag >> 3 == 2 && matches!(field.first(), Some(0x12 | 0x1a)) {
            return Some(true);
        }
        if rest.is_empty() {
            return Some(false);
        }
        tag = number(&mut rest)?;
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_from_reads() {
        // A transaction: one comparison, one put.
        assert_eq!(message_changes(&[0x0a, 1, 0, 0x12, 3, 0x12, 1, 0]), Some(true));
        // A transaction that only reads, and a plain read of a range.
        assert_eq!(message_changes(&[0x12, 3, 0x0a, 1, 0]), Some(false));
        assert_eq!(message_changes(&[0x0a, 1, b'a', 0x12, 1, b'b']), Some(false));
        // A new lease of 30 s, and the keepalive of one.
        assert_eq!(message_changes(&[8, 30]), Some(false));
        assert_eq!(message_changes(&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), Some(true));
        assert_eq!(message_changes(&[]), None);
    }

    #[test]
    fn watches_are_told_from_the_rest() {
        assert!(is_watch(&[0x0a, 5, 0x0a, 1, b'a', 0x18, 7]));
        // Another watch is given up; a transaction compares a key; a plain read of a range.
        assert!(!is_watch(&[0x12, 2, 8, 7]));
        assert!(!is_watch(&[0x0a, 5, 0x10, 1, 0x1a, 1, b'a']));
        assert!(!is_watch(&[0x0a, 1, b'a', 0x12, 1, b'b']));
        assert!(!is_watch(&[]));
    }
}
