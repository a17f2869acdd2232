//! The end of a throwaway namespace: on every node, since each keeps what it knows by itself.

use futures_util::future::join_all;
use leasehold_core::{Error, Namespace};

use super::options::Options;
use crate::coordinator::redis as single;

/// Removes all keys of a namespace, on all nodes. How many there were.
///
/// # Errors
/// What the first node says that could not be asked, or refused; the others are done all the same.
pub(crate) async fn discard(options: Options, namespace: &Namespace) -> Result<u64, Error> {
    let nodes = options.hosts.iter().map(|host| single::discard(options.of_one(host), namespace));
    join_all(nodes).await.into_iter().sum()
}
