//! The lines of `history`.

use leasehold::{
    Namespace, Resource,
    core::record::{Inspection, Past},
    skip::Skipped,
};
use serde::Serialize;

use super::{EndFields, name, text};
use crate::people;

/// A line of `history`: a grant, whose `ended` is `null` while it stands; or somebody who came for nothing, without a grant.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryLine {
    resource: String,
    namespace: String,
    lease_id: Option<String>,
    holder_id: String,
    label: String,
    fencing_token: Option<u64>,
    granted_at: Option<String>,
    ended: Option<EndedFields>,
    skipped: Option<SkippedFields>,
}

/// Why there was nothing to do.
#[derive(Debug, Serialize)]
pub(crate) struct SkippedFields {
    at: Option<String>,
    once_per_ms: u64,
    last_success_at: Option<String>,
}

/// How a grant of the history ended.
#[derive(Debug, Serialize)]
pub(crate) struct EndedFields {
    /// `released`, `expired` or `revoked`.
    reason: &'static str,
    by: String,
    revoke_reason: Option<String>,
    at: Option<String>,
}

impl HistoryLine {
    /// The grant that stands, if any.
    pub(crate) fn standing(namespace: &Namespace, item: &Inspection) -> Option<Self> {
        let record = item.record.as_ref()?;
        Some(Self {
            resource: name(&item.resource),
            namespace: namespace.as_str().to_owned(),
            lease_id: Some(record.lease_id.to_string()),
            holder_id: record.holder_id.to_string(),
            label: text(&record.label),
            fencing_token: Some(record.token.get()),
            granted_at: people::exact_instant(record.granted_us),
            ended: None,
            skipped: None,
        })
    }

    /// One that has ended.
    pub(crate) fn ended(namespace: &Namespace, resource: &Resource, past: &Past) -> Self {
        let EndFields { reason, by, revoke_reason, lease_id, fencing_token, at } = EndFields::from(&past.end);
        Self {
            resource: name(resource),
            namespace: namespace.as_str().to_owned(),
            lease_id: Some(lease_id),
            holder_id: past.holder_id.to_string(),
            label: text(&past.label),
            fencing_token: Some(fencing_token),
            granted_at: people::exact_instant(past.granted_us),
            ended: Some(EndedFields { reason, by, revoke_reason, at }),
            skipped: None,
        }
    }

    /// One who came for nothing.
    pub(crate) fn skipped(namespace: &Namespace, resource: &Resource, skipped: &Skipped) -> Self {
        let once_per_ms = u64::try_from(skipped.once_per.as_millis()).unwrap_or(u64::MAX);
        Self {
            resource: name(resource),
            namespace: namespace.as_str().to_owned(),
            lease_id: None,
            holder_id: skipped.holder_id.to_string(),
            label: text(&skipped.label),
            fencing_token: None,
            granted_at: None,
            ended: None,
            skipped: Some(SkippedFields {
                at: people::exact_instant(skipped.at_us),
                once_per_ms,
                last_success_at: people::exact_instant(skipped.last_success_us),
            }),
        }
    }
}
