//! Requests as calls of the schema's functions: many in one statement.
//!
//! The functions run in this order: releases and renewals first, claims last. Only claims may wait for another transaction (to
//! insert a new resource), so no two batches can wait for each other.

use leasehold_core::{
    Namespace, Resource, Ttl,
    request::{Claim, Release, Renewal, Revocation},
};

use super::{
    options::{DEFAULT_MAX_TTL_MS, Expiry},
    sight::Seen,
    wire::{Param, Statement, signed},
};

/// How long a statement of its own waits for a row on the connection that others use, too.
const SHORT_WAIT_MS: i32 = 100;

/// One request that changes something.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Acquire(Claim),
    Renew(Renewal),
    Release(Release),
    Revoke(Revocation),
}

/// A request with what this client has seen of its resource.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) seen: Option<Seen>,
    /// The quarantine that this client has seen for long enough.
    pub(super) seen_epoch: Option<i32>,
}

impl Step {
    pub(super) fn resource(&self) -> &Resource {
        match &self.op {
            Op::Acquire(claim) => &claim.resource,
            Op::Renew(renewal) => &renewal.resource,
            Op::Release(release) => &release.resource,
            Op::Revoke(revocation) => &revocation.resource,
        }
    }

    pub(super) fn ttl(&self) -> Option<Ttl> {
        match &self.op {
            Op::Acquire(claim) => Some(claim.ttl),
            Op::Renew(renewal) => Some(renewal.ttl),
            Op::Release(_) | Op::Revoke(_) => None,
        }
    }

    fn kind(&self) -> usize {
        match &self.op {
            Op::Revoke(_) => 0,
            Op::Release(_) => 1,
            Op::Renew(_) => 2,
            Op::Acquire(_) => 3,
        }
    }

    /// A revocation is rare, and is a call of its own.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.op, Op::Revoke(_))
    }
}

/// How long rows are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// Not at all: a row that another transaction has locked is answered as skipped.
    Skip,
    /// A moment.
    Short,
    /// So long, in milliseconds.
    Long(i32),
}

impl Patience {
    fn param(self) -> Param {
        Param::Int(match self {
            Self::Skip => None,
            Self::Short => Some(SHORT_WAIT_MS),
            Self::Long(ms) => Some(ms),
        })
    }
}

/// What all statements of a coordinator have in common.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// Quoted.
    pub(super) schema: String,
    pub(super) namespace: Namespace,
    pub(super) expiry: Expiry,
    pub(super) told_max_ttl: Option<Ttl>,
    /// Names this client where others wake it; `None`: it cannot be woken.
    pub(super) wake: Option<i64>,
    pub(super) place: String,
}

impl Setting {
    pub(super) fn told_ms(&self) -> Option<i64> {
        self.told_max_ttl.map(|ttl| signed(ttl.as_millis()))
    }

    /// The bound of a namespace that this client makes.
    pub(super) fn made_ms(&self) -> i64 {
        self.told_ms().unwrap_or(signed(DEFAULT_MAX_TTL_MS))
    }

    pub(super) fn space(&self) -> Param {
        Param::Text(self.namespace.as_str().to_owned())
    }

    pub(super) fn mode(&self) -> Param {
        Param::Text(self.expiry.word().to_owned())
    }

    /// The statement of these steps, and for each row of its answer (kind, n) which step it is about.
    pub(super) fn statement(&self, steps: &[&Step], patience: Patience) -> (Statement, [Vec<usize>; 4]) {
        let mut order: [Vec<usize>; 4] = Default::default();
        for (at, step) in steps.iter().enumerate() {
            order[step.kind()].push(at);
        }
        for kind in &mut order {
            kind.sort_by(|&a, &b| steps[a].resource().cmp(steps[b].resource()));
        }
        let mut out = Builder { sql: String::new(), params: Vec::new() };
        let kinds = order.iter().filter(|kind| !kind.is_empty()).count();
        for (kind, picked) in order.iter().enumerate().filter(|(_, picked)| !picked.is_empty()) {
            let picked: Vec<&Step> = picked.iter().map(|&at| steps[at]).collect();
            let (name, params) = match kind {
                0 => ("revoke_1", self.revoke(picked[0], patience)),
                1 => ("release_1", self.release(&picked, patience)),
                2 => ("renew_1", self.renew(&picked, patience)),
                _ => ("acquire_1", self.acquire(&picked, patience, kinds == 1)),
            };
            out.call(&self.schema, kind, name, params);
        }
        (Statement { sql: out.sql, params: out.params }, order)
    }

    fn acquire(&self, steps: &[&Step], patience: Patience, sole: bool) -> Vec<Param> {
        let claims: Vec<&Claim> = steps
            .iter()
            .filter_map(|step| if let Op::Acquire(claim) = &step.op { Some(claim) } else { None })
            .collect();
        vec![
            self.space(),
            self.mode(),
            Param::Big(self.told_ms()),
            Param::Big(Some(signed(DEFAULT_MAX_TTL_MS))),
            Param::Big(self.wake),
            patience.param(),
            Param::Bool(sole),
            Param::Int(steps.iter().find_map(|step| step.seen_epoch)),
            Param::Texts(claims.iter().map(|claim| claim.resource.as_str().to_owned()).collect()),
            Param::Ids(claims.iter().map(|claim| claim.lease_id.into()).collect()),
            Param::Ids(claims.iter().map(|claim| claim.holder_id.into()).collect()),
            Param::Texts(claims.iter().map(|claim| claim.label.as_str().to_owned()).collect()),
            Param::Bigs(claims.iter().map(|claim| Some(signed(claim.ttl.as_millis()))).collect()),
            Param::Bigs(claims.iter().map(|claim| Some(millis(claim.lock_delay))).collect()),
            Param::Bigs(claims.iter().map(|claim| claim.floor.map(|floor| signed(floor.get()))).collect()),
            Param::Bools(claims.iter().map(|claim| claim.queue).collect()),
            Param::Bigs(claims.iter().map(|claim| claim.once_per.map(micros)).collect()),
            tokens_seen(steps),
            renewals_seen(steps),
        ]
    }

    fn renew(&self, steps: &[&Step], patience: Patience) -> Vec<Param> {
        let renewals: Vec<&Renewal> = steps
            .iter()
            .filter_map(|step| if let Op::Renew(renewal) = &step.op { Some(renewal) } else { None })
            .collect();
        vec![
            self.space(),
            self.mode(),
            Param::Big(Some(self.made_ms())),
            patience.param(),
            Param::Texts(renewals.iter().map(|renewal| renewal.resource.as_str().to_owned()).collect()),
            Param::Ids(renewals.iter().map(|renewal| renewal.lease_id.into()).collect()),
            Param::Bigs(renewals.iter().map(|renewal| Some(signed(renewal.token.get()))).collect()),
            Param::Bigs(renewals.iter().map(|renewal| Some(signed(renewal.ttl.as_millis()))).collect()),
            Param::Bigs(renewals.iter().map(|renewal| Some(millis(renewal.lock_delay))).collect()),
            tokens_seen(steps),
            renewals_seen(steps),
        ]
    }

    fn release(&self, steps: &[&Step], patience: Patience) -> Vec<Param> {
        let releases: Vec<&Release> = steps
            .iter()
            .filter_map(|step| if let Op::Release(release) = &step.op { Some(release) } else { None })
            .collect();
        vec![
            self.space(),
            self.mode(),
            Param::Big(Some(self.made_ms())),
            patience.param(),
            Param::Texts(releases.iter().map(|release| release.resource.as_str().to_owned()).collect()),
            Param::Ids(releases.iter().map(|release| release.lease_id.into()).collect()),
            Param::Bigs(
                releases.iter().map(|release| release.token.map(|token| signed(token.get()))).collect(),
            ),
            Param::Bools(releases.iter().map(|release| release.succeeded).collect()),
            tokens_seen(steps),
            renewals_seen(steps),
        ]
    }

    fn revoke(&self, step: &Step, patience: Patience) -> Vec<Param> {
        let Op::Revoke(revocation) = &step.op else { return Vec::new() };
        let patience = if patience == Patience::Skip { Patience::Short } else { patience };
        vec![
            self.space(),
            self.mode(),
            Param::Big(Some(self.made_ms())),
            patience.param(),
            Param::Text(revocation.resource.as_str().to_owned()),
            Param::Big(Some(signed(revocation.token.get()))),
            Param::Text(revocation.by.as_str().to_owned()),
            Param::Text(revocation.reason.as_str().to_owned()),
            Param::Bool(revocation.now),
            Param::Big(step.seen.map(|seen| seen.token)),
            Param::Int(step.seen.map(|seen| seen.seq)),
        ]
    }
}

fn tokens_seen(steps: &[&Step]) -> Param {
    Param::Bigs(steps.iter().map(|step| step.seen.map(|seen| seen.token)).collect())
}

fn renewals_seen(steps: &[&Step]) -> Param {
    Param::Ints(steps.iter().map(|step| step.seen.map(|seen| seen.seq)).collect())
}

/// Rounded up: a lock-delay is never shorter than asked.
fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX)
}

fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

struct Builder {
    sql: String,
    params: Vec<Param>,
}

impl Builder {
    fn call(&mut self, schema: &str, kind: usize, name: &str, params: Vec<Param>) {
        use std::fmt::Write as _;
        if !self.sql.is_empty() {
            self.sql.push_str(" UNION ALL ");
        }
        // Writing to a string cannot fail.
        let _ = write!(self.sql, "SELECT {kind}, * FROM {schema}.{name}(");
        for param in params {
            self.params.push(param);
            let comma = if self.sql.ends_with('(') { "" } else { "," };
            let _ = write!(self.sql, "{comma}${}", self.params.len());
        }
        self.sql.push(')');
    }
}
