//! Preemption: an operator asks a holder to drain and hand over; the holder sees who asks, why and until when, and accepts or
//! refuses.
//!
//! A wish is kept by means that every engine has already: it is a short grant of a resource of its own, beside the one that it
//! is about.
//!
//! ```text
//!  operator ── acquires ──▶ ~preempt/LEASE-ID ◀── looks ── holder     label: how long, who, why
//!     ▲  └── looks, once in a while ──┘ ▲                   │
//!     │                                 └──── revokes it ───┤         by: the holder; reason: accepted, refused
//!     └── looks ──▶ the resource ◀── drains, then ends it ──┘         ended by the operator's wish, for `history`
//! ```
//!
//! The name carries the lease id of the grant that is asked for, so that a late wish cannot reach a successor. Nothing about
//! the holder's own grant changes before it says so itself: a wish takes nothing away, and one that nobody hears ends by
//! itself.

mod ask;
mod listen;

use std::{fmt::Write as _, time::Duration};

use leasehold_core::{Error, Kind, Label, LeaseId, Resource, record::EndReason};

pub use ask::{Asked, Pending, Progress, Wish};
pub use listen::{Preemption, Preemptions};

/// What the names of wishes begin with.
const PREFIX: &str = "~preempt/";
/// The first word of a wish's label: what follows is ours to read.
const MARK: &str = "preempt";
/// What the reason of an accepted answer is.
const ACCEPTED: &str = "accepted";
/// What the reason of a refusal begins with.
const REFUSED: &str = "refused: ";
/// What the reason begins with under which a holder ends a grant that it was asked for.
const HANDED_OVER: &str = "preempted: ";
/// The longest time a holder may be given (ours: what runs for longer is asked again).
pub const MAX_WITHIN: Duration = Duration::from_secs(24 * 3_600);

/// True for the name of a wish: no resource of anybody's, and left out where people look at resources.
pub fn is_wish(resource: &Resource) -> bool {
    resource.as_str().starts_with(PREFIX)
}

/// Why the operator wished it, when a grant ended because its holder was asked to hand it over. Such an end is
/// [`EndReason::Revoked`], by the operator.
pub fn handed_over(reason: &EndReason) -> Option<&str> {
    match reason {
        EndReason::Revoked(why) => why.as_str().strip_prefix(HANDED_OVER),
        _ => None,
    }
}

/// The reason under which a grant is ended that was asked for.
pub(crate) fn reason(why: &Label) -> Label {
    Label::from_lossy(&format!("{HANDED_OVER}{}", why.as_str()))
}

/// Where the wish for this grant is.
fn name_of(lease_id: LeaseId) -> Result<Resource, Error> {
    let mut name = String::from(PREFIX);
    // Writing into a String cannot fail.
    let _ = write!(name, "{lease_id}");
    Ok(Resource::new(&name)?)
}

/// What a wish says: how long the holder has in all, who asks, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Text {
    within: Duration,
    by: Label,
    reason: Label,
}

impl Text {
    /// As a label. The name of who asks ends at the end of the line.
    fn write(&self) -> Result<Label, Error> {
        let by = self.by.as_str();
        if by.contains('\n') {
            return Err(Error::new(Kind::Invalid, "who asks must be named in one line"));
        }
        let text = format!("{MARK} {} {by}\n{}", self.within.as_millis(), self.reason.as_str());
        Label::new(&text).map_err(|_| {
            Error::new(
                Kind::Invalid,
                "who asks and why must have no NUL, and together less than about 230 bytes",
            )
            .advise("say it shorter")
        })
    }

    /// Reads it back; `None` for what was not written here.
    fn read(label: &Label) -> Option<Self> {
        let (head, reason) = label.as_str().strip_prefix(MARK)?.strip_prefix(' ')?.split_once('\n')?;
        let (millis, by) = head.split_once(' ')?;
        let within = Duration::from_millis(millis.parse().ok()?);
        (within <= MAX_WITHIN).then(|| Self {
            within,
            by: Label::from_lossy(by),
            reason: Label::from_lossy(reason),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(by: &str, reason: &str) -> Text {
        let within = Duration::from_secs(90);
        Text { within, by: Label::from_lossy(by), reason: Label::from_lossy(reason) }
    }

    #[test]
    fn a_wish_is_read_as_it_was_written() {
        for (by, reason) in
            [("sre@ops", "deploy of 3.1"), ("", ""), ("two words", "two\nlines"), ("π", "émoji 🦀")]
        {
            let text = text(by, reason);
            assert_eq!(Text::read(&text.write().unwrap()), Some(text));
        }
        assert_eq!(text("a\nb", "").write().unwrap_err().kind(), Kind::Invalid);
        assert_eq!(text("a", &"x".repeat(250)).write().unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn the_name_of_a_wish_is_known_as_one() {
        let id = LeaseId::from_bytes([7; 16]);
        assert!(is_wish(&name_of(id).unwrap()) && !is_wish(&Resource::new("preempt/x").unwrap()));
        assert_ne!(name_of(id).unwrap(), name_of(LeaseId::from_bytes([8; 16])).unwrap());
    }

    proptest! {
        #[test]
        fn reading_a_label_of_somebody_else_never_panics(label in "\\PC{0,80}|preempt [0-9]{0,30} .{0,9}\n.{0,9}") {
            let read = Text::read(&Label::from_lossy(&label));
            prop_assert!(read.is_none_or(|text| text.within <= MAX_WITHIN));
        }
    }
}
