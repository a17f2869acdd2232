//! Real clusters, examined, and what their label says.

use std::time::Duration;

use leasehold::{
    Kind,
    address::Address,
    coordinator::etcd::{Options, examine},
    doctor::Verdict,
};
use leasehold_core::Namespace;
use leasehold_testkit::server::Etcd;

use super::world::{options, ready};

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_names_what_the_promises_depend_on() {
    let etcd = Etcd::start(3).unwrap();
    ready(&etcd).await;
    etcd.kill(2).unwrap();
    // It may have been the leader: the others need a moment to have another one.
    let examined = async {
        loop {
            match examine(options(&etcd), &Namespace::default()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(50)).await,
                other => break other.unwrap(),
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), examined).await.unwrap();
    let verdicts = |subject: &str| -> Vec<Verdict> {
        found.iter().filter(|finding| finding.subject == subject).map(|finding| finding.verdict).collect()
    };
    assert_eq!(verdicts("namespace"), [Verdict::Fine]);
    assert!(verdicts("members").contains(&Verdict::Warning), "one is down: {found:?}");
    // What Debian ships has both bugs, and leaves out a fix.
    assert!(!verdicts("version").contains(&Verdict::Fault) && verdicts("version").len() >= 2, "{found:?}");
    for subject in ["leader", "space", "alarms", "election"] {
        assert_eq!(verdicts(subject), [Verdict::Fine], "{subject}: {found:?}");
    }
    for subject in ["users", "tls"] {
        assert_eq!(verdicts(subject), [Verdict::Note], "{subject}: {found:?}");
    }
    assert!(
        found.iter().all(|finding| (finding.verdict == Verdict::Fine) == finding.cure.is_none()),
        "{found:?}"
    );
    let missing = Options::read(&Address::parse("etcd", "//127.0.0.1:1").unwrap()).unwrap();
    assert_eq!(examine(missing, &Namespace::default()).await.unwrap_err().kind(), Kind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_says_what_kind_of_cluster_it_is() {
    let (one, three) = (Etcd::start(1).unwrap(), Etcd::start(3).unwrap());
    let (one, three) = (ready(&one).await, ready(&three).await);
    assert!(one.profile().guarantee.caveat.contains("fewer than three members"));
    assert!(!three.profile().guarantee.caveat.contains("fewer than three members"));
    assert!(three.profile().guarantee.caveat.contains("restoring"));
}
