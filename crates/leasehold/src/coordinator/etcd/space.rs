//! The namespace: its settings, the base of its tokens, and the quarantine of one that is new or has lost its memory.
//!
//! etcd has no clock that a transaction could read, so a quarantine is a key on a lease of the longest TTL: while it is there,
//! nothing is granted, and etcd itself takes it away. Every grant compares it, and the settings, in its own step.
//!
//! etcd cannot tell whether it was restored from an old snapshot. An operator who restores one therefore removes the
//! settings (the key `meta`): the namespace then counts as one that has lost its memory, and begins with a base of the
//! moment, above all tokens that were given before.

use leasehold_core::{Error, Kind, Ttl, record::Prepared, request::Preparation};

use super::{
    engine::{Engine, ROUNDS},
    failure::Fail,
    proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse},
    record::{FORMAT, Meta},
    rpc::Effect,
    terms::seconds,
    view::{Tie, read_meta},
};
use crate::{clock, coordinator::rules};

/// The longest TTL of a namespace behind a network, unless it is made with another.
const DEFAULT_MAX_TTL_MS: u64 = 60_000;

fn default_max_ttl() -> Ttl {
    Ttl::from_millis(DEFAULT_MAX_TTL_MS).unwrap_or(Ttl::MIN)
}

/// The namespace as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) meta: Option<(Meta, i64)>,
    pub(super) quarantine: Option<Tie>,
    pub(super) revision: u64,
}

impl Engine {
    /// The longest TTL of a namespace that this client makes.
    pub(super) fn first_max_ttl(&self) -> Ttl {
        self.told().unwrap_or(default_max_ttl())
    }

    /// A client that would quarantine for another time than grants may last is refused.
    pub(super) fn agree(&self, max_ttl: Ttl) -> Result<(), Error> {
        let told = self.told();
        if told.unwrap_or(max_ttl.min(default_max_ttl())) == max_ttl {
            return Ok(());
        }
        let what = format!(
            "this client was told a longest TTL of {}, the namespace {} has {max_ttl}",
            told.unwrap_or(default_max_ttl()),
            self.namespace,
        );
        Err(Error::new(Kind::Invalid, what).at(&self.place).advise(format!(
            "put max_ttl={}ms into the URL, or change the namespace with `leasehold init --max-ttl`",
            max_ttl.as_millis()
        )))
    }

    /// Reads the namespace.
    pub(super) async fn space(&self) -> Result<Space, Error> {
        let success = vec![
            RangeRequest::one(self.keys.meta()).into(),
            RangeRequest::one(self.keys.quarantine()).keys_only().into(),
        ];
        let question = TxnRequest { success, ..TxnRequest::default() };
        let answer: TxnResponse = self
            .rpc
            .call("/etcdserverpb.KV/Txn", question, Effect::None)
            .await
            .map_err(|fail| fail.of_read().at(&self.place))?;
        let revision = answer.header.map_or(0, |header| header.revision.unsigned_abs());
        let mut keys = answer.responses.into_iter().map(super::proto::ResponseOp::into_keys);
        let mut next = || -> Vec<KeyValue> { keys.next().unwrap_or_default() };
        let meta = next().first().map(read_meta).transpose().map_err(|error| error.at(&self.place))?;
        Ok(Space { meta, quarantine: next().first().map(Tie::from), revision })
    }

    /// The first contact with a namespace that has no settings: it is new, or has lost its memory, and nobody can tell which.
    pub(super) async fn first_contact(&self) -> Result<(), Error> {
        let max_ttl = self.first_max_ttl();
        let (compare, change) = self.making(max_ttl, true).await?;
        // Who comes second finds it made.
        self.change(compare, change).await.map(drop)
    }

    /// What makes the namespace, with or without a quarantine.
    async fn making(&self, max_ttl: Ttl, quarantined: bool) -> Result<(Vec<Compare>, Vec<RequestOp>), Error> {
        let meta = Meta { format: FORMAT, base: clock::unix_us(), max_ttl_ms: max_ttl.as_millis() };
        let mut change = vec![RequestOp::put(self.keys.meta(), &meta, 0)];
        if quarantined {
            change.push(self.quarantining(max_ttl).await?);
        } else {
            change.push(RequestOp::delete(self.keys.quarantine()));
        }
        Ok((vec![Compare::created(self.keys.meta(), 0)], change))
    }

    /// What quarantines the namespace.
    pub(super) async fn quarantining(&self, max_ttl: Ttl) -> Result<RequestOp, Error> {
        let lease = self.grant_lease(seconds(max_ttl, std::time::Duration::ZERO)).await;
        let lease = lease.map_err(|fail| fail.of_read().at(&self.place))?.lease;
        Ok(RequestOp::put(self.keys.quarantine(), &super::proto::Empty {}, lease))
    }

    /// Makes a change of the namespace; false when something had changed before.
    pub(super) async fn change(&self, compare: Vec<Compare>, success: Vec<RequestOp>) -> Result<bool, Error> {
        let question = TxnRequest { compare, success, failure: Vec::new() };
        let answer: Result<TxnResponse, Fail> =
            self.rpc.call("/etcdserverpb.KV/Txn", question, Effect::Some).await;
        match answer {
            Ok(answer) => Ok(answer.succeeded),
            Err(Fail::NoLease) => Ok(false),
            Err(fail) => Err(fail.of_write().at(&self.place)),
        }
    }

    pub(super) async fn prepare(&self, preparation: Preparation) -> Result<Prepared, Error> {
        for _ in 0..ROUNDS {
            let space = self.space().await?;
            let (created, max_ttl, (compare, change)) = match space.meta {
                None => {
                    let max_ttl = preparation.max_ttl.unwrap_or_else(|| self.first_max_ttl());
                    (true, max_ttl, self.making(max_ttl, !preparation.fresh).await?)
                }
                Some((meta, written)) => {
                    let max_ttl = preparation.max_ttl.map_or_else(|| meta.max_ttl(), Ok)?;
                    (false, max_ttl, self.changing(preparation, space, meta, written).await?)
                }
            };
            if !change.is_empty() && !self.change(compare, change).await? {
                continue;
            }
            if preparation.max_ttl.is_some() || created {
                self.tell(max_ttl);
            }
            let space = self.space().await?;
            let quarantine = match (space.quarantine, space.meta) {
                (Some(tie), Some((meta, _))) => Some(self.quarantine_left(tie, &meta).await),
                _ => None,
            };
            return Ok(Prepared { created, max_ttl, quarantine, place: self.place.clone() });
        }
        Err(Error::new(Kind::Unavailable, "others changed the namespace again and again").at(&self.place))
    }

    /// What changes a namespace that is there. Nothing, where nothing is asked.
    async fn changing(
        &self,
        preparation: Preparation,
        space: Space,
        mut meta: Meta,
        written: i64,
    ) -> Result<(Vec<Compare>, Vec<RequestOp>), Error> {
        let compare = vec![
            Compare::written(self.keys.meta(), written),
            Compare::created(self.keys.quarantine(), space.quarantine.map_or(0, |tie| tie.created)),
        ];
        let mut change = Vec::new();
        if preparation.fresh {
            // One that is still in its first quarantine has never granted: who vouches for it may end that.
            if space.quarantine.is_none() {
                return Err(rules::not_fresh(self.namespace.as_str()).at(&self.place));
            }
            change.push(RequestOp::delete(self.keys.quarantine()));
        }
        if let Some(max_ttl) = preparation.max_ttl.filter(|max_ttl| max_ttl.as_millis() != meta.max_ttl_ms) {
            let raised = max_ttl.as_millis() > meta.max_ttl_ms;
            meta.max_ttl_ms = max_ttl.as_millis();
            change.push(RequestOp::put(self.keys.meta(), &meta, 0));
            // What was forgotten may be as long as the longest TTL that anybody has in mind.
            if raised && space.quarantine.is_some() && !preparation.fresh {
                change.push(self.quarantining(max_ttl).await?);
            }
        }
        Ok((compare, change))
    }
}
