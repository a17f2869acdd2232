//! One structured event for each transition, with field names that timelines are rebuilt from; and a listener that asks the
//! client a question from inside the event.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock, atomic::Ordering},
    time::Duration,
};

use common::{eventually, faulty, ms};
use leasehold::{
    Label, Leases, Namespace,
    coordinator::memory::{MemoryCoordinator, MemoryStore},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

type Fields = BTreeMap<String, String>;

#[derive(Clone, Default)]
struct Listener {
    heard: Arc<Mutex<Vec<Fields>>>,
    client: Arc<OnceLock<Leases>>,
}

/// The only one of this process.
static LISTENER: LazyLock<Listener> = LazyLock::new(|| {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    listener
});

impl Listener {
    /// The events with this in that field, and the field itself.
    fn heard(&self, field: &str, value: &str) -> Vec<Fields> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|fields| fields.get(field).is_some_and(|found| found == value)).cloned().collect()
    }
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        self.heard.lock().unwrap().push(fields);
        // Whoever listens may ask: a lock of ours held here would stop every renewal for ever.
        let _ = self.client.get().map(Leases::held);
    }
}

#[tokio::test]
async fn every_transition_is_one_event_and_a_listener_may_ask_the_client() {
    let listener = &*LISTENER;
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    listener.client.set(leases.clone()).unwrap();
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(30), lease.lost()).await.expect("the driver must go on");

    // The event follows the change at once, and not before the locks are released.
    let lost = || {
        listener.heard("resource", "r").iter().any(|fields| fields.get("to").is_some_and(|to| to == "lost"))
    };
    eventually("the event of the loss", async || lost()).await;
    let heard = listener.heard("resource", "r");
    let transitions: Vec<(&str, &str, &str)> = heard
        .iter()
        .filter(|fields| fields.contains_key("to"))
        .map(|fields| (fields["from"].as_str(), fields["to"].as_str(), fields["reason"].as_str()))
        .collect();
    assert_eq!(transitions.first(), Some(&("acquiring", "held", "free")));
    assert_eq!(transitions.last().map(|last| (last.1, last.2)), Some(("lost", "window_closed")));
    for fields in heard.iter().filter(|fields| fields.contains_key("to")) {
        for name in ["resource", "lease_id", "holder_id", "fencing_token", "ttl_ms", "from", "to", "reason"] {
            assert!(fields.contains_key(name), "{name} is missing in {fields:?}");
        }
        assert_eq!(fields["ttl_ms"], "300");
    }
    assert!(heard.iter().any(|fields| fields.contains_key("failures")), "failed renewals are told too");
}

#[tokio::test]
async fn a_ttl_below_what_the_client_has_met_is_doubted_once() {
    let listener = &*LISTENER;
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let lease = leases.lease("short").ttl(ms(1_500)).acquire().await.unwrap();
    // Round trips of half a second: four of them are more than the TTL.
    faults.delay_acquire_answers_ms.store(500, Ordering::SeqCst);
    let slow: Vec<_> = (0..20).map(|n| tokio::spawn(leases.lease(&format!("slow-{n}")).acquire())).collect();
    for slow in slow {
        drop(slow.await.unwrap().unwrap());
    }
    let doubts = || -> Vec<Fields> {
        let heard = listener.heard("resource", "short");
        heard.into_iter().filter(|fields| fields.contains_key("needed_ms")).collect()
    };
    eventually("the doubt", async || !doubts().is_empty()).await;
    let seen = faults.renewals.load(Ordering::SeqCst);
    eventually("more renewals", async || faults.renewals.load(Ordering::SeqCst) > seen + 3).await;
    let told = doubts();
    assert_eq!(told.len(), 1, "{told:?}");
    let number = |field: &str| told[0][field].parse::<u64>().unwrap();
    assert!(number("needed_ms") > number("ttl_ms") && number("ttl_ms") == 1_500, "{told:?}");
    assert!(number("round_trip_ms") >= 490, "{told:?}");
    drop(lease);
}

#[tokio::test]
async fn settings_of_the_coordinator_that_are_refused_are_one_line_in_the_log() {
    let (listener, store) = (&*LISTENER, MemoryStore::default());
    let namespace = Namespace::new("refused").unwrap();
    let client = async |label: &str| {
        let coordinator = MemoryCoordinator::new(store.clone(), namespace.clone());
        Leases::over(Arc::new(coordinator), namespace.clone(), Label::new(label).unwrap()).await.unwrap()
    };
    let (operator, service) = (client("ops").await, client("service").await);
    let follower = service.follow_coordinator(Duration::from_secs(1)).await.unwrap();
    // What fits no lease of this client: it has one whose margin eats so short a TTL.
    let margin = leasehold::core::window::Margin::new(5_000, ms(990)).unwrap();
    let strict = service.lease("strict").margin(margin).acquire().await.unwrap();
    let ops = Label::new("ops").unwrap();
    operator.store_settings("[resource.strict]\nttl = \"1s\"", &ops).await.unwrap();
    let told = async |what: &str, is: &dyn Fn(&str) -> bool| {
        eventually(what, async || {
            follower.look();
            listener.heard("namespace", "refused").iter().any(|fields| is(&fields["message"]))
        })
        .await;
    };
    told("the refusal", &|message| message.contains("are refused")).await;
    let looks = service.vitals().round_trip.count;
    eventually("more looks", async || {
        follower.look();
        service.vitals().round_trip.count > looks + 3
    })
    .await;
    operator.store_settings("ttl = \"40s\"", &ops).await.unwrap();
    told("what is right", &|message| message == "the coordinator's settings have changed").await;
    let heard = listener.heard("namespace", "refused");
    let refused: Vec<&Fields> =
        heard.iter().filter(|fields| fields["message"].contains("are refused")).collect();
    assert_eq!(refused.len(), 1, "{heard:?}");
    assert!(refused[0]["error"].contains("strict"), "{refused:?}");
    assert_eq!(
        refused[0]["message"],
        "the coordinator's settings have changed and are refused; what counted still counts"
    );
    drop(strict);
}
