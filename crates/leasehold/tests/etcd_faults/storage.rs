//! What etcd keeps: a database that is full, snapshots that are restored, resources that are forgotten.

use std::collections::HashMap;

use leasehold::{Kind, coordinator::etcd::examine, doctor::Verdict};
use leasehold_core::{
    Namespace, Token, Ttl,
    record::{Acquired, Released},
    request::{Claim, Preparation, Release},
};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Etcd, Setup},
};

use super::world::{
    PATIENCE, again, claim, end, extended, open, options, ready, release, renew, seconds, take, until_granted,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_refuses_grants_and_lets_holders_renew_and_release() {
    let etcd = Etcd::with(1, Setup { quota: 16 << 20, ..Setup::default() }).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(40));
    let grant = take(&client, &held).await;
    let much = "x".repeat(100_000);
    let full = (0..1_000).find_map(|at| etcd.ctl(&["put", &format!("big/{at}"), &much]).err()).unwrap();
    assert!(full.to_string().contains("space"), "{full}");
    let error = client.acquire(claim("other", seconds(10))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    extended(&client, &held, grant.token).await;
    let found = examine(options(&etcd), &Namespace::default()).await.unwrap();
    assert!(
        found.iter().any(|finding| finding.subject == "alarms" && finding.verdict == Verdict::Fault),
        "{found:?}"
    );
    // A success could not be recorded: it must not be claimed to be.
    let success = Release { succeeded: true, ..release(&held, Some(grant.token)) };
    assert_eq!(client.release(success).await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(client.inspect(held.resource.clone()).await.unwrap().record.unwrap().token, grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_lets_a_holder_go() {
    let etcd = Etcd::with(1, Setup { quota: 16 << 20, ..Setup::default() }).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(40));
    let grant = take(&client, &held).await;
    let much = "x".repeat(100_000);
    (0..1_000).find_map(|at| etcd.ctl(&["put", &format!("big/{at}"), &much]).err()).unwrap();
    assert_eq!(client.release(release(&held, Some(grant.token))).await.unwrap(), Released::Ended);
    assert_eq!(client.inspect(held.resource.clone()).await.unwrap().record, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_snapshot_gives_no_lower_token_to_who_knows_better() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let first = claim("r", seconds(5));
    let grant = take(&client, &first).await;
    end(&client, &first, grant.token).await;
    let snapshot = etcd.snapshot("old.db").unwrap();
    let mut known = grant.token;
    for _ in 0..5 {
        let later = again(&first);
        known = take(&client, &later).await.token;
        end(&client, &later, known).await;
    }
    etcd.restore(&snapshot).unwrap();
    // Who knows no better is given a token that was given before: nothing in etcd tells that it went back.
    let client = open(&etcd.hosts(), "").await.unwrap();
    let fooled = again(&first);
    let low = until_granted(&client, &fooled).await.token;
    assert!(low <= known, "if this fails, etcd has learnt to tell: {low} after {known}");
    end(&client, &fooled, low).await;
    // Who does is given a higher one.
    let wise = Claim { floor: Some(known), ..again(&first) };
    let high = take(&client, &wise).await.token;
    assert!(high > known);
    end(&client, &wise, high).await;
    assert!(take(&client, &again(&first)).await.token > high);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_lives_through_a_restore_announces_it() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let client = open(&etcd.hosts(), "").await.unwrap();
    client.prepare(Preparation { fresh: false, max_ttl: Some(seconds(5)) }).await.unwrap();
    let (first, kept) = (claim("r", seconds(5)), claim("kept", seconds(5)));
    let token = take(&client, &kept).await.token;
    let snapshot = etcd.snapshot("old.db").unwrap();
    let mut known = token;
    for _ in 0..5 {
        let later = again(&first);
        known = take(&client, &later).await.token;
        end(&client, &later, known).await;
    }
    etcd.restore(&snapshot).unwrap();
    // A renewal finds out, and so all others are kept out for as long as what was lost may last.
    let since = Stopwatch::start();
    while renew(&client, &kept, token).await.is_err_and(|error| error.is_transient()) {
        assert!(since.elapsed() < PATIENCE);
    }
    let newcomer = open(&etcd.hosts(), "").await.unwrap();
    let answer = newcomer.acquire(again(&first)).await.unwrap();
    assert!(matches!(answer, Acquired::Quarantined { .. }), "what was lost may stand: got {answer:?}");
    assert!(until_granted(&newcomer, &again(&first)).await.token > known);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_restore_quarantines_and_raises_every_token() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let first = claim("r", seconds(5));
    let grant = take(&client, &first).await;
    end(&client, &first, grant.token).await;
    let snapshot = etcd.snapshot("old.db").unwrap();
    let lost = claim("lost", seconds(5));
    let given = take(&client, &lost).await.token;
    etcd.restore(&snapshot).unwrap();
    etcd.ctl(&["del", "leasehold/default/meta"]).unwrap();
    let client = open(&etcd.hosts(), "?max_ttl=5s").await.unwrap();
    let answer = client.acquire(again(&lost)).await.unwrap();
    assert!(matches!(answer, Acquired::Quarantined { .. }), "the lost grant may stand: got {answer:?}");
    assert!(until_granted(&client, &again(&lost)).await.token > given);
    assert!(take(&client, &again(&first)).await.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_resources_are_forgotten_and_their_tokens_rise_all_the_same() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let mut tokens = HashMap::new();
    for name in ["plain", "lifted", "held"] {
        let claim = claim(name, seconds(50));
        let floor = (name == "lifted").then(|| Token::new(leasehold::clock::unix_us() + 60_000_000).unwrap());
        let token = take(&client, &Claim { floor, ..claim.clone() }).await.token;
        tokens.insert(name, token);
        if name != "held" {
            end(&client, &claim, token).await;
        }
    }
    let week = Ttl::MAX.as_micros() + 60_000_000;
    let (one, two) = (options(&etcd), options(&etcd));
    let purge = |options| {
        leasehold::coordinator::etcd::purge(options, Namespace::default(), leasehold::clock::unix_us() + week)
    };
    let (one, two) = tokio::join!(purge(one), purge(two));
    assert_eq!(one.unwrap() + two.unwrap(), 2, "each is forgotten once, however many look");
    let states = etcd.ctl(&["get", "--prefix", "leasehold/default/state/", "--keys-only"]).unwrap();
    assert!(states.contains("held") && !states.contains("plain") && !states.contains("lifted"), "{states}");
    for name in ["plain", "lifted"] {
        assert!(take(&client, &claim(name, seconds(5))).await.token > tokens[name], "{name}");
    }
}

/// Of eight that come at the same moment one looks, a step of it; the next a minute later, where that one stopped.
#[tokio::test(flavor = "multi_thread")]
async fn however_many_clients_there_are_they_take_turns_at_forgetting() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    for n in 0..70 {
        let claim = claim(&format!("r{n}"), seconds(50));
        let token = take(&client, &claim).await.token;
        end(&client, &claim, token).await;
    }
    let start = leasehold::clock::unix_us() + Ttl::MAX.as_micros() + 60_000_000;
    let at = async |now_us: u64| -> Vec<usize> {
        let one =
            || leasehold::coordinator::etcd::purge_in_turn(options(&etcd), Namespace::default(), now_us);
        let each = futures_util::future::join_all((0..8).map(|_| one())).await;
        each.into_iter().filter_map(Result::unwrap).collect()
    };
    assert_eq!(at(start).await, [64], "one of them, and as many as it looks at");
    assert_eq!(at(start + 59_000_000).await, [0_usize; 0], "not before a minute is over");
    assert_eq!(at(start + 61_000_000).await, [6], "the rest");
    // From the beginning again, and also after a client whose clock was ahead.
    assert_eq!(at(start + 122_000_000).await, [0]);
    assert_eq!(at(start - 122_000_000).await, [0]);
}
