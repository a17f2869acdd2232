//! A majority of real Redis servers whose highest token is taken as it is: the clock of one server is ahead, and the next majority
//! is without it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use leasehold::{
    address::Address,
    clock::{Clock as _, SystemClock},
    coordinator::redlock,
};
use leasehold_core::{
    Coordinator, Namespace, Token,
    record::Acquired,
    request::{Claim, Preparation, Release},
    window::Reading,
};
use leasehold_testkit::{
    check::{Event, History, Report, What},
    random,
    server::{Proxy, Redis, RedisSetup},
    sim::Mutant,
};

use crate::{
    Caught,
    scene::{self, Client, claim, client, note, until},
};

const TTL: Duration = Duration::from_secs(30);
/// More than a claimant proposes ahead, and than servers take.
const AHEAD: Duration = Duration::from_secs(5);

/// Three servers, and the ways to them.
struct Nodes {
    nodes: Vec<(Redis, Proxy)>,
    namespace: Namespace,
}

impl Nodes {
    fn new() -> Self {
        let node = |_| {
            let server = RedisSetup::new().with_clock().start().unwrap();
            let proxy = Proxy::start(server.address()).unwrap();
            (server, proxy)
        };
        let nodes = Self { nodes: (0..3).map(node).collect(), namespace: random::namespace() };
        nodes.nodes[2].0.clock().forward(AHEAD).unwrap();
        nodes
    }

    fn without(&self, away: usize) {
        for (at, (_, proxy)) in self.nodes.iter().enumerate() {
            proxy.refuse(at == away);
            if at == away {
                proxy.cut();
            }
        }
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|(_, proxy)| proxy.address())
    }
}

/// Who grants: a claim to its token, when a majority is there.
enum Way {
    /// Each server by itself, and the highest of their tokens.
    OnePhase(Vec<Client>),
    Ours(Arc<dyn Coordinator>),
}

impl Way {
    async fn one_phase(nodes: &Nodes) -> Self {
        let mut clients = Vec::new();
        for address in nodes.addresses() {
            clients.push(client(&format!("redis://{address}"), &nodes.namespace).await);
        }
        Self::OnePhase(clients)
    }

    async fn ours(nodes: &Nodes) -> Self {
        let hosts: Vec<String> = nodes.addresses().map(|address| address.to_string()).collect();
        let address = Address::parse("redlock", &format!("//{}", hosts.join(","))).unwrap();
        let options = redlock::Options::read(&address).unwrap();
        let client = redlock::connect(options, nodes.namespace.clone()).await.unwrap();
        client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
        Self::Ours(client)
    }

    async fn acquire(&self, claim: &Claim) -> Option<Token> {
        let granted = |answer| match answer {
            Ok(Acquired::Granted(grant)) => Some(grant.token),
            _ => None,
        };
        match self {
            Self::Ours(client) => granted(client.acquire(claim.clone()).await),
            Self::OnePhase(clients) => {
                let mut tokens = Vec::new();
                for client in clients {
                    tokens.extend(granted(client.acquire(claim.clone()).await));
                }
                tokens.iter().max().copied().filter(|_| tokens.len() >= 2)
            }
        }
    }

    async fn release(&self, claim: &Claim) {
        let release = Release {
            resource: claim.resource.clone(),
            lease_id: claim.lease_id,
            token: None,
            succeeded: false,
        };
        let clients = match self {
            Self::Ours(client) => std::slice::from_ref(client),
            Self::OnePhase(clients) => clients,
        };
        for client in clients {
            // A server that is away has nothing to end.
            let _ = client.release(release.clone()).await;
        }
    }
}

async fn hold(way: &Way, events: &mut Vec<Event>, who: &str) {
    let claim = claim(TTL);
    let (token, sent) = until("a majority", || async {
        let sent: Reading = SystemClock.read();
        way.acquire(&claim).await.map(|token| (token, sent))
    })
    .await;
    let open_ns = SystemClock.read().boot_ns;
    let close_ns = sent.boot_ns + u64::try_from(TTL.as_nanos()).unwrap() * 9 / 10;
    let what = What::Granted { token, sent_ns: Some(sent.boot_ns), open_ns, close_ns, ttl_ms: None };
    note(events, who, claim.lease_id, what);
    note(events, who, claim.lease_id, What::Released { token });
    way.release(&claim).await;
}

/// Two grants, one after the other, each by another majority.
async fn two_majorities(nodes: &Nodes, way: &Way) -> Report {
    let mut events = Vec::new();
    nodes.without(1);
    hold(way, &mut events, "first").await;
    nodes.without(2);
    hold(way, &mut events, "second").await;
    History::new(events).judge()
}

pub(crate) fn caught() -> Vec<(Mutant, Caught)> {
    let on = crate::strict::On::new();
    let (right, wrong) = on.0.block_on(async {
        let nodes = Nodes::new();
        let right = two_majorities(&nodes, &Way::ours(&nodes).await).await;
        let nodes = Nodes::new();
        let wrong = two_majorities(&nodes, &Way::one_phase(&nodes).await).await;
        (right, wrong)
    });
    vec![(Mutant::RedlockOnePhase, Caught::on("redis × 3", scene::caught(&right, &wrong, &["S2"])))]
}
