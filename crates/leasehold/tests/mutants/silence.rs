//! A client that takes silence for a refusal, in front of a real Redis whose answers are lost.

use std::{pin::Pin, sync::Arc};

use leasehold_core::{
    Call, Coordinator, Kind, Namespace, Resource,
    profile::{Capabilities, Profile},
    record::{Acquired, Inspection, Page, Prepared, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Release, Renewal, Revocation},
};
use leasehold_testkit::{
    reference::Loss,
    server::{Redis, RedisSetup},
    sim::Mutant,
    suite::{CASES, Case, Cell, Connecting, Engine, Hook, judge},
};

use crate::{
    CAN, Caught,
    lossy::{Lossy, Way},
    scene::client,
};

/// Says "it had no effect" where nobody knows.
#[derive(Debug)]
struct Certain(Arc<dyn Coordinator>);

impl Coordinator for Certain {
    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(async move {
            self.0.acquire(claim).await.map_err(|error| match error.kind() {
                Kind::Unknown => leasehold_core::Error::new(Kind::Unavailable, "no answer"),
                _ => error,
            })
        })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, leasehold_core::Error>>> {
        self.0.renew(renewals)
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        self.0.release(release)
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        self.0.revoke(revocation)
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        self.0.inspect(resource)
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        self.0.list(listing)
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        self.0.prepare(preparation)
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        self.0.next_wake()
    }
}

struct OnRedis {
    server: Redis,
    certain: bool,
}

impl Engine for OnRedis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move { Ok(client(&self.server.url(), namespace).await) })
    }

    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let way = Way::new(self.server.address());
            let afar = client(&format!("redis://{}", way.address()), namespace).await;
            let lossy = Lossy::on(afar, way, loss).await;
            Ok(if self.certain { Arc::new(Certain(lossy)) } else { lossy })
        }))
    }
}

fn failed(certain: bool) -> Vec<&'static str> {
    let engine: Arc<dyn Engine> = Arc::new(OnRedis { server: RedisSetup::new().start().unwrap(), certain });
    let cases: Vec<&'static Case> = CASES.iter().filter(|case| case.name.starts_with("clause_07")).collect();
    let matrix = judge(&engine, &cases).unwrap();
    let failed = |case: &&&Case| matches!(matrix.get(engine.name(), case.name), Some(Cell::Failed(_)));
    cases.iter().filter(failed).map(|case| case.name).collect()
}

pub(crate) fn caught() -> Vec<(Mutant, Caught)> {
    assert_eq!(failed(false), Vec::<&str>::new(), "without the fault");
    vec![(Mutant::CancelIsFailure, Caught::on("redis", failed(true)))]
}
