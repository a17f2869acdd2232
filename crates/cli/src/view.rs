//! The JSON of every verb. Field names are the glossary's, units come last, and what is not there is `null`: a key is
//! never missing. `docs/cli.md` lists them; scripts rely on them.

mod history;
mod settings;

use leasehold::{
    Label, Namespace, Resource, Ttl,
    core::record::{End, EndReason, Inspection, Notice, Record, WaiterInfo},
    doctor::Report,
    fence::{Mark, OpSeq},
};
use serde::Serialize;

pub(crate) use self::{
    history::HistoryLine,
    settings::{ChangeLine, SettingsLine},
};
use crate::{failure::Failure, people};

/// A grant. All of it is `null` where there is none.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct LeaseFields {
    pub(crate) lease_id: Option<String>,
    pub(crate) holder_id: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) granted_at: Option<String>,
    pub(crate) revoked: Option<NoticeFields>,
}

impl From<&Record> for LeaseFields {
    fn from(record: &Record) -> Self {
        Self {
            lease_id: Some(record.lease_id.to_string()),
            holder_id: Some(record.holder_id.to_string()),
            label: Some(text(&record.label)),
            fencing_token: Some(record.token.get()),
            ttl_ms: Some(record.ttl.as_millis()),
            remaining_ms: Some(millis(record.remaining)),
            granted_at: people::exact_instant(record.granted_us),
            revoked: record.revoked.as_ref().map(NoticeFields::from),
        }
    }
}

impl From<&Mark> for LeaseFields {
    /// The grant that a fence has let in, as far as it knows it.
    fn from(mark: &Mark) -> Self {
        Self {
            lease_id: mark.lease_id.map(|lease_id| lease_id.to_string()),
            label: Some(text(&mark.holder)),
            fencing_token: Some(mark.token.get()),
            ..Self::default()
        }
    }
}

/// A revocation that waits for the holder.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NoticeFields {
    by: String,
    reason: String,
}

impl From<&Notice> for NoticeFields {
    fn from(notice: &Notice) -> Self {
        Self { by: text(&notice.by), reason: text(&notice.reason) }
    }
}

/// How the previous grant ended.
#[derive(Debug, Serialize)]
pub(crate) struct EndFields {
    /// `released`, `expired` or `revoked`.
    reason: &'static str,
    by: String,
    /// Why it was revoked.
    revoke_reason: Option<String>,
    lease_id: String,
    fencing_token: u64,
    at: Option<String>,
}

impl From<&End> for EndFields {
    fn from(end: &End) -> Self {
        let revoke_reason = match &end.reason {
            EndReason::Revoked(reason) => Some(text(reason)),
            _ => None,
        };
        Self {
            reason: end.reason.word(),
            by: text(&end.by),
            revoke_reason,
            lease_id: end.lease_id.to_string(),
            fencing_token: end.token.get(),
            at: people::exact_instant(end.at_us),
        }
    }
}

/// One who waits.
#[derive(Debug, Serialize)]
pub(crate) struct WaiterFields {
    lease_id: String,
    label: String,
    waited_ms: u64,
}

impl From<&WaiterInfo> for WaiterFields {
    fn from(waiter: &WaiterInfo) -> Self {
        Self {
            lease_id: waiter.lease_id.to_string(),
            label: text(&waiter.label),
            waited_ms: millis(waiter.waited),
        }
    }
}

/// A resource: a line of `ls`, and with `waiters` the answer of `show`.
#[derive(Debug, Serialize)]
pub(crate) struct ResourceLine {
    resource: String,
    namespace: String,
    held: bool,
    #[serde(flatten)]
    lease: LeaseFields,
    last_token: Option<u64>,
    last_end: Option<EndFields>,
    last_success_at: Option<String>,
    waiting: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiters: Option<Vec<WaiterFields>>,
}

impl ResourceLine {
    /// A line of `ls`.
    pub(crate) fn of(namespace: &Namespace, item: &Inspection) -> Self {
        Self {
            resource: item.resource.as_str().to_owned(),
            namespace: namespace.as_str().to_owned(),
            held: item.record.is_some(),
            lease: item.record.as_ref().map(LeaseFields::from).unwrap_or_default(),
            last_token: item.last_token.map(leasehold::Token::get),
            last_end: item.last_end.as_ref().map(EndFields::from),
            last_success_at: item.last_success_us.and_then(people::exact_instant),
            waiting: item.waiting,
            waiters: None,
        }
    }

    /// The answer of `show`.
    pub(crate) fn whole(namespace: &Namespace, item: &Inspection) -> Self {
        let waiters = Some(item.waiters.iter().map(WaiterFields::from).collect());
        Self { waiters, ..Self::of(namespace, item) }
    }
}

/// A grant that a verb made, asked after or changed.
#[derive(Debug, Serialize)]
pub(crate) struct GrantLine {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) place: String,
    #[serde(flatten)]
    pub(crate) lease: LeaseFields,
}

/// The answer of `check`.
#[derive(Debug, Serialize)]
pub(crate) struct CheckLine {
    pub(crate) held: bool,
    /// Why not; `null` when it is.
    pub(crate) reason: Option<&'static str>,
    #[serde(flatten)]
    pub(crate) grant: GrantLine,
    pub(crate) exit_code: u8,
}

/// The answer of `release`.
#[derive(Debug, Serialize)]
pub(crate) struct ReleaseLine {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) place: String,
    pub(crate) lease_id: String,
    pub(crate) fencing_token: u64,
    pub(crate) released: bool,
}

/// The answer of `revoke`.
#[derive(Debug, Serialize)]
pub(crate) struct RevokeLine {
    #[serde(flatten)]
    pub(crate) grant: GrantLine,
    /// How long the resource stays busy at most.
    pub(crate) busy_for_ms: u64,
}

/// What a fence remembers of a resource. All of it is `null` where it has never seen it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MarkFields {
    pub(crate) fencing_token: Option<u64>,
    pub(crate) lease_id: Option<String>,
    pub(crate) op_seq: Option<u64>,
    pub(crate) label: Option<String>,
}

impl From<&Mark> for MarkFields {
    fn from(mark: &Mark) -> Self {
        Self {
            fencing_token: Some(mark.token.get()),
            lease_id: mark.lease_id.map(|lease_id| lease_id.to_string()),
            op_seq: mark.op_seq.map(OpSeq::get),
            label: Some(text(&mark.holder)),
        }
    }
}

/// The answer of `fence show` and `fence raise`.
#[derive(Debug, Serialize)]
pub(crate) struct MarkLine {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) place: String,
    #[serde(flatten)]
    pub(crate) mark: MarkFields,
    /// Of the whole fence.
    pub(crate) stale_write_rejected_total: u64,
}

/// The answer of `fence install`.
#[derive(Debug, Serialize)]
pub(crate) struct InstallLine {
    pub(crate) place: String,
    pub(crate) strict: bool,
}

/// The answer of `fence seal` and `fence check` to a write that counts.
#[derive(Debug, Serialize)]
pub(crate) struct AdmittedLine {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) place: String,
    pub(crate) fencing_token: u64,
    pub(crate) lease_id: String,
    pub(crate) op_seq: Option<u64>,
    pub(crate) admitted: bool,
}

/// The answer of `init`.
#[derive(Debug, Serialize)]
pub(crate) struct InitLine {
    pub(crate) namespace: String,
    pub(crate) place: String,
    pub(crate) created: bool,
    pub(crate) max_ttl_ms: u64,
    pub(crate) quarantine_ms: u64,
}

impl InitLine {
    pub(crate) fn new(namespace: &Namespace, prepared: &leasehold::core::record::Prepared) -> Self {
        Self {
            namespace: namespace.as_str().to_owned(),
            place: prepared.place.clone(),
            created: prepared.created,
            max_ttl_ms: Ttl::as_millis(prepared.max_ttl),
            quarantine_ms: prepared.quarantine.map_or(0, millis),
        }
    }
}

/// The answer of `doctor`.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorLine<'a> {
    namespace: &'a str,
    place: &'a str,
    fit: bool,
    findings: Vec<FindingFields<'a>>,
}

#[derive(Debug, Serialize)]
struct FindingFields<'a> {
    subject: &'a str,
    verdict: &'a str,
    fact: &'a str,
    touches: &'a str,
    cure: Option<&'a str>,
}

impl<'a> DoctorLine<'a> {
    pub(crate) fn new(namespace: &'a Namespace, report: &'a Report, fit: bool) -> Self {
        let findings = report.findings.iter().map(|finding| FindingFields {
            subject: finding.subject,
            verdict: finding.verdict.word(),
            fact: &finding.fact,
            touches: finding.touches,
            cure: finding.cure.as_deref(),
        });
        Self { namespace: namespace.as_str(), place: &report.place, fit, findings: findings.collect() }
    }
}

/// Everything that is not the wished-for result.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorLine<'a> {
    error: ErrorFields<'a>,
    exit_code: u8,
}

#[derive(Debug, Serialize)]
struct ErrorFields<'a> {
    kind: &'a str,
    what: &'a str,
    resource: Option<&'a str>,
    advice: Option<&'a str>,
    reason: Option<&'a str>,
    holder: Option<&'a LeaseFields>,
    revoke: Option<&'a str>,
}

impl<'a> From<&'a Failure> for ErrorLine<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self {
            error: ErrorFields {
                kind: failure.kind(),
                what: failure.what(),
                resource: failure.resource.as_deref(),
                advice: failure.advice.as_deref(),
                reason: failure.reason,
                holder: failure.holder.as_ref(),
                revoke: failure.revoke.as_deref(),
            },
            exit_code: failure.exit().code(),
        }
    }
}

fn text(label: &Label) -> String {
    label.as_str().to_owned()
}

/// A resource as JSON shows it: as it is. The escaping of what could deceive a terminal is JSON's own.
pub(crate) fn name(resource: &Resource) -> String {
    resource.as_str().to_owned()
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
