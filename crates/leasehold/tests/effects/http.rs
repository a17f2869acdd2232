//! `Idempotency-Key` at the door, with an effect behind it.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    http::{Request, Response, StatusCode},
    routing::post,
};
use leasehold::{
    coordinator::memory::MemoryStore,
    effects::{
        Key,
        http::{IdempotencyLayer, problem},
    },
};
use serde_json::Value;
use tokio::sync::Notify;
use tower_service::Service as _;

use crate::world::{Bank, Worker};

/// `POST /pay` pays under the key; `POST /slow` waits.
fn app(worker: Arc<Worker>, arrived: Arc<Notify>, go_on: Arc<Notify>) -> Router {
    let pay = async move |Extension(key): Extension<Key>, body: String| -> Response<Body> {
        match worker.pay(key.as_str(), &body).await {
            Ok(answer) => Response::new(answer.response.to_string().into()),
            Err(no) => problem(&no),
        }
    };
    let slow = async move || {
        arrived.notify_one();
        go_on.notified().await;
        "done"
    };
    Router::new().route("/pay", post(pay)).route("/slow", post(slow)).layer(IdempotencyLayer::default())
}

async fn send(app: &Router, path: &str, keys: &[&str], body: &str) -> (StatusCode, Value) {
    let mut request = Request::post(path);
    for key in keys {
        request = request.header("Idempotency-Key", *key);
    }
    let answer = app.clone().call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), 10_000).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn kind(body: &Value) -> &str {
    body["type"].as_str().and_then(|kind| kind.strip_prefix("urn:leasehold:problem:")).unwrap_or("")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_door_behaves_as_the_draft_says() {
    for bank in Bank::all().await {
        let worker = Arc::new(Worker::new(&bank, &MemoryStore::default()).await);
        let (arrived, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let app = app(worker, arrived.clone(), go_on.clone());
        let first = send(&app, "/pay", &["\"k\""], "30").await;
        assert_eq!((first.0, &first.1["paid"]), (StatusCode::OK, &"k".into()));
        // Quoted or bare, it is the same key, and the same answer.
        assert_eq!(send(&app, "/pay", &["k"], "30").await, first);
        let (status, body) = send(&app, "/pay", &["\"k\""], "31").await;
        assert_eq!((status, kind(&body)), (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused"));
        let (status, body) = send(&app, "/pay", &[], "30").await;
        assert_eq!((status, kind(&body)), (StatusCode::BAD_REQUEST, "missing_idempotency_key"));
        let long = "x".repeat(300);
        for bad in
            [&["\"open"][..], &["\"a\"b"], &["a b"], &["\"\""], &[""], &["\"a\\n\""], &[&long], &["a", "b"]]
        {
            let (status, body) = send(&app, "/pay", bad, "30").await;
            assert_eq!(
                (status, kind(&body)),
                (StatusCode::BAD_REQUEST, "malformed_idempotency_key"),
                "{bad:?}"
            );
        }
        assert_eq!(bank.counts().await, (1, 1, 1));
        // One that is being answered; another key passes, and so does the same key afterwards.
        let slow = tokio::spawn({
            let app = app.clone();
            async move { send(&app, "/slow", &["\"s\""], "").await }
        });
        arrived.notified().await;
        let (status, body) = send(&app, "/slow", &["\"s\""], "").await;
        assert_eq!((status, kind(&body)), (StatusCode::CONFLICT, "in_progress"));
        assert_eq!(send(&app, "/pay", &["\"s\""], "30").await.0, StatusCode::OK, "the scope is the path");
        go_on.notify_one();
        assert_eq!(slow.await.unwrap().0, StatusCode::OK);
        go_on.notify_one();
        assert_eq!(send(&app, "/slow", &["\"s\""], "").await.0, StatusCode::OK);
    }
}
