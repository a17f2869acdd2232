//! Look, and where there is nothing put: without a transaction, as many do. Through etcd's own JSON gateway.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use leasehold::{LeaseId, address::Address};
use serde_json::{Value, json};

use super::{LIMIT, Taken, first_host};

pub(in crate::verify) struct Lock {
    host: (String, u16),
    namespace: String,
}

impl Lock {
    pub(super) fn open(address: &Address, namespace: &str) -> Result<Self, String> {
        if address.user.is_some() {
            return Err("the textbook recipe does not log in at etcd".to_owned());
        }
        Ok(Self { host: first_host(address, 2_379)?, namespace: namespace.to_owned() })
    }

    pub(super) fn take(&mut self, resource: &str, id: LeaseId, ttl: Duration) -> Taken {
        match self.look_and_put(resource, id, ttl) {
            Ok(true) => Taken::Yes,
            Ok(false) => Taken::No,
            Err(_) => Taken::Lost,
        }
    }

    fn look_and_put(&self, resource: &str, id: LeaseId, ttl: Duration) -> io::Result<bool> {
        let key = self.key(resource);
        let found = self.ask("kv/range", &json!({ "key": key }))?;
        if found["count"].as_str().is_some_and(|count| count != "0") {
            return Ok(false);
        }
        let lease = self.ask("lease/grant", &json!({ "TTL": ttl.as_secs().max(1).to_string() }))?;
        let value = base64(id.to_string().as_bytes());
        self.ask("kv/put", &json!({ "key": key, "value": value, "lease": lease["ID"] }))?;
        Ok(true)
    }

    pub(super) fn give_back(&mut self, resource: &str) {
        // A recipe that fails here lets the key expire.
        let _ = self.ask("kv/deleterange", &json!({ "key": self.key(resource) }));
    }

    fn key(&self, resource: &str) -> String {
        base64(format!("{}/naive/{resource}", self.namespace).as_bytes())
    }

    fn ask(&self, path: &str, body: &Value) -> io::Result<Value> {
        let (host, port) = &self.host;
        let mut stream = TcpStream::connect((host.as_str(), *port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let body = body.to_string();
        let head = format!(
            "POST /v3/{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = String::new();
        stream.take(1 << 20).read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        if head.split(' ').nth(1) != Some("200") {
            return Err(io::Error::other("etcd refuses"));
        }
        serde_json::from_str(body).map_err(io::Error::other)
    }
}

/// As etcd's gateway wants bytes.
fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let bits =
            part.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - part.len()));
        for n in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= part.len() { char::from(sign) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn bytes_are_written_as_rfc_4648_says() {
        for (plain, written) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), written);
        }
    }
}
