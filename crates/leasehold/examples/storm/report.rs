//! What the storm came to.

use std::fmt;

use crate::{Failure, Setting, client::SENDERS, teller::Teller};

/// Counted at the end.
#[derive(Debug, Default)]
pub(crate) struct Report {
    keys_sent: u64,
    naive: bool,
    pub(crate) kills: u32,
    pub(crate) stops: u32,
    asked: u64,
    answered: u64,
    /// Answered from the key, without an effect.
    known: u64,
    /// Told to ask again.
    refused: u64,
    told: u64,
    /// Deliveries that the inbox knew.
    dropped: u64,
    keys: i64,
    effects: i64,
    events: i64,
    /// Payments without an effect of their own, or with more than one.
    distinct_effects: i64,
    distinct_events: i64,
}

impl Report {
    pub(crate) fn of(setting: &Setting) -> Self {
        Self { keys_sent: setting.keys, naive: setting.naive, ..Self::default() }
    }

    /// Adds what a process and its successors have written.
    pub(crate) fn read(&mut self, journal: &str) {
        for line in journal.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                (">", _) => self.asked += 1,
                ("!", _) => self.refused += 1,
                ("<", rest) => {
                    self.answered += 1;
                    self.known += u64::from(rest.ends_with("known"));
                }
                ("told", _) => self.told += 1,
                ("dropped", _) => self.dropped += 1,
                _ => {}
            }
        }
    }

    /// Looks at the tables.
    pub(crate) async fn count(&mut self, teller: &Teller) -> Result<(), Failure> {
        self.keys = teller.keys(self.naive).await?;
        (self.effects, self.distinct_effects) = teller.count_of("effect").await?;
        (self.events, self.distinct_events) = teller.count_of("told").await?;
        Ok(())
    }

    fn cut_off(&self) -> u64 {
        self.asked.saturating_sub(self.answered + self.refused)
    }

    fn is_exact(&self) -> bool {
        let numbers = [self.keys, self.effects, self.distinct_effects, self.events, self.distinct_events];
        i64::try_from(self.keys_sent).is_ok_and(|sent| numbers.iter().all(|number| *number == sent))
    }

    /// Was there a storm at all?
    fn is_calm(&self) -> bool {
        self.kills == 0 || self.stops == 0 || self.cut_off() == 0 || self.known == 0
    }

    /// The numbers are equal; in the control they must not be.
    pub(crate) fn is_as_it_should_be(&self) -> bool {
        self.is_exact() != self.naive && !self.is_calm()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} processes were killed (-9), {} stopped past the TTL", self.kills, self.stops)?;
        writeln!(
            f,
            "{} requests for {} answers: {} cut off, {} told to ask again; {} answered from the key",
            self.asked,
            self.keys_sent * SENDERS,
            self.cut_off(),
            self.refused,
            self.known
        )?;
        if !self.naive {
            let delivered = self.told + self.dropped;
            writeln!(f, "{delivered} deliveries of events, {} of them dropped by the inbox", self.dropped)?;
        }
        let Self { keys, effects, events, .. } = self;
        if self.is_exact() {
            writeln!(f, "keys {keys} = effects {effects} = events {events}")?;
        } else {
            let twice = effects - self.distinct_effects;
            let untold = i64::try_from(self.keys_sent).unwrap_or(i64::MAX) - self.distinct_events;
            writeln!(f, "keys {keys}, effects {effects}, events {events}")?;
            writeln!(f, "DAMAGE: {twice} charged once too often, {untold} never told")?;
        }
        if self.is_calm() {
            writeln!(f, "but it was a calm day, which shows nothing: take more --keys")?;
        }
        Ok(())
    }
}
