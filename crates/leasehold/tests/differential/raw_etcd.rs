//! etcd's keys and leases, without anything of ours above them: what the simulator's store answers, a real one answers. Through
//! its JSON gateway, so that no line of the coordinator is shared. Revisions are compared as numbers: they count from where the
//! server was when the script began.

use std::{
    cell::Cell,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use leasehold::{LeaseId, Ttl};
use leasehold_core::slot::Now;
use leasehold_testkit::{
    clock::unix_us,
    random,
    server::Etcd as Server,
    sim::engine::{Etcd, EtcdAnswer, EtcdAsk, FakeEngine as _, Reply, Request, Setup},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{replay::scripts, script::name, strict::SETUP};

/// Where the simulator's revisions begin.
const BASE: u64 = 1_800_000_000_000_000;
/// etcd's codes for what is not there and what is there already.
const NOT_FOUND: i64 = 5;
const EXISTS: i64 = 9;

#[derive(Clone, Debug)]
enum Ask {
    Grant { lease: u8, ttl_s: u64 },
    Create { resource: usize, lease: u8, value: u8 },
    KeepAlive { lease: u8 },
    Revoke { lease: u8 },
    Delete { resource: usize, value: u8 },
}

fn ask() -> impl Strategy<Value = Ask> {
    let (lease, value, resource) = (0u8..4, 0u8..3, 0usize..2);
    prop_oneof![
        4 => (lease.clone(), 60u64..600).prop_map(|(lease, ttl_s)| Ask::Grant { lease, ttl_s }),
        6 => (resource.clone(), lease.clone(), value.clone())
            .prop_map(|(resource, lease, value)| Ask::Create { resource, lease, value }),
        2 => lease.clone().prop_map(|lease| Ask::KeepAlive { lease }),
        3 => lease.prop_map(|lease| Ask::Revoke { lease }),
        3 => (resource, value).prop_map(|(resource, value)| Ask::Delete { resource, value }),
    ]
}

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n + 1; 16])
}

impl Ask {
    fn to_the_simulators(&self) -> EtcdAsk {
        match *self {
            Self::Grant { lease, ttl_s } => EtcdAsk::Grant { id: id(lease), ttl_s },
            Self::Create { resource, lease, value } => {
                EtcdAsk::Create { resource: name(resource), id: id(lease), value: id(value) }
            }
            Self::KeepAlive { lease } => EtcdAsk::KeepAlive(id(lease)),
            Self::Revoke { lease } => EtcdAsk::Revoke(id(lease)),
            Self::Delete { resource, value } => {
                EtcdAsk::Delete { resource: name(resource), value: id(value) }
            }
        }
    }
}

/// A real store, and where in it a script is at home.
struct Store {
    server: SocketAddr,
    keys: String,
    leases: u64,
    /// Its revision when the script began.
    begun: Cell<u64>,
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sign = |bits: u32, at: usize| char::from(SIGNS[(bits >> (18 - 6 * at) & 63) as usize]);
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let whole = part.iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - part.len()));
        text.extend((0..4).map(|at| if at <= part.len() { sign(whole, at) } else { '=' }));
    }
    text
}

/// A number as the gateway writes it: nothing for 0, else as text.
fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

impl Store {
    fn new(server: SocketAddr) -> Self {
        let unique = random::seed();
        let keys = format!("raw/{unique:016x}");
        let store = Self { server, keys, leases: unique >> 16, begun: Cell::new(0) };
        let seen = store.post("kv/range", &json!({ "key": store.key(0) })).unwrap();
        store.begun.set(number(&seen["header"]["revision"]));
        store
    }

    fn key(&self, resource: usize) -> String {
        base64(format!("{}/{resource}", self.keys).as_bytes())
    }

    fn lease(&self, n: u8) -> u64 {
        self.leases + u64::from(n)
    }

    /// What it answers, or the code with which it refuses.
    fn post(&self, path: &str, body: &Value) -> Result<Value, i64> {
        let mut stream = TcpStream::connect(self.server).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /v3/{path} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        if head.split(' ').nth(1) == Some("200") { Ok(answer) } else { Err(answer["code"].as_i64().unwrap()) }
    }

    /// The TTL that a lease was granted, and how many keys it has; nothing when it is gone.
    fn terms(&self, lease: u64) -> Option<(u64, usize)> {
        let told = self.post("lease/timetolive", &json!({ "ID": lease.to_string(), "keys": true })).unwrap();
        let keys = told["keys"].as_array().map_or(0, Vec::len);
        (told["TTL"].as_str() != Some("-1")).then(|| (number(&told["grantedTTL"]), keys))
    }

    fn ask(&self, ask: &Ask) -> String {
        match *ask {
            Ask::Grant { lease, ttl_s } => {
                let id = self.lease(lease).to_string();
                match self.post("lease/grant", &json!({ "ID": id, "TTL": ttl_s.to_string() })) {
                    Ok(granted) => format!("runs for {}", number(&granted["TTL"])),
                    Err(EXISTS) => "exists".to_owned(),
                    Err(code) => format!("refused: {code}"),
                }
            }
            Ask::Create { resource, lease, value } => self.create(resource, lease, value),
            Ask::KeepAlive { lease } => {
                let id = self.lease(lease).to_string();
                let told = self.post("lease/keepalive", &json!({ "ID": id })).unwrap();
                format!("runs for {}", number(&told["result"]["TTL"]))
            }
            Ask::Revoke { lease } => self.revoke(self.lease(lease)),
            Ask::Delete { resource, value } => self.delete(resource, value),
        }
    }

    fn create(&self, resource: usize, lease: u8, value: u8) -> String {
        let key = self.key(resource);
        let put = json!({ "requestPut": { "key": key, "value": base64(&[value]), "lease": self.lease(lease).to_string() } });
        let look = json!({ "requestRange": { "key": key } });
        let txn = json!({
            "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "createRevision": "0" }],
            "success": [put, look],
            "failure": [look],
        });
        match self.post("kv/txn", &txn) {
            Ok(done) => {
                let seen = done["responses"].as_array().unwrap().last().unwrap();
                let found = &seen["response_range"]["kvs"][0];
                let keeper = number(&found["lease"]);
                let ttl_s = self.terms(keeper).map_or(0, |(ttl_s, _)| ttl_s);
                let made = done["succeeded"].as_bool().unwrap_or_default();
                let values: Vec<u8> = (0..3).filter(|&n| found["value"] == base64(&[n])).collect();
                let revision = number(&found["create_revision"]) - self.begun.get();
                told_key(values[0], u8::try_from(keeper - self.leases).unwrap(), revision, ttl_s, made)
            }
            Err(NOT_FOUND) => "no lease".to_owned(),
            Err(code) => format!("refused: {code}"),
        }
    }

    fn revoke(&self, lease: u64) -> String {
        let had_keys = self.terms(lease).is_some_and(|(_, keys)| keys > 0);
        match self.post("lease/revoke", &json!({ "ID": lease.to_string() })) {
            Ok(_) | Err(NOT_FOUND) => format!("done, was there {had_keys}"),
            Err(code) => format!("refused: {code}"),
        }
    }

    /// The simulator's store does in one step what takes two: the key goes, and the lease that was made for it.
    fn delete(&self, resource: usize, value: u8) -> String {
        let found = self.post("kv/range", &json!({ "key": self.key(resource) })).unwrap();
        let found = &found["kvs"][0];
        if found["value"] != base64(&[value]) {
            return "done, was there false".to_owned();
        }
        self.revoke(number(&found["lease"]))
    }
}

fn told_key(value: u8, lease: u8, revision: u64, ttl_s: u64, made: bool) -> String {
    format!("key of {value} on {lease}, revision {revision}, for {ttl_s}, made {made}")
}

fn told(answer: EtcdAnswer) -> String {
    let number = |id: LeaseId| id.as_bytes()[0] - 1;
    match answer {
        EtcdAnswer::Ttl(ttl_s) => format!("runs for {ttl_s}"),
        EtcdAnswer::Exists => "exists".to_owned(),
        EtcdAnswer::NoLease => "no lease".to_owned(),
        EtcdAnswer::Done { was } => format!("done, was there {was}"),
        EtcdAnswer::Key { value, id, token, ttl_s, made } => {
            told_key(number(value), number(id), token.get() - BASE, ttl_s, made)
        }
    }
}

/// The first difference, if any.
fn difference(server: SocketAddr, script: &[Ask]) -> Option<String> {
    let store = Store::new(server);
    let mut fake = Etcd::new(Setup { max_ttl: Ttl::MAX, ..SETUP });
    // Nothing expires, so time need not pass.
    let now = Now { clock_us: unix_us(), unix_us: unix_us() };
    let differs = script.iter().find_map(|ask| {
        let Reply::Etcd(expected) = fake.handle(now, &Request::Etcd(ask.to_the_simulators())).reply else {
            return Some(format!("{ask:?} is not for this engine"));
        };
        let (expected, answered) = (told(expected), store.ask(ask));
        (answered != expected).then(|| format!("{ask:?}\n  expected {expected}\n  answered {answered}"))
    });
    for lease in 0..4 {
        store.revoke(store.lease(lease));
    }
    differs
}

#[test]
fn etcds_keys_and_leases_are_as_the_simulators() {
    let server = Server::start(1).unwrap();
    scripts(40, &prop::collection::vec(ask(), 0..40), |script| difference(server.address(0), script));
}

/// The shortest TTL of etcd is one and a half elections, in whole seconds. With it nothing can be compared step by step.
#[test]
fn etcds_shortest_ttl_is_the_simulators() {
    let server = Server::start(1).unwrap();
    assert_eq!(difference(server.address(0), &[Ask::Grant { lease: 0, ttl_s: 1 }]), None);
}
