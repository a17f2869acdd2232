//! Events to an HTTP endpoint, one request each.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use leasehold_core::{Error, Invalid, Kind};
use serde_json::Value;

use super::{NotPublished, Sink};
use crate::{
    address::Secret,
    effects::{Event, Working},
    room::Room,
    tls::TlsFiles,
};

/// An answer that takes longer is none (ours: beyond a busy endpoint's worst day, below a lease's TTL).
const LIMIT: Duration = Duration::from_secs(10);
/// Longest `Retry-After` that is obeyed.
const LONGEST_PAUSE: u64 = 300;

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Events as `POST`s of `CloudEvents` JSON, with the event's source and id as `Idempotency-Key`. Any 2xx says that the far end has it.
///
/// | answer | means |
/// | --- | --- |
/// | 2xx | published |
/// | none, 401, 403, 404, 405, 408, 410, 425, 429, 502, 503, 504 | the far end takes nothing at the moment, or not from us: all events wait. `Retry-After` is obeyed up to 5 minutes |
/// | anything else | this event is refused: tried again, and set aside in the end |
#[derive(Debug)]
pub struct Webhook {
    url: Uri,
    authorization: Option<HeaderValue>,
    client: Arc<Http>,
    room: Room,
}

impl Webhook {
    /// Posts to this URL, `http://…` or `https://…`. The certificate of an `https` endpoint must be valid for its name, by the
    /// authorities that this machine trusts.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for what is no such URL; what the machine says about its certificates.
    pub fn new(url: &str) -> Result<Self, Error> {
        let uri: Uri = url.parse().map_err(|_| Error::from(not_a_url()))?;
        if uri.host().is_none() || !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(not_a_url().into());
        }
        let tls = match uri.scheme_str() {
            Some("https") => TlsFiles::default().read()?.client_config()?,
            _ => rustls::ClientConfig::builder_with_provider(Arc::new(
                rustls::crypto::ring::default_provider(),
            ))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(Kind::Unsupported, error.to_string()))?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth(),
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { url: uri, authorization: None, client: Arc::new(client), room: Room::open()? })
    }

    /// Sends this as the header `Authorization`.
    ///
    /// # Errors
    /// [`Invalid`] for what no header can carry.
    pub fn authorization(mut self, secret: &Secret) -> Result<Self, Invalid> {
        let mut value = HeaderValue::from_str(secret.reveal())
            .map_err(|_| Invalid::new("authorization", "must be visible ASCII on one line"))?;
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(self)
    }

    fn request(&self, envelope: &Value) -> Result<Request<Full<Bytes>>, NotPublished> {
        let of = |name: &str| envelope[name].as_str().unwrap_or_default();
        let key = format!("\"{}/{}\"", of("source").replace(['"', '\\'], "_"), of("id"));
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(header::CONTENT_TYPE, "application/cloudevents+json")
            .header("idempotency-key", key);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        request
            .body(Full::new(Bytes::from(envelope.to_string())))
            .map_err(|error| NotPublished::Event(format!("the event makes no request: {error}")))
    }
}

fn not_a_url() -> Invalid {
    Invalid::new("webhook", "must be a URL that begins with http:// or https://")
}

impl Sink for Webhook {
    fn publish<'a>(&'a mut self, _: &'a Event, envelope: &'a Value) -> Working<'a, (), NotPublished> {
        Box::pin(async move {
            let request = self.request(envelope)?;
            let client = Arc::clone(&self.client);
            let sent = self.room.run(async move {
                let answer = tokio::time::timeout(LIMIT, client.request(request)).await;
                Ok(match answer {
                    Ok(Ok(answer)) => judge(answer.status(), answer.headers()),
                    Ok(Err(error)) => Err(down(format!("the endpoint was not reached: {}", root(&error)))),
                    Err(_) => Err(down(format!("the endpoint has not answered within {LIMIT:?}"))),
                })
            });
            sent.await.unwrap_or_else(|error| Err(down(error.to_string())))
        })
    }
}

fn down(why: String) -> NotPublished {
    NotPublished::Down { why, again_in: None }
}

/// What is at the bottom of an error: those above only say "connect".
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(below) = error.source() {
        error = below;
    }
    error.to_string()
}

fn judge(status: StatusCode, headers: &HeaderMap) -> Result<(), NotPublished> {
    match status.as_u16() {
        200..=299 => Ok(()),
        401 | 403 | 404 | 405 | 408 | 410 | 425 | 429 | 502..=504 => {
            let seconds =
                headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            let again_in = seconds.map(|seconds| Duration::from_secs(seconds.min(LONGEST_PAUSE)));
            Err(NotPublished::Down { why: format!("the endpoint answers {status}"), again_in })
        }
        _ => Err(NotPublished::Event(format!("the endpoint answers {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let mut headers = HeaderMap::new();
        assert_eq!(judge(StatusCode::ACCEPTED, &headers), Ok(()));
        for refused in [400, 409, 413, 422, 500, 301] {
            let answer = judge(StatusCode::from_u16(refused).unwrap(), &headers);
            assert!(matches!(answer, Err(NotPublished::Event(_))), "{refused}");
        }
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("9999"));
        let answer = judge(StatusCode::SERVICE_UNAVAILABLE, &headers);
        assert!(
            matches!(answer, Err(NotPublished::Down { again_in: Some(pause), .. }) if pause.as_secs() == 300)
        );
    }

    #[test]
    fn only_http_urls_are_webhooks_and_secrets_stay_secret() {
        for bad in ["", "ftp://x/", "/path", "http://", "not a url"] {
            assert!(Webhook::new(bad).is_err(), "{bad}");
        }
        let hook = Webhook::new("http://localhost:1/x").unwrap();
        let hook = hook.authorization(&Secret::new("Bearer s3cret")).unwrap();
        assert!(!format!("{hook:?}").contains("s3cret"));
    }
}
