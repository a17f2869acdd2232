//! The table of cases through every way in: tokio-postgres, sqlx, the functions from plain psql, and the trigger.

use leasehold::{
    Resource,
    fence::{
        NotAdmitted, Pass,
        postgres::{PostgresFence, SqlxFence},
    },
};
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::{Base, arguments, quoted};
use crate::table::{Answer, Door, keeps, word};

const WRITE: &str =
    "INSERT INTO data VALUES ($1, $2, $3) ON CONFLICT (space, name) DO UPDATE SET value = excluded.value";
const READ: &str = "SELECT value FROM data WHERE space = $1 AND name = $2";

fn key(pass: &Pass) -> (&str, &str) {
    (pass.namespace.as_str(), pass.resource.as_str())
}

fn raise(base: &Base, pass: &Pass) -> Answer {
    let (space, name) = key(pass);
    base.psql(&format!("SELECT leasehold.fence_raise({}, {}, '{space}', 'alice')", quoted(name), pass.token))
        .unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

struct Tokio {
    runtime: Runtime,
    base: Base,
    client: Client,
    fence: PostgresFence,
}

impl Tokio {
    async fn try_write(&mut self, pass: &Pass, value: &str) -> Result<(), NotAdmitted> {
        let tx = self.client.transaction().await.unwrap();
        let (space, name) = key(pass);
        tx.execute(WRITE, &[&space, &name, &value]).await.unwrap();
        let answer = self.fence.check(&tx, pass).await;
        // Committed by a caller who does not look: a refused transaction is spoilt.
        let _ = tx.commit().await;
        answer
    }
}

impl Door for Tokio {
    fn seal(&mut self, pass: &Pass) -> Answer {
        word(self.runtime.block_on(self.fence.seal(&mut self.client, pass)))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        let handle = self.runtime.handle().clone();
        word(handle.block_on(self.try_write(pass, value)))
    }

    fn write_without_token(&mut self, _: &Resource, _: &str) -> Option<Answer> {
        None
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        let (space, name) = key(pass);
        let row = self.runtime.block_on(self.client.query_opt(READ, &[&space, &name])).unwrap();
        row.map(|row| row.get(0))
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        raise(&self.base, pass)
    }
}

#[test]
fn postgres_keeps_the_table_in_transactions_of_tokio_postgres() {
    let runtime = runtime();
    let base = runtime.block_on(Base::new());
    let client = runtime.block_on(base.client());
    keeps("postgres (tokio)", &mut Tokio { runtime, base, client, fence: PostgresFence::default() });
}

struct Sqlx {
    runtime: Runtime,
    base: Base,
    connection: PgConnection,
    fence: SqlxFence,
}

impl Door for Sqlx {
    fn seal(&mut self, pass: &Pass) -> Answer {
        word(self.runtime.block_on(self.fence.seal(&mut self.connection, pass)))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        let (fence, connection) = (&self.fence, &mut self.connection);
        word(self.runtime.block_on(async {
            let mut tx = connection.begin().await.unwrap();
            let (space, name) = key(pass);
            sqlx::query(WRITE).bind(space).bind(name).bind(value).execute(&mut *tx).await.unwrap();
            let answer = fence.check(&mut tx, pass).await;
            let _ = tx.commit().await;
            answer
        }))
    }

    fn write_without_token(&mut self, _: &Resource, _: &str) -> Option<Answer> {
        None
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        let (space, name) = key(pass);
        let query = sqlx::query(READ).bind(space).bind(name).fetch_optional(&mut self.connection);
        self.runtime.block_on(query).unwrap().map(|row| row.get(0))
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        raise(&self.base, pass)
    }
}

#[test]
fn postgres_keeps_the_table_in_transactions_of_sqlx() {
    let runtime = runtime();
    let base = runtime.block_on(Base::new());
    let connection = runtime.block_on(PgConnection::connect(&base.url())).unwrap();
    keeps("postgres (sqlx)", &mut Sqlx { runtime, base, connection, fence: SqlxFence::default() });
}

/// Nothing but SQL, as any language would send it.
struct Psql {
    base: Base,
    /// With the trigger: the write does not name the fence.
    by_trigger: bool,
}

/// The answer of a statement that raises where a write does not count.
fn raised(answer: Result<String, String>) -> Answer {
    match answer {
        Ok(_) => "admitted".to_owned(),
        Err(text) => match text.split_once("reason=") {
            Some((_, rest)) => rest.split(' ').next().unwrap().to_owned(),
            None => text,
        },
    }
}

impl Psql {
    fn call(function: &str, pass: &Pass) -> String {
        let op_seq = match pass.op_seq {
            Some(op_seq) if function != "seal" => format!(", op_seq => {op_seq}"),
            _ => String::new(),
        };
        format!(
            "SELECT leasehold.fence_{function}({}{op_seq}, namespace => '{}')",
            arguments(pass),
            pass.namespace
        )
    }

    fn data(pass: &Pass, value: &str) -> String {
        let (space, name) = key(pass);
        let (name, value) = (quoted(name), quoted(value));
        format!(
            "INSERT INTO data VALUES ('{space}', {name}, {value}) ON CONFLICT (space, name) DO UPDATE SET value = {value}"
        )
    }
}

impl Door for Psql {
    fn seal(&mut self, pass: &Pass) -> Answer {
        raised(self.base.psql(&Self::call("seal", pass)))
    }

    fn write(&mut self, pass: &Pass, value: &str) -> Answer {
        let function = if self.by_trigger { "present" } else { "check" };
        let (call, data) = (Self::call(function, pass), Self::data(pass, value));
        raised(self.base.psql(&format!("BEGIN; {call}; {data}; COMMIT")))
    }

    fn write_without_token(&mut self, resource: &Resource, value: &str) -> Option<Answer> {
        let pass = Pass { resource: resource.clone(), ..crate::table::pass("x", 1, 1) };
        let data = Self::data(&pass, value);
        let name = quoted(resource.as_str());
        Some(raised(self.base.psql(&if self.by_trigger {
            data
        } else {
            format!("BEGIN; SELECT leasehold.fence_check({name}, NULL, NULL); {data}; COMMIT")
        })))
    }

    fn read(&mut self, pass: &Pass) -> Option<String> {
        let (space, name) = key(pass);
        let sql = format!("SELECT value FROM data WHERE space = '{space}' AND name = {}", quoted(name));
        Some(self.base.psql(&sql).unwrap()).filter(|value| !value.is_empty())
    }

    fn raise(&mut self, pass: &Pass) -> Answer {
        raise(&self.base, pass)
    }
}

#[test]
fn postgres_keeps_the_table_for_plain_psql() {
    let base = runtime().block_on(Base::new());
    keeps("postgres (psql)", &mut Psql { base, by_trigger: false });
}

#[test]
fn postgres_keeps_the_table_by_a_trigger() {
    let base = runtime().block_on(Base::new());
    // The table holds both namespaces of the cases; each has a trigger's worth of rows.
    let sql = "SELECT leasehold.fence_table('data', 'name');
        ALTER TABLE data DISABLE TRIGGER leasehold_fence;
        CREATE TRIGGER fence_default AFTER INSERT OR UPDATE ON data FOR EACH ROW WHEN (NEW.space = 'default')
            EXECUTE FUNCTION leasehold.fence_row('name', 'default', '');
        CREATE TRIGGER fence_other AFTER INSERT OR UPDATE ON data FOR EACH ROW WHEN (NEW.space = 'other')
            EXECUTE FUNCTION leasehold.fence_row('name', 'other', '')";
    base.psql(sql).unwrap();
    keeps("postgres (trigger)", &mut Psql { base, by_trigger: true });
}

#[test]
fn what_psql_is_told_says_who_and_what_and_is_counted_although_rolled_back() {
    let base = runtime().block_on(Base::new());
    let seal = |token: u64, grant: &str, holder: &str| {
        base.psql(&format!(
            "SELECT leasehold.fence_seal('orders/42', {token}, '{}', holder => '{holder}')",
            grant.repeat(32)
        ))
    };
    seal(20, "b", "bob").unwrap();
    let refused = || base.psql("SELECT leasehold.fence_refused()").unwrap();
    assert_eq!(refused(), "0");
    let told = seal(10, "a", "alice").unwrap_err();
    for part in [
        "the write to orders/42 under fencing token 10 does not count: a later write was admitted, under fencing token 20 of bob",
        "stored_token=20",
        "stop, and acquire the lease anew",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(refused(), "1");
    let wrong = base.psql(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT leasehold.fence_seal('r', 1, gen_random_uuid())",
    );
    assert!(
        wrong.unwrap_err().contains("transaction of its own"),
        "a seal must not share the snapshot of what is read"
    );
}
