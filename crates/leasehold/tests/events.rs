//! One structured event for each transition, with field names that timelines are rebuilt from; and a listener that asks the
//! client a question from inside the event.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, atomic::Ordering},
};

use common::{eventually, faulty, ms};
use leasehold::{Leases, coordinator::memory::MemoryStore};
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
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    listener.client.set(leases.clone()).unwrap();
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    tokio::time::timeout(std::time::Duration::from_secs(30), lease.lost())
        .await
        .expect("the driver must go on");

    // The event follows the change at once, and not before the locks are released.
    let lost = || {
        listener.heard.lock().unwrap().iter().any(|fields| fields.get("to").is_some_and(|to| to == "lost"))
    };
    eventually("the event of the loss", async || lost()).await;
    let heard = listener.heard.lock().unwrap().clone();
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
        assert_eq!((fields["resource"].as_str(), fields["ttl_ms"].as_str()), ("r", "300"));
    }
    assert!(heard.iter().any(|fields| fields.contains_key("failures")), "failed renewals are told too");
}
