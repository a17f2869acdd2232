//! What single facts of a deployment mean.

use std::borrow::Cow;

use crate::doctor::{Finding, Verdict};

/// The oldest version that is in support.
const TRIED: i64 = 130_000;

pub(super) fn version(number: i64) -> Finding {
    let fact = format!("PostgreSQL {}.{}", number / 10_000, number % 10_000);
    if number >= TRIED {
        Finding::fine("version", "durability", fact)
    } else {
        Finding::new(
            Verdict::Warning,
            "version",
            "durability",
            fact,
            "use PostgreSQL 13 or later: older ones are out of support",
        )
    }
}

pub(super) fn on(
    setting: &str,
    subject: &'static str,
    otherwise: &'static str,
    cure: &'static str,
) -> Finding {
    match setting {
        "on" => Finding::fine(subject, "durability", format!("{subject} is on")),
        other => Finding::new(
            Verdict::Fault,
            subject,
            "durability",
            format!("{subject} is {other}: {otherwise}"),
            cure,
        ),
    }
}

pub(super) fn commit(setting: &str) -> Finding {
    match setting {
        "on" | "remote_apply" => {
            Finding::fine("synchronous_commit", "durability", format!("synchronous_commit is {setting}"))
        }
        other => Finding::new(
            Verdict::Warning,
            "synchronous_commit",
            "durability",
            format!(
                "synchronous_commit is {other} for this role; leases switch it on for themselves, other work under a lease does not"
            ),
            "set synchronous_commit = on for this role or database",
        ),
    }
}

pub(super) fn standby(names: &str, standbys: i64) -> Finding {
    match (names.trim(), standbys) {
        ("", 0) => Finding::new(
            Verdict::Note,
            "standby",
            "durability",
            "there is no standby: losing the disk loses the leases",
            "add a standby, and name it in synchronous_standby_names",
        ),
        ("", _) => Finding::new(
            Verdict::Warning,
            "standby",
            "windows",
            "the standby is asynchronous: a failover may forget the last grants, and then pauses for the longest TTL",
            "name it in synchronous_standby_names, and fence the old primary off in every failover",
        ),
        (names, _) => Finding::fine("standby", "windows", format!("commits wait for {names}")),
    }
}

pub(super) fn recovery(is: bool) -> Finding {
    if is {
        return Finding::new(
            Verdict::Fault,
            "role",
            "windows",
            "this server is a standby",
            "name the primary in the URL, or all hosts",
        );
    }
    Finding::fine("role", "windows", "this server is a primary")
}

pub(super) fn isolation(default: &str) -> Finding {
    if default == "read committed" {
        return Finding::fine("isolation", "windows", "transactions are read committed by default");
    }
    let fact = format!(
        "transactions are {default} by default; each request is framed by BEGIN and COMMIT because of it"
    );
    Finding::new(
        Verdict::Note,
        "isolation",
        "windows",
        fact,
        "set default_transaction_isolation to read committed for this role",
    )
}

pub(super) fn statement_timeout(ms: i64) -> Finding {
    match ms {
        1..2_000 => Finding::new(
            Verdict::Warning,
            "statement_timeout",
            "waiting",
            format!("statements of this role are cancelled after {ms} ms"),
            "set statement_timeout to 5s or more for this role",
        ),
        _ => Finding::fine("statement_timeout", "waiting", format!("statement_timeout is {ms} ms (0: none)")),
    }
}

pub(super) fn idle_timeout(ms: i64) -> Finding {
    match ms {
        0 => Finding::new(
            Verdict::Note,
            "idle_in_transaction_session_timeout",
            "waiting",
            "a transaction that somebody leaves open may keep the row of a lease locked for ever",
            "set idle_in_transaction_session_timeout",
        ),
        ms => Finding::fine(
            "idle_in_transaction_session_timeout",
            "waiting",
            format!("open transactions end after {ms} ms"),
        ),
    }
}

pub(super) fn headroom(most: i64, used: i64) -> Finding {
    let fact = format!("{used} of {most} connections are used");
    if used * 10 > most * 9 {
        return Finding::new(
            Verdict::Warning,
            "connections",
            "waiting",
            fact,
            "raise max_connections, or put a pooler in between",
        );
    }
    Finding::fine("connections", "waiting", fact)
}

pub(super) fn rights(all: bool, cure: impl Into<Cow<'static, str>>) -> Finding {
    if all {
        return Finding::fine("permissions", "windows", "this role may do everything that leases need");
    }
    Finding::new(
        Verdict::Fault,
        "permissions",
        "windows",
        "this role may not do everything that leases need",
        cure,
    )
}

pub(super) fn hot(updates: i64, hot: i64) -> Finding {
    if updates > 1_000 && hot * 100 < updates * 80 {
        return Finding::new(
            Verdict::Warning,
            "updates",
            "waiting",
            format!("only {hot} of {updates} changes of lease rows left the indexes alone"),
            "drop indexes that were added to the table, and end long transactions",
        );
    }
    Finding::fine(
        "updates",
        "waiting",
        format!("{hot} of {updates} changes of lease rows left the indexes alone"),
    )
}

pub(super) fn bloat(dead: i64, live: i64) -> Finding {
    if dead > 10_000 && dead > live * 5 {
        return Finding::new(
            Verdict::Warning,
            "bloat",
            "waiting",
            format!("the lease table has {dead} dead rows beside {live} live ones"),
            "let autovacuum reach the table: end transactions that are open for long",
        );
    }
    Finding::fine("bloat", "waiting", format!("the lease table has {dead} dead rows beside {live} live ones"))
}
