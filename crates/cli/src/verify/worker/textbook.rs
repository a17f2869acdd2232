//! The worker that does what the textbook says: take the lock, work, give it back. It looks at no clock, because the recipe
//! does not; so it believes for as long as it works.

use std::time::Duration;

use leasehold::{LeaseId, Token};
use leasehold_testkit::{check::What, clock::boot_ns, random};

use super::{Hands, until};
use crate::verify::{
    naive::{self, Lock, Taken},
    plan::{Plan, nanos},
};

/// A claim waits for so many TTLs at most.
const WAIT: u32 = 20;

/// How long a server that cannot be reached is left alone.
const RETRY: Duration = Duration::from_millis(200);

pub(super) async fn contend(hands: &mut Hands) -> Result<(), String> {
    let mut lock = None;
    while hands.goes_on().await? {
        let Some(lock) = reached(hands, &mut lock).await else { continue };
        let resource = hands.resource();
        let id = random::lease_id();
        hands.note(resource, id, What::Attempt)?;
        if take(hands, lock, resource, id).await? {
            hold(hands, lock, resource, id).await?;
        } else {
            hands.note(resource, id, What::GaveUp)?;
        }
    }
    Ok(())
}

/// The lock, connected.
async fn reached<'a>(hands: &Hands, lock: &'a mut Option<Lock>) -> Option<&'a mut Lock> {
    if lock.is_none() {
        *lock = connect(hands).await;
    }
    lock.as_mut()
}

/// Connects, as often as it takes; `None` when the round ends first. The parent has seen that it can be done.
async fn connect(hands: &Hands) -> Option<Lock> {
    let Plan { url, namespace, folder, .. } = &hands.plan;
    loop {
        match naive::open(url, namespace, folder).await {
            Ok(lock) => return Some(lock),
            Err(_) if hands.is_told_to_stop() => return None,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Asks again and again.
async fn take(hands: &mut Hands, lock: &mut Lock, resource: &str, id: LeaseId) -> Result<bool, String> {
    let until_ns = until(hands.plan.ttl() * WAIT);
    while boot_ns() < until_ns && !hands.is_told_to_stop() {
        match lock.take(resource, id, hands.plan.ttl()).await {
            Taken::Yes => return Ok(true),
            Taken::No => {}
            // As people do: connect again, and go on.
            Taken::Lost => match connect(hands).await {
                Some(again) => *lock = again,
                None => return Ok(false),
            },
        }
        let pause = hands.time(5, 30);
        tokio::time::sleep(pause).await;
    }
    Ok(false)
}

async fn hold(hands: &mut Hands, lock: &mut Lock, resource: &'static str, id: LeaseId) -> Result<(), String> {
    let open_ns = boot_ns();
    // The recipe has no token; the moment of the grant stands in, which is as good as a token can be without the engine.
    let token = Token::new(open_ns / 1_000).map_err(|invalid| invalid.to_string())?;
    let close_ns = open_ns + nanos(hands.plan.ttl());
    // It is not held to its TTL: that is what the recipe lacks.
    hands.note_at(
        open_ns,
        resource,
        id,
        What::Granted { token, sent_ns: None, open_ns, close_ns, ttl_ms: None },
    )?;
    // Without faults it is always done in time: what goes wrong is the recipe's fault and not the worker's.
    let until_ns = until(hands.hold(hands.plan.ttl() / 2));
    while boot_ns() < until_ns {
        let work = hands.time(8, 25);
        tokio::time::sleep(work).await;
        let now_ns = boot_ns();
        if now_ns >= close_ns {
            // It goes on, so it still believes.
            let what = What::Extended { token, sent_ns: None, close_ns: now_ns + 1 };
            hands.note_at(now_ns, resource, id, what)?;
        }
        let written = hands.registers.write_unfenced(resource, token);
        hands.note_entry(id, written)?;
    }
    hands.note(resource, id, What::Released { token })?;
    lock.give_back(resource, id).await;
    Ok(())
}
