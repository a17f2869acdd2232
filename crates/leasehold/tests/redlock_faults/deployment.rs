//! Deployments that are not what they should be.

use leasehold::{
    address::Address,
    coordinator::redlock::{Options, examine},
    doctor::{Finding, Verdict},
};
use leasehold_core::{Kind, request::Preparation};
use leasehold_testkit::server::RedisSetup;

use super::world::{namespace, open, ready, servers, url_of};

#[tokio::test]
async fn one_server_under_two_names_is_refused() {
    let nodes = servers(3, &RedisSetup::new());
    let port = nodes[0].address().port();
    let url = format!("redlock://{},localhost:{port},{}", nodes[0].address(), nodes[1].address());
    let error = open(&url).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("are one server"), "{error}");
}

#[tokio::test]
async fn a_node_that_evicts_takes_no_part_and_a_majority_of_them_is_refused() {
    let mut nodes = servers(2, &RedisSetup::new());
    let evicting = RedisSetup::new().with("maxmemory", "100mb").with("maxmemory-policy", "allkeys-lru");
    nodes.extend(servers(1, &evicting));
    assert!(open(&url_of(&nodes)).await.is_ok(), "two of three are enough");
    nodes.extend(servers(2, &evicting));
    let error = open(&url_of(&nodes)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_node_that_knows_the_namespace_forbids_to_make_it_fresh() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    // A majority has lost its memory: nobody can vouch that nothing is held.
    nodes[0].crash().unwrap();
    nodes[1].crash().unwrap();
    let mut told = None;
    super::world::eventually("an answer", async || {
        told = client.prepare(Preparation { fresh: true, max_ttl: None }).await.err();
        told.as_ref().is_some_and(|error| !error.is_transient())
    })
    .await;
    assert_eq!(told.map(|error| error.kind()), Some(Kind::Invalid));
}

async fn examined(url: &str) -> Vec<Finding> {
    let (scheme, rest) = url.split_once(':').unwrap();
    examine(Options::read(&Address::parse(scheme, rest).unwrap()).unwrap(), &namespace()).await.unwrap()
}

fn verdict(findings: &[Finding], subject: &str) -> Verdict {
    findings.iter().filter(|finding| finding.subject == subject).map(|finding| finding.verdict).max().unwrap()
}

#[tokio::test]
async fn an_examination_finds_what_is_wrong_with_the_nodes_together() {
    let nodes = servers(3, &RedisSetup::new().durable());
    drop(ready(&url_of(&nodes)).await);
    let good = examined(&url_of(&nodes)).await;
    for subject in ["quorum", "clocks", "namespace", "nodes", "independence", "persistence"] {
        assert_eq!(verdict(&good, subject), Verdict::Fine, "{subject}: {good:?}");
    }
    // A replica, a node under two names, and one that is gone.
    nodes[1].follow(nodes[0].address()).unwrap();
    let found = examined(&url_of(&nodes)).await;
    assert_eq!(verdict(&found, "independence"), Verdict::Fault, "{found:?}");
    nodes[1].promote().unwrap();
    nodes[2].server().kill().unwrap();
    let found = examined(&url_of(&nodes)).await;
    assert_eq!(verdict(&found, "quorum"), Verdict::Warning, "{found:?}");
    let port = nodes[0].address().port();
    let twice = format!("redlock://{},localhost:{port},{}", nodes[0].address(), nodes[1].address());
    let found = examined(&twice).await;
    assert_eq!(verdict(&found, "nodes"), Verdict::Fault, "{found:?}");
    assert!(
        found.iter().all(|finding| finding.cure.is_some() == (finding.verdict != Verdict::Fine)),
        "{found:?}"
    );
}
