//! Answers that are lost after they took effect.

use leasehold_core::{
    Kind,
    record::{Acquired, Released, Renewed},
};
use leasehold_testkit::server::{Direction, Passage, Proxy, Redis, RedisSetup};

use super::world::{
    Client, MAX_TTL, claim, eventually, ready, renew, servers, take, take_back, until_granted, url, url_of,
};

/// A client of nodes that know the scripts: what is lost later is the answer to a request, and not that it should be put
/// differently.
async fn introduced(nodes: &[Redis]) -> Client {
    let client = ready(&url_of(nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    assert!(matches!(renew(&client, &held).await, Ok(Renewed::Extended { .. })));
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
    client
}

struct Ways(Vec<Proxy>);

impl Ways {
    fn to(nodes: &[Redis]) -> Self {
        Self(nodes.iter().map(|node| Proxy::start(node.address()).unwrap()).collect())
    }

    async fn client(&self) -> Client {
        super::world::open(&url(self.0.iter().map(Proxy::address))).await.unwrap()
    }

    fn lose_answers(&self, whose: impl IntoIterator<Item = usize>) {
        whose.into_iter().for_each(|at| self.0[at].set(Direction::ToClient, Passage::Lost));
    }

    /// Everything passes again, on new connections.
    fn mend(&self) {
        for proxy in &self.0 {
            proxy.set_both(Passage::Open);
            proxy.cut();
        }
    }
}

#[tokio::test]
async fn answers_lost_by_a_minority_are_not_missed() {
    let nodes = servers(5, &RedisSetup::new());
    let direct = introduced(&nodes).await;
    let ways = Ways::to(&nodes);
    let client = ways.client().await;
    ways.lose_answers([1, 4]);
    let held = take(&client, &claim(MAX_TTL)).await;
    assert!(matches!(renew(&client, &held).await, Ok(Renewed::Extended { .. })));
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
    let next = take(&direct, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn a_claim_whose_answers_were_lost_is_unknown_and_its_repetition_settles_it() {
    let nodes = servers(5, &RedisSetup::new());
    let direct = introduced(&nodes).await;
    let ways = Ways::to(&nodes);
    let client = ways.client().await;
    let lost = claim(MAX_TTL);
    ways.lose_answers([0, 1, 2]);
    let error = client.acquire(lost.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    let busy = direct.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(matches!(&busy, Acquired::Busy(busy) if busy.holder.lease_id == lost.lease_id), "{busy:?}");
    ways.mend();
    let held = until_granted(&client, &lost).await;
    assert!(
        matches!(renew(&direct, &held).await, Ok(Renewed::Extended { .. })),
        "it is one grant under one token"
    );
    assert_eq!(direct.release(held.release()).await.unwrap(), Released::Ended);
}

#[tokio::test]
async fn a_claim_whose_answers_were_lost_can_be_taken_back() {
    let nodes = servers(3, &RedisSetup::new());
    let direct = introduced(&nodes).await;
    let ways = Ways::to(&nodes);
    let client = ways.client().await;
    let lost = claim(MAX_TTL);
    ways.lose_answers(0..3);
    let error = client.acquire(lost.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    ways.mend();
    eventually("the claim to be taken back", async || client.release(take_back(&lost)).await.is_ok()).await;
    let next = take(&direct, &claim(MAX_TTL)).await;
    assert_eq!(direct.release(next.release()).await.unwrap(), Released::Ended);
}

#[tokio::test]
async fn a_release_whose_answers_were_lost_is_unknown_and_can_be_repeated() {
    let nodes = servers(3, &RedisSetup::new());
    let direct = introduced(&nodes).await;
    let ways = Ways::to(&nodes);
    let client = ways.client().await;
    let held = take(&client, &claim(MAX_TTL)).await;
    ways.lose_answers([0, 1]);
    let error = client.release(held.release()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    take(&direct, &claim(MAX_TTL)).await;
    ways.mend();
    let mut answer = None;
    eventually("an answer", async || {
        answer = client.release(held.release()).await.ok();
        answer.is_some()
    })
    .await;
    assert!(matches!(answer, Some(Released::NotHeld(_))), "it had ended the first time: {answer:?}");
}
