//! A hand-over with one wait for the disk instead of two.
//!
//! A release whose resource somebody waits for sets the next fencing token aside for the first in line, its *heir*, in the same
//! commit. Nothing is granted by that: who leaves, who is dead, who may pass whom is what it would be without. But when
//! the heir then takes its turn, all that must survive the machine is on the disk already, and its claim is committed
//! without waiting for it. Every process of the machine sees that commit at once; should the machine go down before the disk
//! has it, nobody is left to believe in the lease, its token is never given again, and the next holder is told that the one
//! before may not have ended cleanly.
//!
//! So that such an end is recognised, tokens are set aside only where a reboot is: on a local file system, by a process
//! that knows which boot it lives in.

use std::{collections::HashSet, sync::Mutex};

use leasehold_core::{
    HolderId, Label, LeaseId, Token, Ttl,
    record::{Acquired, Gone, Wake},
    request::Claim,
    slot::{Held, Slot},
};

use super::{line::SqlLine, row::Cell};
use crate::sync::lock;

/// For whom a token is set aside. It is void once another token has been given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Heir {
    pub(super) lease_id: LeaseId,
    pub(super) token: Token,
    pub(super) label: Label,
}

impl Heir {
    pub(super) const SIZE: usize = 24;

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..16].copy_from_slice(self.lease_id.as_bytes());
        bytes[16..].copy_from_slice(&self.token.get().to_be_bytes());
        bytes
    }

    /// `None` for what was never a token.
    pub(super) fn decode(bytes: [u8; Self::SIZE], label: Label) -> Option<Self> {
        let lease_id = std::array::from_fn(|at| bytes[at]);
        let token = u64::from_be_bytes(std::array::from_fn(|at| bytes[16 + at]));
        Some(Self { lease_id: LeaseId::from_bytes(lease_id), token: Token::new(token).ok()?, label })
    }

    /// The grant that this may have become, as it stands after a reboot: over.
    pub(super) fn lapsed(self) -> Held {
        Held {
            lease_id: self.lease_id,
            token: self.token,
            ttl: Ttl::MIN,
            expires_us: 0,
            granted_us: 0,
            holder_id: HolderId::from_bytes([0; 16]),
            label: self.label,
            revoked: None,
        }
    }
}

/// Sets the next token aside for the first in line, whom `wake` names.
pub(super) fn set_aside(slot: &mut Slot, line: &mut SqlLine<'_>, wake: Option<LeaseId>) {
    // Only what becomes free now is stamped by our own clock, and so found to be from before a reboot later. A grant that ran
    // out unnoticed still has its token in the row.
    let fresh = slot.held.is_none() && slot.free_since_us == line.now.clock_us && line.clocks.tells_reboots();
    let Some(lease_id) = wake.filter(|_| fresh) else { return };
    // Where no token is left, the claim itself will say so.
    let Ok(token) = Token::next(slot.last_token, None, line.now.unix_us) else { return };
    slot.last_token = Some(token);
    line.cell.heir = Some(Heir { lease_id, token, label: std::mem::take(&mut line.head_label) });
}

/// The highest token that was granted, where the highest one of all is only set aside.
pub(super) fn granted_token(slot: &Slot, cell: &Cell) -> Option<Token> {
    match &cell.heir {
        Some(_) => slot.last_end.as_ref().map(|end| end.token),
        None => slot.last_token,
    }
}

/// The reason as it would be if no token had been set aside: nobody has been granted that one.
pub(super) fn as_granted(gone: Gone, slot: &Slot, cell: &Cell, asked: Option<Token>) -> Gone {
    let is_aside = |token: Token| cell.heir.as_ref().is_some_and(|heir| heir.token == token);
    match gone {
        Gone::Superseded { token } if is_aside(token) => {
            match granted_token(slot, cell).filter(|last| asked.is_some_and(|asked| asked < *last)) {
                Some(token) => Gone::Superseded { token },
                None => Gone::Absent,
            }
        }
        gone => gone,
    }
}

/// Gives a claim that was just granted the token that was set aside for it. True when it was, and the grant holds nothing else
/// that must be on the disk.
pub(super) fn inherit(slot: &mut Slot, cell: &mut Cell, claim: &Claim, answer: &mut Acquired) -> bool {
    let Acquired::Granted(grant) = answer else { return false };
    let Some(heir) = cell.heir.take_if(|heir| heir.lease_id == claim.lease_id) else { return false };
    let Some(held) = slot.held.as_mut().filter(|_| !grant.adopted && !grant.after_lapse) else {
        return false;
    };
    if claim.floor.is_some_and(|floor| floor >= heir.token) {
        return false;
    }
    (grant.token, held.token, slot.last_token) = (heir.token, heir.token, Some(heir.token));
    true
}

/// The claims that were woken and have not asked since. Some may be forgotten: they are served all the same.
#[derive(Debug, Default)]
pub(super) struct Woken(Mutex<HashSet<LeaseId>>);

/// More than this (holders are woken too, and ask nothing) are forgotten all at once.
const MAX_WOKEN: usize = 1_024;

impl Woken {
    pub(super) fn note(&self, wake: Wake) {
        let Wake::Lease(lease_id) = wake else { return };
        let mut woken = lock(&self.0);
        if woken.len() >= MAX_WOKEN {
            woken.clear();
        }
        woken.insert(lease_id);
    }

    /// True when it was woken.
    pub(super) fn forget(&self, lease_id: LeaseId) -> bool {
        lock(&self.0).remove(&lease_id)
    }
}

#[cfg(test)]
impl Woken {
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}
