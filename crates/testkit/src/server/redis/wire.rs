//! A few words with a Redis server, for tests: one blocking connection per question.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// How long a healthy server may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nothing.
    Nil,
    /// Text or bytes.
    Bytes(Vec<u8>),
    /// A number.
    Number(i64),
    /// Several.
    Many(Vec<Reply>),
}

impl Reply {
    /// The answer as text; of an array its parts, a line each.
    pub fn text(&self) -> String {
        match self {
            Self::Nil => String::new(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Number(number) => number.to_string(),
            Self::Many(parts) => parts.iter().map(Self::text).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// Asks one question.
///
/// # Errors
/// When the server cannot be reached or answers with an error, which is quoted.
pub fn ask(address: SocketAddr, words: &[&[u8]]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut message = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        message.extend(format!("${}\r\n", word.len()).bytes());
        message.extend_from_slice(word);
        message.extend(b"\r\n");
    }
    stream.write_all(&message)?;
    read(&mut BufReader::new(stream))
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Reply> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let number = || line.get(1..).and_then(|rest| rest.parse::<i64>().ok()).ok_or_else(|| odd(line));
    match line.bytes().next() {
        Some(b'+') => Ok(Reply::Bytes(line.as_bytes()[1..].to_vec())),
        Some(b'-') => Err(io::Error::other(line[1..].to_owned())),
        Some(b':') => number().map(Reply::Number),
        Some(b'$') => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Bytes(bytes))
            }
            Err(_) => Ok(Reply::Nil),
        },
        Some(b'*') => match usize::try_from(number()?) {
            Ok(length) => (0..length).map(|_| read(stream)).collect::<io::Result<_>>().map(Reply::Many),
            Err(_) => Ok(Reply::Nil),
        },
        _ => Err(odd(line)),
    }
}

fn odd(line: &str) -> io::Error {
    io::Error::other(format!("no answer in Redis' protocol: {line:?}"))
}
