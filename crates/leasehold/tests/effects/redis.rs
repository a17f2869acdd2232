//! What is different in Redis: one script, and no rolling back.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Kind, Lease,
    coordinator::memory::MemoryStore,
    effects::{
        Durability, Key, Keys, NotDone, Request, State,
        failpoint::Point,
        postgres::PostgresEffects,
        redis::{Connection, RedisEffects},
        sqlite::SqliteEffects,
    },
    fence::redis::redis::{self, Cmd},
};
use leasehold_testkit::server::{Direction, Passage, Proxy, RedisSetup};
use serde_json::json;
use tokio::sync::Notify;

use crate::world::{BODY, Bank, Outcome, Worker, connection};

pub(crate) fn named(key: &str, resource: &str) -> (Key, Request) {
    (Key::new("pay", key).unwrap(), Request::new(resource, BODY).unwrap())
}

pub(crate) fn cmd(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}

/// An operation of these commands, each with its first word behind the name as the key, and one event.
pub(crate) async fn run<C: Connection>(
    effects: &RedisEffects,
    connection: &mut C,
    (key, request): &(Key, Request),
    commands: &[Vec<String>],
) -> Outcome {
    let commands = commands.to_vec();
    let ran = effects.run(connection, key, request, |tx| {
        Box::pin(async move {
            for words in &commands {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                tx.command(&cmd(&words), &[words[1]]).map_err(|error| error.to_string())?;
            }
            tx.emit("told", &json!({"a": 1})).map_err(|error| error.to_string())?;
            Ok(json!("done"))
        })
    });
    ran.await
}

pub(crate) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn the_type_says_what_an_answer_is_worth() {
    assert_eq!(RedisEffects::DURABILITY, Durability::Forgettable);
    assert_eq!(PostgresEffects::DURABILITY, Durability::Committed);
    assert_eq!(SqliteEffects::DURABILITY, Durability::Committed);
    let told = RedisEffects::DURABILITY.to_string();
    assert!(told.contains("failover") && told.contains("appendfsync"), "{told}");
    let guide = include_str!("../../../../docs/effects.md");
    assert!(
        guide.split_whitespace().filter(|word| *word != ">").collect::<Vec<_>>().join(" ").contains(&told),
        "the guide says it in other words"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_says_what_an_answer_is_worth() {
    for bank in Bank::all().await {
        let expected = if bank.is_redis() { Durability::Forgettable } else { Durability::Committed };
        assert_eq!(bank.ledger().await.durability(), expected, "{}", bank.name());
    }
}

/// Nothing is rolled back here, so what fails first leaves nothing, and what fails behind others is for a person to settle.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_behind_others_is_never_repeated_in_silence() {
    let bank = Bank::redis();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let (mut db, list) = (bank.connection().await, bank.list("effect"));
    let text = bank.list("text");
    cmd(&["SET", &text, "no number"]).exec_async(&mut db).await.unwrap();
    let (good, bad) = (owned(&["RPUSH", &list, "x"]), owned(&["INCR", &text]));
    let name = named("first", "a");
    let told = run(&worker.redis(), &mut db, &name, &[bad.clone(), good.clone()]).await.unwrap_err();
    assert!(matches!(&told, NotDone::Failed(error) if error.kind() == Kind::Invalid), "{told}");
    assert!(told.to_string().contains("command 1 of 2 failed, and nothing was done"), "{told}");
    assert!(worker.look("pay", "first").await.is_none());
    assert_eq!(bank.counts().await, (0, 0, 0));
    // The key was not used up.
    assert!(!run(&worker.redis(), &mut db, &name, std::slice::from_ref(&good)).await.unwrap().replayed);
    assert_eq!(bank.counts().await, (1, 1, 1));

    let name = named("half", "a");
    let told = run(&worker.redis(), &mut db, &name, &[good.clone(), bad, good.clone()]).await.unwrap_err();
    assert!(told.is_unknown() && !told.is_transient(), "{told}");
    let half = worker.look("pay", "half").await.unwrap();
    assert_eq!(half.state, State::NeedsReconciliation);
    assert!(half.note.unwrap().starts_with("command 2 of 3 failed"));
    assert_eq!(bank.counts().await, (1, 2, 1), "one command was done, and nobody was told");
    let again = run(&worker.redis(), &mut db, &name, &[good]).await.unwrap_err();
    assert!(matches!(again, NotDone::Unsettled(_)), "{again}");
    assert_eq!(bank.counts().await, (1, 2, 1));
    let open = Keys { state: Some(State::NeedsReconciliation), limit: 10, ..Keys::default() };
    assert_eq!(bank.ledger().await.records(open).await.unwrap().len(), 1);
}

/// A server that is full refuses the first change, and with it the whole operation.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_does_nothing_at_all() {
    let server = Arc::new(RedisSetup::new().start().unwrap());
    let bank = Bank::redis_on(&server);
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let full = worker.hooked({
        let server = Arc::clone(&server);
        move |point| {
            if point == Point::BeforeCommit {
                server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
            }
            Box::pin(async {})
        }
    });
    let told = full.pay("k", BODY).await.unwrap_err();
    assert!(told.is_transient() && !told.is_unknown(), "{told}");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(bank.counts().await, (0, 0, 0));
    let free = Worker::new(&bank, &MemoryStore::default()).await;
    assert!(!free.pay("k", BODY).await.unwrap().replayed);
}

/// The script is sent and its answer is lost. Nobody knows; the key does, on the next connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_without_an_answer_is_unknown_and_settled_by_the_key() {
    for arrives in [true, false] {
        let bank = Bank::redis();
        let Bank::Redis { server, .. } = &bank else { unreachable!() };
        let proxy = Arc::new(Proxy::start(server.address()).unwrap());
        let mut far = connection(&format!("redis://{}", proxy.address())).await;
        let store = MemoryStore::default();
        // The server knows the scripts, so that one call is all that there is to lose.
        Worker::new(&bank, &store).await.pay("before", BODY).await.unwrap();
        let worker = Worker::new(&bank, &store).await.hooked({
            let (proxy, bank) = (Arc::clone(&proxy), bank.clone());
            move |point| {
                let (proxy, bank) = (Arc::clone(&proxy), bank.clone());
                Box::pin(async move {
                    if point != Point::BeforeCommit {
                        return;
                    }
                    proxy.set(if arrives { Direction::ToClient } else { Direction::ToServer }, Passage::Lost);
                    // The line is dead when the script has arrived, or never will.
                    tokio::spawn(async move {
                        while arrives && bank.counts().await != (2, 2, 2) {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        proxy.cut();
                    });
                })
            }
        });
        let (key, request) = named("k", "accounts/k");
        let told = worker.pay_redis(&mut far, &key, &request).await.unwrap_err();
        assert!(told.is_unknown() && told.is_transient(), "{told}");
        assert!(told.to_string().contains("same key"), "{told}");
        let settled = Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
        assert_eq!(settled.replayed, arrives, "what had arrived was carried out again");
        assert_eq!(bank.counts().await, (2, 2, 2));
    }
}

/// Two grants of one resource, of two coordinators that know nothing of each other. The older one's script comes behind the younger
/// one's seal, and nothing of it counts; or before it, and the younger answers what it has stored.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_grants_the_older_counts_only_before_the_younger_has_sealed() {
    for first in [true, false] {
        let bank = Bank::redis();
        let (reached, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&reached), Arc::clone(&go_on));
        let older = Worker::new(&bank, &MemoryStore::default()).await.hooked(move |point| {
            let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
            Box::pin(async move {
                if point == Point::BeforeCommit {
                    tell.notify_one();
                    wait.notified().await;
                }
            })
        });
        let older = tokio::spawn(async move { older.pay("k", BODY).await });
        reached.notified().await;
        let younger = Worker::new(&bank, &MemoryStore::default()).await;
        if first {
            go_on.notify_one();
            let older = older.await.unwrap().unwrap();
            let younger = younger.pay("k", BODY).await.unwrap();
            assert!(!older.replayed && younger.replayed && older.token == younger.token);
        } else {
            let younger = younger.pay("k", BODY).await.unwrap();
            go_on.notify_one();
            let told = older.await.unwrap().unwrap_err();
            assert!(matches!(&told, NotDone::NotAdmitted(no) if no.is_stale()), "{told}");
            assert!(!younger.replayed);
        }
        assert_eq!(bank.counts().await, (1, 1, 1));
    }
}

/// The fence out of the way: the same key on the same grant, from two connections. Only the unique key stands between them.
#[tokio::test(flavor = "multi_thread")]
async fn under_one_lease_the_key_alone_keeps_twins_apart_in_redis() {
    let bank = Bank::redis();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let lease = worker.leases.lease("accounts/k").acquire().await.unwrap();
    let effects = worker.redis();
    let pay = async |lease: &Lease, round: u32| {
        let ((key, request), list) = (named(&round.to_string(), "accounts/k"), bank.list("effect"));
        let mut db = bank.connection().await;
        let ran = effects.run_under(lease, &mut db, &key, &request, |tx| {
            Box::pin(async move {
                tx.command(&cmd(&["RPUSH", &list, "x 1"]), &[&list]).map_err(|error| error.to_string())?;
                tx.emit("paid", &json!({})).map_err(|error| error.to_string())?;
                Ok::<_, String>(json!("paid"))
            })
        });
        ran.await.unwrap()
    };
    let mut executed = 0;
    for round in 0..20 {
        let (one, two) = tokio::join!(pay(&lease, round), pay(&lease, round));
        executed += u32::from(!one.replayed) + u32::from(!two.replayed);
    }
    assert_eq!((executed, bank.counts().await), (20, (20, 20, 20)));
    let _ = lease.release().await.unwrap();
}

/// Behind the seal nobody changes what an operation reads: what it writes may depend on it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_behind_the_seal_is_what_is_written_on() {
    let bank = Bank::redis();
    let store = MemoryStore::default();
    let balance = bank.list("balance");
    cmd(&["SET", &balance, "1000"]).exec_async(&mut bank.connection().await).await.unwrap();
    let mut clients = Vec::new();
    for sender in 0..8 {
        let (worker, balance, bank) = (Worker::new(&bank, &store).await, balance.clone(), bank.clone());
        clients.push(tokio::spawn(async move {
            let mut db = bank.connection().await;
            let (key, request) = named(&format!("{sender}"), "balance");
            let effects = worker.redis();
            let ran = effects.run(&mut db, &key, &request, |tx| {
                let balance = balance.clone();
                Box::pin(async move {
                    let get = cmd(&["GET", &balance]);
                    let left: i64 = get.query_async(&mut tx.connection()).await.map_err(|e| e.to_string())?;
                    let set = cmd(&["SET", &balance, &(left - 30).to_string()]);
                    tx.command(&set, &[&balance]).map_err(|error| error.to_string())?;
                    Ok::<_, String>(json!(left - 30))
                })
            });
            ran.await.unwrap().response.as_i64().unwrap()
        }));
    }
    let mut left = Vec::new();
    for client in clients {
        left.push(client.await.unwrap());
    }
    left.sort_unstable();
    assert_eq!(left, (1..=8).rev().map(|n| 1000 - 30 * n).collect::<Vec<_>>());
}
