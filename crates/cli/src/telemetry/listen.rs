//! A small endpoint for Prometheus: one thread, one connection at a time, one page.
//!
//! It answers `GET /metrics` and closes. Whoever is slow is hung up on, so that nobody can keep the page from the others;
//! nothing that a client sends is kept or acted on.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use super::{registry::Registry, text};

/// The longest that one client may take (ours: a scrape takes a millisecond).
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request (ours: Prometheus sends a few hundred bytes).
const MAX_REQUEST: usize = 8 * 1_024;

/// Listens from now on, until the process ends.
pub(super) fn start(address: SocketAddr, registry: Arc<Registry>) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    thread::Builder::new().name("leasehold-metrics".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that went away has had its answer.
            let _ = serve(stream, &registry);
        }
    })?;
    Ok(())
}

fn serve(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(&mut stream)?;
    let answer = match route(&head) {
        Route::Metrics => {
            page("200 OK", "text/plain; version=0.0.4; charset=utf-8", &text::write(&registry.snapshot()))
        }
        Route::Elsewhere => page("404 Not Found", "text/plain", "the metrics are at /metrics\n"),
        Route::NotRead => page("405 Method Not Allowed", "text/plain", "only GET is answered\n"),
    };
    stream.write_all(answer.as_bytes())
}

/// Everything up to the empty line.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1_024];
    // At most one read for each byte: a client that sends one at a time ends here too.
    for _ in 0..MAX_REQUEST {
        let length = stream.read(&mut buffer)?;
        head.extend_from_slice(buffer.get(..length).unwrap_or_default());
        if length == 0 || head.len() > MAX_REQUEST || head.windows(4).any(|four| four == b"\r\n\r\n") {
            break;
        }
    }
    Ok(head)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    Metrics,
    Elsewhere,
    NotRead,
}

fn route(head: &[u8]) -> Route {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"GET"), Some(path)) => {
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            if path == b"/metrics" { Route::Metrics } else { Route::Elsewhere }
        }
        _ => Route::NotRead,
    }
}

fn page(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_page_is_there() {
        assert_eq!(route(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Route::Metrics);
        assert_eq!(route(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n"), Route::Metrics);
        assert_eq!(route(b"GET / HTTP/1.1\r\n\r\n"), Route::Elsewhere);
        for bad in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], b"", b"GET", b"\xff\xff \xff"] {
            assert_eq!(route(bad), Route::NotRead);
        }
    }
}
