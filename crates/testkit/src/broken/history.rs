//! Broken about the history of ended grants.

use leasehold_core::{
    Label,
    record::{EndReason, Past},
    slot::{Held, Now},
};

use super::broken_rules;
use crate::reference::{Seat, Sound};

broken_rules! {
    ForgetsWhoHeld breaks "history_tells_who_held" {
        fn history(&self, seat: &Seat, now: Now) -> Vec<Past> {
            let mut past = Sound.history(seat, now);
            for past in &mut past {
                past.label = Label::from_lossy("somebody");
            }
            past
        }
    }
    TellsHistoryBackwards breaks "history_tells_who_held" {
        fn history(&self, seat: &Seat, now: Now) -> Vec<Past> {
            Sound.history(seat, now).into_iter().rev().collect()
        }
    }
    OverlooksWhatNobodyFound breaks "history_tells_who_held" {
        fn history(&self, seat: &Seat, _now: Now) -> Vec<Past> {
            seat.past.clone()
        }
    }
    NotesAnExpiryAtEveryLook breaks "history_counts_an_expiry_once" {
        fn remember(&self, seat: &mut Seat, before: Option<&Held>) {
            Sound.remember(seat, before);
            if let Some(twice) = seat.past.first().filter(|past| past.end.reason == EndReason::Expired).cloned() {
                seat.past.insert(0, twice);
            }
        }
    }
    TakesTheStandingForEnded breaks "history_leaves_out_what_has_not_ended" {
        fn history(&self, seat: &Seat, now: Now) -> Vec<Past> {
            let later = Now { clock_us: u64::MAX, ..now };
            Sound.history(seat, later)
        }
    }
    RemembersTheLastEndAlone breaks "history_is_long_enough" {
        fn remember(&self, seat: &mut Seat, before: Option<&Held>) {
            Sound.remember(seat, before);
            seat.past.truncate(1);
        }
    }
}
