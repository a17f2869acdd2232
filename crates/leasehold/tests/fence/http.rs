//! The HTTP layers: an axum service in this process, and the same behind a real socket.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, Request, Response, StatusCode},
    routing::any,
};
use leasehold::{
    Label, Leases, Resource,
    blocking::block_on,
    core::fence::Refusal,
    fence::{
        Fence, MemoryFence, Pass,
        http::{FENCING_TOKEN, FenceLayer, NotSent, TokenLayer, put},
    },
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::Notify,
};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::table::{Answer, Door, keeps, numbered, pass};

type Data = Arc<Mutex<HashMap<(String, String), String>>>;

/// A service that writes what it is sent, under the name that the pass shows.
async fn write(State(data): State<Data>, Extension(pass): Extension<Pass>, body: String) {
    let key = (pass.namespace.as_str().to_owned(), pass.resource.as_str().to_owned());
    data.lock().unwrap().insert(key, body);
}

fn app(layer: FenceLayer, data: &Data) -> Router {
    Router::new().route("/write", any(write)).with_state(data.clone()).layer(layer)
}

async fn send<S>(service: &mut S, request: Request<Body>) -> (StatusCode, HeaderMap, Value)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    poll_fn(|context| service.poll_ready(context)).await.unwrap();
    let (parts, body) = service.call(request).await.unwrap().into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn request(method: &str, pass: Option<&Pass>, body: &str) -> Request<Body> {
    let mut request =
        Request::builder().method(method).uri("/write").body(Body::from(body.to_owned())).unwrap();
    if let Some(pass) = pass {
        put(pass, request.headers_mut()).unwrap();
    }
    request
}

/// The last word of the problem's type; `admitted` where there is none.
fn word((status, headers, problem): &(StatusCode, HeaderMap, Value)) -> Answer {
    if status.is_success() {
        return "admitted".to_owned();
    }
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(problem["status"], status.as_u16());
    assert!(problem["title"].is_string() && problem["detail"].is_string());
    problem["type"].as_str().unwrap().strip_prefix("urn:leasehold:fence:").unwrap().to_owned()
}

struct Web {
    app: Router,
    fence: Fence,
    data: Data,
}

impl Web {
    fn new() -> Self {
        let (fence, data) = (Fence::over(MemoryFence::default()), Data::default());
        Self { app: app(FenceLayer::new(fence.clone()), &data), fence, data }
    }

    fn ask(&mut self, request: Request<Body>) -> Answer {
        word(&block_on(send(&mut self.app, request)))
    }
}

impl Door for Web {
    /// A new holder's first request is its seal, and may be one that changes nothing: here it goes to no route.
    fn seal(&mut self, pass: &Pass) -> Answer {
        let unnumbered = Pass { op_seq: None, ..pass.clone() };
        let mut request = request("GET", Some(&unnumbered), "");
        *request.uri_mut() = "/nowhere".parse().unwrap();
        let answer = block_on(send(&mut self.app, request));
        if answer.0 == StatusCode::NOT_FOUND { "admitted".to_owned() } else { word(&answer) }
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        self.ask(request("PUT", Some(pass), value))
    }

    fn write_without_token(&mut self, _: &Resource, value: &str) -> Option<Answer> {
        Some(self.ask(request("PUT", None, value)))
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        let key = (pass.namespace.as_str().to_owned(), pass.resource.as_str().to_owned());
        self.data.lock().unwrap().get(&key).cloned()
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        let raised =
            block_on(self.fence.raise(&pass.namespace, &pass.resource, pass.token, &Label::default()));
        raised.unwrap().token.to_string()
    }

    fn seals_by_writing(&self) -> bool {
        true
    }
}

#[test]
fn http_keeps_the_table() {
    keeps("http", &mut Web::new());
}

#[test]
fn the_problem_says_what_bounced_and_off_what() {
    let mut web = Web::new();
    let named = |token, grant, name| pass("orders/42", token, grant).held_by(Label::new(name).unwrap());
    assert_eq!(web.write(&named(20, 2, "bob"), "b"), "admitted");
    let stale = request("PUT", Some(&named(10, 1, "alice")), "a");
    let (status, headers, problem) = block_on(send(&mut web.app, stale));
    assert_eq!(
        (status, &headers["cache-control"]),
        (StatusCode::PRECONDITION_FAILED, &"no-store".parse().unwrap())
    );
    assert_eq!(problem["type"], "urn:leasehold:fence:stale");
    assert_eq!((&problem["fencing_token"], &problem["stored_token"]), (&10.into(), &20.into()));
    assert_eq!((&problem["resource"], &problem["stored_holder"]), (&"orders/42".into(), &"bob".into()));
    let (status, _, problem) = block_on(send(&mut web.app, request("DELETE", None, "")));
    assert_eq!((status.as_u16(), &problem["type"]), (428, &"urn:leasehold:fence:missing_token".into()));
    let (status, ..) = block_on(send(&mut web.app, request("PUT", Some(&named(20, 3, "eve")), "")));
    assert_eq!(status, StatusCode::CONFLICT);
    let mut malformed = request("PUT", None, "");
    malformed.headers_mut().insert(FENCING_TOKEN, "20".parse().unwrap());
    let (status, _, problem) = block_on(send(&mut web.app, malformed));
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::BAD_REQUEST, &"urn:leasehold:fence:malformed".into())
    );
}

#[test]
fn a_token_of_another_resource_is_refused_where_the_service_knows_its_resources() {
    let fence = Fence::over(MemoryFence::default());
    let layer = FenceLayer::new(fence).resource(|request| match request.uri.path() {
        "/write" => Resource::new("orders/42").ok(),
        _ => None,
    });
    let mut app = app(layer, &Data::default());
    let mut ask = |request| word(&block_on(send(&mut app, request)));
    assert_eq!(ask(request("PUT", Some(&pass("orders/42", 10, 1)), "a")), "admitted");
    assert_eq!(ask(request("PUT", Some(&pass("orders/43", 10, 1)), "a")), "wrong_resource");
    assert_eq!(ask(request("PUT", None, "a")), "missing_token");
    let mut elsewhere = request("PUT", None, "a");
    *elsewhere.uri_mut() = "/other".parse().unwrap();
    let answer = block_on(send(&mut app, elsewhere));
    assert_eq!(answer.0, StatusCode::NOT_FOUND, "what is about no fenced resource passes");
    let refusal = Refusal::WrongResource { expected: Resource::new("orders/42").unwrap() };
    assert!(refusal.to_string().contains("orders/42"));
}

#[test]
fn a_service_may_ask_for_a_seal_first_and_reads_pass_without_a_token() {
    let fence = Fence::over(MemoryFence::default());
    let mut app = app(FenceLayer::new(fence.clone()).sealed_only(), &Data::default());
    let mut ask = |request| word(&block_on(send(&mut app, request)));
    assert_eq!(ask(request("POST", Some(&pass("r", 10, 1)), "a")), "no_such_resource");
    block_on(fence.seal(&pass("r", 10, 1))).unwrap();
    assert_eq!(ask(request("POST", Some(&pass("r", 10, 1)), "a")), "admitted");
    let mut read = request("GET", None, "");
    *read.uri_mut() = "/nowhere".parse().unwrap();
    assert_eq!(block_on(send(&mut app, read)).0, StatusCode::NOT_FOUND);
}

/// The door is no gap: what was let in before a later grant's request has been answered before that one begins.
#[test]
fn a_later_grants_request_waits_for_those_that_were_let_in_before_it() {
    let (go, data) = (Arc::new(Notify::new()), Data::default());
    let slow = {
        let (go, data) = (go.clone(), data.clone());
        move |Extension(pass): Extension<Pass>, body: String| {
            let (go, data) = (go.clone(), data.clone());
            async move {
                if body == "slow" {
                    go.notified().await;
                }
                data.lock().unwrap().insert((pass.token.to_string(), String::new()), body.clone());
                body
            }
        }
    };
    let layer = FenceLayer::new(Fence::over(MemoryFence::default()));
    let app = Router::new().route("/write", any(slow)).layer(layer);
    let written = || {
        let mut tokens: Vec<String> = data.lock().unwrap().keys().map(|key| key.0.clone()).collect();
        tokens.sort_unstable();
        tokens
    };
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second, mut third) = (app.clone(), app.clone(), app);
    let mut old = pin!(send(&mut first, request("PUT", Some(&pass("r", 10, 1)), "slow")));
    assert!(old.as_mut().poll(&mut context).is_pending(), "let in, and at work");
    let mut new = pin!(send(&mut second, request("PUT", Some(&pass("r", 20, 2)), "new")));
    assert!(new.as_mut().poll(&mut context).is_pending(), "let in, and waiting");
    assert_eq!(written(), Vec::<String>::new());
    let late = block_on(send(&mut third, request("PUT", Some(&pass("r", 10, 1)), "late")));
    assert_eq!(word(&late), "stale", "nothing older is let in any more");
    go.notify_one();
    let Poll::Ready(done) = old.as_mut().poll(&mut context) else { panic!("the old one goes on") };
    assert!(done.0.is_success());
    assert_eq!(written(), ["10"]);
    let Poll::Ready(done) = new.as_mut().poll(&mut context) else { panic!("and then the new one") };
    assert!(done.0.is_success());
    assert_eq!(written(), ["10", "20"]);
}

#[test]
fn a_request_that_is_dropped_holds_up_nobody_and_numbered_ones_keep_their_order() {
    let never = |Extension(_): Extension<Pass>, body: String| async move {
        if body == "never" {
            std::future::pending::<()>().await;
        }
    };
    let layer = FenceLayer::new(Fence::over(MemoryFence::default()));
    let app = Router::new().route("/write", any(never)).layer(layer);
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second, mut third) = (app.clone(), app.clone(), app);
    {
        let hung = request("PUT", Some(&numbered("r", 10, 1, 1)), "never");
        let mut hung = pin!(send(&mut first, hung));
        assert!(hung.as_mut().poll(&mut context).is_pending());
        let next = request("PUT", Some(&numbered("r", 10, 1, 2)), "x");
        let mut next = pin!(send(&mut second, next));
        assert!(next.as_mut().poll(&mut context).is_pending(), "the second write waits for the first");
    }
    let successor = request("PUT", Some(&pass("r", 20, 2)), "x");
    assert_eq!(word(&block_on(send(&mut third, successor))), "admitted");
}

/// A service that keeps the headers that it was sent.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Service<Request<Body>> for Recorder {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.lock().unwrap().push(request.headers()[FENCING_TOKEN].to_str().unwrap().to_owned());
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn a_client_shows_its_lease_and_sends_nothing_once_it_is_lost() {
    let leases =
        Leases::builder("memory:fence-http").label(Label::new("me").unwrap()).connect().await.unwrap();
    let lease = leases.lease("orders/42").acquire().await.unwrap();
    let recorder = Recorder::default();
    let mut client = TokenLayer::new(lease.handle()).numbered().layer(recorder.clone());
    for _ in 0..2 {
        client.call(Request::new(Body::empty())).await.unwrap();
    }
    let expected = |n| {
        format!("{}; lease={}; resource=orders%2F42; seq={n}; holder=me", lease.token(), lease.lease_id())
    };
    assert_eq!(*recorder.0.lock().unwrap(), [expected(1), expected(2)]);
    let _ = lease.release().await.unwrap();
    let refused = client.call(Request::new(Body::empty())).await.unwrap_err();
    assert!(matches!(refused, NotSent::Lost(_)), "{refused}");
    assert_eq!(recorder.0.lock().unwrap().len(), 2);
}

/// A real server and a client that knows nothing of us.
#[tokio::test]
async fn a_plain_client_is_fenced_by_a_real_server() {
    let data = Data::default();
    let listener =
        TcpListener::bind(("127.0.0.1", leasehold_testkit::server::free_port(0).unwrap())).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app(FenceLayer::new(Fence::over(MemoryFence::default())), &data);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let ask = async |headers: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let text = format!(
            "PUT /write HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: 1\r\n\r\nx"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let header = |token: u64, grant: &str| {
        format!("fencing-token: {token}; lease={}; resource=r\r\n", grant.repeat(32))
    };
    assert!(ask(&header(20, "b")).await.starts_with("HTTP/1.1 200"));
    let stale = ask(&header(10, "a")).await;
    assert!(stale.starts_with("HTTP/1.1 412") && stale.contains("urn:leasehold:fence:stale"), "{stale}");
    assert!(ask("").await.starts_with("HTTP/1.1 428"));
    let twice = format!("{}{}", header(20, "b"), header(30, "c"));
    assert!(ask(&twice).await.starts_with("HTTP/1.1 400"));
    server.abort();
}
