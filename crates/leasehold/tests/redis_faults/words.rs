//! What real servers say when they refuse: each has its kind, and nothing was changed.

use leasehold_core::{
    Error, Kind,
    record::{Acquired, Renewed},
};
use leasehold_testkit::server::{RedisSetup, redis_pair};

use super::world::{
    Client, MAX_TTL, META, RECORD, claim, eventually, open, ready, renew, take, until_granted,
};

async fn refused(client: &Client) -> Error {
    client.acquire(claim(MAX_TTL)).await.unwrap_err()
}

fn assert_said(error: &Error, kind: Kind, word: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(word), "{error}");
    assert!(error.advice().is_some(), "{error}");
}

#[tokio::test]
async fn somebody_elses_data_under_our_keys_is_corrupt_and_stays_as_it_is() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    for (key, make) in [(RECORD, ["HSET", RECORD, "a", "b"]), (RECORD, ["APPEND", RECORD, "text", ""])] {
        let words: Vec<&str> = make.iter().copied().filter(|word| !word.is_empty()).collect();
        server.ask(&words).unwrap();
        let before = server.ask(&["DUMP", key]).unwrap();
        assert_said(&refused(&client).await, Kind::Corrupt, "somebody else's data");
        let held = super::world::Held {
            claim: claim(MAX_TTL),
            token: leasehold_core::Token::new(1).unwrap(),
            sent: leasehold_testkit::clock::Stopwatch::start(),
        };
        let renewed = client.renew(vec![held.renewal()]).await.unwrap().remove(0);
        assert_eq!(renewed.unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(client.release(held.release()).await.unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(server.ask(&["DUMP", key]).unwrap(), before, "left as it is");
        server.ask(&["DEL", key]).unwrap();
    }
    server.ask(&["SET", META, "something"]).unwrap();
    assert_said(&refused(&client).await, Kind::Corrupt, "somebody else's data");
    assert_eq!(server.ask(&["GET", META]).unwrap().text(), "something");
}

/// One bad key does not hurt its neighbours, although they travel together.
#[tokio::test]
async fn a_bad_key_hurts_nobody_in_the_same_batch() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let good = take(&client, &claim(MAX_TTL)).await;
    let mut bad = good.renewal();
    bad.resource = leasehold_core::Resource::new("bad").unwrap();
    server.ask(&["SET", "lh:{faults}:r:bad", "x"]).unwrap();
    let answers = client.renew(vec![bad, good.renewal()]).await.unwrap();
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), Kind::Corrupt);
    assert!(matches!(answers[1], Ok(Renewed::Extended { .. })), "{answers:?}");
}

#[tokio::test]
async fn full_memory_makes_nothing_new_and_keeps_what_is() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let mut other = claim(MAX_TTL);
    other.resource = leasehold_core::Resource::new("another").unwrap();
    let error = client.acquire(other).await.unwrap_err();
    assert_said(&error, Kind::Unavailable, "memory is full");
    assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }), "leases that are held go on");
    let ended = client.release(held.release()).await.unwrap();
    assert_eq!(ended, leasehold_core::record::Released::Ended);
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_unless_that_is_accepted() {
    let server =
        RedisSetup::new().with("maxmemory", "50mb").with("maxmemory-policy", "allkeys-lru").start().unwrap();
    let error = open(&server.url()).await.unwrap_err();
    assert_said(&error, Kind::Unsupported, "evict");
    let client = open(&format!("{}?allow_eviction=true", server.url())).await.unwrap();
    let label = client.profile().guarantee.windows.to_string();
    assert!(label.contains("evicts"), "the label says so: {label}");
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    open(&server.url()).await.unwrap();
}

#[tokio::test]
async fn a_replica_is_no_place_for_leases() {
    let (_master, replica) = redis_pair().unwrap();
    assert_said(&open(&replica.url()).await.unwrap_err(), Kind::Unavailable, "replica");
}

#[tokio::test]
async fn a_master_that_was_made_a_replica_refuses_and_the_client_comes_back_when_it_is_master_again() {
    let (master, other) = redis_pair().unwrap();
    let client = ready(&master.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    other.promote().unwrap();
    master.follow(other.address()).unwrap();
    assert_said(&refused(&client).await, Kind::Unavailable, "replica");
    let renewed = client.renew(vec![held.renewal()]).await.and_then(|mut answers| answers.remove(0));
    assert_eq!(renewed.unwrap_err().kind(), Kind::Unavailable);
    master.promote().unwrap();
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token && held.sent.elapsed() >= MAX_TTL);
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_changes() {
    let server =
        RedisSetup::new().with("save", "3600 1").with("enable-protected-configs", "yes").start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let _ended = client.release(held.release()).await.unwrap();
    // A file that cannot be written: a folder of the same name stands in its place.
    std::fs::create_dir(server.folder().join("in-the-way")).unwrap();
    server.ask(&["CONFIG", "SET", "dbfilename", "in-the-way"]).unwrap();
    let _ = server.ask(&["BGSAVE"]);
    eventually("the failure to save", async || {
        server.info("rdb_last_bgsave_status").is_ok_and(|status| status == "err")
    })
    .await;
    assert_said(&refused(&client).await, Kind::Unavailable, "cannot save");
    server.ask(&["CONFIG", "SET", "dbfilename", "dump.rdb"]).unwrap();
    let _ = server.ask(&["BGSAVE"]);
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn a_server_busy_with_a_script_refuses() {
    let server = RedisSetup::new().with("busy-reply-threshold", "50").start().unwrap();
    let client = ready(&server.url()).await;
    let address = server.address();
    let busy = std::thread::spawn(move || {
        let _killed = leasehold_testkit::server::ask_redis(address, &[b"EVAL", b"while true do end", b"0"]);
    });
    eventually("the server to be busy", async || server.ask(&["PING"]).is_err()).await;
    assert_said(&refused(&client).await, Kind::Unavailable, "long script");
    server.ask(&["SCRIPT", "KILL"]).unwrap();
    busy.join().unwrap();
    until_granted(&client, &claim(MAX_TTL)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_still_loading_refuses_and_then_goes_on() {
    // Each key takes two milliseconds to read, and a client is listened to every thousand keys.
    let server = RedisSetup::new()
        .durable()
        .with("key-load-delay", "2000")
        .with("loading-process-events-interval-bytes", "1024")
        .start()
        .unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    for at in 0..2_500 {
        server.ask(&["SET", &format!("other/{at}"), "x"]).unwrap();
    }
    let server = std::sync::Arc::new(server);
    let restart = tokio::task::spawn_blocking({
        let server = std::sync::Arc::clone(&server);
        move || server.crash().unwrap()
    });
    eventually("the answer that it is loading", async || match client.acquire(claim(MAX_TTL)).await {
        Err(error) if error.to_string().contains("loading") => {
            assert_said(&error, Kind::Unavailable, "still loading");
            true
        }
        Err(error) => {
            assert!(error.is_transient(), "{error}");
            false
        }
        // It was not killed yet.
        Ok(answer) => {
            assert!(!restart.is_finished(), "it answered as if nothing had been: {answer:?}");
            false
        }
    })
    .await;
    restart.await.unwrap();
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn wrong_credentials_are_denied_and_right_ones_work() {
    let server = RedisSetup::new().with("requirepass", "right").start().unwrap();
    let at = server.address();
    for url in [format!("redis://{at}"), format!("redis://:wrong@{at}"), format!("redis://nobody:right@{at}")]
    {
        let error = open(&url).await.unwrap_err();
        assert_said(&error, Kind::Denied, "user and password");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    let client = ready(&format!("redis://:right@{at}")).await;
    take(&client, &claim(MAX_TTL)).await;
    assert!(!client.profile().place.contains("right"));
}

/// A Sentinel that refuses is not one that watches nothing.
#[tokio::test]
async fn a_sentinel_that_wants_a_password_is_denied() {
    let server = RedisSetup::new().with("requirepass", "right").start().unwrap();
    let error = open(&format!("redis://{}?sentinel=main", server.address())).await.unwrap_err();
    assert_said(&error, Kind::Denied, "user and password");
}

/// What the documentation says that a user needs is enough.
const RULES: &str = "on >secret ~lh:* &lh:* -@all +hello +auth +select +ping +info +time +evalsha +eval +get +set +exists +persist \
                     +pexpire +zadd +zrem +zrange +zrangebylex +zrevrange +zrank +zcard +zrandmember +hget +hset +hdel +hmget \
                     +publish +subscribe";

/// Every kind of request, with a waiter that is woken.
async fn everything(client: &Client) -> super::world::Held {
    let held = take(client, &claim(MAX_TTL)).await;
    let mut waiter = claim(MAX_TTL);
    waiter.queue = true;
    let answer = client.acquire(waiter.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    let page = client.list(leasehold_core::request::Listing::new()).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(client.inspect(waiter.resource.clone()).await.unwrap().waiting, 1);
    let _ended = client.release(held.release()).await.unwrap();
    let woken = tokio::time::timeout(super::world::PATIENCE, client.next_wake()).await;
    woken.expect("the waiter is woken");
    take(client, &waiter).await
}

#[tokio::test]
async fn permissions_taken_away_are_denied_and_given_back_it_goes_on() {
    let server = RedisSetup::new().start().unwrap();
    let permit = |rules: &[&str]| {
        let mut words = vec!["ACL", "SETUSER", "ann"];
        words.extend(rules);
        server.ask(&words).unwrap();
    };
    let rules: Vec<&str> = RULES.split_whitespace().collect();
    permit(&rules);
    let client = ready(&format!("redis://ann:secret@{}", server.address())).await;
    let held = everything(&client).await;
    permit(&["-evalsha", "-eval"]);
    assert_said(&refused(&client).await, Kind::Denied, "does not permit");
    let error = client.renew(vec![held.renewal()]).await.unwrap_err();
    assert_said(&error, Kind::Denied, "does not permit");
    permit(&["+evalsha", "+eval"]);
    assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }));
    permit(&["resetkeys", "~else:*"]);
    assert_said(&refused(&client).await, Kind::Denied, "does not permit");
    permit(&["~lh:*"]);
    let _ended = client.release(held.release()).await.unwrap();
    // The user is removed: the server closes its connections and does not know it any more.
    server.ask(&["ACL", "DELUSER", "ann"]).unwrap();
    eventually("the refusal", async || {
        client.acquire(claim(MAX_TTL)).await.is_err_and(|error| error.kind() == Kind::Denied)
    })
    .await;
    permit(&rules);
    eventually("access again", async || {
        matches!(client.acquire(claim(MAX_TTL)).await, Ok(Acquired::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn too_few_replicas_refuse_where_the_server_asks_for_them() {
    let server = RedisSetup::new().with("min-replicas-to-write", "1").start().unwrap();
    let client = open(&server.url()).await.unwrap();
    assert_said(&refused(&client).await, Kind::Unavailable, "too few replicas");
}

#[tokio::test]
async fn a_grant_that_no_replica_confirms_is_unknown_and_can_be_taken_back() {
    let (master, replica) = redis_pair().unwrap();
    let client = ready(&format!("{}?wait_replicas=1", master.url())).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    replica.server().pause().unwrap();
    let _released = client.release(held.release()).await;
    let mine = claim(MAX_TTL);
    let error = client.acquire(mine.clone()).await.unwrap_err();
    assert_said(&error, Kind::Unknown, "too few replicas");
    replica.server().resume().unwrap();
    eventually(
        "a confirmed grant",
        async || matches!(client.acquire(mine.clone()).await, Ok(Acquired::Granted(grant)) if grant.adopted),
    )
    .await;
}

/// A password on a server over TLS: the certificate is checked, and a client's own where the server asks for it.
#[tokio::test]
async fn a_way_that_is_protected_is_checked() {
    use leasehold_testkit::server::Certificates;
    let certificates = Certificates::new().unwrap();
    let path = |name: &str| certificates.path(name).display().to_string();
    let server = RedisSetup::new()
        .over_tls()
        .with("tls-ca-cert-file", &path("ca.pem"))
        .with("tls-cert-file", &path("server.pem"))
        .with("tls-key-file", &path("server.key"))
        .start()
        .unwrap();
    let at = format!("rediss://localhost:{}", server.address().port());
    let own = format!("cert={}&key={}", path("client.pem"), path("client.key"));
    let client = ready(&format!("{at}?ca={}&{own}", path("ca.pem"))).await;
    take(&client, &claim(MAX_TTL)).await;
    let error = open(&format!("{at}?ca={}&{own}", path("other-ca.pem"))).await.unwrap_err();
    assert_said(&error, Kind::Denied, "certificate");
    let error = open(&format!("{at}?ca={}", path("ca.pem"))).await.unwrap_err();
    assert_ne!(error.kind(), Kind::Unknown, "{error}");
    let error = open(&format!("redis://{}", server.address())).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "plain text at a TLS port: {error}");
}
