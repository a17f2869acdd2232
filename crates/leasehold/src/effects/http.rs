//! The header `Idempotency-Key` at the door of a service, as the IETF's draft has it.
//!
//! | a request comes | answer |
//! | --- | --- |
//! | without the header, where it is required | 400 `missing_idempotency_key` |
//! | with one that is none | 400 `malformed_idempotency_key` |
//! | with the key of one that is being answered by this process | 409 `in_progress` |
//! | with the key of another request | 422 `idempotency_key_reused`: from [`problem`] |
//! | with the key of one that was answered | the same answer again: from `run` of the effects |
//!
//! The layer reads the header and keeps twins of one process apart. That an effect happens once is not for a door to promise: the
//! handler takes the [`Key`] from the request's extensions and runs its effect under it, in the transaction of its data.

use std::{
    collections::HashSet,
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use serde_json::json;
use tower_layer::Layer;
use tower_service::Service;

use super::{answer::NotDone, key::Key, record::State};
use crate::{NotAcquired, sync::lock};

/// `Idempotency-Key`.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Within what the keys of a request are unique; also whether one is required. `None`: the request needs no key.
type Scope = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Reads `Idempotency-Key`, and puts a [`Key`] into the extensions of each request that has one.
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use leasehold::effects::{Key, http::IdempotencyLayer};
///
/// async fn pay(Extension(key): Extension<Key>) -> String {
///     // effects.run(&mut db, &key, &request, …)
///     format!("paid under {key}")
/// }
/// let app: Router = Router::new().route("/payments", post(pay)).layer(IdempotencyLayer::default());
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer {
    scope: Arc<Scope>,
    flying: Arc<Mutex<HashSet<Key>>>,
}

impl Default for IdempotencyLayer {
    /// Requires a key of every `POST` and `PATCH`; its scope is the path.
    fn default() -> Self {
        Self::new(|request| {
            let asks = matches!(request.method, http::Method::POST | http::Method::PATCH);
            asks.then(|| request.uri.path().to_owned())
        })
    }
}

impl IdempotencyLayer {
    /// Says of which requests a key is required, and within what it is unique: put the caller in where callers choose keys
    /// on their own.
    pub fn new(scope: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { scope: Arc::new(scope), flying: Arc::default() }
    }

    /// The key of a request, and its place among those under way; `None` where none is required.
    fn admit<B: From<String>>(&self, parts: &Parts) -> Result<Option<Flight>, Response<B>> {
        let Some(scope) = (self.scope)(parts) else { return Ok(None) };
        let malformed = |why: &str| respond(StatusCode::BAD_REQUEST, "malformed_idempotency_key", why);
        let word = match read(&parts.headers) {
            Ok(Some(word)) => word,
            Ok(None) => {
                return Err(respond(
                    StatusCode::BAD_REQUEST,
                    "missing_idempotency_key",
                    "this request needs the header Idempotency-Key: a value of your own choice, the same when you repeat it",
                ));
            }
            Err(why) => return Err(malformed(why)),
        };
        let key = Key::new(&scope, &word).map_err(|invalid| malformed(&invalid.to_string()))?;
        if !lock(&self.flying).insert(key.clone()) {
            return Err(respond(
                StatusCode::CONFLICT,
                "in_progress",
                "a request with this key is being answered; repeat it in a moment",
            ));
        }
        Ok(Some(Flight { key, flying: Arc::clone(&self.flying) }))
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").finish_non_exhaustive()
    }
}

/// A request under way; ends when dropped.
struct Flight {
    key: Key,
    flying: Arc<Mutex<HashSet<Key>>>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        lock(&self.flying).remove(&self.key);
    }
}

/// The key: a string as structured fields have it (`"…"`), or, as many send it, the bare word.
fn read(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("the header Idempotency-Key must be there once");
    }
    let text = value.to_str().map_err(|_| "the header Idempotency-Key must be visible ASCII")?.trim();
    let Some(quoted) = text.strip_prefix('"') else {
        let plain = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte));
        return if plain {
            Ok(Some(text.to_owned()))
        } else {
            Err("an Idempotency-Key is a string in quotes")
        };
    };
    let mut word = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next() {
            Some('"') if characters.as_str().is_empty() => return Ok(Some(word)),
            Some('\\') => match characters.next() {
                Some(escaped @ ('"' | '\\')) => word.push(escaped),
                _ => return Err("an Idempotency-Key escapes nothing but quotes and backslashes"),
            },
            Some('"') => return Err("an Idempotency-Key has no parameters"),
            Some(character) => word.push(character),
            None => return Err("the Idempotency-Key's quotes do not close"),
        }
    }
}

/// The answer to a request that was not carried out: a problem as RFC 9457 has it.
///
/// | status | `type` ends in |
/// | --- | --- |
/// | 409 | `in_progress`: repeat it; `needs_reconciliation`: somebody looks at it |
/// | 422 | `idempotency_key_reused` |
/// | 503 | `unavailable`: nothing was done, repeat it; `unknown`: repeat it **with the same key** |
/// | 500 | `failed`: the work failed and was rolled back. Errors of your own deserve a better answer: look at [`NotDone::Effect`] first |
pub fn problem<E, B: From<String>>(no: &NotDone<E>) -> Response<B> {
    const AGAIN: &str = "nothing was done; repeat the request with the same key";
    match no {
        NotDone::KeyReused(_) => respond(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "this key was used for another request; choose a new key for a new request",
        ),
        NotDone::Unsettled(record) if record.state == State::NeedsReconciliation => respond(
            StatusCode::CONFLICT,
            "needs_reconciliation",
            "nobody knows yet whether this has happened; it is being looked into, and must not be sent under another key",
        ),
        NotDone::Busy(NotAcquired::Failed(_)) => {
            respond(StatusCode::SERVICE_UNAVAILABLE, "unavailable", AGAIN)
        }
        NotDone::Unsettled(_) | NotDone::Busy(_) => respond(
            StatusCode::CONFLICT,
            "in_progress",
            "a request on the same resource is being carried out; repeat this one with the same key",
        ),
        NotDone::Effect(_) | NotDone::TooLong(_) => {
            respond(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the work failed, and nothing was done")
        }
        no if no.is_unknown() => respond(
            StatusCode::SERVICE_UNAVAILABLE,
            "unknown",
            "this may have happened or not; repeat the request with the same key, which knows",
        ),
        _ => respond(StatusCode::SERVICE_UNAVAILABLE, "unavailable", AGAIN),
    }
}

fn respond<B: From<String>>(status: StatusCode, word: &str, detail: &str) -> Response<B> {
    let body = json!({
        "type": format!("urn:leasehold:problem:{word}"),
        "title": word.replace('_', " "),
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut response = Response::new(B::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if matches!(status, StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService { inner, layer: self.clone() }
    }
}

/// A service behind the door; made by [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
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
            let flight = match layer.admit(&parts) {
                Ok(flight) => flight,
                Err(no) => return Ok(no),
            };
            if let Some(flight) = &flight {
                parts.extensions.insert(flight.key.clone());
            }
            let answer = inner.call(Request::from_parts(parts, body)).await;
            drop(flight);
            answer
        })
    }
}
