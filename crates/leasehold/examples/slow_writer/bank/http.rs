//! The account behind an HTTP service of the director's, fenced at its door.

use std::{
    error::Error,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, http::HeaderMap, routing::get};
use leasehold::{
    Error as LeaseError, Kind,
    fence::{
        Fence, MemoryFence, NotAdmitted, Pass,
        http::{FENCING_TOKEN, FenceLayer, put},
    },
};
use tokio::{net::TcpListener, runtime::Runtime};

use super::{Account, Bank};

type Lines = Arc<Mutex<Vec<String>>>;

async fn read(State(lines): State<Lines>) -> String {
    lines.lock().map(|lines| lines.join("\n")).unwrap_or_default()
}

async fn write(State(lines): State<Lines>, line: String) {
    if let Ok(mut lines) = lines.lock() {
        lines.push(line);
    }
}

/// Runs the service for as long as what is returned lives.
pub(crate) fn serve(at: &str, fenced: bool) -> Result<Runtime, Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let lines = Lines::new(Mutex::new(vec!["nobody (100)".to_owned()]));
    let mut app = Router::new().route("/account", get(read).put(write)).with_state(lines);
    if fenced {
        app = app.layer(FenceLayer::new(Fence::over(MemoryFence::default())));
    }
    let listener = runtime.block_on(TcpListener::bind(at))?;
    runtime.spawn(async move { axum::serve(listener, app).await });
    Ok(runtime)
}

/// A client that knows no more of HTTP than it must.
pub(crate) struct Client(pub(crate) String);

impl Client {
    fn send(&self, method: &str, pass: Option<&Pass>, body: &str) -> Result<String, Box<dyn Error>> {
        let mut headers = HeaderMap::new();
        if let Some(pass) = pass {
            put(pass, &mut headers)?;
        }
        let shown = headers.get(FENCING_TOKEN).map_or(Ok(String::new()), |value| {
            value.to_str().map(|value| format!("Fencing-Token: {value}\r\n"))
        })?;
        let length = body.len();
        let mut stream = TcpStream::connect(&self.0)?;
        write!(
            stream,
            "{method} /account HTTP/1.1\r\nHost: bank\r\nConnection: close\r\n{shown}Content-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if status == "200" { Ok(body.to_owned()) } else { Err(format!("HTTP {status}: {body}").into()) }
    }
}

impl Bank for Client {
    /// The first request with the token is the seal; one that changes nothing will do.
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        let sealed = self.send("GET", Some(pass), "");
        sealed.map(drop).map_err(|error| LeaseError::new(Kind::Unavailable, error.to_string()).into())
    }

    fn account(&mut self) -> Result<Account, Box<dyn Error>> {
        Account::of(self.send("GET", None, "")?.lines().map(str::to_owned).collect())
    }

    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>> {
        self.send("PUT", Some(pass).filter(|_| fenced), &format!("{} ({balance})", pass.holder)).map(drop)
    }
}
