//! The span of a lease: one, with what identifies the grant, and what happens to the lease is told inside it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use common::{eventually, faulty, ms};
use leasehold::coordinator::memory::MemoryStore;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

type Fields = BTreeMap<String, String>;
/// An event, and in which span it was told.
type Told = (Option<u64>, Fields);

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Default)]
struct Listener {
    next: Arc<AtomicU64>,
    spans: Arc<Mutex<BTreeMap<u64, Fields>>>,
    events: Arc<Mutex<Vec<Told>>>,
    /// How many hold each span.
    holders: Arc<Mutex<BTreeMap<u64, u64>>>,
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

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        let mut fields = Fields::from([("name".to_owned(), attributes.metadata().name().to_owned())]);
        attributes.record(&mut Reader(&mut fields));
        self.spans.lock().unwrap().insert(id, fields);
        self.holders.lock().unwrap().insert(id, 1);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }

    fn clone_span(&self, id: &Id) -> Id {
        *self.holders.lock().unwrap().get_mut(&id.into_u64()).unwrap() += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut holders = self.holders.lock().unwrap();
        let left = holders.get_mut(&id.into_u64()).unwrap();
        *left -= 1;
        *left == 0
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let inside = ENTERED.with_borrow(|entered| entered.last().copied());
        self.events.lock().unwrap().push((inside, fields));
    }
}

#[tokio::test]
async fn a_lease_has_one_span_and_what_happens_to_it_is_told_inside() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let unasked = leases.lease("unasked").ttl(ms(300)).acquire().await.unwrap();
    let lease = leases.lease("r").ttl(ms(300)).acquire().await.unwrap();
    let id = lease.span().id().unwrap().into_u64();
    assert_eq!(lease.handle().span().id().unwrap().into_u64(), id, "one span for all views");
    let spans = listener.spans.lock().unwrap().clone();
    assert_eq!(spans.len(), 1, "a lease whose span nobody asks for has none: {spans:?}");
    let fields = &spans[&id];
    assert_eq!((fields["name"].as_str(), fields["resource"].as_str()), ("lease", "r"));
    assert_eq!(fields["fencing_token"], lease.token().to_string());
    for name in ["namespace", "lease_id", "holder_id", "label"] {
        assert!(fields.contains_key(name), "{name} is missing in {fields:?}");
    }
    let told = |resource: &str, key: &str, word: &str| {
        let events = listener.events.lock().unwrap();
        let of = |(_, fields): &&Told| {
            fields.get("resource").is_some_and(|name| name == resource)
                && fields.get(key).is_some_and(|found| found.starts_with(word))
        };
        events.iter().find(of).map(|(inside, _)| *inside)
    };
    eventually("a renewal", async || told("r", "message", "the lease is renewed").is_some()).await;
    assert_eq!(told("r", "message", "the lease is renewed"), Some(Some(id)));
    faults.unreachable.store(true, Ordering::SeqCst);
    eventually("both losses", async || told("r", "to", "lost").and(told("unasked", "to", "lost")).is_some())
        .await;
    assert_eq!(told("r", "to", "lost"), Some(Some(id)), "from the driver's thread too");
    assert_eq!(told("unasked", "to", "lost"), Some(None), "no lease is told inside another's span");
    drop((lease, unasked, leases));
    eventually("the end of the span", async || listener.holders.lock().unwrap()[&id] == 0).await;
}
