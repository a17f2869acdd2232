//! What a deployment is like: facts that leases depend on, each judged. Nothing here changes anything.

use std::sync::Arc;

use leasehold_core::{Error, Namespace};
use tokio_postgres::Row;

use super::{
    answer::unexpected,
    ident::quote,
    judge,
    link::{Dialler, Link},
    options::{Expiry, Listen, Mode, Options, Tls},
};
use crate::{
    clock,
    doctor::{Finding, Verdict, rate},
};

/// An offset of the server's clock below this is what time synchronisation leaves (ours).
const SMALL_OFFSET_US: u64 = 500_000;

/// Reads the facts.
///
/// # Errors
/// What connecting answers; then there is nothing to examine.
pub async fn examine(options: Options, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    let place = options.place.clone();
    look(options, namespace).await.map_err(|error| error.at(&place))
}

async fn look(options: Options, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    let dialler = Dialler::new(&options.target, quote(&options.schema))?;
    let link = dialler.dial(Arc::new(|_| {})).await?;
    let examination = Examination { link, dialler, options, namespace: namespace.clone() };
    let mut findings = examination.server().await?;
    findings.push(examination.clock().await?);
    findings.push(examination.clock_rate().await?);
    findings.push(examination.pooler().await?);
    findings.extend(examination.schema().await?);
    findings.push(examination.cover());
    Ok(findings)
}

struct Examination {
    link: Link,
    dialler: Dialler,
    options: Options,
    namespace: Namespace,
}

fn text(row: &Row, at: usize) -> String {
    row.try_get::<_, Option<String>>(at).ok().flatten().unwrap_or_default()
}

fn number(row: &Row, at: usize) -> i64 {
    row.try_get::<_, Option<i64>>(at).ok().flatten().unwrap_or_default()
}

fn flag(row: &Row, at: usize) -> bool {
    row.try_get::<_, Option<bool>>(at).ok().flatten().unwrap_or_default()
}

impl Examination {
    async fn row(&self, sql: &str) -> Result<Row, Error> {
        let rows = self.link.client.query_typed(sql, &[]).await;
        let rows = rows.map_err(|error| self.dialler.advice.of_statement(&error).without_effect())?;
        rows.into_iter().next().ok_or_else(unexpected)
    }

    async fn server(&self) -> Result<Vec<Finding>, Error> {
        let row = self
            .row(
                "SELECT current_setting('server_version_num')::bigint, current_setting('synchronous_commit'), \
                 current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes'), \
                 pg_is_in_recovery(), current_setting('default_transaction_isolation'), \
                 (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'), \
                 (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'), \
                 current_setting('max_connections')::bigint, (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
                 (SELECT count(*) FROM pg_stat_replication)",
            )
            .await?;
        Ok(vec![
            judge::version(number(&row, 0)),
            judge::on(
                &text(&row, 3),
                "fsync",
                "what was answered may be lost in a power failure",
                "set fsync = on in postgresql.conf",
            ),
            judge::on(
                &text(&row, 4),
                "full_page_writes",
                "a power failure may damage the tables",
                "set full_page_writes = on in postgresql.conf",
            ),
            judge::commit(&text(&row, 1)),
            judge::standby(&text(&row, 2), number(&row, 11)),
            judge::recovery(flag(&row, 5)),
            judge::isolation(&text(&row, 6)),
            judge::statement_timeout(number(&row, 7)),
            judge::idle_timeout(number(&row, 8)),
            judge::headroom(number(&row, 9), number(&row, 10)),
        ])
    }

    /// What the server's wall clock shows, µs since 1970.
    async fn unix_us(&self) -> Result<u64, Error> {
        let row = self.row("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await?;
        Ok(number(&row, 0).unsigned_abs())
    }

    /// How fast the server's wall clock runs.
    async fn clock_rate(&self) -> Result<Finding, Error> {
        let theirs = async || self.unix_us().await.map(|us| us.saturating_mul(1_000));
        let rate = rate::measure(rate::SPAN, theirs).await?;
        // An advisory lock ends with its session, and by that clock where the session cannot be seen.
        let ends_leases = self.options.expiry != Expiry::Observed;
        Ok(if ends_leases { rate.judged() } else { rate.judged_for_people() })
    }

    /// The server's wall clock against ours, with half the round trip as the error.
    async fn clock(&self) -> Result<Finding, Error> {
        let (sent, begun) = (clock::unix_us(), clock::boot_us());
        let theirs = self.unix_us().await?;
        let trip = clock::boot_us().saturating_sub(begun);
        let offset = theirs.abs_diff(sent + trip / 2);
        let fact = format!(
            "the server's clock differs from this machine's by {} ms (+/- {} ms)",
            offset / 1_000,
            trip / 2_000 + 1
        );
        Ok(if offset <= SMALL_OFFSET_US + trip {
            Finding::fine("clock", "windows", fact)
        } else {
            let verdict =
                if self.options.expiry == Expiry::Observed { Verdict::Note } else { Verdict::Warning };
            Finding::new(
                verdict,
                "clock",
                "windows",
                fact,
                "run time synchronisation on both machines: a step of the server's clock ends leases early, or late",
            )
        })
    }

    /// Two connections that share a session have a pooler in between, for certain.
    async fn pooler(&self) -> Result<Finding, Error> {
        let other = self.dialler.dial(Arc::new(|_| {})).await?;
        let mut shared = false;
        for _ in 0..3 {
            let mine = session(&self.link).await;
            // Kept busy by a transaction of its own, a session is lent to nobody else.
            let _ = other.client.batch_execute("BEGIN").await;
            let theirs = session(&other).await;
            let _ = other.client.batch_execute("COMMIT").await;
            shared |= mine.is_some() && mine == theirs;
        }
        if shared && self.options.mode == Mode::Advisory {
            return Ok(Finding::new(
                Verdict::Fault,
                "pooler",
                "windows",
                "a pooler lends sessions out, so none proves that its holder lives",
                "name the server's own address in the URL, or leave mode=advisory out: leases in the table need no session",
            ));
        }
        Ok(match (shared, &self.options.listen) {
            (false, _) => Finding::fine("pooler", "waiting", "connections have sessions of their own"),
            (true, Listen::At(_)) => Finding::fine(
                "pooler",
                "waiting",
                "a pooler lends sessions out, and wakes come by another address",
            ),
            (true, _) => Finding::new(
                Verdict::Note,
                "pooler",
                "waiting",
                "a pooler lends sessions out: nobody can be woken, and waiting is by looking again",
                "name the server's own address with listen_url=postgres://…",
            ),
        })
    }

    async fn schema(&self) -> Result<Vec<Finding>, Error> {
        let schema = &self.dialler.advice.schema;
        let made = self
            .row(&format!(
                "SELECT to_regclass({}) IS NOT NULL",
                super::ident::literal(&format!("{schema}.slot"))
            ))
            .await?;
        if !flag(&made, 0) {
            let fact = format!("the schema {schema} is not there");
            return Ok(vec![Finding::new(Verdict::Note, "schema", "windows", fact, "run `leasehold init`")]);
        }
        let table = super::ident::literal(&format!("{schema}.slot"));
        let row = self
            .row(&format!(
                "SELECT has_table_privilege({table}, 'SELECT') AND has_table_privilege({table}, 'INSERT') AND \
                 has_table_privilege({table}, 'UPDATE') AND has_table_privilege({table}, 'DELETE'), \
                 (SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = {table}::regclass), \
                 (SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = {table}::regclass), \
                 (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = {table}::regclass), \
                 (SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = {table}::regclass), \
                 has_function_privilege('pg_control_system()', 'EXECUTE')"
            ))
            .await?;
        let mut findings = vec![judge::rights(flag(&row, 0) && flag(&row, 5), self.dialler.advice.grants())];
        findings.push(judge::hot(number(&row, 1), number(&row, 2)));
        findings.push(judge::bloat(number(&row, 3), number(&row, 4)));
        if flag(&row, 0) {
            findings.push(self.namespace().await?);
        }
        Ok(findings)
    }

    async fn namespace(&self) -> Result<Finding, Error> {
        let sql = format!(
            "SELECT known = incarnation, mode, max_ttl_ms FROM {}.state_1({})",
            self.dialler.advice.schema,
            super::ident::literal(self.namespace.as_str())
        );
        let row = self.row(&sql).await?;
        let mode = text(&row, 1);
        Ok(if mode.is_empty() {
            Finding::new(
                Verdict::Note,
                "namespace",
                "windows",
                format!("the namespace {} is not there; its first claim begins a quarantine", self.namespace),
                "run `leasehold init`, with --fresh where nobody can hold a lease of it",
            )
        } else if !flag(&row, 0) {
            Finding::new(
                Verdict::Warning,
                "namespace",
                "windows",
                "the server is another one than the namespace knows, after a failover or a restore",
                "the next claim begins a quarantine; make sure that the old server is gone",
            )
        } else {
            let fact = format!(
                "the namespace {} judges expiry by {mode}; its longest TTL is {} ms",
                self.namespace,
                number(&row, 2)
            );
            Finding::fine("namespace", "windows", fact)
        })
    }

    fn cover(&self) -> Finding {
        let fact = |text: &str| format!("TLS: {text}");
        match self.options.target.tls {
            Tls::Always => {
                Finding::fine("tls", "windows", fact("always, with the server's certificate checked"))
            }
            Tls::Offered => Finding::new(
                Verdict::Warning,
                "tls",
                "windows",
                fact("only where the server offers it"),
                "say sslmode=verify-full",
            ),
            Tls::Off if self.options.target.hosts.iter().all(|host| super::options::is_local(&host.name)) => {
                Finding::fine("tls", "windows", fact("none; nothing leaves this machine"))
            }
            Tls::Off => Finding::new(
                Verdict::Warning,
                "tls",
                "windows",
                fact("none"),
                "say sslmode=verify-full, or use a network that you trust",
            ),
        }
    }
}

async fn session(link: &Link) -> Option<i32> {
    let rows = link.client.query_typed("SELECT pg_backend_pid()", &[]).await.ok()?;
    rows.first()?.try_get(0).ok()
}
