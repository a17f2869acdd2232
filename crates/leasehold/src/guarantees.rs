//! What each kind of deployment really gives: the table of the README, from the code.
//!
//! The rows are the very guarantee labels that a connected coordinator shows in its profile, so what is promised in public and
//! what a client is told cannot drift apart.

use std::fmt::Write as _;

use leasehold_core::profile::Guarantee;

/// One kind of deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// The URL that leads to it, in short.
    pub url: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    /// What it guarantees.
    pub guarantee: Guarantee,
}

/// All kinds, of the engines that this build has.
pub fn deployments() -> Vec<Deployment> {
    let mut all: Vec<Deployment> = Vec::new();
    #[cfg(feature = "sqlite")]
    all.extend(crate::coordinator::sqlite::DEPLOYMENTS.iter().cloned());
    #[cfg(feature = "postgres")]
    all.extend(crate::coordinator::postgres::deployments());
    #[cfg(feature = "redis")]
    all.extend(crate::coordinator::redis::deployments());
    #[cfg(feature = "redis")]
    all.extend(crate::coordinator::redlock::deployments());
    #[cfg(feature = "etcd")]
    all.extend(crate::coordinator::etcd::deployments());
    all.extend(crate::coordinator::memory::DEPLOYMENTS.iter().cloned());
    all
}

/// The table of all kinds, in Markdown.
pub fn table() -> String {
    let mut text = String::from(
        "| coordinator | for | no two windows overlap | tokens rise | after a restart or failover | to know |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for Deployment { url, what, guarantee } in deployments() {
        let Guarantee { windows, tokens, after_failover, caveat } = guarantee;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{url}` | {what} | {windows} | {tokens} | {after_failover} | {caveat} |");
    }
    text
}
