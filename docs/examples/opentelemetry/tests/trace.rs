//! What is exported.

use leasehold::{Leases, Token};
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};

fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key.as_str() == name);
    found.unwrap_or_else(|| panic!("{name} is missing in {:?}", span.attributes)).value.to_string()
}

#[tokio::test]
async fn work_belongs_to_the_grant_it_was_done_under() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    tracing_subscriber::registry().with(traced::layer(&provider)).init();
    let leases = Leases::connect("memory:traced").await.unwrap();
    let mut tokens: Vec<Token> = Vec::new();
    for _ in 0..2 {
        tokens.push(traced::nightly(&leases).await.unwrap());
    }
    // The driver lets go of a lease a moment after its end.
    leases.close(std::time::Duration::from_secs(60)).await;
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let (jobs, grants, writes) = (named(&spans, "job"), named(&spans, "lease"), named(&spans, "write"));
    assert_eq!((jobs.len(), grants.len(), writes.len()), (2, 2, 4), "{spans:#?}");
    for ((job, grant), token) in jobs.iter().zip(&grants).zip(&tokens) {
        assert_eq!(job.parent_span_id, SpanId::INVALID);
        assert_eq!(grant.parent_span_id, job.span_context.span_id(), "the grant hangs below what asked for it");
        assert_eq!((attribute(grant, "resource"), attribute(grant, "fencing_token")), ("nightly".to_owned(), token.to_string()));
        let under = |write: &&&SpanData| write.parent_span_id == grant.span_context.span_id();
        assert_eq!(writes.iter().filter(under).count(), 2, "the work hangs below its grant");
        let told = |state: &str| {
            grant.events.iter().any(|event| {
                event.attributes.iter().any(|pair| pair.key.as_str() == "to" && pair.value.as_str() == state)
            })
        };
        assert!(told("released"), "what happens to the lease is told inside: {:#?}", grant.events);
    }
}
