//! The smallest client that can ask Prometheus and be Prometheus.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The whole answer.
pub fn exchange(port: u16, request: &str) -> io::Result<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The body of a page, when it is there.
pub fn get(port: u16, path: &str) -> Option<String> {
    let answer = exchange(port, &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}
