//! The protected resource: a register that fences. It knows the highest token it has seen and whose it was; an equal token
//! of the same grant may write on, in the order of its own numbers.

use leasehold_core::{LeaseId, Token};

use super::Mutant;

/// What the register answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Admitted { version: u64 },
    Stale { stored: Token },
}

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Register {
    highest: Option<(Token, LeaseId)>,
    op_seq: u64,
    version: u64,
}

impl Register {
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    fn judge(&self, token: Token, lease_id: LeaseId, mutant: Option<Mutant>) -> Result<(), Token> {
        match self.highest {
            None => Ok(()),
            Some((stored, _)) if stored < token => Ok(()),
            // The comparison that looks right and refuses the holder's own second write.
            Some((stored, _)) if mutant == Some(Mutant::FenceLt) => Err(stored),
            Some((stored, holder)) if stored == token && holder == lease_id => Ok(()),
            Some((stored, _)) => Err(stored),
        }
    }

    /// A new holder shows its token, before it reads.
    pub(super) fn seal(&mut self, token: Token, lease_id: LeaseId, mutant: Option<Mutant>) -> Verdict {
        if let Err(stored) = self.judge(token, lease_id, mutant) {
            return Verdict::Stale { stored };
        }
        if self.highest != Some((token, lease_id)) {
            self.op_seq = 0;
        }
        self.highest = Some((token, lease_id));
        Verdict::Admitted { version: self.version }
    }

    /// A write arrives.
    pub(super) fn write(
        &mut self,
        token: Token,
        lease_id: LeaseId,
        op_seq: u64,
        mutant: Option<Mutant>,
    ) -> Verdict {
        if self.highest == Some((token, lease_id)) && op_seq <= self.op_seq {
            return Verdict::Stale { stored: token };
        }
        match self.seal(token, lease_id, mutant) {
            Verdict::Admitted { .. } => {
                self.version += 1;
                self.op_seq = op_seq;
                Verdict::Admitted { version: self.version }
            }
            stale @ Verdict::Stale { .. } => stale,
        }
    }
}
