//! One batch of renewals: sent together, judged one by one.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, Kind, record::Renewed};

use crate::{meter::gone_word, observe};

use super::{CALL_LIMIT, Core, no_answer, registry::Due, since};

/// The most renewals in one call (ours: a few milliseconds of an engine's time, so that others get their turn between).
const MAX_BATCH: usize = 1_000;

/// Splits what is due into parts whose leases are about equally patient: one with a short TTL must neither wait for a
/// large batch of the others nor hurry it into a time-out.
pub(super) fn split(mut due: Vec<Due>) -> Vec<Vec<Due>> {
    let class = |due: &Due| patience(due).as_nanos().ilog2();
    due.sort_by_key(|due| (class(due), due.lease.sequence));
    let mut parts: Vec<Vec<Due>> = Vec::new();
    for due in due {
        match parts.last_mut().filter(|part| part.first().map(class) == Some(class(&due))) {
            Some(part) => part.push(due),
            None => parts.push(vec![due]),
        }
    }
    parts
}

/// Sends one part and applies the answers.
pub(super) async fn send(core: Arc<Core>, mut due: Vec<Due>) {
    while !due.is_empty() {
        let rest = due.split_off(due.len().min(MAX_BATCH));
        send_batch(&core, due).await;
        due = rest;
    }
}

async fn send_batch(core: &Core, batch: Vec<Due>) {
    let limit = batch.iter().map(patience).min().unwrap_or(CALL_LIMIT);
    for due in &batch {
        core.meter.renewal_left(due.late, due.window_left);
    }
    let renewals = batch.iter().map(|due| due.renewal.clone()).collect();
    let answers = match tokio::time::timeout(limit, core.coordinator.renew(renewals)).await {
        Ok(answers) => answers,
        Err(_) => Err(no_answer("renewal", limit, &core.coordinator.profile().place)),
    };
    if let Some(first) = batch.first() {
        core.meter.called("renewal", answers.as_ref().err(), since(first.sent));
    }
    core.doubts.look(core, &batch);
    // One draw for the batch: leases that were renewed together stay together.
    let random = core.jitter.draw();
    match answers {
        Ok(answers) if answers.len() == batch.len() => {
            for (due, answer) in batch.iter().zip(answers) {
                apply(core, due, answer, random);
            }
        }
        Ok(_) => {
            let error = Error::new(Kind::Corrupt, "the coordinator did not answer every renewal");
            fail(core, &batch, &error);
        }
        Err(error) => fail(core, &batch, &error),
    }
    if core.registry.reschedule(batch.iter().map(|due| &due.lease)) {
        core.bell.notify_one();
    }
}

/// The whole batch failed.
fn fail(core: &Core, batch: &[Due], error: &Error) {
    for due in batch {
        apply(core, due, Err(error.clone()), 0);
    }
}

/// How long an answer is waited for: a quarter of the TTL. A window that closes earlier is noticed by time.
fn patience(due: &Due) -> Duration {
    (due.renewal.ttl.as_duration() / 4).min(CALL_LIMIT)
}

/// Lets the lease know what became of its renewal.
fn apply(core: &Core, due: &Due, answer: Result<Renewed, Error>, random: u64) {
    let now = due.lease.now();
    match answer {
        Ok(answer) => {
            let outcome = match &answer {
                Renewed::Gone(gone) => gone_word(gone),
                _ => "extended",
            };
            core.meter.renewed(outcome);
            let extended = outcome == "extended";
            due.lease.change(|holder| ((), holder.renewal_answered(due.sent, answer, now, random)));
            if extended {
                due.lease.inside(|| observe::renewed(due.lease.identity(), core.holder_id, due.renewal.ttl));
            }
        }
        Err(error) => {
            // Failures are retried apart from each other: they did not succeed together.
            let random = core.jitter.draw();
            let failures = due.lease.change(|holder| {
                let transition = holder.renewal_failed(error.kind(), now, random);
                (holder.failures(), transition)
            });
            core.meter.renewed(error.kind().word());
            due.lease.inside(|| {
                observe::renewal_failed(due.lease.identity(), core.holder_id, failures, &error);
            });
        }
    }
}
