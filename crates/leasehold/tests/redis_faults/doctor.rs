//! Real deployments, examined.

use leasehold::{
    address::Address,
    coordinator::redis::{Options, examine},
    doctor::{Finding, Verdict},
};
use leasehold_testkit::server::{RedisCluster, RedisSetup, redis_pair};

use super::world::namespace;

async fn examined(url: &str) -> Vec<Finding> {
    let (scheme, rest) = url.split_once(':').unwrap();
    let options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
    let findings = examine(options, &namespace()).await.unwrap();
    for finding in &findings {
        assert_eq!(finding.cure.is_some(), finding.verdict != Verdict::Fine, "{finding:?}");
    }
    findings
}

fn verdict(findings: &[Finding], subject: &str) -> Verdict {
    findings.iter().find(|finding| finding.subject == subject).unwrap().verdict
}

#[tokio::test]
async fn a_durable_server_that_evicts_nothing_is_fine() {
    let server = RedisSetup::new().durable().with("maxmemory", "500mb").start().unwrap();
    let findings = examined(&server.url()).await;
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Fine), "{findings:?}");
    let subjects = [
        "version",
        "role",
        "persistence",
        "maxmemory-policy",
        "memory",
        "replication",
        "clock",
        "transport",
        "permissions",
    ];
    assert!(subjects.iter().all(|subject| findings.iter().any(|finding| finding.subject == *subject)));
    assert_eq!(server.ask(&["DBSIZE"]).unwrap().text(), "0", "looking changes nothing");
}

#[tokio::test]
async fn eviction_and_missing_persistence_are_found_with_their_cures() {
    let server =
        RedisSetup::new().with("maxmemory", "50mb").with("maxmemory-policy", "allkeys-lru").start().unwrap();
    let findings = examined(&server.url()).await;
    assert_eq!(verdict(&findings, "maxmemory-policy"), Verdict::Fault);
    assert_eq!(verdict(&findings, "persistence"), Verdict::Warning);
}

#[tokio::test]
async fn a_replica_and_a_master_that_never_stops_are_found() {
    let (master, replica) = redis_pair().unwrap();
    assert_eq!(verdict(&examined(&replica.url()).await, "role"), Verdict::Fault);
    assert_eq!(verdict(&examined(&master.url()).await, "replication"), Verdict::Warning);
    master.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    master.ask(&["CONFIG", "SET", "min-replicas-max-lag", "10"]).unwrap();
    assert_eq!(verdict(&examined(&master.url()).await, "replication"), Verdict::Fine);
}

/// By three hundredths: leases end before the windows of their holders.
#[tokio::test]
async fn a_clock_that_runs_fast_is_found() {
    let server = RedisSetup::new().with_clock().start().unwrap();
    assert!(verdict(&examined(&server.url()).await, "clock rate") < Verdict::Warning);
    server.clock().gain(30_000).unwrap();
    assert_eq!(verdict(&examined(&server.url()).await, "clock rate"), Verdict::Fault);
    server.clock().gain(-30_000).unwrap();
    assert_eq!(verdict(&examined(&server.url()).await, "clock rate"), Verdict::Note);
}

#[tokio::test]
async fn a_clock_far_away_and_a_user_without_permissions_are_found() {
    let server = RedisSetup::new().with_clock().start().unwrap();
    server.clock().forward(std::time::Duration::from_secs(100)).unwrap();
    assert_eq!(verdict(&examined(&server.url()).await, "clock"), Verdict::Note);
    let user = |name: &str, rules: &str| {
        let mut words = vec!["ACL", "SETUSER", name, "on", ">secret"];
        words.extend(rules.split(' '));
        server.ask(&words).unwrap();
        format!("redis://{name}:secret@{}", server.address())
    };
    let reader = user("reader", "~lh:* &lh:* +@all -set");
    assert_eq!(verdict(&examined(&reader).await, "permissions"), Verdict::Fault);
    let silent = user("silent", "~lh:* +@all");
    assert_eq!(verdict(&examined(&silent).await, "permissions"), Verdict::Fault, "no channel");
    let plain = user("plain", "~lh:* &lh:* +@all -config -acl");
    let findings = examined(&plain).await;
    assert_eq!(verdict(&findings, "permissions"), Verdict::Fine);
    assert_eq!(verdict(&findings, "persistence"), Verdict::Warning);
}

#[tokio::test]
async fn every_master_of_a_cluster_is_examined() {
    let cluster = RedisCluster::start(false).unwrap();
    let findings = examined(&cluster.url()).await;
    assert_eq!(findings.iter().filter(|finding| finding.subject == "version").count(), 3);
}
