//! A namespace for one run leaves nothing at the coordinator when it is discarded, and everybody else's stays: on every engine, seen
//! with the engine's own tools.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "etcd"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeSet, time::Duration};

use leasehold::{Leases, Namespace, Throwaway, fence::sqlite::rusqlite::Connection};
use leasehold_core::request::Preparation;
use leasehold_testkit::{
    process::wait_until,
    server::{Etcd, Postgres, Redis, RedisCluster, RedisSetup, Reply},
};

const PATIENCE: Duration = Duration::from_secs(90);
const TTL: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(20);

/// Does everything that leaves something: a grant that has ended, one that stands and nobody keeps, settings, and a place of a waiter
/// that stopped asking, as one does that is killed. On etcd a client keeps its places for as long as it lives.
async fn use_it(url: &str, namespace: &Namespace, look: Look<'_>) -> Leases {
    let leases = Leases::builder(url).namespace(namespace.clone()).connect().await.unwrap();
    leases.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    for name in ["ended", "a/b {c}*"] {
        let lease = leases.lease(name).ttl(TTL).acquire().await.unwrap();
        let _ = lease.release().await.unwrap();
    }
    let _ = leases.lease("held").ttl(TTL).acquire().await.unwrap().hand_off().unwrap();
    let mut waits = Box::pin(leases.lease("held").ttl(TTL).wait(PATIENCE).acquire());
    if leases.profile().engine != "etcd" {
        let without = look(namespace).len();
        let has_its_place = async {
            while look(namespace).len() == without {
                tokio::time::sleep(GLANCE).await;
            }
        };
        tokio::select! {
            answer = &mut waits => panic!("it waits for what is held: {answer:?}"),
            () = has_its_place => std::mem::forget(waits),
        }
    }
    leases
}

/// What the engine has of a namespace, by name, in its own words.
type Look<'a> = &'a dyn Fn(&Namespace) -> BTreeSet<String>;

/// A namespace is used beside another one and discarded: nothing of it is left, and all of the other.
fn is_discarded_without_a_trace(url: &str, look: Look<'_>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let throwaway = Throwaway::draw("__verify_").unwrap();
    let beside = leasehold_testkit::random::namespace();
    runtime.block_on(async {
        let other = use_it(url, &beside, look).await;
        let own = use_it(url, throwaway.namespace(), look).await;
        assert!(look(throwaway.namespace()).len() > 1, "there is something to discard");
        // Whoever waits keeps its client alive; elsewhere this has nothing to wait for.
        let patience = if url.starts_with("etcd") { PATIENCE } else { Duration::ZERO };
        other.close(patience).await;
        own.close(patience).await;
    });
    let before = look(&beside);
    let removed = leasehold::blocking::block_on(throwaway.discard(url)).unwrap();
    assert!(removed > 1, "{removed}");
    assert_eq!(look(throwaway.namespace()), BTreeSet::new());
    assert!(look(&beside).is_superset(&before) && before.len() > 1, "{before:?}");
    assert_eq!(leasehold::blocking::block_on(throwaway.discard(url)).unwrap(), 0);
}

#[test]
fn nothing_of_it_is_left_in_a_lease_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let look = |namespace: &Namespace| {
        let connection = Connection::open(&path).unwrap();
        let mut found = BTreeSet::new();
        let mut rows = |sql: &str, parameter: &dyn leasehold::fence::sqlite::rusqlite::ToSql| -> Vec<i64> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows: Vec<i64> =
                statement.query_map([parameter], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
            found.extend(rows.iter().map(|row| format!("{sql} {row}")));
            rows
        };
        let spaces = rows("SELECT id FROM space WHERE name = ?1", &namespace.as_str());
        let slots: Vec<i64> =
            spaces.iter().flat_map(|space| rows("SELECT id FROM slot WHERE space = ?1", space)).collect();
        for slot in slots {
            rows("SELECT sequence FROM queue WHERE slot = ?1", &slot);
            rows("SELECT id FROM past WHERE id / 32 = ?1", &slot);
        }
        found
    };
    is_discarded_without_a_trace(&format!("sqlite:{}", path.display()), &look);
    // What belongs to a row by its number alone has gone with it: the other namespace has one resource in each way.
    let connection = Connection::open(&path).unwrap();
    for orphans in [
        "SELECT count(*) FROM past WHERE id / 32 NOT IN (SELECT id FROM slot)",
        "SELECT count(*) FROM queue WHERE slot NOT IN (SELECT id FROM slot)",
        "SELECT count(*) FROM slot WHERE space NOT IN (SELECT id FROM space)",
    ] {
        assert_eq!(connection.query_row(orphans, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "{orphans}");
    }
}

#[test]
fn nothing_of_it_is_left_in_memory() {
    let url = "memory:throwaway";
    let throwaway = Throwaway::draw("t-").unwrap();
    let discard = || leasehold::blocking::block_on(throwaway.discard(url)).unwrap();
    leasehold::blocking::block_on(async {
        let leases = Leases::builder(url).namespace(throwaway.namespace().clone()).connect().await.unwrap();
        let _ = leases.lease("r").acquire().await.unwrap().release().await.unwrap();
    });
    assert_eq!((discard(), discard()), (2, 0));
}

/// The keys of a server that begin as those of the namespace do.
fn keys(server: &Redis, namespace: &Namespace) -> BTreeSet<String> {
    let Reply::Many(keys) = server.ask(&["KEYS", "*"]).unwrap() else { panic!("KEYS gives a list") };
    // On a Cluster the number of the shard follows the name.
    let own = format!("lh:{{{namespace}");
    keys.iter().map(Reply::text).filter(|key| key.starts_with(&own)).collect()
}

#[test]
fn nothing_of_it_is_left_on_redis() {
    let server = RedisSetup::new().start().unwrap();
    is_discarded_without_a_trace(&server.url(), &|namespace| keys(&server, namespace));
}

#[test]
fn nothing_of_it_is_left_on_a_redis_cluster() {
    let cluster = RedisCluster::start(false).unwrap();
    let look = |namespace: &Namespace| {
        let nodes = [0, 8_000, 16_000].map(|slot| cluster.node_of(slot).unwrap());
        nodes.iter().flat_map(|node| keys(node, namespace)).collect()
    };
    is_discarded_without_a_trace(&cluster.url(), &look);
}

#[test]
fn nothing_of_it_is_left_on_any_node_of_a_redlock() {
    let nodes: [Redis; 3] = std::array::from_fn(|_| RedisSetup::new().start().unwrap());
    let hosts = [0, 1, 2].map(|at| nodes[at].address().to_string());
    let look = |namespace: &Namespace| {
        let on = |(at, node): (usize, &Redis)| {
            keys(node, namespace).into_iter().map(move |key| format!("{at} {key}"))
        };
        nodes.iter().enumerate().flat_map(on).collect()
    };
    is_discarded_without_a_trace(&format!("redlock://{}", hosts.join(",")), &look);
}

#[test]
fn a_node_that_cannot_be_reached_is_named_and_the_others_are_done() {
    let nodes: [Redis; 3] = std::array::from_fn(|_| RedisSetup::new().start().unwrap());
    let hosts = [0, 1, 2].map(|at| nodes[at].address().to_string());
    let url = format!("redlock://{}", hosts.join(","));
    let throwaway = Throwaway::draw("t-").unwrap();
    let namespace = throwaway.namespace();
    leasehold::blocking::block_on(async {
        let leases = Leases::builder(&url).namespace(namespace.clone()).connect().await.unwrap();
        leases.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
        let _ = leases.lease("r").acquire().await.unwrap().release().await.unwrap();
        leases.close(PATIENCE).await;
    });
    nodes[0].server().kill().unwrap();
    let error = leasehold::blocking::block_on(throwaway.discard(&url)).unwrap_err();
    assert!(error.to_string().contains(&hosts[0]), "{error}");
    assert_eq!((keys(&nodes[1], namespace).len(), keys(&nodes[2], namespace).len()), (0, 0));
}

#[test]
fn nothing_of_it_is_left_in_a_database() {
    let server = Postgres::start().unwrap();
    let database = server.database().unwrap();
    let look = |namespace: &Namespace| {
        let of = |table: &str, what: &str| {
            let sql = format!("SELECT {what} FROM leasehold.{table} WHERE namespace = '{namespace}'");
            let rows = server.psql(&database, &sql).unwrap();
            rows.lines().map(|row| format!("{table} {row}")).collect::<Vec<_>>()
        };
        let resources = ["slot", "queue", "past"].map(|table| of(table, "resource"));
        resources.into_iter().flatten().chain(of("space", "mode")).collect()
    };
    is_discarded_without_a_trace(&server.url(&database), &look);
}

#[test]
fn nothing_of_it_is_left_on_etcd_and_no_lease() {
    let server = Etcd::start(1).unwrap();
    let lines = |words: &[&str]| -> BTreeSet<String> {
        let said = server.ctl(words).unwrap();
        said.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    };
    let look = |namespace: &Namespace| {
        // The places in lines and the marks of grants go with their leases: those of the other namespace may do so any time.
        let keys = lines(&["get", &format!("leasehold/{namespace}/"), "--prefix", "--keys-only"]);
        keys.into_iter().filter(|key| !key.contains("/line/") && !key.contains("/held/")).collect()
    };
    is_discarded_without_a_trace(&format!("etcd://{}", server.hosts()), &look);
    let all = lines(&["get", "leasehold/__verify_", "--prefix", "--keys-only"]);
    assert!(all.is_empty(), "{all:?}");
    // The first line says how many follow. What nothing hangs on runs out.
    wait_until("the leases' end", PATIENCE, || (lines(&["lease", "list"]).len() <= 1).then_some(())).unwrap();
}
