//! Holders that are wrong about their window, on Redis behind a network that holds answers back.

use std::time::Duration;

use leasehold::{
    Ttl,
    clock::{Clock as _, SystemClock},
};
use leasehold_core::{
    Namespace, Token,
    holder::{Holder, Identity},
    policy::Policy,
    record::{Acquired, Grant, Renewed},
    request::Claim,
    window::{ClockRule, Reading},
};
use leasehold_testkit::{
    check::{Event, History, Report, What},
    random,
    server::{Direction, Passage, Proxy, Redis, RedisSetup},
    sim::Mutant,
};

use crate::{
    Caught,
    scene::{self, claim, client, introduce, note, resource, take, until},
};

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(40);

struct Scene {
    server: Redis,
    proxy: Proxy,
    namespace: Namespace,
}

impl Scene {
    fn new() -> Self {
        let server = RedisSetup::new().start().unwrap();
        let proxy = Proxy::start(server.address()).unwrap();
        Self { server, proxy, namespace: random::namespace() }
    }

    fn afar(&self) -> String {
        format!("redis://{}", self.proxy.address())
    }
}

fn believes(claim: &Claim, grant: &Grant, counted_from: Reading, now: Reading) -> Option<Holder> {
    let identity =
        Identity { resource: claim.resource.clone(), lease_id: claim.lease_id, token: grant.token };
    let policy = Policy::builder(claim.ttl).build().unwrap();
    Holder::granted(identity, grant, policy, ClockRule::LargestOfThree, None, counted_from, now, 0).ok()
}

fn granted(holder: &Holder, sent: Reading, ttl: Ttl) -> What {
    What::Granted {
        token: holder.identity().token,
        sent_ns: Some(sent.boot_ns),
        open_ns: holder.opened().boot_ns,
        close_ns: holder.window().closes().boot_ns,
        ttl_ms: Some(ttl.as_millis()),
    }
}

/// A grant whose answer comes when another has the resource already.
async fn late_answer(counts_from_the_answer: bool) -> Report {
    let scene = Scene::new();
    let (near, far) =
        (client(&scene.server.url(), &scene.namespace).await, client(&scene.afar(), &scene.namespace).await);
    introduce(&far).await;
    let (slow, quick) = (claim(SHORT), claim(LONG));
    let mut events = Vec::new();
    scene.proxy.set(Direction::ToClient, Passage::Stalled);
    let sent = SystemClock.read();
    let asked = tokio::spawn({
        let (far, slow) = (far.clone(), slow.clone());
        async move { far.acquire(slow).await }
    });
    until("the grant on the server", || async { near.inspect(resource()).await.unwrap().last_token }).await;
    let (grant, sent_quick) = take(&near, &quick).await;
    let holder = believes(&quick, &grant, sent_quick, SystemClock.read()).unwrap();
    note(&mut events, "quick", quick.lease_id, granted(&holder, sent_quick, quick.ttl));
    scene.proxy.set(Direction::ToClient, Passage::Open);
    let Acquired::Granted(grant) = asked.await.unwrap().unwrap() else { panic!("it was granted") };
    let now = SystemClock.read();
    match believes(&slow, &grant, if counts_from_the_answer { now } else { sent }, now) {
        Some(holder) => note(&mut events, "slow", slow.lease_id, granted(&holder, sent, slow.ttl)),
        None => note(&mut events, "slow", slow.lease_id, What::GaveUp),
    }
    History::new(events).judge()
}

/// A renewal whose answer comes when the holder has given the lease up.
async fn late_renewal(comes_back: bool) -> Report {
    let scene = Scene::new();
    let client = client(&scene.afar(), &scene.namespace).await;
    introduce(&client).await;
    // On a machine that is too slow the renewal comes after the end, and proves nothing.
    for _ in 0..20 {
        let (mut events, claim) = (Vec::new(), claim(SHORT));
        let (grant, sent) = take(&client, &claim).await;
        let Some(mut holder) = believes(&claim, &grant, sent, SystemClock.read()) else { continue };
        note(&mut events, "holder", claim.lease_id, granted(&holder, sent, claim.ttl));
        scene.proxy.set(Direction::ToClient, Passage::Stalled);
        let sent = SystemClock.read();
        let mut renewal = holder.begin_renewal(sent);
        renewal.ttl = Ttl::new(LONG).unwrap();
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.renew(vec![renewal]).await }
        });
        until("the close of the window", || {
            let lost = holder.tick(SystemClock.read()).is_some_and(|transition| transition.to.is_final());
            async move { lost.then_some(()) }
        })
        .await;
        note(&mut events, "holder", claim.lease_id, What::Lost { token: grant.token });
        scene.proxy.set(Direction::ToClient, Passage::Open);
        let Ok(Renewed::Extended { ttl }) = asked.await.unwrap().unwrap().remove(0) else { continue };
        let now = SystemClock.read();
        holder.renewal_answered(sent, Renewed::Extended { ttl }, now, 0);
        if comes_back {
            // It is the answer that counts, whatever became of the window meanwhile.
            holder = believes(&claim, &Grant { ttl, ..grant.clone() }, sent, now).unwrap();
        }
        if holder.state().may_work() {
            extended(&mut events, &claim, &holder, grant.token, sent);
        }
        return History::new(events).judge();
    }
    panic!("the machine is too slow to renew within {SHORT:?}")
}

fn extended(events: &mut Vec<Event>, claim: &Claim, holder: &Holder, token: Token, sent: Reading) {
    let close_ns = holder.window().closes().boot_ns;
    let what = What::Extended { token, sent_ns: Some(sent.boot_ns), close_ns };
    note(events, "holder", claim.lease_id, what);
}

pub(crate) fn caught() -> Vec<(Mutant, Caught)> {
    let on = crate::strict::On::new();
    let (right, wrong) = (on.0.block_on(late_answer(false)), on.0.block_on(late_answer(true)));
    let from_reply = scene::caught(&right, &wrong, &["S1", "S4"]);
    let (right, wrong) = (on.0.block_on(late_renewal(false)), on.0.block_on(late_renewal(true)));
    let resurrected = scene::caught(&right, &wrong, &["S5"]);
    vec![
        (Mutant::MeasureFromReply, Caught::on("redis", from_reply)),
        (Mutant::Resurrect, Caught::on("redis", resurrected)),
    ]
}
