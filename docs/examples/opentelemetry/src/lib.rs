//! A job whose traces show under which grant each of its steps was done.

use std::error::Error;

use leasehold::{Leases, Token};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Instrument as _, Subscriber, info_span};
use tracing_subscriber::{Layer, registry::LookupSpan};

/// Carries spans and events to OpenTelemetry. A program makes the provider with the exporter that it wants, and puts this layer
/// into its subscriber, beside whatever else listens.
pub fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer().with_tracer(provider.tracer("nightly"))
}

/// The job. Everything inside `lease.span()` hangs below the grant in the trace; the grant hangs below whatever asked for it.
///
/// # Errors
/// Somebody else does it, or the coordinator cannot be asked.
pub async fn nightly(leases: &Leases) -> Result<Token, Box<dyn Error + Send + Sync>> {
    let job = info_span!("job");
    let lease = leases.lease("nightly").acquire().instrument(job.clone()).await?;
    let span = job.in_scope(|| lease.span());
    let token = lease.token();
    async {
        for part in ["orders", "invoices"] {
            write(part, token).instrument(info_span!("write", part)).await;
        }
    }
    .instrument(span)
    .await;
    let _ended = lease.release().await?;
    Ok(token)
}

/// A write that a fence would check. Nothing here knows of traces.
async fn write(part: &str, token: Token) {
    tracing::info!(part, fencing_token = token.get(), "written");
}
