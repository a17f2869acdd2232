//! Forgetting: the names of resources whose records have vanished.
//!
//! Records vanish by themselves, a week after their last use, on each node for itself. A resource is forgotten when none of the
//! nodes that answer has its record any more; a node that cannot be reached keeps its names until somebody looks at it again.

use std::sync::Arc;

use leasehold_core::{Error, record::Purged, request::Purge};

use super::{
    circle::Circle,
    look::{self, NAMES},
    member::Told,
};
use crate::coordinator::redis::{answer, op::Op};

/// What one node says of one name: whether its record is there, and whether it was listed without one.
type Say = (bool, bool);

/// One step.
pub(super) async fn purge(circle: Arc<Circle>, purge: Purge) -> Result<Purged, Error> {
    let from = purge.after.as_ref().map_or("-".to_owned(), |after| format!("({}", after.encode()));
    let (names, more) = look::union(&look::shown(&circle, Op::names(&from, "+", NAMES)).await?);
    let mut purged = Purged { looked_at: names.len() as u64, ..Purged::default() };
    purged.next = names.last().filter(|_| more).map(|name| answer::named(name)).transpose()?;
    if names.is_empty() {
        return Ok(purged);
    }
    let views = if purge.dry_run {
        let seen = |value| answer::seen(value).map(|seen| (seen.known, !seen.known));
        ask(&circle, names.iter().map(|name| Op::inspect(&circle.space, name, 0)).collect(), seen).await?
    } else {
        let forget = names.iter().map(|name| Op::forget(&circle.space, name)).collect();
        ask(&circle, forget, answer::forgotten).await?
    };
    for (at, name) in names.iter().enumerate() {
        let said = || views.iter().filter_map(|view| view.get(at));
        if said().any(|(_, gone)| *gone) && !said().any(|(there, _)| *there) {
            purged.idle.push(answer::named(name)?);
        }
    }
    Ok(purged)
}

/// What a majority says, name by name.
async fn ask(
    circle: &Circle,
    ops: Vec<Op>,
    say: impl Fn(redis::Value) -> Result<Say, Error>,
) -> Result<Vec<Vec<Say>>, Error> {
    let all = |told: Told| told.answers.into_iter().map(&say).collect::<Result<Vec<Say>, Error>>();
    look::read(circle, &ops, all, |_| false).await
}
