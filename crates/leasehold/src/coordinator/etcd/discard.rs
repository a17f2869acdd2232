//! The end of a throwaway namespace: all its keys, and the leases that they hang on.
//!
//! A lease that nothing hangs on any more, of a client that was killed, cannot be told from anybody else's. It runs out by itself.

use std::{collections::BTreeSet, sync::Arc};

use leasehold_core::{Error, Namespace};

use super::{
    failure::Fail,
    keys::Keys,
    options::Options,
    proto::{
        Empty, LeaseRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, after_all,
    },
    rpc::{Effect, Rpc},
};

/// Removes all keys of a namespace, with their leases. How many keys there were.
///
/// # Errors
/// As [`super::connect`] when no member can be asked.
pub(crate) async fn discard(options: Options, namespace: &Namespace) -> Result<u64, Error> {
    let rpc = Arc::new(Rpc::new(&options)?);
    all(&rpc, &Keys::new(&options.prefix, namespace)).await.map_err(|error| error.at(&options.place))
}

async fn all(rpc: &Rpc, keys: &Keys) -> Result<u64, Error> {
    let root = keys.root();
    let range = RangeRequest { range_end: after_all(root.as_bytes()), ..RangeRequest::one(root) };
    let found: RangeResponse =
        rpc.call("/etcdserverpb.KV/Range", range.keys_only(), Effect::None).await.map_err(Fail::of_read)?;
    let leases: BTreeSet<i64> = found.kvs.iter().map(|key| key.lease).filter(|lease| *lease != 0).collect();
    for id in leases {
        let ended: Result<Empty, Fail> =
            rpc.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRequest { id }, Effect::Some).await;
        match ended {
            // It may have run out since it was read.
            Ok(_) | Err(Fail::NoLease) => {}
            Err(fail) => return Err(fail.of_write()),
        }
    }
    let success = vec![RequestOp::delete_below(root.to_owned())];
    let change = TxnRequest { success, ..TxnRequest::default() };
    let made: Result<TxnResponse, Fail> = rpc.call("/etcdserverpb.KV/Txn", change, Effect::Some).await;
    made.map_err(Fail::of_write)?;
    Ok(found.kvs.len() as u64)
}
