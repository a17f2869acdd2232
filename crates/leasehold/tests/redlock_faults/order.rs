//! The order of tokens, where nothing but the second phase keeps it: nodes whose clocks are far apart.

use std::time::Duration;

use leasehold_core::{
    Token,
    record::{Acquired, Released, Renewed},
    request::{Claim, Release},
};
use leasehold_testkit::{
    random::{Choices, seed},
    server::{Passage, Proxy, Redis, RedisSetup},
};

use super::world::{
    MAX_TTL, claim, open, ready, renew, servers, take, take_back, until_granted, url, url_of,
};

const HANDOVERS: usize = 10;

/// Each node's own tokens are as far apart as the clocks. Whoever takes the highest of those it happens to hear from gets a
/// lower one than its predecessor as soon as the node that is furthest ahead is not heard.
#[tokio::test]
async fn tokens_rise_whichever_nodes_are_heard() {
    let nodes = servers(5, &RedisSetup::new().with_clock());
    for (at, node) in (0..).zip(&nodes) {
        node.clock().forward(Duration::from_secs(20 * at)).unwrap();
    }
    drop(ready(&url_of(&nodes)).await);
    let ways: Vec<Proxy> = nodes.iter().map(|node: &Redis| Proxy::start(node.address()).unwrap()).collect();
    let client = open(&url(ways.iter().map(Proxy::address))).await.unwrap();
    let begun = seed();
    let mut choices = Choices::new(begun);
    let mut last = None;
    for handover in 0..HANDOVERS {
        // The nodes that are furthest ahead are heard at one hand-over and not at the next.
        let silent = if handover % 2 == 0 { [choices.below(2), 2] } else { [4, 2 + choices.below(2)] };
        for (at, way) in (0..).zip(&ways) {
            let passage = if silent.contains(&at) { Passage::Stalled } else { Passage::Open };
            way.set_both(passage);
        }
        let held = until_granted(&client, &claim(MAX_TTL)).await;
        assert!(last.is_none_or(|last| held.token > last), "{} follows {last:?} (seed {begun})", held.token);
        last = Some(held.token);
        // Whatever the nodes have of it goes: this is about the order alone.
        let _ended = client.release(take_back(&held.claim)).await;
    }
}

/// Nodes whose clocks differ by more than any proposal is ahead still end up with one token.
#[tokio::test]
async fn all_nodes_have_the_same_token_whatever_their_clocks_show() {
    let nodes = servers(3, &RedisSetup::new().with_clock());
    for (at, node) in (0..).zip(&nodes) {
        node.clock().forward(Duration::from_secs(7 * at)).unwrap();
    }
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    // Whichever is missing, the other two agree.
    for missing in &nodes {
        missing.server().pause().unwrap();
        super::world::until_extended(&client, &held).await;
        missing.server().resume().unwrap();
        super::world::until_extended(&client, &held).await;
    }
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
}

/// A floor further ahead of the clocks than a proposal may be: no node takes the proposal, and what each would give by itself is
/// the very same number. It must not pass for agreed on.
#[tokio::test]
async fn a_grant_above_a_floor_ahead_of_the_clocks_keeps_its_token_and_its_success() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let floor = Token::new(leasehold_testkit::clock::unix_us() + 60_000_000).unwrap();
    let ahead = Claim { floor: Some(floor), ..claim(MAX_TTL) };
    let held = take(&client, &ahead).await;
    let again = take(&client, &Claim { floor: None, ..ahead }).await;
    assert_eq!(again.token, held.token, "one grant has one token");
    assert!(matches!(renew(&client, &held).await, Ok(Renewed::Extended { .. })));
    let ended = client.release(Release { succeeded: true, ..held.release() }).await.unwrap();
    assert_eq!(ended, Released::Ended);
    let next = Claim { once_per: Some(Duration::from_secs(3_600)), ..claim(MAX_TTL) };
    let answer = client.acquire(next).await.unwrap();
    assert!(matches!(answer, Acquired::AlreadyDone { .. }), "the success was recorded: {answer:?}");
}
