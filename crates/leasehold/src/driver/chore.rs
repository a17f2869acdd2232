//! What a dropped guard or a cancelled acquire leaves to do: end the grant, or take the claim back.
//!
//! Best effort, in the background, and bounded: after `give_up` the engine has let the grant expire by itself.

use std::{sync::Arc, time::Duration};

use leasehold_core::{backoff::Backoff, request::Release, window::ClockRule};

use crate::{clock, observe};

use super::{CALL_LIMIT, Core, no_answer, since};

/// A release to be sent.
#[derive(Debug)]
pub(crate) struct Chore {
    pub(crate) release: Release,
    /// When there is nothing left to end, counted from now.
    pub(crate) give_up: Duration,
}

/// Sends it until it is answered or moot.
pub(super) async fn work_off(core: Arc<Core>, chore: Chore) {
    let Chore { release, give_up } = chore;
    let mut last = None;
    let attempts = async {
        for attempt in 0.. {
            let sent = clock::read(ClockRule::Boot);
            let answer = tokio::time::timeout(CALL_LIMIT, core.coordinator.release(release.clone())).await;
            let answer = answer
                .unwrap_or_else(|_| Err(no_answer("release", CALL_LIMIT, &core.coordinator.profile().place)));
            core.meter.called("release", answer.as_ref().err(), since(sent));
            match answer {
                Ok(_) => return true,
                Err(error) if error.is_transient() => last = Some(error),
                Err(error) => {
                    last = Some(error);
                    return false;
                }
            }
            tokio::time::sleep(Backoff::default().delay(attempt, core.jitter.draw())).await;
        }
        false
    };
    let done = tokio::time::timeout(give_up, attempts).await.unwrap_or(false);
    if let Some(error) = last.filter(|_| !done) {
        observe::not_released(&release, core.holder_id, &error);
    }
}
