//! A network that can be broken: a TCP proxy on the loopback interface, each direction apart.
//!
//! What it can do to a client: refuse it, cut it off (with a reset), hold everything back and keep the connection open
//! (a half-open peer), let requests through and lose the answers (effect without reply), delay, let bytes through one by one. Where
//! several connections lead through it, it can lose the answers to certain requests alone; where servers tell of one another, it can
//! have them tell of proxies instead; and what clients said it can say a second time.

mod heard;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use heard::Heard;

use crate::lock;
pub use crate::port::free_port;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Answers.
    ToClient,
}

/// What happens to bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// They pass.
    Open,
    /// They pass, each portion so much later.
    Delayed(Duration),
    /// They are held back until the passage opens again; the connection stays.
    Stalled,
    /// They pass one by one, with so much time between two: no message arrives as a whole.
    Dripping(Duration),
    /// They vanish; the connection stays.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct State {
    to_server: Passage,
    to_client: Passage,
    refuse: bool,
    /// Connections of an earlier epoch are cut.
    epoch: u64,
}

impl State {
    fn passage(&self, direction: Direction) -> Passage {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }
}

/// A proxy in front of one server. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    server: SocketAddr,
    state: watch::Sender<State>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    lost: AtomicU64,
    words: Mutex<Words>,
    heard: Heard,
}

/// What is looked for in what passes.
#[derive(Clone, Debug, Default)]
struct Words {
    /// Nothing that follows a request with one of these comes back on its connection.
    unanswered: Vec<&'static str>,
    /// In answers: a port at the end of a line, and the one that is told instead.
    ports: Vec<(u16, u16)>,
}

impl Proxy {
    /// A proxy in front of `server`, everything open.
    ///
    /// # Errors
    /// When there is no port or no thread for it.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        Self::of(server, Counts::default())
    }

    /// The same, which remembers what its clients say.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub fn listening(server: SocketAddr) -> io::Result<Self> {
        Self::of(server, Counts { heard: Heard::listening(), ..Counts::default() })
    }

    fn of(server: SocketAddr, counts: Counts) -> io::Result<Self> {
        let listener = listen()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let open = State { to_server: Passage::Open, to_client: Passage::Open, refuse: false, epoch: 0 };
        let (state, watched) = watch::channel(open);
        let counts = Arc::new(counts);
        let (runtime, counted) =
            (tokio::runtime::Builder::new_current_thread().enable_all().build()?, Arc::clone(&counts));
        thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || runtime.block_on(serve(listener, server, watched, counted)))?;
        Ok(Self { address, server, state, counts })
    }

    /// Says again what was said on every connection that has ended or not, from its first byte to its last, each on a connection of its
    /// own. Done when the server has heard all of it. How many bytes it answered. Needs a server whose login takes nothing that is drawn
    /// anew, and that serves what it was sent before it sees the end of the connection.
    ///
    /// # Errors
    /// When the server cannot be reached, or does not come to the end.
    pub fn say_again(&self) -> io::Result<u64> {
        self.counts.heard.say_again(self.server)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what happens to the bytes of one direction, for connections that are and that come.
    pub fn set(&self, direction: Direction, passage: Passage) {
        self.state.send_modify(|state| match direction {
            Direction::ToServer => state.to_server = passage,
            Direction::ToClient => state.to_client = passage,
        });
    }

    /// Sets what happens to the bytes of both directions.
    pub fn set_both(&self, passage: Passage) {
        self.set(Direction::ToServer, passage);
        self.set(Direction::ToClient, passage);
    }

    /// Cuts every connection that is, by a reset. New ones are welcome.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// From a request on that contains one of these words, nothing comes back on its connection any more. Other connections go on,
    /// and so does everything that comes after this was called again without a word.
    pub fn lose_answers_to(&self, words: &[&'static str]) {
        lock(&self.counts.words).unanswered = words.to_vec();
    }

    /// How many bytes were lost because of that.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::SeqCst)
    }

    /// Where an answer names one of these ports at the end of a line, the other is named instead: whoever asks a server for its like
    /// is led to their proxies. Both have the same number of digits.
    pub fn name_ports(&self, ports: &[(u16, u16)]) {
        lock(&self.counts.words).ports = ports.to_vec();
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.state.send_modify(|state| state.refuse = refuse);
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// How many bytes of this direction have arrived here so far, passed on or not.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counts.of(direction).load(Ordering::SeqCst)
    }
}

impl Words {
    /// True when the answer to this shall be lost.
    fn forbid(&self, request: &[u8]) -> bool {
        self.unanswered.iter().any(|word| find(request, word.as_bytes()).is_some())
    }

    fn rename(&self, answer: &mut [u8]) {
        for (from, to) in &self.ports {
            let (from, to) = (format!(":{from}\r\n"), format!(":{to}\r\n"));
            if from.len() != to.len() {
                continue;
            }
            let mut begin = 0;
            while let Some(at) = find(&answer[begin..], from.as_bytes()) {
                begin += at + from.len();
                answer[begin - to.len()..begin].copy_from_slice(to.as_bytes());
            }
        }
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len().max(1)).position(|part| part == word)
}

impl Counts {
    fn of(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// Another process may take a free port before we do.
fn listen() -> io::Result<std::net::TcpListener> {
    let mut last = None;
    for _ in 0..10 {
        match std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, crate::port::free_port(0)?)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

async fn serve(
    listener: std::net::TcpListener,
    server: SocketAddr,
    mut state: watch::Receiver<State>,
    counts: Arc<Counts>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                counts.accepted.fetch_add(1, Ordering::SeqCst);
                let now = *state.borrow();
                if now.refuse {
                    reset(client);
                } else {
                    tokio::spawn(connect(client, server, state.clone(), now.epoch, Arc::clone(&counts)));
                }
            }
            // The owner is gone: ending the runtime closes everything.
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

/// Closes at once and lets the peer know, as a crashed host's kernel would.
fn reset(stream: TcpStream) {
    // Without it the close is merely a polite one.
    let _ = stream.set_zero_linger();
    drop(stream);
}

async fn connect(
    client: TcpStream,
    server: SocketAddr,
    mut state: watch::Receiver<State>,
    epoch: u64,
    counts: Arc<Counts>,
) {
    let Ok(server) = TcpStream::connect(server).await else {
        reset(client);
        return;
    };
    // Small messages must not wait for one another.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let _ = (client.set_zero_linger(), server.set_zero_linger());
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let conversation = counts.heard.begin();
    // Set by a request whose answer shall be lost.
    let mute = AtomicBool::new(false);
    tokio::select! {
        () = pump(from_client, to_server, Direction::ToServer, state.clone(), &counts, (&mute, conversation)) => {}
        () = pump(from_server, to_client, Direction::ToClient, state.clone(), &counts, (&mute, conversation)) => {}
        _ = state.wait_for(|state| state.epoch != epoch) => {}
    }
}

/// Carries bytes one way until an end closes.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut state: watch::Receiver<State>,
    counts: &Counts,
    (mute, conversation): (&AtomicBool, usize),
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        counts.of(direction).fetch_add(length as u64, Ordering::SeqCst);
        let words = lock(&counts.words).clone();
        match direction {
            Direction::ToServer => {
                mute.fetch_or(words.forbid(&buffer[..length]), Ordering::SeqCst);
                counts.heard.note(conversation, &buffer[..length]);
            }
            Direction::ToClient if mute.load(Ordering::SeqCst) && !words.unanswered.is_empty() => {
                counts.lost.fetch_add(length as u64, Ordering::SeqCst);
                continue;
            }
            Direction::ToClient => words.rename(&mut buffer[..length]),
        }
        let passage = state.borrow_and_update().passage(direction);
        match passage {
            Passage::Open | Passage::Dripping(_) => {}
            Passage::Delayed(by) => tokio::time::sleep(by).await,
            Passage::Stalled => {
                let moved = state.wait_for(|state| state.passage(direction) != Passage::Stalled).await;
                if moved.is_err() {
                    return;
                }
            }
            Passage::Lost => continue,
        }
        // What was held back may have been lost in the meantime.
        if state.borrow().passage(direction) == Passage::Lost {
            continue;
        }
        if carry(&mut to, &buffer[..length], passage).await.is_err() {
            return;
        }
    }
}

/// Writes at once, or byte by byte.
async fn carry(to: &mut OwnedWriteHalf, bytes: &[u8], passage: Passage) -> io::Result<()> {
    let Passage::Dripping(pause) = passage else { return to.write_all(bytes).await };
    for byte in bytes.chunks(1) {
        to.write_all(byte).await?;
        // Timers are too coarse for none at all.
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream as Client,
    };

    use crate::process::wait_until;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SOON: Duration = Duration::from_millis(100);

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, crate::port::free_port(0).unwrap())).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut other = stream.try_clone().unwrap();
                    let _ = io::copy(&mut stream, &mut other);
                });
            }
        });
        address
    }

    fn client(proxy: &Proxy) -> Client {
        let client = Client::connect(proxy.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn says(client: &mut Client, text: &str) -> io::Result<String> {
        client.write_all(text.as_bytes())?;
        let mut answer = vec![0; text.len()];
        client.read_exact(&mut answer)?;
        Ok(String::from_utf8(answer).unwrap())
    }

    #[test]
    fn an_open_proxy_passes_everything() {
        let proxy = Proxy::start(echo()).unwrap();
        let mut client = client(&proxy);
        assert_eq!(says(&mut client, "hello").unwrap(), "hello");
        assert_eq!(
            (proxy.accepted(), proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient)),
            (1, 5, 5)
        );
    }

    #[test]
    fn a_stalled_answer_comes_when_the_way_is_open_again_and_a_lost_one_never() {
        let proxy = Proxy::start(echo()).unwrap();
        let mut client = client(&proxy);
        proxy.set(Direction::ToClient, Passage::Stalled);
        client.write_all(b"one").unwrap();
        wait_until("the answer at the proxy", PATIENCE, || {
            (proxy.bytes(Direction::ToClient) == 3).then_some(())
        })
        .unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client.read_exact(&mut [0; 3]).unwrap_err();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        proxy.set(Direction::ToClient, Passage::Open);
        let mut answer = [0; 3];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"one");
        proxy.set(Direction::ToClient, Passage::Lost);
        client.write_all(b"two").unwrap();
        wait_until("the answer at the proxy", PATIENCE, || {
            (proxy.bytes(Direction::ToClient) == 6).then_some(())
        })
        .unwrap();
        proxy.set(Direction::ToClient, Passage::Open);
        assert_eq!(says(&mut client, "three").unwrap(), "three");
    }

    #[test]
    fn answers_to_certain_words_are_lost_on_their_connection_alone() {
        let proxy = Proxy::start(echo()).unwrap();
        let (mut one, mut two) = (client(&proxy), client(&proxy));
        proxy.lose_answers_to(&["lock"]);
        one.write_all(b"unlocked").unwrap();
        wait_until("the loss", PATIENCE, || (proxy.lost() == 8).then_some(())).unwrap();
        assert_eq!(says(&mut two, "other").unwrap(), "other");
        one.set_read_timeout(Some(SOON)).unwrap();
        one.read_exact(&mut [0; 1]).unwrap_err();
    }

    #[test]
    fn ports_are_named_as_others_where_they_end_a_line() {
        let proxy = Proxy::start(echo()).unwrap();
        proxy.name_ports(&[(20_001, 20_002), (20_003, 20_004)]);
        let said = ":20001\r\n:200011\r\nMOVED 1 h:20003\r\n:20001\r\n";
        let heard = ":20002\r\n:200011\r\nMOVED 1 h:20004\r\n:20002\r\n";
        assert_eq!(says(&mut client(&proxy), said).unwrap(), heard);
    }

    #[test]
    fn bytes_that_drip_come_one_by_one_and_all_of_them() {
        let proxy = Proxy::start(echo()).unwrap();
        let mut client = client(&proxy);
        proxy.set(Direction::ToClient, Passage::Dripping(Duration::from_millis(300)));
        client.write_all(b"drop").unwrap();
        let (mut heard, mut parts, mut buffer) = (Vec::<u8>::new(), 0, [0; 16]);
        while heard.len() < 4 {
            let length = client.read(&mut buffer).unwrap();
            heard.extend(&buffer[..length]);
            parts += 1;
        }
        assert!(heard == b"drop" && parts > 1, "{heard:?} in {parts}");
        // Without a pause they come in order too.
        proxy.set_both(Passage::Dripping(Duration::ZERO));
        assert_eq!(says(&mut client, "a longer sentence").unwrap(), "a longer sentence");
    }

    #[test]
    fn what_was_said_is_said_again_on_a_connection_of_its_own() {
        let proxy = Proxy::listening(echo()).unwrap();
        assert_eq!(says(&mut client(&proxy), "one").unwrap(), "one");
        let mut two = client(&proxy);
        assert_eq!(says(&mut two, "four").unwrap(), "four");
        assert_eq!(says(&mut two, "!").unwrap(), "!");
        assert_eq!(proxy.say_again().unwrap(), 3 + 5);
        assert_eq!(Proxy::start(echo()).unwrap().say_again().unwrap(), 0);
    }

    #[test]
    fn a_cut_ends_what_is_and_a_refusal_what_comes() {
        let proxy = Proxy::start(echo()).unwrap();
        let mut first = client(&proxy);
        assert_eq!(says(&mut first, "a").unwrap(), "a");
        proxy.cut();
        wait_until("the cut", PATIENCE, || says(&mut first, "b").err()).unwrap();
        assert_eq!(says(&mut client(&proxy), "c").unwrap(), "c");
        proxy.refuse(true);
        says(&mut client(&proxy), "d").unwrap_err();
    }
}
