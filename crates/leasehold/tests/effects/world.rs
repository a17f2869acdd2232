//! Banks on all databases, and workers who can be made to crash.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Leases, Wait,
    coordinator::memory::MemoryStore,
    effects::{
        Answer, Key, Ledger, NotDone, Provider, Record, Request, Rules,
        failpoint::{Hook, Point},
        postgres::PostgresEffects,
        redis::RedisEffects,
        sqlite::SqliteEffects,
    },
    fence::{
        redis::redis::{self, AsyncConnectionConfig, aio::MultiplexedConnection},
        sqlite::rusqlite::Connection,
    },
};
use leasehold_testkit::server::{Postgres, Redis, RedisSetup};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_postgres::{Client, IsolationLevel, NoTls};

use crate::common::{Faults, faulty};

pub(crate) const BODY: &str = r#"{"amount": 30}"#;

/// One server for all tests of this process, gone with the last of them.
fn server() -> Arc<Postgres> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap();
    if let Some(server) = server.upgrade() {
        return server;
    }
    let started = Arc::new(Postgres::start().unwrap());
    *server = Arc::downgrade(&started);
    started
}

fn redis_server() -> Arc<Redis> {
    static SERVER: Mutex<Weak<Redis>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap();
    if let Some(server) = server.upgrade() {
        return server;
    }
    let started = Arc::new(RedisSetup::new().start().unwrap());
    *server = Arc::downgrade(&started);
    started
}

/// Where money is.
#[derive(Clone)]
pub(crate) enum Bank {
    Sqlite { path: PathBuf, folder: Arc<TempDir> },
    Postgres { server: Arc<Postgres>, name: String, level: IsolationLevel },
    Redis { server: Arc<Redis>, tag: String },
}

const TABLES: &str = "CREATE TABLE effect (key text NOT NULL, token bigint NOT NULL);
    CREATE TABLE seen (key text PRIMARY KEY, response text NOT NULL); CREATE TABLE told (key text NOT NULL);";

impl Bank {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bank = Self::Sqlite { path: folder.path().join("bank.db"), folder: Arc::new(folder) };
        let db = bank.file();
        db.execute_batch("PRAGMA journal_mode = WAL").unwrap();
        SqliteEffects::new(
            &leasehold::blocking::block_on(Leases::connect("memory:")).unwrap(),
            Rules::default(),
        )
        .unwrap()
        .install(&db)
        .unwrap();
        db.execute_batch(&TABLES.replace("bigint", "INTEGER")).unwrap();
        bank
    }

    pub(crate) async fn postgres() -> Self {
        Self::postgres_at(IsolationLevel::ReadCommitted).await
    }

    pub(crate) async fn postgres_at(level: IsolationLevel) -> Self {
        let server = server();
        let name = server.database().unwrap();
        let bank = Self::Postgres { server, name, level };
        let mut client = bank.client().await;
        let leases = Leases::connect("memory:").await.unwrap();
        PostgresEffects::new(&leases, Rules::default()).unwrap().install(&mut client, &[]).await.unwrap();
        client.batch_execute(TABLES).await.unwrap();
        bank
    }

    /// On a server that other banks share, under a tag of its own.
    pub(crate) fn redis() -> Self {
        Self::redis_on(&redis_server())
    }

    pub(crate) fn redis_on(server: &Arc<Redis>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("bank-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        Self::Redis { server: Arc::clone(server), tag }
    }

    pub(crate) async fn all() -> [Self; 3] {
        [Self::sqlite(), Self::postgres().await, Self::redis()]
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { path, .. } => format!("sqlite:{}", path.display()),
            Self::Postgres { server, name, .. } => server.url(name),
            Self::Redis { server, tag } => format!("{}?effects_tag={tag}", server.url()),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
            Self::Redis { .. } => "redis",
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    pub(crate) fn is_redis(&self) -> bool {
        matches!(self, Self::Redis { .. })
    }

    pub(crate) fn file(&self) -> Connection {
        let Self::Sqlite { path, folder } = self else { panic!("no file") };
        assert!(folder.path().is_dir());
        let db = Connection::open(path).unwrap();
        db.busy_timeout(Duration::from_secs(60)).unwrap();
        db.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
        db
    }

    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// What stands for a table where there are none.
    pub(crate) fn list(&self, name: &str) -> String {
        let Self::Redis { tag, .. } = self else { panic!("no Redis") };
        format!("{{{tag}}}:{name}")
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let Self::Redis { server, .. } = self else { panic!("no Redis") };
        connection(&server.url()).await
    }

    /// Runs a script that names this bank's own keys by a beginning, and gives a number.
    pub(crate) async fn lua(&self, script: &str) -> i64 {
        let Self::Redis { tag, .. } = self else { panic!("no Redis") };
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(format!("lheffects:{{{tag}}}:")).arg(self.list("effect"));
        command.query_async::<Option<i64>>(&mut self.connection().await).await.unwrap().unwrap_or_default()
    }

    pub(crate) async fn ledger(&self) -> Ledger {
        Ledger::connect(&self.url()).await.unwrap()
    }

    /// One statement.
    pub(crate) async fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite { .. } => self.file().execute_batch(sql).unwrap(),
            Self::Postgres { .. } => self.client().await.batch_execute(sql).await.unwrap(),
            Self::Redis { .. } => panic!("no SQL"),
        }
    }

    /// The number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        match self {
            Self::Sqlite { .. } => self.file().query_row(sql, [], |row| row.get(0)).unwrap(),
            Self::Postgres { .. } => self.client().await.query_one(sql, &[]).await.unwrap().get(0),
            Self::Redis { .. } => panic!("no SQL"),
        }
    }

    pub(crate) fn table(&self, name: &str) -> String {
        if self.is_sqlite() { format!("leasehold_{name}") } else { format!("leasehold.{name}") }
    }

    /// Keys that are done, effects, events.
    pub(crate) async fn counts(&self) -> (i64, i64, i64) {
        if let Self::Redis { .. } = self {
            return (
                self.lua(
                    "return redis.call('ZCARD', KEYS[1] .. 'keys') - redis.call('ZCARD', KEYS[1] .. 'open')",
                )
                .await,
                self.lua("return redis.call('LLEN', ARGV[1])").await,
                self.lua("return redis.call('ZCARD', KEYS[1] .. 'outbox')").await,
            );
        }
        let keys = format!("SELECT count(*) FROM {} WHERE state = 'done'", self.table("idempotency"));
        let events = format!("SELECT count(*) FROM {}", self.table("outbox"));
        (
            self.number(&keys).await,
            self.number("SELECT count(*) FROM effect").await,
            self.number(&events).await,
        )
    }
}

impl Bank {
    /// So many keys have an effect.
    pub(crate) async fn distinct(&self) -> i64 {
        if !self.is_redis() {
            return self.number("SELECT count(DISTINCT key) FROM effect").await;
        }
        let script = "local seen, many = {}, 0
            for _, row in ipairs(redis.call('LRANGE', ARGV[1], 0, -1)) do
                local key = string.match(row, '^(.*) %d+$')
                if not seen[key] then seen[key], many = true, many + 1 end
            end
            return many";
        self.lua(script).await
    }

    /// What the naive flow has left: keys, effects, and keys of which somebody was told.
    pub(crate) async fn naive_counts(&self) -> [i64; 3] {
        if !self.is_redis() {
            return [
                self.number("SELECT count(*) FROM seen").await,
                self.number("SELECT count(*) FROM effect").await,
                self.number("SELECT count(DISTINCT key) FROM told").await,
            ];
        }
        let length = |call: &str, list: &str| format!("return redis.call('{call}', '{}')", self.list(list));
        [
            self.lua(&length("HLEN", "seen")).await,
            self.lua(&length("LLEN", "effect")).await,
            self.lua(&length("HLEN", "told")).await,
        ]
    }
}

/// A connection that waits for a busy machine.
pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let long = Some(Duration::from_secs(60));
    let patient = AsyncConnectionConfig::new().set_response_timeout(long).set_connection_timeout(long);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Somebody who carries operations out: a client of the coordinator, and a connection to the bank.
pub(crate) struct Worker {
    pub(crate) bank: Bank,
    pub(crate) leases: Leases,
    pub(crate) faults: Arc<Faults>,
    rules: Rules,
    hook: Hook,
}

/// Short enough that a test sees it end.
pub(crate) const TTL: Duration = Duration::from_millis(400);

pub(crate) fn rules() -> Rules {
    Rules::default().ttl(TTL).wait(Wait::For(Duration::from_secs(60))).max_exec(Duration::from_secs(20))
}

pub(crate) type Outcome = Result<Answer, NotDone<String>>;

impl Worker {
    pub(crate) async fn new(bank: &Bank, store: &MemoryStore) -> Self {
        let (leases, faults) = faulty(store).await;
        Self { bank: bank.clone(), leases, faults, rules: rules(), hook: Hook::default() }
    }

    pub(crate) fn ruled(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Does this at every point.
    pub(crate) fn hooked(
        mut self,
        reached: impl Fn(Point) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Hook::new(reached);
        self
    }

    /// Ends like a process that is killed, when it comes to this point: nothing is rolled back but by the database, and the
    /// lease stays.
    pub(crate) fn crashing_at(self, fatal: Point) -> Self {
        let faults = Arc::clone(&self.faults);
        self.hooked(move |point| {
            let faults = Arc::clone(&faults);
            Box::pin(async move {
                if point == fatal {
                    die(&faults);
                }
            })
        })
    }

    pub(crate) fn sqlite(&self) -> SqliteEffects {
        SqliteEffects::new(&self.leases, self.rules).unwrap().failing(self.hook.clone())
    }

    pub(crate) fn postgres(&self) -> PostgresEffects {
        let effects = PostgresEffects::new(&self.leases, self.rules).unwrap().failing(self.hook.clone());
        match &self.bank {
            Bank::Postgres { level, .. } => effects.isolation(*level),
            _ => effects,
        }
    }

    pub(crate) fn redis(&self) -> RedisEffects {
        let Bank::Redis { tag, .. } = &self.bank else { panic!("no Redis") };
        let effects = RedisEffects::new(&self.leases, self.rules).unwrap().within(tag).unwrap();
        effects.failing(self.hook.clone())
    }

    /// The same on a connection that the caller has.
    pub(crate) async fn pay_redis(
        &self,
        connection: &mut MultiplexedConnection,
        key: &Key,
        request: &Request,
    ) -> Outcome {
        let list = self.bank.list("effect");
        let effects = self.redis();
        let paid = effects.run(connection, key, request, |tx| {
            Box::pin(async move {
                let mut push = redis::cmd("RPUSH");
                push.arg(&list).arg(format!("{} {}", tx.key().as_str(), tx.token()));
                tx.command(&push, &[&list]).map_err(|error| error.to_string())?;
                tx.emit("paid", &json!({"key": tx.key().as_str()})).map_err(|error| error.to_string())?;
                Ok(json!({"paid": tx.key().as_str(), "amount": 30.5}))
            })
        });
        paid.await
    }

    /// The operation of these tests: one effect, one event.
    pub(crate) async fn pay(&self, key: &str, body: &str) -> Outcome {
        self.pay_on(&format!("accounts/{key}"), key, body).await
    }

    pub(crate) async fn pay_on(&self, resource: &str, key: &str, body: &str) -> Outcome {
        let (key, request) = (Key::new("pay", key).unwrap(), Request::new(resource, body).unwrap());
        match &self.bank {
            Bank::Sqlite { .. } => {
                let mut db = self.bank.file();
                let work = |tx: &leasehold::effects::sqlite::SqliteTx<'_>| {
                    let token = i64::try_from(tx.token().get()).unwrap();
                    tx.execute("INSERT INTO effect VALUES (?1, ?2)", (tx.key().as_str(), token))
                        .map_err(|error| error.to_string())?;
                    tx.emit("paid", &json!({"key": tx.key().as_str()})).map_err(|error| error.to_string())?;
                    Ok(json!({"paid": tx.key().as_str(), "amount": 30.5}))
                };
                self.sqlite().run(&mut db, &key, &request, work).await
            }
            Bank::Postgres { .. } => {
                let mut client = self.bank.client().await;
                let effects = self.postgres();
                let work = effects.run(&mut client, &key, &request, |tx| {
                    Box::pin(async move {
                        let token = i64::try_from(tx.token().get()).unwrap();
                        tx.execute("INSERT INTO effect VALUES ($1, $2)", &[&tx.key().as_str(), &token])
                            .await
                            .map_err(|error| error.to_string())?;
                        tx.emit("paid", &json!({"key": tx.key().as_str()}))
                            .await
                            .map_err(|error| error.to_string())?;
                        Ok(json!({"paid": tx.key().as_str(), "amount": 30.5}))
                    })
                });
                work.await
            }
            Bank::Redis { .. } => self.pay_redis(&mut self.bank.connection().await, &key, &request).await,
        }
    }

    /// An operation at a far end, with an event.
    pub(crate) async fn call(&self, key: &str, provider: &impl Provider) -> Outcome {
        let (key, request) =
            (Key::new("far", key).unwrap(), Request::new(&format!("far/{key}"), BODY).unwrap());
        match &self.bank {
            Bank::Sqlite { .. } => {
                let mut db = self.bank.file();
                let finish = |tx: &leasehold::effects::sqlite::SqliteTx<'_>, far: Value| {
                    tx.emit("charged", &far).map_err(|error| error.to_string())?;
                    Ok(far)
                };
                self.sqlite().call(&mut db, &key, &request, provider, finish).await
            }
            Bank::Postgres { .. } => {
                let mut client = self.bank.client().await;
                let effects = self.postgres();
                let called = effects.call(&mut client, &key, &request, provider, |tx, far: Value| {
                    Box::pin(async move {
                        tx.emit("charged", &far).await.map_err(|error| error.to_string())?;
                        Ok(far)
                    })
                });
                called.await
            }
            Bank::Redis { .. } => {
                let (mut connection, effects) = (self.bank.connection().await, self.redis());
                let called = effects.call(&mut connection, &key, &request, provider, |tx, far: Value| {
                    Box::pin(async move {
                        tx.emit("charged", &far).map_err(|error| error.to_string())?;
                        Ok(far)
                    })
                });
                called.await
            }
        }
    }

    pub(crate) async fn look(&self, scope: &str, key: &str) -> Option<Record> {
        self.bank.ledger().await.record(&Key::new(scope, key).unwrap()).await.unwrap()
    }
}

/// What a panic carries that stands for a killed process.
pub(crate) struct Killed;

/// Ends this task like a process that is killed.
pub(crate) fn die(faults: &Faults) -> ! {
    faults.unreachable.store(true, Ordering::SeqCst);
    std::panic::resume_unwind(Box::new(Killed))
}

/// Runs a worker to its end; `None` when it was killed on the way.
pub(crate) async fn to_its_end<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    match tokio::spawn(task).await {
        Ok(value) => Some(value),
        Err(error) => {
            let panic = error.into_panic();
            assert!(panic.is::<Killed>(), "it failed instead of being killed");
            None
        }
    }
}
