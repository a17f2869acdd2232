//! The server's layer: judges a request by its token before the service sees it.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use leasehold_core::{
    Resource,
    fence::{Ask, Pass, Refusal},
};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    flight::{Flight, Flights},
    header, problem,
};
use crate::fence::{
    Fence, NotAdmitted,
    answer::{refuse, refuse_without_pass},
};

/// Which resource a request is about; `None` when it is about none that is fenced.
type Which = dyn Fn(&Parts) -> Option<Resource> + Send + Sync;

/// Fences a service.
///
/// ```
/// use axum::{Router, routing::put};
/// use leasehold::{Resource, fence::{Fence, MemoryFence, http::FenceLayer}};
///
/// let fence = Fence::over(MemoryFence::default());
/// // The resource of `PUT /orders/42` is `/orders/42`: a token of another one is refused.
/// let layer = FenceLayer::new(fence).resource(|request| Resource::new(request.uri.path()).ok());
/// let app: Router = Router::new().route("/orders/{id}", put(async || "written")).layer(layer);
/// ```
#[derive(Clone)]
pub struct FenceLayer {
    fence: Fence,
    which: Option<Arc<Which>>,
    ask: Ask,
    flights: Flights,
}

impl FenceLayer {
    /// A layer that judges every request that may change something by the resource that it shows.
    pub fn new(fence: Fence) -> Self {
        Self { fence, which: None, ask: Ask::Enter, flights: Flights::default() }
    }

    /// Says which resource a request is about; a request about none passes. Without this a caller's word is taken for it: say
    /// it wherever callers may be mistaken.
    #[must_use]
    pub fn resource(mut self, which: impl Fn(&Parts) -> Option<Resource> + Send + Sync + 'static) -> Self {
        self.which = Some(Arc::new(which));
        self
    }

    /// Lets in only requests to resources that were sealed before, by another way into the same fence. Else the first request
    /// with a token is the seal.
    #[must_use]
    pub fn sealed_only(mut self) -> Self {
        self.ask = Ask::Write;
        self
    }

    /// Judges a request: its place among those under way, or `None` when no token is asked of it.
    async fn admit(&self, parts: &Parts) -> Result<Option<(Pass, Flight)>, No> {
        let shown = header::read(&parts.headers).map_err(No::Malformed)?;
        let about = self.which.as_ref().map(|which| which(parts));
        if about == Some(None) {
            return Ok(None);
        }
        let about = about.flatten();
        let place = self.fence.place();
        let Some(pass) = shown else {
            if parts.method.is_safe() {
                return Ok(None);
            }
            return Err(No::Judged(refuse_without_pass(place, about, Refusal::MissingToken)));
        };
        if let Some(expected) = about.filter(|about| *about != pass.resource) {
            return Err(No::Judged(refuse(place, &pass, Refusal::WrongResource { expected })));
        }
        let flight = self.flights.enter(&pass);
        let judged = match self.ask {
            Ask::Write => self.fence.check(&pass).await,
            _ => self.fence.enter(&pass).await,
        };
        judged.map_err(No::Judged)?;
        flight.alone().await;
        Ok(Some((pass, flight)))
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("fence", &self.fence)
            .field("ask", &self.ask)
            .finish_non_exhaustive()
    }
}

enum No {
    Malformed(leasehold_core::Invalid),
    Judged(NotAdmitted),
}

impl No {
    fn answer<B: From<String>>(&self) -> Response<B> {
        match self {
            Self::Malformed(invalid) => problem::of_invalid(invalid),
            Self::Judged(no) => {
                if let NotAdmitted::Failed(error) = no {
                    tracing::error!(%error, "a fence could not be asked; the request is answered with 503");
                }
                problem::of(no)
            }
        }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, layer: self.clone() }
    }
}

/// A fenced service; made by [`FenceLayer`].
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready goes along; its clone may have to become ready first.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let flight = match layer.admit(&parts).await {
                Ok(None) => None,
                Ok(Some((pass, flight))) => {
                    parts.extensions.insert(pass);
                    Some(flight)
                }
                Err(no) => return Ok(no.answer()),
            };
            let answer = inner.call(Request::from_parts(parts, body)).await;
            drop(flight);
            answer
        })
    }
}
