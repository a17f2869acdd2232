//! Real deployments, examined: each fault is named with its cure, and what is sound is called sound.

use leasehold::{
    address::Address,
    coordinator::postgres::{Options, examine},
    doctor::{Finding, Verdict},
};
use leasehold_core::Namespace;
use leasehold_testkit::server::{PgBouncer, Postgres};

use super::scene::{ready, shared};

async fn examined(url: &str) -> Vec<Finding> {
    let (scheme, rest) = url.split_once(':').unwrap();
    let options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
    let findings = examine(options, &Namespace::default()).await.unwrap();
    for finding in &findings {
        assert_eq!(finding.cure.is_some(), finding.verdict != Verdict::Fine, "{finding:?}");
    }
    findings
}

fn found<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.subject == subject).unwrap()
}

/// What is wrong is found, with a fact that names it and a cure that names what to set.
fn names(findings: &[Finding], subject: &str, verdict: Verdict, fact: &str, cure: &str) {
    let finding = found(findings, subject);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.fact.contains(fact), "{finding:?}");
    assert!(finding.cure.as_ref().is_some_and(|text| text.contains(cure)), "{finding:?}");
}

#[tokio::test]
async fn what_loses_answered_leases_is_found_with_its_cure() {
    let settings = [("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];
    let server = Postgres::start_with(&settings).unwrap();
    drop(ready(&server.url("postgres")).await);
    let findings = examined(&server.url("postgres")).await;
    names(&findings, "fsync", Verdict::Fault, "power failure", "fsync = on");
    names(&findings, "full_page_writes", Verdict::Fault, "damage the tables", "full_page_writes = on");
    names(&findings, "synchronous_commit", Verdict::Warning, "is off", "synchronous_commit = on");
    for sound in ["role", "isolation", "connections", "permissions", "namespace", "pooler", "clock", "tls"] {
        assert_eq!(found(&findings, sound).verdict, Verdict::Fine, "{sound}: {findings:?}");
    }
}

/// By three hundredths: leases end before the windows of their holders, unless waiters measure the end by their own clocks.
#[tokio::test]
async fn a_clock_that_runs_fast_is_found_where_leases_end_by_it() {
    let server = Postgres::start_with_clock().unwrap();
    let url = server.url("postgres");
    drop(ready(&url).await);
    assert!(found(&examined(&url).await, "clock rate").verdict < Verdict::Warning);
    server.clock().gain(30_000).unwrap();
    names(&examined(&url).await, "clock rate", Verdict::Fault, "ppm ahead", "time daemon");
    let observed = examined(&format!("{url}?expiry=observed")).await;
    assert_eq!(found(&observed, "clock rate").verdict, Verdict::Fine, "{observed:?}");
}

#[tokio::test]
async fn what_keeps_its_word_is_fine() {
    let database = shared().database().unwrap();
    drop(ready(&shared().url(&database)).await);
    for finding in examined(&shared().url(&database)).await {
        // There is no standby here, and nobody bounds open transactions: worth a word, and no more.
        assert!(finding.verdict <= Verdict::Note, "{finding:?}");
    }
}

#[tokio::test]
async fn settings_of_one_role_are_judged_as_that_role_has_them() {
    let database = shared().database().unwrap();
    drop(ready(&shared().url(&database)).await);
    shared()
        .psql(
            &database,
            &format!(
                "ALTER DATABASE {database} SET synchronous_commit = 'local'; \
                 ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'; \
                 ALTER DATABASE {database} SET statement_timeout = '100ms'"
            ),
        )
        .unwrap();
    let findings = examined(&shared().url(&database)).await;
    names(&findings, "synchronous_commit", Verdict::Warning, "is local", "synchronous_commit = on");
    names(&findings, "isolation", Verdict::Note, "serializable", "read committed");
    names(&findings, "statement_timeout", Verdict::Warning, "100 ms", "5s or more");
}

#[tokio::test]
async fn a_pooler_is_worth_a_word_and_breaks_what_needs_sessions() {
    let database = shared().database().unwrap();
    drop(ready(&shared().url(&database)).await);
    let bouncer = PgBouncer::start(shared(), 2).unwrap();
    let pooled = bouncer.url(&database);
    names(&examined(&pooled).await, "pooler", Verdict::Note, "lends sessions out", "listen_url");
    let direct = shared().url(&database).replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    let woken = examined(&format!("{pooled}?listen_url={direct}")).await;
    assert_eq!(found(&woken, "pooler").verdict, Verdict::Fine, "{woken:?}");
    let advisory = examined(&format!("{pooled}?mode=advisory")).await;
    names(&advisory, "pooler", Verdict::Fault, "none proves that its holder lives", "mode=advisory");
}
