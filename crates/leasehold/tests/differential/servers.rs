//! Engines on real servers. One server for each, a namespace for each script.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Namespace, Ttl,
    address::Address,
    clock::{Clock as _, ManualClock, SystemClock},
    coordinator::{etcd, postgres, redis, redlock},
};
use leasehold_core::{Coordinator, request::Preparation, slot::Now, window::Reading};
use leasehold_testkit::{
    random,
    server::{Etcd, Postgres, Redis, RedisSetup},
    sim::{
        Kindred, Whole,
        engine::{FakeEngine as _, Reply, Request, Setup, SlotEngine},
    },
};
use proptest::prelude::*;

use crate::{
    loose::{self, Detail, Model},
    replay::scripts,
    script::Scope,
    strict::{On, Pair, SETUP},
};

/// On engines behind a network, where the namespace does not say otherwise.
const MAX_TTL: Duration = Duration::from_secs(60);
/// Nothing expires while a script runs, and nothing has to.
const STILL: Scope = Scope { ttl_ms: (45_000, 60_000), time: false, full: false };

fn setup() -> Setup {
    Setup { max_ttl: Ttl::new(MAX_TTL).unwrap(), ..SETUP }
}

/// A place that is asked for again within five seconds is not written again; and what was found is kept also by a refused claim.
pub(crate) fn of_postgres(setup: Setup) -> Setup {
    Setup { refreshes_after: Duration::from_secs(5), refused_claims_tell: true, ..setup }
}

fn parsed(url: &str) -> Address {
    let (scheme, rest) = url.split_once(':').unwrap();
    Address::parse(scheme, rest).unwrap()
}

/// Makes the namespace, ready to grant.
async fn ready(coordinator: Arc<dyn Coordinator>) -> Arc<dyn Coordinator> {
    coordinator.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    coordinator
}

fn on_redis(on: &On, url: &str) -> Arc<dyn Coordinator> {
    let options = redis::Options::read(&parsed(url)).unwrap();
    on.0.block_on(async { ready(redis::connect(options, random::namespace()).await.unwrap()).await })
}

fn on_postgres(on: &On, url: &str) -> Arc<dyn Coordinator> {
    let options = postgres::Options::read(&parsed(url)).unwrap();
    on.0.block_on(async { ready(postgres::connect(options, random::namespace()).await.unwrap()).await })
}

fn wall(reading: Reading) -> Now {
    Now { clock_us: reading.real_ns / 1_000, unix_us: reading.real_ns / 1_000 }
}

#[test]
fn redis_answers_as_the_simulators_engine_does() {
    let server = RedisSetup::new().with_clock().start().unwrap();
    let (on, clock) = (On::new(), ManualClock::from_system());
    let tell = |reading: Reading| {
        server.clock().stand(reading.real_ns).unwrap();
        wall(reading)
    };
    // Three times the life of a place; its keys then vanish by themselves.
    let setup = Setup { lines_vanish_after: Some(leasehold_core::line::ENTRY_LIFE * 3), ..setup() };
    scripts(60, &prop::collection::vec(Scope::FULL.step(), 0..40), |steps| {
        tell(clock.read());
        let coordinator = on_redis(&on, &server.url());
        Pair { coordinator, clock: &clock, tell: &tell, setup, runtime: &on }.difference(steps)
    });
}

#[test]
fn postgres_answers_as_the_simulators_engine_does() {
    let server = Postgres::start_with_clock().unwrap();
    let url = server.url(&server.database().unwrap());
    let (on, clock) = (On::new(), ManualClock::from_system());
    let tell = |reading: Reading| {
        server.clock().stand(reading.real_ns).unwrap();
        wall(reading)
    };
    let setup = of_postgres(setup());
    scripts(40, &prop::collection::vec(Scope::FULL.step(), 0..40), |steps| {
        tell(clock.read());
        let coordinator = on_postgres(&on, &url);
        Pair { coordinator, clock: &clock, tell: &tell, setup, runtime: &on }.difference(steps)
    });
    // It ends as it began.
    server.clock().stand(0).unwrap();
}

/// The simulator's protocol, at moments so close together that nothing is over.
struct AtOnce {
    whole: Whole,
    now: Now,
}

impl Model for AtOnce {
    fn unix_us(&self) -> u64 {
        self.now.unix_us
    }

    fn answer(&mut self, request: &Request, _accepts: &dyn Fn(&Reply) -> bool) -> Reply {
        self.now = Now { clock_us: self.now.clock_us + 1_000, unix_us: self.now.unix_us + 1_000 };
        self.whole.ask(self.now, request)
    }
}

#[test]
fn observed_expiry_answers_as_the_simulators_protocol_does() {
    let server = Postgres::start().unwrap();
    let url = format!("{}?expiry=observed", server.url(&server.database().unwrap()));
    let on = On::new();
    scripts(40, &prop::collection::vec(STILL.step(), 0..40), |steps| {
        let coordinator = on_postgres(&on, &url);
        let whole = Whole::new(Kindred::Observed, setup());
        let mut model = AtOnce { whole, now: wall(SystemClock.read()) };
        loose::difference(&*coordinator, &on, &mut model, steps, Detail::Outcomes)
    });
}

#[test]
fn redlock_answers_as_the_simulators_protocol_does() {
    let nodes: Vec<Redis> = (0..3).map(|_| RedisSetup::new().with_clock().start().unwrap()).collect();
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://{}", hosts.join(","));
    let on = On::new();
    // How far the nodes' clocks are behind this machine's: none takes a token that is proposed too far ahead of its own.
    let behind_ms = prop_oneof![Just(0u64), Just(60_000)];
    let script = (prop::collection::vec(STILL.step(), 0..40), behind_ms, [0u64..300, 0..300, 0..300]);
    scripts(40, &script, |(steps, behind_ms, ahead_ms)| {
        let now = wall(SystemClock.read());
        for (node, ahead_ms) in nodes.iter().zip(ahead_ms) {
            node.clock().stand((now.unix_us + ahead_ms * 1_000 - behind_ms * 1_000) * 1_000).unwrap();
        }
        let coordinator = on.0.block_on(async {
            let options = redlock::Options::read(&parsed(&url)).unwrap();
            ready(redlock::connect(options, random::namespace()).await.unwrap()).await
        });
        let mut model = AtOnce { whole: Whole::new(Kindred::Quorum(3), setup()), now };
        loose::difference(&*coordinator, &on, &mut model, steps, Detail::Outcomes)
    });
}

/// The contract, at a moment that may have passed as far as reservations are concerned.
struct Contract {
    engine: SlotEngine,
    now: Now,
}

impl Model for Contract {
    fn unix_us(&self) -> u64 {
        self.now.unix_us
    }

    fn answer(&mut self, request: &Request, accepts: &dyn Fn(&Reply) -> bool) -> Reply {
        let mut usual = None;
        for passed in [Duration::ZERO, leasehold_core::line::RESERVATION, leasehold_core::line::FORSAKEN] {
            let us = u64::try_from(passed.as_micros()).unwrap();
            let now = Now { clock_us: self.now.clock_us + us, unix_us: self.now.unix_us };
            let mut engine = self.engine.clone();
            let reply = engine.handle(now, request).reply;
            if accepts(&reply) {
                self.engine = engine;
                return reply;
            }
            usual.get_or_insert(reply);
        }
        usual.unwrap()
    }
}

#[test]
fn etcd_answers_as_the_contract_does() {
    let server = Etcd::start(1).unwrap();
    let url = format!("etcd://{}", server.hosts());
    let on = On::new();
    let scope = Scope { full: true, ..STILL };
    scripts(40, &prop::collection::vec(scope.step(), 0..30), |steps| {
        let coordinator = on.0.block_on(async {
            let options = etcd::Options::read(&parsed(&url)).unwrap();
            let namespace: Namespace = random::namespace();
            ready(etcd::connect(options, namespace).await.unwrap()).await
        });
        let mut model = Contract { engine: SlotEngine::new(setup()), now: wall(SystemClock.read()) };
        loose::difference(&*coordinator, &on, &mut model, steps, Detail::Reasons)
    });
}
