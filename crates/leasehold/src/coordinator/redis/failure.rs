//! What Redis says when it does not do what was asked, in the words of the contract.
//!
//! A server that answers with an error has not run the script, or has stopped it before its first change; so what it says is
//! certain. Only a missing answer is unknown.

use leasehold_core::{Error, Kind};
use redis::{ErrorKind, RedisError};

use crate::address::Host;

/// What to do with the connection, or with the request, after a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Nothing: the connection is fine.
    Stay,
    /// The connection is not, or leads to the wrong server.
    Redial,
    /// The slot lives elsewhere: the request had no effect and may be sent there.
    Moved(Box<Host>),
    /// The same, for this request alone.
    Ask(Box<Host>),
    /// The server does not know the script: the request had no effect and may be sent again with its text.
    Teach,
    /// The slot is on its way: the request had no effect and may be sent again in a moment.
    Again,
}

/// A failure, and what follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) turn: Turn,
}

impl Failure {
    fn new(kind: Kind, what: impl Into<String>, advice: &'static str, turn: Turn) -> Self {
        Self { error: Error::new(kind, what).advise(advice), turn }
    }

    /// A request without an answer.
    pub(crate) fn unanswered(what: impl Into<String>) -> Self {
        Self::new(
            Kind::Unknown,
            what,
            "look at the server and at the network in between; the request is safe to repeat under the same lease id",
            Turn::Redial,
        )
    }

    /// A request that was not sent.
    pub(crate) fn unsent(what: impl Into<String>) -> Self {
        let advice = "see whether the server runs and can be reached from here";
        Self::new(Kind::Unavailable, what, advice, Turn::Redial)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, turn: Turn::Stay }
    }
}

/// A failure of a request that was sent.
pub(crate) fn of_request(error: &RedisError) -> Failure {
    match (error.kind(), error.code()) {
        (ErrorKind::Server(_) | ErrorKind::Extension, Some(code)) => {
            of_code(code, error.detail().unwrap_or_default())
        }
        (ErrorKind::Parse, _) => {
            Failure::unanswered("what came from the server is no answer in Redis' protocol")
        }
        _ => Failure::unanswered("the connection to the server broke before the answer came"),
    }
}

/// A failure to connect, to log in, or to choose the database: no request was sent.
pub(crate) fn of_login(error: &RedisError) -> Failure {
    let failure = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) => of_code("WRONGPASS", ""),
        (ErrorKind::Server(_) | ErrorKind::Extension, Some(code)) => {
            of_code(code, error.detail().unwrap_or_default())
        }
        (ErrorKind::Parse, _) => {
            Failure::unsent("what answers at this address does not speak Redis' protocol")
        }
        _ => Failure::unsent(format!("the server did not take the connection: {}", error.category())),
    };
    Failure { error: failure.error.without_effect(), turn: Turn::Redial }
}

/// What a server's error says. `code` is its first word.
pub(crate) fn of_code(code: &str, detail: &str) -> Failure {
    let said =
        |what: &str| if detail.is_empty() { what.to_owned() } else { format!("{what}: {}", shown(detail)) };
    let refuse = |kind, what: &str, advice, turn| Failure::new(kind, said(what), advice, turn);
    match code {
        "LOADING" => refuse(
            Kind::Unavailable,
            "the server is still loading its data",
            "wait until it has read its files",
            Turn::Stay,
        ),
        "READONLY" => refuse(
            Kind::Unavailable,
            "the server is a replica and takes no changes",
            "name the master in the URL, or let Sentinel name it with ?sentinel=NAME; during a failover, wait",
            Turn::Redial,
        ),
        "MASTERDOWN" => refuse(
            Kind::Unavailable,
            "the server is a replica without its master",
            "wait for the failover, or name the master",
            Turn::Redial,
        ),
        "OOM" => refuse(
            Kind::Unavailable,
            "the server's memory is full, so it makes nothing new",
            "raise maxmemory, or move other data elsewhere; leases that are held can still be renewed and released",
            Turn::Stay,
        ),
        "MISCONF" => refuse(
            Kind::Unavailable,
            "the server refuses changes because it cannot save them",
            "look at the server's log and at its disk (stop-writes-on-bgsave-error)",
            Turn::Stay,
        ),
        "NOREPLICAS" => refuse(
            Kind::Unavailable,
            "the server refuses changes because too few replicas follow it",
            "see to its replicas (min-replicas-to-write, min-replicas-max-lag)",
            Turn::Stay,
        ),
        "BUSY" => refuse(
            Kind::Unavailable,
            "the server is busy with somebody's long script",
            "end that script with SCRIPT KILL, or wait for it",
            Turn::Stay,
        ),
        "CLUSTERDOWN" => refuse(
            Kind::Unavailable,
            "the Cluster serves no requests",
            "look at CLUSTER INFO: a slot has no master",
            Turn::Redial,
        ),
        "TRYAGAIN" => refuse(
            Kind::Unavailable,
            "the Cluster is moving the slot",
            "ask again when it has been moved",
            Turn::Again,
        ),
        "MOVED" | "ASK" => redirected(code, detail),
        "CROSSSLOT" => refuse(
            Kind::Corrupt,
            "the Cluster splits keys that belong together",
            "report this: the keys share one hash tag",
            Turn::Stay,
        ),
        "NOAUTH" | "WRONGPASS" => Failure::new(
            Kind::Denied,
            "the server does not accept this user and password",
            "put the right ones into the URL: redis://USER:PASSWORD@HOST",
            Turn::Redial,
        ),
        "NOPERM" => refuse(
            Kind::Denied,
            "the server does not permit this user what leases need",
            "allow it the keys lh:*, the channels lh:*, and the commands in the documentation (ACL SETUSER)",
            Turn::Stay,
        ),
        "WRONGTYPE" | "LHCORRUPT" => refuse(
            Kind::Corrupt,
            "a key of ours holds somebody else's data, which is left as it is",
            "see what writes keys that begin with lh: and move or delete the key",
            Turn::Stay,
        ),
        "NOSCRIPT" => {
            refuse(Kind::Unavailable, "the server does not know the script", "ask again", Turn::Teach)
        }
        "LHUNSUPPORTED" => refuse(
            Kind::Unsupported,
            "the server cannot tell whether it may have forgotten leases",
            "use Redis or Valkey from version 6.2, directly or through something that passes INFO through",
            Turn::Stay,
        ),
        _ => of_text(code, detail),
    }
}

/// Errors that have no code of their own: what is known of their text, and the rest.
fn of_text(code: &str, detail: &str) -> Failure {
    let whole = format!("{code} {detail}");
    let known = [
        "LHCORRUPT",
        "LHUNSUPPORTED",
        "WRONGTYPE",
        "OOM",
        "READONLY",
        "MISCONF",
        "NOREPLICAS",
        "NOPERM",
        "NOAUTH",
        "CLUSTERDOWN",
    ];
    // Inside a script older servers put their own words in front.
    if let Some((found, rest)) = known.iter().find_map(|word| Some((*word, whole.split_once(word)?.1)))
        && code != found
    {
        return of_code(found, rest.trim());
    }
    let refuse = |kind, what: &str, advice| {
        Failure::new(kind, format!("{what}: {}", shown(&whole)), advice, Turn::Stay)
    };
    if whole.contains("unknown command") || whole.contains("Unknown Redis command") {
        return refuse(
            Kind::Unsupported,
            "the server lacks a command that leases need",
            "use Redis or Valkey from version 6.2 with EVAL permitted",
        );
    }
    if whole.contains("Missing bytes in input") || whole.contains("Bad data format in input") {
        let advice = "a key that begins with lh: is damaged: see what writes there, and delete it";
        return refuse(Kind::Corrupt, "a record of ours cannot be read any more", advice);
    }
    if whole.contains("max number of clients") {
        let advice = "raise maxclients at the server, or end some of them";
        return refuse(Kind::Unavailable, "the server takes no more connections", advice);
    }
    if whole.contains("DB index") {
        let advice = "name a database that the server has: redis://HOST/0";
        return refuse(Kind::Invalid, "the server has no such database", advice);
    }
    if whole.contains("without any password configured") {
        let advice = "leave the password out of the URL, or set one at the server";
        return refuse(Kind::Denied, "the server has no password and the URL names one", advice);
    }
    if whole.contains("Script killed") {
        // Only a script that has not changed anything yet can be killed.
        return refuse(Kind::Unavailable, "somebody killed the script at the server", "ask again");
    }
    refuse(
        Kind::Unknown,
        "the server answered with an error that is not known here",
        "see what the server's documentation says about it",
    )
}

fn redirected(code: &str, detail: &str) -> Failure {
    let host = detail.split_ascii_whitespace().nth(1).and_then(read_host).map(Box::new);
    let turn = match host {
        Some(host) if code == "MOVED" => Turn::Moved(host),
        Some(host) => Turn::Ask(host),
        None => Turn::Again,
    };
    Failure::new(
        Kind::Unavailable,
        "the server is part of a Cluster and does not have this slot",
        "add ?cluster=true to the URL",
        turn,
    )
}

/// `host:port`, as Cluster and Sentinel write it; the host may be an IPv6 address without brackets.
pub(crate) fn read_host(text: &str) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let port = port.split('@').next()?.parse().ok()?;
    Some(Host { name: name.to_owned(), port: Some(port) })
}

/// A server's words, on one line and not too long.
fn shown(text: &str) -> String {
    let text: String = text.chars().take(200).collect();
    crate::address::visible(text.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_server_has_its_kind_and_says_what_to_do() {
        let unavailable = [
            "LOADING",
            "READONLY",
            "MASTERDOWN",
            "OOM",
            "MISCONF",
            "NOREPLICAS",
            "BUSY",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "MOVED",
            "ASK",
            "NOSCRIPT",
        ];
        let denied = ["NOAUTH", "WRONGPASS", "NOPERM"];
        let corrupt = ["WRONGTYPE", "LHCORRUPT", "CROSSSLOT"];
        let all = unavailable.map(|code| (code, Kind::Unavailable)).into_iter();
        let all = all.chain(denied.map(|code| (code, Kind::Denied)));
        for (code, kind) in all.chain(corrupt.map(|code| (code, Kind::Corrupt))) {
            let error = of_code(code, "").error;
            assert_eq!(error.kind(), kind, "{code}");
            assert!(error.advice().is_some(), "{code}");
        }
        assert_eq!(of_code("ERR", "no such thing").error.kind(), Kind::Unknown);
        assert_eq!(of_code("ERR", "unknown command 'EVALSHA'").error.kind(), Kind::Unsupported);
        assert_eq!(of_code("ERR", "max number of clients reached").error.kind(), Kind::Unavailable);
    }

    #[test]
    fn a_word_inside_a_scripts_error_counts() {
        for (text, kind) in [
            (
                "Error running script (call to f_0): @user_script:9: WRONGTYPE Operation against a key",
                Kind::Corrupt,
            ),
            (
                "user_script:1: LHCORRUPT the key x holds something else script: 1, on @user_script:1.",
                Kind::Corrupt,
            ),
            ("@user_script: 12: OOM command not allowed", Kind::Unavailable),
        ] {
            assert_eq!(of_code("ERR", text).error.kind(), kind, "{text}");
        }
    }

    #[test]
    fn redirections_name_the_node() {
        let host = |name: &str, port| Box::new(Host { name: name.to_owned(), port: Some(port) });
        assert_eq!(of_code("MOVED", "3999 10.0.0.1:6381").turn, Turn::Moved(host("10.0.0.1", 6381)));
        assert_eq!(of_code("ASK", "3999 ::1:6381").turn, Turn::Ask(host("::1", 6381)));
        assert_eq!(of_code("MOVED", "nonsense").turn, Turn::Again);
    }

    #[test]
    fn a_password_is_not_repeated() {
        let error = of_code("WRONGPASS", "invalid username-password pair hunter2").error;
        assert!(!error.to_string().contains("hunter2"));
    }
}
