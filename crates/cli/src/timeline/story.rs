//! From entries to grants: when each began, when it was renewed, and how it ended.

use std::collections::{BTreeMap, HashMap};

use super::read::{Entries, Entry};

/// Everything that the logs tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// By namespace and resource.
    pub(crate) tales: BTreeMap<(String, String), Tale>,
    pub(crate) holders: HashMap<String, Holder>,
}

/// One process run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    pub(crate) label: String,
    namespace: String,
    /// How far its machine's clock is ahead of the coordinator's, as far as its grants show.
    ahead_us: Option<i64>,
}

/// One resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tale {
    /// By fencing token.
    pub(crate) grants: BTreeMap<u64, Grant>,
    /// Writes that a fence refused: when, under which token, and the highest that the fence had seen.
    pub(crate) bounced: Vec<(i64, u64, Option<u64>)>,
    /// How many claims were refused.
    pub(crate) refused: usize,
}

/// One grant. Times are µs since 1970 on the coordinator's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant {
    pub(crate) holder_id: String,
    pub(crate) lease_id: String,
    pub(crate) from_us: i64,
    pub(crate) ttl_us: i64,
    pub(crate) renewed: Vec<i64>,
    pub(crate) failed: Vec<i64>,
    pub(crate) draining: Option<i64>,
    /// The last sign of life, until the end is known.
    pub(crate) alive_us: i64,
    pub(crate) finish: Option<Finish>,
}

/// How a grant ended, as its holder or the one who ended it tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finish {
    pub(crate) at_us: i64,
    /// `released`, or why it was lost.
    pub(crate) reason: String,
}

impl Story {
    /// Tells it.
    pub(crate) fn of(read: &Entries) -> Self {
        let mut story = Self::default();
        for entry in &read.entries {
            story.meet(entry);
        }
        let mut entries: Vec<(i64, &Entry)> =
            read.entries.iter().map(|entry| (story.true_time(entry), entry)).collect();
        entries.sort_by_key(|(at_us, _)| *at_us);
        for (at_us, entry) in entries {
            story.tell(at_us, entry);
        }
        story
    }

    /// The grants' ends alone are not enough for a name: see who is who, and whose clock is off by how much.
    fn meet(&mut self, entry: &Entry) {
        let Some(id) = &entry.holder_id else { return };
        let holder = self.holders.entry(id.clone()).or_default();
        if let Some(label) = &entry.label {
            holder.label.clone_from(label);
        }
        if let Some(namespace) = &entry.namespace {
            holder.namespace.clone_from(namespace);
        }
        let fresh = entry.to.as_deref() == Some("held") && entry.reason.as_deref() != Some("adopted");
        if let Some(granted_us) = entry.granted_us.filter(|granted_us| fresh && *granted_us > 0) {
            // An answer takes its time: the fastest is nearest to the truth.
            let ahead_us = entry.at_us.saturating_sub(granted_us);
            holder.ahead_us = Some(holder.ahead_us.map_or(ahead_us, |known| known.min(ahead_us)));
        }
    }

    fn true_time(&self, entry: &Entry) -> i64 {
        let holder = entry.holder_id.as_ref().and_then(|id| self.holders.get(id));
        entry.at_us.saturating_sub(holder.and_then(|holder| holder.ahead_us).unwrap_or(0))
    }

    fn tell(&mut self, at_us: i64, entry: &Entry) {
        let Some(resource) = entry.resource.clone() else { return };
        let of_holder = entry.holder_id.as_ref().and_then(|id| self.holders.get(id));
        let namespace = entry.namespace.clone().or_else(|| of_holder.map(|holder| holder.namespace.clone()));
        let tale = self.tales.entry((namespace.unwrap_or_default(), resource)).or_default();
        if entry.message.starts_with("a write was refused") {
            tale.bounced.push((at_us, entry.fencing_token.unwrap_or(0), entry.stored_token));
            return;
        }
        let Some(token) = entry.fencing_token else {
            tale.refused += usize::from(entry.to.as_deref() == Some("refused"));
            return;
        };
        // Told by somebody else than the holder, and only of a grant that stood.
        if entry.message.starts_with("a grant was ended by its name") {
            if let Some(grant) =
                tale.grants.get_mut(&token).filter(|_| entry.reason.as_deref() == Some("named"))
            {
                grant.finish.get_or_insert(Finish { at_us, reason: "released".to_owned() });
            }
            return;
        }
        let grant = tale.grants.entry(token).or_insert_with(|| Grant { from_us: at_us, ..Grant::default() });
        grant.hear(at_us, entry);
    }
}

impl Grant {
    fn hear(&mut self, at_us: i64, entry: &Entry) {
        self.alive_us = self.alive_us.max(at_us);
        let keep = |kept: &mut String, told: &Option<String>| {
            if let Some(told) = told {
                kept.clone_from(told);
            }
        };
        keep(&mut self.holder_id, &entry.holder_id);
        keep(&mut self.lease_id, &entry.lease_id);
        if let Some(ttl_ms) = entry.ttl_ms {
            self.ttl_us = i64::try_from(ttl_ms).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000);
        }
        match entry.to.as_deref() {
            Some("draining") => self.draining = Some(at_us),
            // Handed to another process of that machine, which goes on.
            Some("lost") if entry.reason.as_deref() == Some("handed_off") => {}
            Some("lost") => self.finish(at_us, entry.reason.as_deref().unwrap_or("lost")),
            Some("released") => self.finish(at_us, "released"),
            _ if entry.failures.is_some() => self.failed.push(at_us),
            _ if entry.message == "the lease is renewed" => self.renewed.push(at_us),
            _ => {}
        }
    }

    fn finish(&mut self, at_us: i64, reason: &str) {
        self.finish.get_or_insert(Finish { at_us, reason: reason.to_owned() });
    }

    /// When it was last certain to be used.
    pub(crate) fn last_us(&self) -> i64 {
        self.finish.as_ref().map_or(self.alive_us, |finish| finish.at_us)
    }

    /// When it was over at the latest: without an end in the logs, a TTL after the last renewal.
    pub(crate) fn latest_us(&self) -> i64 {
        let renewed = self.renewed.last().copied().unwrap_or(self.from_us);
        self.finish.as_ref().map_or(renewed.saturating_add(self.ttl_us), |finish| finish.at_us)
    }

    /// How it ended, in a word.
    pub(crate) fn end_word(&self) -> &str {
        self.finish.as_ref().map_or("silent", |finish| finish.reason.as_str())
    }
}

impl Story {
    /// What people call a holder.
    pub(crate) fn name(&self, holder_id: &str) -> String {
        match self.holders.get(holder_id).map(|holder| holder.label.as_str()) {
            Some("") | None => holder_id.get(..8).unwrap_or(holder_id).to_owned(),
            Some(label) => label.to_owned(),
        }
    }
}
