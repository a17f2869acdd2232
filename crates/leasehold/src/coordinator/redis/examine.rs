//! What a deployment is like, fact by fact: read, judged, and with its cure. Nothing is changed.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Error, Namespace};
use redis::Value;
use tokio::time::timeout;

use super::{
    Servers, accept_version, answer,
    dial::CONNECT_LIMIT,
    facts::Facts,
    failure::{Failure, Turn},
    node::Node,
    op::Op,
    options::{Options, Shape},
    reach,
    space::DEFAULT_MAX_TTL,
};
use crate::{
    clock,
    doctor::{Finding, Verdict, rate},
};

/// Memory that is left, as a share of the bound, below which new leases may soon be refused (ours).
const HEADROOM_PERCENT: u64 = 10;
/// A difference between the clocks that people will stumble over when they compare dates (ours). It decides nothing.
const OFFSET_NOTED: Duration = Duration::from_secs(1);

/// Examines what the URL leads to.
///
/// # Errors
/// As [`super::connect`] when it cannot be reached at all; what is refused there for its settings is a finding here.
pub async fn examine(options: Options, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    let place = options.place.clone();
    let limited = timeout(CONNECT_LIMIT * 2, look(&options, namespace)).await;
    let late = || Err(Failure::unsent("the server did not answer in time"));
    limited.unwrap_or_else(|_| late()).map_err(|failure| failure.error.without_effect().at(&place))
}

async fn look(options: &Options, namespace: &Namespace) -> Result<Vec<Finding>, Failure> {
    let (desk, _) = reach(options, namespace).await?;
    let nodes = match &desk.servers {
        Servers::One(node) => vec![node.clone()],
        Servers::Cluster(cluster) => cluster.masters().await?,
    };
    // The clocks of all nodes are measured at the same time, which takes a second.
    let rates = join_all(nodes.iter().map(clock_rate)).await;
    let mut findings = Vec::new();
    for (node, rate) in nodes.iter().zip(rates) {
        let facts = Facts::of(node).await?;
        let mut of_node = judge(options, &facts);
        of_node.push(offset(node).await?);
        of_node.push(rate?);
        if nodes.len() > 1 {
            let name = node.leads_to().borrow().as_ref().map(ToString::to_string).unwrap_or_default();
            for finding in &mut of_node {
                finding.fact = format!("{name}: {}", finding.fact);
            }
        }
        findings.extend(of_node);
    }
    findings.push(transport(options));
    findings.push(permissions(&desk).await);
    Ok(findings)
}

/// Everything that the server's own words tell.
fn judge(options: &Options, facts: &Facts) -> Vec<Finding> {
    vec![
        version(facts),
        role(facts),
        persistence(facts),
        eviction(facts),
        headroom(facts),
        replication(options, facts),
    ]
}

fn version(facts: &Facts) -> Finding {
    let said = facts.info("redis_version").unwrap_or("unknown");
    let valkey =
        facts.info("valkey_version").map(|version| format!(" (Valkey {version})")).unwrap_or_default();
    let fact = format!("the server says that it is version {said}{valkey}");
    match accept_version(facts) {
        Ok(()) if facts.version().is_some() => Finding::fine("version", "windows", fact),
        Ok(()) => Finding::new(
            Verdict::Note,
            "version",
            "windows",
            fact,
            "check that it is compatible with Redis 6.2",
        ),
        Err(_) => {
            Finding::new(Verdict::Fault, "version", "windows", fact, "use Redis or Valkey from version 6.2")
        }
    }
}

fn role(facts: &Facts) -> Finding {
    if facts.is_replica() {
        let cure = "name the master in the URL, or let Sentinel name it with ?sentinel=NAME";
        return Finding::new(
            Verdict::Fault,
            "role",
            "windows",
            "the server is a replica and takes no changes",
            cure,
        );
    }
    Finding::fine("role", "windows", format!("a master with {} replicas", facts.replicas()))
}

fn persistence(facts: &Facts) -> Finding {
    let new = |verdict, fact: &str, cure: &'static str| {
        Finding::new(verdict, "persistence", "durability", fact, cure)
    };
    if !facts.has_aof() {
        let saves = facts.setting("save").is_some_and(|save| !save.is_empty());
        let fact = if saves {
            "no AOF; snapshots alone lose the leases since the last one"
        } else {
            "no persistence: a restart ends every lease and pauses new ones for the longest TTL"
        };
        return new(Verdict::Warning, fact, "set appendonly yes, and appendfsync always or everysec");
    }
    match facts.syncs_always() {
        Some(true) => Finding::fine("persistence", "durability", "AOF, synced before every answer"),
        Some(false) => new(
            Verdict::Note,
            "AOF, synced now and then: a power failure may lose the last second, which a pause covers",
            "set appendfsync always where every answered lease must survive a power failure",
        ),
        None => new(
            Verdict::Note,
            "AOF; how often it is synced the server does not tell",
            "permit CONFIG GET to see appendfsync",
        ),
    }
}

fn eviction(facts: &Facts) -> Finding {
    let Some(policy) = facts.policy() else {
        let cure = "check that maxmemory-policy is noeviction";
        return Finding::new(
            Verdict::Note,
            "maxmemory-policy",
            "windows",
            "the server does not tell its policy",
            cure,
        );
    };
    let fact = format!("maxmemory-policy is {policy}");
    match (policy, facts.may_evict()) {
        ("noeviction", _) => Finding::fine("maxmemory-policy", "windows", fact),
        (_, true) => Finding::new(
            Verdict::Fault,
            "maxmemory-policy",
            "windows",
            format!("{fact}: a lease can be thrown away while it is held, and nobody notices"),
            "set maxmemory-policy noeviction, or keep leases on a server of their own",
        ),
        (_, false) => Finding::new(
            Verdict::Note,
            "maxmemory-policy",
            "windows",
            format!("{fact}, which takes effect as soon as maxmemory is set"),
            "set maxmemory-policy noeviction before somebody sets maxmemory",
        ),
    }
}

fn headroom(facts: &Facts) -> Finding {
    let (used, bound) = (facts.figure("used_memory").unwrap_or(0), facts.figure("maxmemory").unwrap_or(0));
    if bound == 0 {
        return Finding::fine("memory", "waiting", format!("{used} bytes used, no bound set"));
    }
    let left = bound.saturating_sub(used).saturating_mul(100) / bound;
    let fact = format!("{used} of {bound} bytes used, {left} % left");
    if left >= HEADROOM_PERCENT {
        return Finding::fine("memory", "waiting", fact);
    }
    Finding::new(
        Verdict::Warning,
        "memory",
        "waiting",
        fact,
        "raise maxmemory: when it is reached no new lease is granted (held ones can still be renewed)",
    )
}

fn replication(options: &Options, facts: &Facts) -> Finding {
    let replicated = facts.replicas() > 0 || !matches!(options.shape, Shape::Single);
    if !replicated {
        return Finding::fine("replication", "windows", "no replicas: no failover, and so no second master");
    }
    let number = |name| facts.setting(name).and_then(|value| value.parse::<u64>().ok());
    let (least, lag) = (number("min-replicas-to-write"), number("min-replicas-max-lag"));
    let max_ttl = options.max_ttl.unwrap_or(DEFAULT_MAX_TTL);
    let bound_s = max_ttl.as_duration().as_secs() / 2;
    let cure = format!(
        "set min-replicas-to-write 1 and min-replicas-max-lag to at most {bound_s}: an old master that is cut off then \
         stops before the new one grants"
    );
    match (least, lag) {
        (Some(1..), Some(lag)) if lag <= bound_s => Finding::fine(
            "replication",
            "windows",
            format!("{} replicas; a master that none follows for {lag} s stops", facts.replicas()),
        ),
        (None, _) if !facts.shows_settings() => Finding::new(
            Verdict::Warning,
            "replication",
            "windows",
            "whether a master that is cut off stops, the server does not tell",
            cure,
        ),
        _ => Finding::new(
            Verdict::Warning,
            "replication",
            "windows",
            "a master that is cut off from its replicas goes on granting: two holders are possible",
            cure,
        ),
    }
}

/// What the server's clock shows, µs since 1970.
async fn unix_us(node: &Node) -> Result<u64, Failure> {
    match redis::from_redis_value::<(u64, u64)>(node.plain(redis::cmd("TIME")).await?) {
        Ok((seconds, micros)) => Ok(seconds.saturating_mul(1_000_000).saturating_add(micros)),
        Err(_) => Err(Failure::unanswered("the server tells no time")),
    }
}

/// How fast the server's clock runs.
async fn clock_rate(node: &Node) -> Result<Finding, Failure> {
    let theirs = async || unix_us(node).await.map(|us| us.saturating_mul(1_000));
    Ok(rate::measure(rate::SPAN, theirs).await?.judged())
}

/// How far the server's clock is from ours, measured around one question.
async fn offset(node: &Node) -> Result<Finding, Failure> {
    let before = clock::unix_us();
    let theirs = unix_us(node).await?;
    let after = clock::unix_us();
    let error = Duration::from_micros(after.saturating_sub(before) / 2 + 1);
    let middle = before.midpoint(after);
    let apart = Duration::from_micros(theirs.abs_diff(middle));
    let sign = if theirs >= middle { "ahead of" } else { "behind" };
    let fact = format!("the server's clock is {apart:?} (± {error:?}) {sign} this machine's");
    if apart <= OFFSET_NOTED + error {
        return Ok(Finding::fine("clock", "windows", fact));
    }
    Ok(Finding::new(
        Verdict::Note,
        "clock",
        "windows",
        format!("{fact}; no lease depends on the difference, but a step of the server's clock ends leases"),
        "let both be kept by NTP, which slews and does not step",
    ))
}

fn transport(options: &Options) -> Finding {
    let local = |name: &str| {
        name.starts_with('/')
            || name == "localhost"
            || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    if options.tls.is_some() {
        return Finding::fine("transport", "credentials", "TLS, the server's certificate is checked");
    }
    if options.hosts.iter().all(|host| local(&host.name)) {
        return Finding::fine("transport", "credentials", "plain text, on this machine");
    }
    Finding::new(
        Verdict::Warning,
        "transport",
        "credentials",
        "plain text over a network: whoever listens can read passwords and end leases",
        "use rediss:// with a server that speaks TLS, or a network that nobody else is on",
    )
}

/// Whether this user may do what leases need, as far as can be tried without changing anything: run a script that reads, and
/// subscribe.
async fn permissions(desk: &super::coordinator::Desk) -> Finding {
    let cure =
        "allow the user the keys lh:*, the channels lh:* and the commands in the documentation (ACL SETUSER)";
    let looked = match desk.step(0, vec![Op::look()]).await {
        Ok(values) => values.into_iter().next().map_or(Ok(()), |value| answer::shown(value).map(drop)),
        Err(failure) => Err(failure.error),
    };
    let dry_run = dry_run(desk).await;
    match (looked, dry_run) {
        (Err(error), _) => Finding::new(
            Verdict::Fault,
            "permissions",
            "windows",
            format!("the script was refused: {}", error.what()),
            cure,
        ),
        (Ok(()), Some(refused)) => Finding::new(Verdict::Fault, "permissions", "windows", refused, cure),
        (Ok(()), None) => Finding::fine("permissions", "windows", "the user may do what leases need"),
    }
}

/// Asks whether writing and publishing would be permitted. `None` when they would, or when the question itself is not permitted.
async fn dry_run(desk: &super::coordinator::Desk) -> Option<String> {
    let Servers::One(node) = &desk.servers else { return None };
    let Ok(Value::BulkString(user)) = node.plain(words(&["ACL", "WHOAMI"])).await else { return None };
    let user = String::from_utf8_lossy(&user).into_owned();
    let meta = desk.layout.shards()[0].meta();
    let tries: [&[&str]; 7] = [
        &["SET", &meta, "x"],
        &["PEXPIRE", &meta, "1"],
        &["ZADD", &meta, "0", "x"],
        &["ZREM", &meta, "x"],
        &["HSET", &meta, "x", "x"],
        &["PUBLISH", "lh:wake:x", "x"],
        &["SUBSCRIBE", "lh:wake:x"],
    ];
    for attempt in tries {
        let mut all = vec!["ACL", "DRYRUN", &user];
        all.extend(attempt);
        match node.plain(words(&all)).await {
            Ok(Value::BulkString(refusal)) => {
                return Some(crate::address::visible(&String::from_utf8_lossy(&refusal)));
            }
            Ok(_) => {}
            Err(failure) if failure.turn == Turn::Stay => return None,
            Err(failure) => return Some(failure.error.what().to_owned()),
        }
    }
    None
}

fn words(words: &[&str]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    fn verdicts(url: &str, info: &str, config: Option<&[(&str, &str)]>) -> Vec<(&'static str, Verdict)> {
        let (scheme, rest) = url.split_once(':').unwrap();
        let options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
        let findings = judge(&options, &Facts::from_text(info, config));
        for finding in &findings {
            assert_eq!(finding.cure.is_some(), finding.verdict != Verdict::Fine, "{finding:?}");
        }
        findings.into_iter().map(|finding| (finding.subject, finding.verdict)).collect()
    }

    fn of(subject: &str, verdicts: &[(&'static str, Verdict)]) -> Verdict {
        verdicts.iter().find(|(name, _)| *name == subject).unwrap().1
    }

    #[test]
    fn a_good_server_has_nothing_to_cure() {
        let info = "redis_version:7.0.15\r\nrole:master\r\naof_enabled:1\r\nmaxmemory:100\r\nused_memory:10\r\n\
                    maxmemory_policy:noeviction";
        let found = verdicts("redis://h", info, Some(&[("appendfsync", "always")]));
        assert!(found.iter().all(|(_, verdict)| *verdict == Verdict::Fine), "{found:?}");
    }

    #[test]
    fn each_fault_is_found() {
        let info = "redis_version:5.0.1\r\nrole:slave\r\naof_enabled:0\r\nmaxmemory:100\r\nused_memory:95\r\n\
                    maxmemory_policy:allkeys-lru\r\nconnected_slaves:1";
        let found = verdicts("redis://h", info, None);
        let fault = ["version", "role", "maxmemory-policy"].map(|subject| of(subject, &found));
        assert_eq!(fault, [Verdict::Fault; 3]);
        let warning = ["persistence", "memory", "replication"].map(|subject| of(subject, &found));
        assert_eq!(warning, [Verdict::Warning; 3]);
    }

    #[test]
    fn a_master_that_stops_when_it_is_cut_off_is_fine() {
        let info = "redis_version:7.2.0\r\naof_enabled:1\r\nconnected_slaves:1";
        let settings = |lag| {
            [("min-replicas-to-write", "1"), ("min-replicas-max-lag", lag), ("appendfsync", "everysec")]
        };
        assert_eq!(
            of("replication", &verdicts("redis://h?sentinel=m", info, Some(&settings("10")))),
            Verdict::Fine
        );
        assert_eq!(
            of("replication", &verdicts("redis://h?sentinel=m", info, Some(&settings("31")))),
            Verdict::Warning
        );
        assert_eq!(of("persistence", &verdicts("redis://h", info, Some(&settings("10")))), Verdict::Note);
    }
}
