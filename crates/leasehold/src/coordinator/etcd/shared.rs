//! Grants that share one lease (`shared_lease`): who ends those that nobody renews.
//!
//! etcd ends a lease with everything on it. A grant that was forgotten, or whose claim was cut off before its answer, would
//! live on for as long as its client renews any other. So the client itself ends those of its own whose time is over, each
//! by removing its mark.
//!
//! A renewal of such a grant must not be believed and the grant ended all the same. Whose time is over is decided under the
//! lock under which a renewal is believed ([`super::grants`]): whichever comes first, the other is told. And a client
//! that renews a grant which hangs on somebody else's shared lease moves it to a lease of its own first, which changes the
//! mark: the end that its former client may be about to make is then refused by etcd.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, LeaseId};

use super::{engine::Engine, failure::Fail, grants::Known, proto::RequestOp};
use crate::clock;

/// How long after its time a grant is ended: etcd itself takes up to half a second.
const SLACK_US: u64 = 500_000;
/// Between two looks at most; a grant's term is at least twice as long.
const ROUND: Duration = Duration::from_secs(1);

/// Ends what is over until the client is gone.
pub(super) async fn end_overdue(engine: Arc<Engine>) {
    loop {
        let now_us = clock::boot_us();
        let (over, next) = engine.grants.overdue(now_us, SLACK_US);
        for (lease_id, known) in over {
            // What cannot be ended now is tried again.
            let _ = engine.end(lease_id, &known).await;
        }
        let until = next.map_or(ROUND, |next| Duration::from_micros(next.saturating_sub(now_us)));
        tokio::time::sleep(until.clamp(ROUND / 20, ROUND)).await;
    }
}

impl Engine {
    async fn end(&self, lease_id: LeaseId, known: &Known) -> Result<(), Error> {
        let view = self.read(&known.resource).await?;
        let held = view.state.held.as_ref().filter(|held| held.lease_id == lease_id.as_bytes());
        if held.is_none() || view.mark.is_none_or(|mark| mark.lease != known.armed.lease) {
            // It has ended otherwise, or hangs on another lease now.
            self.grants.forget(lease_id);
            return Ok(());
        }
        // The state is left as it is: with the mark gone, it says that the grant expired.
        let change = vec![RequestOp::delete(self.keys.mark(&known.resource))];
        let ended = self.attempt(view.unchanged(&self.keys, &known.resource), change).await;
        if ended.map_err(Fail::of_write)?.is_some() {
            self.grants.forget(lease_id);
        }
        Ok(())
    }
}
