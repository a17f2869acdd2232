//! How far the work on a resource has come: a short text that a holder leaves for its successor, at the coordinator.
//!
//! ```text
//!   holder ── works ── drains ── leave_checkpoint ── releases
//!                                      │  ~checkpoint/RESOURCE: the text, whose it is, and who may write
//!   successor ── acquires ── take_checkpoint ── goes on from there
//! ```
//!
//! It is a place to look, and no store: a cursor, an offset, the name of a file with the rest. It is fenced by tokens, as every
//! write under a lease should be: taking it shuts older holders out first, and then reads. So a holder that was paused and followed
//! cannot change afterwards what its successor has begun with.

use leasehold_core::{Error, Invalid, Label, Resource, Token, holder::Loss};

use crate::{LeaseHandle, Leases, cell};

/// What the names of checkpoints begin with.
const PREFIX: &str = "~checkpoint/";
/// The first word of one, and how the rest is written.
const MARK: &str = "checkpoint 1";
/// Why a grant ended that carried one. For people who look at the history of the resource.
const REASON: &str = "this is the checkpoint";
/// Others are at the same place; so often is it tried to come in between (ours: twenty seconds, longer than the grant of one
/// that died lasts).
const ATTEMPTS: u32 = 100;

/// The longest text of a checkpoint, in bytes (ours: what a label has room for beside two tokens and a time).
pub const MAX_BYTES: usize = 180;

/// What a holder has left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The fencing token under which it was left.
    pub token: Token,
    /// When, µs since 1970 by the engine's clock. For people; never compared.
    pub at_us: u64,
    /// The text.
    pub text: String,
}

/// Why a lease may not use the checkpoint of its resource any more.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotMine {
    /// It is lost.
    Lost(Loss),
    /// A later holder has taken the checkpoint already.
    Stale {
        /// That one's fencing token.
        taken_by: Token,
    },
}

/// True for the names under which checkpoints are kept: no resource of anybody's, and left out where people look at resources.
pub fn is_checkpoint(resource: &Resource) -> bool {
    resource.as_str().starts_with(PREFIX)
}

/// Where the checkpoint of a resource is.
fn place(resource: &Resource) -> Result<Resource, Error> {
    let place = Resource::new(&format!("{PREFIX}{}", resource.as_str()));
    place.map_err(|_| {
        Error::from(Invalid::new("resource name", "is too long for a checkpoint: at most 243 bytes"))
    })
}

/// What stands at the place.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mark {
    /// The highest token that has taken it, or left it: none below may write.
    seal: Token,
    left: Option<Checkpoint>,
}

impl Mark {
    fn write(&self) -> Label {
        let left = self.left.as_ref();
        let (token, at_us) = left.map_or((0, 0), |left| (left.token.get(), left.at_us));
        let text = left.map_or("", |left| &left.text);
        Label::from_lossy(&format!("{MARK} {} {token} {at_us} {text}", self.seal))
    }

    /// `None` for what was not written here, and where there is nothing.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix(MARK)?.strip_prefix(' ')?.splitn(4, ' ');
        let seal = fields.next()?.parse().ok()?;
        let token = fields.next()?.parse::<u64>().ok()?;
        let at_us = fields.next()?.parse().ok()?;
        let text = fields.next()?.to_owned();
        let left = Token::new(token).ok().map(|token| Checkpoint { token, at_us, text });
        Some(Self { seal, left })
    }
}

impl Leases {
    /// Leaves a checkpoint for whoever holds the resource next, in place of the one that was there: at most [`MAX_BYTES`] of text
    /// without NUL. To be called while the lease is held: in [`crate::Worker::drain`], or whenever the work has come further.
    ///
    /// It is forgotten a week after it was left or taken last. Costs two requests that change something, and two reads.
    ///
    /// **Cancel safety.** Dropping the future leaves the old checkpoint or the new one.
    ///
    /// **Guarantee.** Once a later holder has [taken](Leases::take_checkpoint) the checkpoint, no earlier one changes it.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for a text, or a name of more than 243 bytes, that has no room;
    /// [`leasehold_core::Kind::Unavailable`] when certainly nothing was left; [`leasehold_core::Kind::Unknown`] when nobody knows.
    pub async fn leave_checkpoint(
        &self,
        lease: &LeaseHandle,
        text: &str,
    ) -> Result<Result<(), NotMine>, Error> {
        if text.len() > MAX_BYTES || text.contains('\0') {
            let invalid = Invalid::new("checkpoint", "must be at most 180 bytes of UTF-8 without NUL");
            return Err(Error::from(invalid).on(lease.resource()));
        }
        let mark = |_: Option<Mark>, at_us| {
            let left = Checkpoint { token: lease.token(), at_us, text: text.to_owned() };
            Mark { seal: lease.token(), left: Some(left) }
        };
        Ok(self.change_checkpoint(lease, mark).await?.map(drop))
    }

    /// Takes the checkpoint over from the holders before: shuts them out, and tells what the last of them has left. First, before the
    /// work begins. `None`: nobody has left one, or it is forgotten. Costs as much as leaving one.
    ///
    /// **Cancel safety.** Dropping the future leaves it taken or not.
    ///
    /// # Errors
    /// As [`Leases::leave_checkpoint`].
    pub async fn take_checkpoint(
        &self,
        lease: &LeaseHandle,
    ) -> Result<Result<Option<Checkpoint>, NotMine>, Error> {
        let mark =
            |before: Option<Mark>, _| Mark { seal: lease.token(), left: before.and_then(|mark| mark.left) };
        self.change_checkpoint(lease, mark).await
    }

    /// Looks at the checkpoint of a resource, without taking anything: for people.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for a name of more than 243 bytes; what the coordinator says when it cannot be asked.
    pub async fn checkpoint(&self, resource: &Resource) -> Result<Option<Checkpoint>, Error> {
        let line = cell::read(self.client(), &place(resource)?).await?.line;
        Ok(Mark::read(line.as_str()).and_then(|mark| mark.left))
    }

    async fn change_checkpoint(
        &self,
        lease: &LeaseHandle,
        mark: impl Fn(Option<Mark>, u64) -> Mark,
    ) -> Result<Result<Option<Checkpoint>, NotMine>, Error> {
        let place = place(lease.resource())?;
        if let Err(loss) = lease.check() {
            return Ok(Err(NotMine::Lost(loss)));
        }
        // Who is shut out is told by a second look: what stands there then is a later holder's, or later still.
        let next = |stands: &Label, at_us| {
            let before = Mark::read(stands.as_str());
            if before.as_ref().is_some_and(|mark| mark.seal > lease.token()) {
                return None;
            }
            let mark = mark(before, at_us);
            Some((mark.write(), mark.left))
        };
        let changed = cell::change(self.client(), &place, REASON, ATTEMPTS, next).await;
        if let Some(left) = changed.map_err(|error| error.on(lease.resource()))? {
            return Ok(Ok(left));
        }
        let stands = cell::read(self.client(), &place).await?.line;
        let taken_by = Mark::read(stands.as_str()).map_or(lease.token(), |mark| mark.seal);
        Ok(Err(NotMine::Stale { taken_by }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mark_is_read_as_it_was_written(seal in 1..Token::MAX, token in 1..Token::MAX, text in "\\PC{0,40}| \\PC{0,40} ") {
            let left = Checkpoint { token: Token::new(token).unwrap(), at_us: u64::MAX, text };
            for left in [None, Some(left)] {
                let mark = Mark { seal: Token::new(seal).unwrap(), left };
                prop_assert_eq!(Mark::read(mark.write().as_str()), Some(mark));
            }
        }

        #[test]
        fn reading_a_label_of_somebody_else_never_panics(line in "\\PC{0,80}|checkpoint 1( [0-9]{0,20}){0,5}") {
            let _ = Mark::read(&line);
        }
    }

    #[test]
    fn the_longest_text_has_room_and_a_long_name_has_none() {
        let token = Token::new(Token::MAX).unwrap();
        let left = Checkpoint { token, at_us: u64::MAX, text: "x".repeat(MAX_BYTES) };
        let mark = Mark { seal: token, left: Some(left) };
        assert_eq!(Mark::read(mark.write().as_str()), Some(mark));
        let name = |length| place(&Resource::new(&"x".repeat(length)).unwrap());
        assert!(is_checkpoint(&name(243).unwrap()) && name(244).is_err());
    }
}
