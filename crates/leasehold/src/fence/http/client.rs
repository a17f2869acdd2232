//! The client's layer: each request shows the lease under which it is sent.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use http::Request;
use leasehold_core::{fence::Pass, holder::Loss, ticket::Ticket};
use tower_layer::Layer;
use tower_service::Service;

use super::header;
use crate::LeaseHandle;

/// Adds the lease's fencing token to every request.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Leases, fence::http::TokenLayer};
///
/// let leases = Leases::connect("memory:").await?;
/// let lease = leases.lease("orders/42").acquire().await?;
/// let layer = TokenLayer::new(lease.handle());
/// // tower::ServiceBuilder::new().layer(layer).service(client)
/// # let _ = layer;
/// # Ok(())
/// # }
/// # leasehold::blocking::block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct TokenLayer {
    lease: LeaseHandle,
    numbered: bool,
    ticket: Option<Ticket>,
}

impl TokenLayer {
    /// Shows this lease.
    pub fn new(lease: LeaseHandle) -> Self {
        Self { lease, numbered: false, ticket: None }
    }

    /// Numbers the requests, in the order in which they are sent: for a client that sends one before the one before it was
    /// answered. One that overtakes another makes that one stale.
    #[must_use]
    pub fn numbered(mut self) -> Self {
        self.numbered = true;
        self
    }

    /// Sends a signed ticket along.
    #[must_use]
    pub fn ticket(mut self, ticket: Ticket) -> Self {
        self.ticket = Some(ticket);
        self
    }

    fn pass(&self) -> Pass {
        let pass = if self.numbered { self.lease.numbered_pass() } else { self.lease.pass() };
        match &self.ticket {
            Some(ticket) => pass.with_ticket(ticket.clone()),
            None => pass,
        }
    }
}

impl<S> Layer<S> for TokenLayer {
    type Service = TokenService<S>;

    fn layer(&self, inner: S) -> TokenService<S> {
        TokenService { inner, layer: self.clone() }
    }
}

/// A client that shows its lease; made by [`TokenLayer`].
#[derive(Clone, Debug)]
pub struct TokenService<S> {
    inner: S,
    layer: TokenLayer,
}

/// Why a request has no answer.
#[derive(Debug)]
pub enum NotSent<E> {
    /// The lease is lost: nothing was sent.
    Lost(Loss),
    /// What the client below says.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for NotSent<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "the request was not sent: the lease is lost: {loss}"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for NotSent<E> {}

impl<S, B> Service<Request<B>> for TokenService<S>
where
    S: Service<Request<B>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = NotSent<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, NotSent<S::Error>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(NotSent::Failed)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        // Asked here, in the order of the calls.
        let shown = self.layer.lease.check().map(|()| self.layer.pass());
        Box::pin(async move {
            let pass = shown.map_err(NotSent::Lost)?;
            // Names and labels are encoded: there is nothing that a header could not carry.
            let put = header::put(&pass, request.headers_mut());
            debug_assert!(put.is_ok(), "{put:?}");
            inner.call(request).await.map_err(NotSent::Failed)
        })
    }
}
