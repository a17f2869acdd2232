//! `SET NX PX` and `DEL`, in Redis' protocol.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use leasehold::{LeaseId, address::Address};

use super::{LIMIT, Taken, first_host};

pub(in crate::verify) struct Lock {
    stream: BufReader<TcpStream>,
    namespace: String,
}

impl Lock {
    pub(super) fn open(address: &Address, namespace: &str) -> Result<Self, String> {
        let connect = || {
            let (host, port) = first_host(address, 6_379).map_err(io::Error::other)?;
            let stream = TcpStream::connect((host.as_str(), port))?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.set_nodelay(true)?;
            let mut lock = Self { stream: BufReader::new(stream), namespace: namespace.to_owned() };
            if let Some(password) = &address.password {
                let user = address.user.as_deref().unwrap_or("default");
                lock.ask(&["AUTH", user, password.reveal()])?;
            }
            if !address.path.is_empty() {
                lock.ask(&["SELECT", &address.path])?;
            }
            Ok(lock)
        };
        connect().map_err(|error: io::Error| format!("the textbook recipe cannot reach Redis: {error}"))
    }

    pub(super) fn take(&mut self, resource: &str, id: LeaseId, ttl: Duration) -> Taken {
        let (key, value, ms) = (self.key(resource), id.to_string(), ttl.as_millis().to_string());
        match self.ask(&["SET", &key, &value, "NX", "PX", &ms]) {
            Ok(Some(_)) => Taken::Yes,
            Ok(None) => Taken::No,
            Err(_) => Taken::Lost,
        }
    }

    pub(super) fn give_back(&mut self, resource: &str) {
        let key = self.key(resource);
        // A recipe that fails here lets the key expire.
        let _ = self.ask(&["DEL", &key]);
    }

    fn key(&self, resource: &str) -> String {
        format!("{}:naive:{resource}", self.namespace)
    }

    /// A status, a text or a number; `None` for nothing.
    fn ask(&mut self, words: &[&str]) -> io::Result<Option<String>> {
        let mut message = format!("*{}\r\n", words.len());
        for word in words {
            // Writing into a String cannot fail.
            let _ = write!(message, "${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(message.as_bytes())?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match (line.get(..1), line.get(1..)) {
            (Some("+" | ":"), Some(rest)) => Ok(Some(rest.to_owned())),
            (Some("$"), Some("-1")) => Ok(None),
            (Some("$"), Some(length)) => {
                let length: usize = length.parse().map_err(io::Error::other)?;
                let mut text = vec![0; length.min(1 << 16) + 2];
                self.stream.read_exact(&mut text)?;
                Ok(Some(String::from_utf8_lossy(&text).trim_end().to_owned()))
            }
            _ => Err(io::Error::other("Redis refuses")),
        }
    }
}
