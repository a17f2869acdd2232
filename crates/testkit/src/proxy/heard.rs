//! What clients said, to be said a second time: a network that repeats what was answered long ago.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Mutex,
    thread,
    time::Duration,
};

use crate::lock;

/// How long a server may take to hear all of it: far beyond a busy machine's worst.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of each connection, in order. Empty where nobody listens.
#[derive(Debug, Default)]
pub(super) struct Heard(Option<Mutex<Vec<Vec<u8>>>>);

impl Heard {
    pub(super) fn listening() -> Self {
        Self(Some(Mutex::default()))
    }

    /// A connection begins. Its number.
    pub(super) fn begin(&self) -> usize {
        let Some(conversations) = &self.0 else { return 0 };
        let mut conversations = lock(conversations);
        conversations.push(Vec::new());
        conversations.len() - 1
    }

    pub(super) fn note(&self, conversation: usize, bytes: &[u8]) {
        if let Some(conversations) = &self.0 {
            lock(conversations)[conversation].extend(bytes);
        }
    }

    /// Says all of it again. How many bytes were answered.
    pub(super) fn say_again(&self, server: SocketAddr) -> io::Result<u64> {
        let Some(conversations) = &self.0 else { return Ok(0) };
        let conversations = lock(conversations).clone();
        conversations.iter().map(|said| say(server, said)).sum()
    }
}

fn say(server: SocketAddr, said: &[u8]) -> io::Result<u64> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut sends = stream.try_clone()?;
    let said = said.to_vec();
    // At the same time, or both ends might wait for the other to read.
    let sender = thread::spawn(move || {
        sends.write_all(&said)?;
        sends.shutdown(Shutdown::Write)
    });
    let (mut answered, mut buffer) = (0, [0; 4_096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => answered += length as u64,
            // A server that is done may close by a reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    match sender.join() {
        // What the server did not want to hear to its end it has not served.
        Ok(sent) => sent.map(|()| answered),
        Err(_) => Err(io::Error::other("the thread that says it again has ended")),
    }
}
