//! `effects` and `outbox`, from the installation to the last event.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

use leasehold::{
    Leases,
    blocking::block_on,
    effects::{Key, Request, Rules, redis::RedisEffects, sqlite::SqliteEffects},
    fence::redis::redis,
};
use leasehold_testkit::{
    process::{Spawn, wait_until},
    server::{Postgres, Redis, RedisSetup, free_port},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::Connection;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/cli.md");

const LONG: Duration = Duration::from_secs(60);

fn run(folder: &Path, words: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(words.split(' '))
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("USER", "ada")
        .env("LEASEHOLD_URL", format!("sqlite:{}", folder.join("leases.db").display()))
        .env("LEASEHOLD_EFFECTS", format!("sqlite:{}", folder.join("bank.db").display()))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn said(folder: &Path, words: &str) -> String {
    let (code, stdout, stderr) = run(folder, words);
    assert_eq!((code, stderr.as_str()), (0, ""), "{words}");
    stdout
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Two payments, the second of them started and never finished.
fn bank(folder: &Path) {
    let path = folder.join("bank.db");
    let mut db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE data (x)").unwrap();
    said(folder, "effects install");
    said(folder, "effects install");
    let leases = block_on(Leases::connect("memory:")).unwrap();
    let effects = SqliteEffects::new(&leases, Rules::default()).unwrap();
    for key in ["one", "two"] {
        let request = Request::new("accounts/7", key).unwrap();
        let name = Key::new("pay", key).unwrap();
        let ran = effects.run(&mut db, &name, &request, |tx| {
            tx.emit("paid", &json!({"key": key})).map_err(|error| error.to_string())?;
            Ok::<_, String>(json!({"paid": key}))
        });
        block_on(ran).unwrap();
    }
    db.execute_batch(
        "UPDATE leasehold_idempotency SET state = 'needs_reconciliation', done_unix = NULL WHERE key = 'two'",
    )
    .unwrap();
}

#[test]
fn people_see_operations_and_say_what_they_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    bank(folder);
    let all = lines(&said(folder, "effects ls --json"));
    assert_eq!(
        (&all[0]["key"], &all[0]["state"], &all[0]["response"]),
        (&json!("one"), &json!("done"), &json!({"paid": "one"}))
    );
    for key in all[0].as_object().unwrap().keys() {
        assert!(PAGE.contains(&format!("`{key}`")), "docs/cli.md does not mention {key}");
    }
    let open = said(folder, "effects ls --state needs_reconciliation");
    assert!(open.starts_with("SCOPE") && open.contains("two") && !open.contains("one"), "{open}");
    assert!(said(folder, "effects ls --scope other").is_empty());
    let shown = said(folder, "effects show one --scope pay");
    assert!(shown.contains("operation  pay/one") && shown.contains("kept       for ever"), "{shown}");
    let (code, _, told) = run(folder, "effects show none --scope pay --json");
    assert_eq!((code, &lines(&told)[0]["error"]["kind"]), (79, &json!("no_such_key")));
    let (code, _, told) = run(folder, "effects resolve one --scope pay --not-done");
    assert!(code == 79 && told.contains("is done already"), "{told}");
    let (code, ..) = run(folder, "effects resolve two --scope pay");
    assert_eq!(code, 64, "one of the two must be said");
    assert_eq!(run(folder, "effects resolve two --scope pay --done nonsense").0, 64);
    assert_eq!(
        said(folder, "effects resolve two --scope pay --done {\"seen\":true}"),
        "pay/two is done from now on\n"
    );
    let two = &lines(&said(folder, "effects show two --scope pay --json"))[0];
    assert_eq!((&two["state"], &two["response"]), (&json!("done"), &json!({"seen": true})));
    assert!(two["note"].as_str().unwrap().starts_with("resolved by ada@"));
    assert_eq!(said(folder, "effects purge"), "0 keys were forgotten\n");
}

#[test]
fn events_are_relayed_once_and_settled_by_people() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    bank(folder);
    let waiting = lines(&said(folder, "outbox ls --queue waiting --json"));
    assert_eq!(waiting.len(), 2);
    for key in waiting[0].as_object().unwrap().keys() {
        assert!(PAGE.contains(&format!("`{key}`")), "docs/cli.md does not mention {key}");
    }
    assert_eq!(said(folder, "outbox resolve 1 --set-aside"), "event 1 is set aside\n");
    let relayed = lines(&said(folder, "outbox relay --to stdout --once --source /bank"));
    assert_eq!(relayed.len(), 1);
    assert_eq!(
        (&relayed[0]["source"], &relayed[0]["id"], &relayed[0]["type"]),
        (&json!("/bank"), &json!("2"), &json!("paid"))
    );
    assert_eq!(said(folder, "outbox resolve 1 --retry"), "event 1 waits to be published\n");
    assert_eq!(lines(&said(folder, "outbox relay --to stdout --once"))[0]["id"], "1");
    assert!(said(folder, "outbox relay --to stdout --once").is_empty(), "nothing is told twice");
    assert!(said(folder, "outbox show 1").contains("queue      published"));
    let (code, _, told) = run(folder, "outbox resolve 1 --retry --json");
    assert_eq!((code, &lines(&told)[0]["error"]["kind"]), (79, &json!("already_published")));
    assert_eq!(run(folder, "outbox show 9").0, 79);
    assert_eq!(run(folder, "outbox relay --to ftp://x --once").0, 64);
}

#[test]
fn a_database_that_is_not_there_or_not_prepared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (code, _, told) = run(folder, "effects ls");
    assert!(code == 69 && told.contains("must be there"), "{code} {told}");
    Connection::open(folder.join("bank.db")).unwrap().execute_batch("CREATE TABLE data (x)").unwrap();
    let (code, _, told) = run(folder, "effects ls");
    assert!(code == 64 && told.contains("effects install"), "{told}");
    let (code, _, told) = run(folder, "effects ls --store etcd://127.0.0.1:1");
    assert!(code == 64 && told.contains("no effects are kept there"), "{told}");
    let (code, _, told) = run(folder, "effects ls --store redis://127.0.0.1:1");
    assert_eq!(code, 69, "{told}");
}

/// The schema of a database, as SQLite keeps it.
fn schema(path: &Path) -> Vec<String> {
    let db = Connection::open(path).unwrap();
    let mut statement =
        db.prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn installation_prints_what_it_would_run_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let printed = said(folder, "effects install --print");
    assert!(!folder.join("bank.db").exists() && !folder.join("leases.db").exists());
    assert_eq!(run(folder, "effects install --print --grant app").0, 64);
    Connection::open(folder.join("bank.db")).unwrap().execute_batch("CREATE TABLE data (x)").unwrap();
    said(folder, "effects install --print");
    assert_eq!(schema(&folder.join("bank.db")), ["CREATE TABLE data (x)"]);
    let by_hand = Connection::open(folder.join("by_hand.db")).unwrap();
    by_hand.execute_batch(&printed).unwrap();
    by_hand.execute_batch("CREATE TABLE data (x)").unwrap();
    said(folder, "effects install");
    assert_eq!(schema(&folder.join("by_hand.db")), schema(&folder.join("bank.db")));
}

/// Tables, columns, functions and triggers of a schema.
const SHAPE: &str = "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
    SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || coalesce(column_default, '') AS line
        FROM information_schema.columns WHERE table_schema = 'leasehold'
    UNION ALL SELECT proname || ' ' || md5(prosrc) FROM pg_proc WHERE pronamespace = 'leasehold'::regnamespace
    UNION ALL SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT table_name || ' ' || grantee || ' ' || privilege_type FROM information_schema.table_privileges
        WHERE table_schema = 'leasehold') shape";

#[test]
fn on_postgres_what_is_printed_makes_the_same_tables() {
    let server = Postgres::start().unwrap();
    server.psql("postgres", "CREATE ROLE app").unwrap();
    let (printed, installed) = (server.database().unwrap(), server.database().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let words = |database: &str, print: &str| {
        format!("effects install{print} --grant app --store {}", server.url(database))
    };
    let script = said(folder.path(), &words(&printed, " --print"));
    assert!(script.starts_with("BEGIN;") && script.ends_with("COMMIT;\n"), "{script}");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    assert_eq!(server.psql(&printed, schemas).unwrap(), "0", "nothing was changed");
    // Twice, as an upgrade would.
    for _ in 0..2 {
        server.psql(&printed, &script).unwrap();
        said(folder.path(), &words(&installed, ""));
    }
    let shape = server.psql(&printed, SHAPE).unwrap();
    assert_eq!(shape, server.psql(&installed, SHAPE).unwrap());
    for part in ["outbox.xid xid8", "outbox_wake", "idempotency app INSERT"] {
        assert!(shape.contains(part), "{shape}");
    }
    // A server that is not there is not asked.
    assert!(
        said(folder.path(), "effects install --print --store postgres://127.0.0.1:1/x?schema=own")
            .contains("\"own\".outbox")
    );
}

/// The same verbs where the operations are in Redis.
#[test]
fn people_see_and_settle_what_redis_keeps() {
    let server: Redis = RedisSetup::new().start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let store = format!("--store {}?effects_tag=shop", server.url());
    let said = |words: &str| said(folder, &format!("{words} {store}"));
    assert!(said("effects install").contains("may forget what was answered"));
    let line = &lines(&said("effects install --json"))[0];
    assert_eq!((&line["durability"], PAGE.contains("`durability`")), (&json!("forgettable"), true));
    let (code, _, told) = run(folder, &format!("effects install --print {store}"));
    assert!(code == 64 && told.contains("no SQL to print"), "{code} {told}");
    assert_eq!(run(folder, &format!("effects install --grant app {store}")).0, 64);

    // `two` fails behind its first command.
    pay_in_redis(&server, &[("one", &["effect"]), ("two", &["effect", "{shop}:word"])]);
    let all = lines(&said("effects ls --json"));
    assert_eq!(
        (&all[0]["key"], &all[0]["state"], &all[0]["response"]),
        (&json!("one"), &json!("done"), &json!({"paid": "one"}))
    );
    let open = said("effects ls --state needs_reconciliation");
    assert!(open.contains("two") && !open.contains("one"), "{open}");
    assert!(said("effects ls --scope other").is_empty());
    let shown = said("effects show two --scope pay");
    assert!(shown.contains("command 2 of 2 failed"), "{shown}");
    let (code, _, told) = run(folder, &format!("effects resolve one --scope pay --not-done {store}"));
    assert!(code == 79 && told.contains("is done already"), "{told}");
    assert_eq!(
        said("effects resolve two --scope pay --done {\"seen\":true}"),
        "pay/two is done from now on\n"
    );
    let two = &lines(&said("effects show two --scope pay --json"))[0];
    assert_eq!((&two["state"], &two["response"]), (&json!("done"), &json!({"seen": true})));
    assert_eq!(said("effects purge"), "0 keys were forgotten\n");

    let waiting = lines(&said("outbox ls --queue waiting --json"));
    assert_eq!((waiting.len(), &waiting[0]["key"]), (1, &json!("one")));
    let id = waiting[0]["id"].as_u64().unwrap();
    assert_eq!(said(&format!("outbox resolve {id} --set-aside")), format!("event {id} is set aside\n"));
    assert!(said("outbox relay --to stdout --once").is_empty());
    assert!(said(&format!("outbox show {id}")).contains("queue      set_aside"));
    said(&format!("outbox resolve {id} --retry"));
    assert_eq!(lines(&said("outbox relay --to stdout --once"))[0]["id"], json!(id.to_string()));
    assert!(said("outbox relay --to stdout --once").is_empty(), "nothing is told twice");
    assert!(said(&format!("outbox show {id}")).contains("queue      published"));
}

/// Operations in Redis, each with a list of keys to push to.
fn pay_in_redis(server: &Redis, payments: &[(&'static str, &'static [&'static str])]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    server.ask(&["SET", "{shop}:word", "no list"]).unwrap();
    runtime.block_on(async {
        let leases = Leases::connect("memory:").await.unwrap();
        let effects = RedisEffects::new(&leases, Rules::default()).unwrap().within("shop").unwrap();
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(LONG));
        let client = redis::Client::open(server.url()).unwrap();
        let mut db = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        for &(name, lists) in payments {
            let (key, request) = (Key::new("pay", name).unwrap(), Request::new("accounts/7", name).unwrap());
            let ran = effects.run(&mut db, &key, &request, |tx| {
                Box::pin(async move {
                    for list in lists {
                        let push = redis::cmd("RPUSH").arg(list).arg("x").to_owned();
                        tx.command(&push, &[list]).map_err(|error| error.to_string())?;
                    }
                    tx.emit("paid", &json!({"key": name})).map_err(|error| error.to_string())?;
                    Ok::<_, String>(json!({"paid": name}))
                })
            });
            assert_eq!(ran.await.is_ok(), lists.len() == 1);
        }
    });
}

#[test]
fn events_are_relayed_to_a_redis_stream() {
    let redis: Redis = RedisSetup::new().start().unwrap();
    redis.ask(&["ACL", "SETUSER", "relay", "on", ">s3cret", "~events", "+@all"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    bank(folder);
    std::fs::write(folder.join("password"), "s3cret\n").unwrap();
    let to = format!("outbox relay --once --to redis://relay@{}", redis.address());
    for (wrong, word) in [
        (to.clone(), "--stream"),
        (format!("{to} --stream events --authorization-file password"), "--authorization-file"),
        ("outbox relay --once --to stdout --stream events".to_owned(), "--stream"),
        (format!("{to} --stream events --stream-at-most 0"), "--stream-at-most"),
        ("outbox relay --once --to redis://h?x=y --stream events".to_owned(), "no setting"),
        (format!("{to} --stream events --password-file none"), "--password-file"),
    ] {
        let (code, _, told) = run(folder, &wrong);
        assert!(code == 64 && told.contains(word), "{wrong}: {code} {told}");
    }
    let sent = said(folder, &format!("{to} --stream events --stream-at-most 1000 --password-file password"));
    assert_eq!(sent, "");
    assert!(said(folder, "outbox show 2").contains("queue      published"));
    let entries = redis.ask(&["XRANGE", "events", "-", "+"]).unwrap().text();
    let entries: Vec<&str> = entries.lines().collect();
    let fields = |n: usize| &entries[n * 9 + 1..n * 9 + 9];
    assert_eq!(entries.len(), 18, "{entries:?}");
    assert_eq!(fields(1)[..4], ["source", "/leasehold/outbox/main", "id", "2"]);
    let event: Value = serde_json::from_str(fields(1)[7]).unwrap();
    assert_eq!((&event["type"], &event["data"]), (&json!("paid"), &json!({"key": "two"})));
}

/// A relay stays, and follows its configuration: after a signal at once, and by itself in a moment.
#[test]
fn a_relay_follows_its_file_and_a_hangup_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    bank(folder);
    let file = folder.join("leasehold.toml");
    let say = |text: &str| {
        let beside = file.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &file).unwrap();
    };
    say("holder = \"x\"\nttl = \"6s\"\n");
    let (config, log) = (file.to_str().unwrap(), folder.join("log"));
    let program = env!("CARGO_BIN_EXE_leasehold");
    // In a session of its own, because one that has a terminal ends with it; and ended with the test, however that ends.
    let relay = Spawn::new("setsid")
        .args(["--wait", "setpriv", "--pdeathsig", "KILL", "--", program, "--config", config])
        .args(["--log-file", log.to_str().unwrap(), "outbox", "relay", "--to", "stdout"])
        .env("HOME", folder)
        .env("LEASEHOLD_URL", format!("sqlite:{}", folder.join("leases.db").display()))
        .env("LEASEHOLD_EFFECTS", format!("sqlite:{}", folder.join("bank.db").display()))
        .bound_to_starter()
        .start("relay", folder)
        .unwrap();
    let ttl = |ms: u64| {
        wait_until(format!("a TTL of {ms} ms"), LONG, || {
            let shown = &lines(&said(folder, "show outbox/main --json"))[0];
            (shown["ttl_ms"] == ms).then_some(())
        })
        .unwrap_or_else(|late| panic!("{late}: {}", relay.outcome()));
    };
    ttl(6_000);
    let hangup = || {
        let children = format!("/proc/{0}/task/{0}/children", relay.pid());
        let pid = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap();
    };
    say("ttl = \"9s\"\n");
    hangup();
    ttl(9_000);
    say("ttl = \"9\"\n");
    hangup();
    wait_until("a refusal", LONG, || fs::read_to_string(&log).unwrap().contains("are refused").then_some(()))
        .unwrap();
    say("[resource.\"outbox/*\"]\nttl = \"12s\"\n");
    ttl(12_000);
    // What the file leaves open is the coordinator's.
    fs::write(folder.join("all.toml"), "[resource.\"outbox/*\"]\nttl = \"15s\"\n").unwrap();
    said(folder, "settings set all.toml");
    say("holder = \"x\"\n");
    hangup();
    ttl(15_000);
    assert!(relay.ended().unwrap().is_none(), "a hangup does not end it");
}

/// How long events wait is shown by the relay, also while its far end takes nothing.
#[test]
fn a_relay_that_gets_nothing_away_shows_how_long_events_wait() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    bank(folder);
    let port = free_port(0).unwrap();
    let _relay = Spawn::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["outbox", "relay", "--to", "http://127.0.0.1:1/", "--metrics-listen", &port.to_string()])
        .env("HOME", folder)
        .env("LEASEHOLD_URL", format!("sqlite:{}", folder.join("leases.db").display()))
        .env("LEASEHOLD_EFFECTS", format!("sqlite:{}", folder.join("bank.db").display()))
        .bound_to_starter()
        .start("relay", folder)
        .unwrap();
    let page = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok().map(|_| page)
    };
    let shown = wait_until("events that wait", LONG, || {
        let page = page()?;
        let number =
            |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        (number("outbox_waiting ") == Some(2.0) && number("outbox_lag ")? > 0.1).then_some(())
    });
    assert!(shown.is_ok(), "{shown:?}: {:?}", page());
}
