//! Follows what the coordinator keeps: one look at one resource, now and again.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leasehold_core::{Error, Invalid};

use super::{
    Head,
    read::{place, rules},
    write::keep,
};
use crate::{
    Leases,
    cell::{self, Cell},
    clock,
    leases::Client,
    observe,
    settings::{Follower, Rules},
};

/// Between two looks, at least and at most (ours: an operator waits for seconds; ten minutes are as good as never).
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// What stands there for longer than this is written once more: less than half of the time after which it would be forgotten
/// as unused, and seldom enough that the history keeps its changes.
const OLD_US: u64 = 3 * 24 * 3_600 * 1_000_000;

impl Leases {
    /// Takes settings from the coordinator too, for as long as this client lives: those that
    /// [`Leases::store_settings`] has left there count where this client's own say nothing. They are looked at now and every
    /// `every` (1 s to 10 min, ±15 %; ten seconds are usual), by one read of one resource; a change counts as one of
    /// [`Leases::retune`] does, so it is in force everywhere one look later. One that is refused, or
    /// cannot be read, changes nothing, which is said once in the log; so does a coordinator that has forgotten them.
    ///
    /// **Cancel safety.** Dropping the future follows nothing.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for a time out of bounds; what the coordinator says when it cannot be asked now. Settings that are
    /// refused now are no error: [`Follower::problem`].
    pub async fn follow_coordinator(&self, every: Duration) -> Result<Follower, Error> {
        if every < EVERY.0 || every > EVERY.1 {
            return Err(Invalid::new("time between looks", "must be 1s to 10m").into());
        }
        let (client, follower) = (self.client(), Follower::default());
        let mut seen = Seen::default();
        let cell = seen.look(client, &follower).await?;
        let keeper = Arc::downgrade(client);
        client.driver.spawn({
            let follower = follower.clone();
            async move {
                // Not every client lives until the next look.
                if let Some(client) = keeper.upgrade() {
                    refresh(&client, &cell).await;
                }
                attend(keeper, seen, every, follower).await;
            }
        });
        Ok(follower)
    }
}

/// The time to the next look: those who began together look apart.
fn pause(every: Duration, random: u64) -> Duration {
    let part = u32::try_from(random >> 54).unwrap_or_default();
    every * 85 / 100 + every * 30 / 100 * part / 1_023
}

/// Looks again and again, until the client is gone.
async fn attend(client: Weak<Client>, mut seen: Seen, every: Duration, follower: Follower) {
    loop {
        let Some(random) = client.upgrade().map(|client| client.draw()) else { return };
        tokio::select! {
            () = tokio::time::sleep(pause(every, random)) => {}
            () = follower.rung() => {}
        }
        let Some(client) = client.upgrade() else { return };
        // Who cannot ask hears of it from the renewals, and what counted still counts.
        if let Ok(cell) = seen.look(&client, &follower).await {
            refresh(&client, &cell).await;
        }
    }
}

/// What was there at the last look.
#[derive(Default)]
struct Seen(Option<String>);

impl Seen {
    /// Looks, and lets count what is new.
    async fn look(&mut self, client: &Client, follower: &Follower) -> Result<Cell, Error> {
        let cell = cell::read(client, &place()?).await?;
        let line = cell.line.as_str();
        if self.0.as_deref() == Some(line) || (self.0.is_none() && line.is_empty()) {
            return Ok(cell);
        }
        let found = rules(client, line).await?;
        self.0 = Some(line.to_owned());
        let answer = match found {
            Ok(Some((change, rules))) => take(client, rules).map(|()| change),
            Ok(None) => Err("it has forgotten them".to_owned()),
            Err(problem) => Err(problem),
        };
        match &answer {
            Ok(change) => observe::stored_settings(&client.namespace, change),
            Err(problem) => observe::stored_settings_refused(&client.namespace, problem),
        }
        follower.tell(answer.err());
        Ok(cell)
    }
}

fn take(client: &Client, rules: Rules) -> Result<(), String> {
    client.replace(rules, |layers| &mut layers.common).map_err(|error| error.to_string())
}

/// Keeps what stands there from being forgotten. That it came to nothing matters to nobody: there are days to try again.
async fn refresh(client: &Client, cell: &Cell) {
    if !is_old(cell.at_us, clock::unix_us()) {
        return;
    }
    if let Ok(Some(head)) = Head::read(cell.line.as_str()) {
        let _ = keep(client, &head).await;
    }
}

fn is_old(at_us: u64, now_us: u64) -> bool {
    now_us.saturating_sub(at_us) > OLD_US
}

#[cfg(test)]
mod tests {
    use leasehold_core::request::Purge;

    use super::*;

    #[test]
    fn looks_stray_by_fifteen_percent() {
        let every = Duration::from_secs(100);
        let around = [0, u64::MAX].map(|random| pause(every, random).as_secs());
        assert_eq!(around, [85, 115]);
    }

    #[test]
    fn what_is_old_is_written_again_long_before_it_is_forgotten() {
        let now = 1_767_323_045_678_901;
        assert!(!is_old(now, now) && !is_old(now - OLD_US, now) && is_old(now - OLD_US - 1, now));
        // A clock that is behind keeps nothing; others do.
        assert!(!is_old(now + OLD_US, now));
        assert!(u128::from(2 * OLD_US) < Purge::IDLE.as_micros());
    }
}
