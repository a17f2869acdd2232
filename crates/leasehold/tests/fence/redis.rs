//! The scripts on a real Redis.

use leasehold::{
    Kind, Label, Resource,
    blocking::block_on,
    fence::{
        Fence, NotAdmitted, Pass,
        redis::{CHECK, RedisFence, redis},
    },
};
use leasehold_testkit::server::{Redis, RedisSetup, ask_redis};
use redis::{Value, aio::MultiplexedConnection};
use tokio::runtime::Runtime;

use crate::table::{Answer, Door, keeps, numbered, pass, word};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn connect(server: &Redis) -> MultiplexedConnection {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

struct Wrapped {
    runtime: Runtime,
    connection: MultiplexedConnection,
    fence: RedisFence,
    url: String,
}

fn data_key(pass: &Pass) -> String {
    format!("{{{}}}:data", RedisFence::tag(&pass.namespace, &pass.resource))
}

fn set(pass: &Pass, value: &str) -> redis::Cmd {
    redis::cmd("SET").arg(data_key(pass)).arg(value).to_owned()
}

impl Door for Wrapped {
    fn seal(&mut self, pass: &Pass) -> Answer {
        word(self.runtime.block_on(self.fence.seal(&mut self.connection, pass)))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        let key = data_key(pass);
        let (command, keys) = (set(pass, value), [key.as_str()]);
        let write = self.fence.write(&mut self.connection, pass, &command, &keys);
        word(self.runtime.block_on(write).map(|value| assert_eq!(value, Value::Okay)))
    }

    /// As any client would call the script, with nothing where the token should be.
    fn write_without_token(&mut self, resource: &Resource, _: &str) -> Option<Answer> {
        let key = RedisFence::key(&leasehold::Namespace::default(), resource);
        let mut call = redis::cmd("EVAL");
        call.arg(CHECK).arg(1).arg(key).arg(&["write", "", "", "", "", ""]);
        let answer: Vec<String> = self.runtime.block_on(call.query_async(&mut self.connection)).unwrap();
        Some(answer[0].clone())
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        let get = redis::cmd("GET").arg(data_key(pass)).to_owned();
        self.runtime.block_on(get.query_async(&mut self.connection)).unwrap()
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        let fence = block_on(Fence::connect(&self.url)).unwrap();
        let raised = block_on(fence.raise(&pass.namespace, &pass.resource, pass.token, &Label::default()));
        raised.unwrap().token.to_string()
    }
}

impl Wrapped {
    fn new(server: &Redis) -> Self {
        let runtime = runtime();
        let connection = runtime.block_on(connect(server));
        Self { runtime, connection, fence: RedisFence::default(), url: server.url() }
    }
}

#[test]
fn redis_keeps_the_table_around_a_write() {
    let server = RedisSetup::new().start().unwrap();
    keeps("redis (wrapped write)", &mut Wrapped::new(&server));
}

#[tokio::test]
async fn a_wrapped_command_answers_as_by_itself_and_fails_without_a_mark() {
    let server = RedisSetup::new().start().unwrap();
    let (fence, mut connection) = (RedisFence::default(), connect(&server).await);
    let (first, second) = (pass("r", 10, 1), pass("r", 20, 2));
    fence.seal(&mut connection, &first).await.unwrap();
    let key = data_key(&first);
    let push = redis::cmd("RPUSH").arg(&key).arg(&["a", "b"]).to_owned();
    assert_eq!(fence.write(&mut connection, &first, &push, &[&key]).await.unwrap(), Value::Int(2));
    let range = redis::cmd("LRANGE").arg(&key).arg(0).arg(-1).to_owned();
    let answer = fence.write(&mut connection, &first, &range, &[&key]).await.unwrap();
    assert_eq!(redis::from_redis_value::<Vec<String>>(answer).unwrap(), ["a", "b"]);
    // A later grant whose command fails has not been there.
    let wrong = redis::cmd("INCR").arg(&key).to_owned();
    let NotAdmitted::Failed(error) =
        fence.write(&mut connection, &second, &wrong, &[&key]).await.unwrap_err()
    else {
        panic!()
    };
    assert!(error.to_string().contains("WRONGTYPE") || error.kind() == Kind::Corrupt, "{error}");
    fence.check(&mut connection, &first).await.unwrap();
    // A binary value passes unharmed.
    let bytes: Vec<u8> = (0..=255).collect();
    let binary = redis::cmd("SET").arg("{default:r}:bytes").arg(&bytes[..]).to_owned();
    fence.write(&mut connection, &first, &binary, &["{default:r}:bytes"]).await.unwrap();
    let get: Vec<u8> = redis::cmd("GET").arg("{default:r}:bytes").query_async(&mut connection).await.unwrap();
    assert_eq!(get, bytes);
}

#[test]
fn a_redis_that_forgot_refuses_every_write_until_somebody_seals() {
    let server = RedisSetup::new().start().unwrap();
    let mut door = Wrapped::new(&server);
    assert_eq!(door.seal(&pass("r", 10, 1)), "admitted");
    assert_eq!(door.write(&pass("r", 10, 1), "a"), "admitted");
    ask_redis(server.address(), &[b"FLUSHALL"]).unwrap();
    assert_eq!(door.write(&pass("r", 10, 1), "a"), "no_such_resource");
    assert_eq!(door.seal(&pass("r", 20, 2)), "admitted");
    assert_eq!(door.write(&pass("r", 10, 1), "a"), "stale");
}

#[test]
fn what_is_no_token_never_reaches_the_fence() {
    let server = RedisSetup::new().start().unwrap();
    let mut door = Wrapped::new(&server);
    assert_eq!(door.seal(&pass("r", 10, 1)), "admitted");
    let id = "01".repeat(16);
    let key = RedisFence::key(&leasehold::Namespace::default(), &Resource::new("r").unwrap());
    let ask = |arguments: [&str; 6]| {
        let mut words: Vec<&[u8]> = vec![b"EVAL", CHECK.as_bytes(), b"1", key.as_bytes()];
        words.extend(arguments.iter().map(|argument| argument.as_bytes()));
        match ask_redis(server.address(), &words) {
            Ok(reply) => reply.text().lines().next().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(ask(["write", "10", &id, "", "", "600000000"]), "admitted");
    for token in
        ["0x10", "1e3", "-1", "9007199254740992", "99999999999999999999", " 10", "10.0", "nan", "inf", "10;"]
    {
        assert!(ask(["write", token, &id, "", "", ""]).contains("LHINVALID"), "{token}");
    }
    for lease_id in ["zz", "01", "' or 1"] {
        assert!(ask(["write", "10", lease_id, "", "", ""]).contains("LHINVALID"), "{lease_id}");
    }
    assert!(ask(["write", "10", &id, "0", "", ""]).contains("LHINVALID"));
    assert!(ask(["drop", "10", &id, "", "", ""]).contains("LHINVALID"));
    assert_eq!(
        ask(["write", "9007199254740991", &id, "", "", "600000000"]),
        "token_too_high",
        "by the server's clock"
    );
    assert_eq!(ask(["write", "9", &id, "", "", ""]), "stale");
    assert_eq!(door.write(&numbered("r", 10, 1, 3), "a"), "admitted");
    assert_eq!(ask(["write", "10", &id, "2", "", ""]), "stale");
}
