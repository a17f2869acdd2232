//! What a deployment is like: each node by itself, and all of them together. Nothing is changed.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{Error, Namespace, Ttl, quorum::Quorum};

use super::{
    join,
    member::{Member, named},
    options::Options,
};
use crate::{
    address::Host,
    clock,
    coordinator::{
        mailbox::Mailbox,
        redis::{self as single, facts::Facts},
    },
    doctor::{Finding, Verdict},
};

/// How far the nodes' clocks may be apart without being mentioned (ours: beyond it claims need their second round trip).
const APART_NOTED: Duration = Duration::from_millis(200);

/// What is known of one node besides its own findings.
struct Seen {
    host: Host,
    facts: Facts,
    /// Its clock less this machine's, µs.
    offset_us: i64,
    max_ttl: Option<Ttl>,
}

/// Examines the nodes that the URL names.
///
/// # Errors
/// What cannot be read of the files that the URL names. A node that cannot be reached is a finding.
pub async fn examine(options: Options, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    let circle = join::circle(&options, namespace.clone(), &Arc::new(Mailbox::default()))?;
    let looks = circle.members.iter().map(|member| look(member));
    let nodes = options.hosts.iter().map(|host| single::examine(options.of_one(host), namespace));
    let (seen, nodes) = futures_util::future::join(join_all(looks), join_all(nodes)).await;
    let mut findings = Vec::new();
    for (host, node) in options.hosts.iter().zip(nodes) {
        let own = node.unwrap_or_else(|error| vec![unreachable(&error)]);
        findings.extend(
            own.into_iter().map(|finding| Finding { fact: format!("{host}: {}", finding.fact), ..finding }),
        );
    }
    findings.extend(together(options.quorum, &seen.into_iter().flatten().collect::<Vec<_>>()));
    Ok(findings)
}

fn unreachable(error: &Error) -> Finding {
    let fact = format!("the node cannot be examined: {}", error.what());
    Finding::new(
        Verdict::Warning,
        "node",
        "availability",
        fact,
        "see whether the server runs and can be reached from here",
    )
}

/// Looks at one node; `None` when it cannot be reached.
async fn look(member: &Member) -> Option<Seen> {
    let facts = member.facts().await.map_err(|failure| named(&failure.error, &member.host)).ok()?;
    let before = clock::unix_us();
    let (theirs, max_ttl) = member.clock_and_bound().await.ok()?;
    let middle = before.midpoint(clock::unix_us());
    let apart = i64::try_from(theirs.abs_diff(middle)).unwrap_or(i64::MAX);
    let offset_us = if theirs >= middle { apart } else { -apart };
    Some(Seen { host: member.host.clone(), facts, offset_us, max_ttl })
}

/// What can be said of all nodes together.
fn together(quorum: Quorum, seen: &[Seen]) -> Vec<Finding> {
    let mut findings = vec![reached(quorum, seen), clocks(seen), bounds(seen)];
    findings.extend(doubles(seen));
    findings.extend(replication(seen));
    findings
}

fn reached(quorum: Quorum, seen: &[Seen]) -> Finding {
    let (nodes, majority, count) = (quorum.nodes(), quorum.majority(), seen.len());
    let fact = format!("{count} of {nodes} nodes can be reached, and {majority} decide");
    let cure = "start the missing nodes, or see to the network";
    match count {
        _ if count == nodes => Finding::fine("quorum", "availability", fact),
        _ if count < majority => Finding::new(Verdict::Fault, "quorum", "availability", fact, cure),
        _ => Finding::new(Verdict::Warning, "quorum", "availability", fact, cure),
    }
}

fn clocks(seen: &[Seen]) -> Finding {
    let (first, last) =
        (seen.iter().min_by_key(|node| node.offset_us), seen.iter().max_by_key(|node| node.offset_us));
    let (Some(first), Some(last)) = (first, last) else {
        return Finding::new(
            Verdict::Note,
            "clocks",
            "windows",
            "no node tells the time",
            "see whether any can be reached",
        );
    };
    let apart = Duration::from_micros(last.offset_us.abs_diff(first.offset_us));
    let fact = format!("the nodes' clocks are {apart:?} apart");
    if apart <= APART_NOTED {
        return Finding::fine("clocks", "windows", fact);
    }
    Finding::new(
        Verdict::Note,
        "clocks",
        "windows",
        format!(
            "{fact} ({} is ahead of {}): nothing breaks, but a grant then takes two round trips, and a clock that is put right by \
             a step ends leases on its node",
            last.host, first.host
        ),
        "let all nodes be kept by NTP, which slews and does not step",
    )
}

fn bounds(seen: &[Seen]) -> Finding {
    let mut known: Vec<Ttl> = seen.iter().filter_map(|node| node.max_ttl).collect();
    known.sort_unstable();
    known.dedup();
    match known.as_slice() {
        [] => Finding::new(
            Verdict::Note,
            "namespace",
            "availability",
            "no node knows the namespace: its first use pauses for the longest TTL",
            "run `leasehold init --fresh` if nobody can hold a lease there",
        ),
        [all] => Finding::fine(
            "namespace",
            "quarantine",
            format!("the longest TTL is {all} on all nodes that know it"),
        ),
        [.., longest] => Finding::new(
            Verdict::Warning,
            "namespace",
            "availability",
            "the nodes do not agree about the longest TTL: those that differ take no part",
            format!("run `leasehold init --max-ttl {longest}` while all nodes can be reached"),
        ),
    }
}

/// One server under two names.
fn doubles(seen: &[Seen]) -> Vec<Finding> {
    let run = |node: &Seen| node.facts.info("run_id").unwrap_or_default().to_owned();
    let mut findings = Vec::new();
    for (at, node) in seen.iter().enumerate() {
        if let Some(twin) = seen[..at].iter().find(|twin| !run(twin).is_empty() && run(twin) == run(node)) {
            findings.push(Finding::new(
                Verdict::Fault,
                "nodes",
                "windows",
                format!(
                    "{} and {} are one server: a majority of names is none of servers",
                    twin.host, node.host
                ),
                "name servers that are independent of one another, each once",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine("nodes", "windows", "every name leads to a server of its own"));
    }
    findings
}

/// Nodes that follow one another, or fail over.
fn replication(seen: &[Seen]) -> Vec<Finding> {
    let cure = "stop the replication (REPLICAOF NO ONE): each node must forget or remember by itself";
    let mut findings = Vec::new();
    for node in seen {
        let fact = match (node.facts.is_replica(), node.facts.replicas()) {
            (true, _) => {
                let (host, port) = (node.facts.info("master_host"), node.facts.info("master_port"));
                let master = format!("{}:{}", host.unwrap_or("another"), port.unwrap_or("?"));
                (Verdict::Fault, format!("{} is a replica of {master} and takes no part", node.host))
            }
            (false, 1..) => {
                let fact =
                    format!("{} has replicas: a failover may make it forget what it granted", node.host);
                (Verdict::Warning, fact)
            }
            _ => continue,
        };
        findings.push(Finding::new(fact.0, "independence", "windows", fact.1, cure));
    }
    if findings.is_empty() {
        findings.push(Finding::fine("independence", "windows", "no node replicates another"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, info: &str, offset_us: i64, max_ms: Option<u64>) -> Seen {
        let host = Host { name: name.to_owned(), port: Some(1) };
        let max_ttl = max_ms.map(|ms| Ttl::from_millis(ms).unwrap());
        Seen { host, facts: Facts::from_text(info, None), offset_us, max_ttl }
    }

    fn verdict(subject: &str, seen: &[Seen]) -> Verdict {
        let findings = together(Quorum::of(3).unwrap(), seen);
        for finding in &findings {
            assert_eq!(finding.cure.is_some(), finding.verdict != Verdict::Fine, "{finding:?}");
        }
        findings.into_iter().find(|finding| finding.subject == subject).unwrap().verdict
    }

    #[test]
    fn good_nodes_have_nothing_to_cure_together() {
        let seen = ["a", "b", "c"].map(|name| node(name, &format!("run_id:{name}"), 10, Some(60_000)));
        let findings = together(Quorum::of(3).unwrap(), &seen);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Fine), "{findings:?}");
    }

    #[test]
    fn each_fault_is_found() {
        let twins = [node("a", "run_id:1", 0, None), node("b", "run_id:1", 0, None)];
        assert_eq!(verdict("nodes", &twins), Verdict::Fault);
        assert_eq!(verdict("quorum", &twins), Verdict::Warning);
        assert_eq!(verdict("namespace", &twins), Verdict::Note);
        assert_eq!(verdict("quorum", &twins[..1]), Verdict::Fault);
        let replica = [node("a", "role:slave\r\nmaster_host:b\r\nmaster_port:1", 0, None)];
        assert_eq!(verdict("independence", &replica), Verdict::Fault);
        let with_replica = [node("a", "run_id:1\r\nconnected_slaves:1", 0, None)];
        assert_eq!(verdict("independence", &with_replica), Verdict::Warning);
        let apart =
            [node("a", "run_id:1", -400_000, Some(1_000)), node("b", "run_id:2", 400_000, Some(2_000))];
        assert_eq!(
            (verdict("clocks", &apart), verdict("namespace", &apart)),
            (Verdict::Note, Verdict::Warning)
        );
    }
}
