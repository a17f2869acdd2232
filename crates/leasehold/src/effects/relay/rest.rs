//! What a relay does when it has found nothing: it rests until the database gives word, where it does, and looks again after a
//! while in any case.

use std::{fmt::Debug, pin::Pin, time::Duration};

use leasehold_core::Call;

use super::{Pace, Turn};

/// Word of new events, from a database that gives it.
pub(in crate::effects) trait Bell: Send + Sync + Debug {
    /// Asks for word of whatever is added **from now on**, and also of what was added and is not committed yet. False when there will be
    /// none: look from time to time.
    fn arm(&self) -> Call<'_, bool>;

    /// True until word is not asked for any more, or cannot come any more.
    fn is_armed(&self) -> bool;

    /// Ready when word has come, or cannot come any more. May be ready for nothing.
    fn rung(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Asks for no more word, so that nobody has to give it.
    fn disarm(&self) -> Call<'_, ()>;
}

/// Between the turns of a relay.
#[derive(Debug)]
pub(super) struct Rest(Option<Box<dyn Bell>>);

impl Rest {
    pub(super) fn new(bell: Option<Box<dyn Bell>>) -> Self {
        Self(bell)
    }

    /// How long to rest after this turn, at most.
    pub(super) async fn after(&self, turn: &Turn, pace: &Pace) -> Duration {
        if let Some((_, again_in)) = &turn.down {
            self.disarm().await;
            return again_in.unwrap_or(pace.retry).max(pace.poll);
        }
        if turn.waiting > 0 {
            // A busy relay looks by itself: those who add events need not tell it.
            self.disarm().await;
            return if turn.is_idle() { pace.poll } else { Duration::ZERO };
        }
        let Some(bell) = &self.0 else { return pace.poll };
        if bell.is_armed() {
            return pace.recheck;
        }
        match bell.arm().await {
            // What was committed before that is still to be looked for.
            Ok(true) => Duration::ZERO,
            Ok(false) => pace.poll,
            Err(error) => {
                tracing::debug!(%error, "there is no word of new events; the relay looks from time to time");
                pace.poll
            }
        }
    }

    async fn disarm(&self) {
        if let Some(bell) = self.0.as_ref().filter(|bell| bell.is_armed())
            && let Err(error) = bell.disarm().await
        {
            tracing::debug!(%error, "the connection on which word of new events comes is given up");
        }
    }

    /// Ready when word has come.
    pub(super) async fn rung(&self) {
        match self.0.as_ref().filter(|bell| bell.is_armed()) {
            Some(bell) => bell.rung().await,
            None => std::future::pending().await,
        }
    }
}
