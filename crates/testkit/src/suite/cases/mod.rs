//! The cases, a file per clause. A case's name is its function's.

mod cancelling;
mod clause_01_one_holder;
mod clause_01_under_load;
mod clause_02_tokens;
mod clause_03_exact_match;
mod clause_04_renewals;
mod clause_05_repeated_claims;
mod clause_06_durations;
mod clause_07_unknown;
mod clause_08_amnesia;
mod clause_09_places;
mod clause_09_queue;
mod clause_09_wakes;
mod clause_10_durability;
mod history;
mod listing;
mod namespaces;
mod once_per;
mod purging;
mod revoking;

use std::{fmt, future::Future, pin::Pin};

use super::{Context, Verdict};

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name; what it holds the engine to.
    pub name: &'static str,
    /// The case itself.
    pub run: fn(Context) -> Pin<Box<dyn Future<Output = Verdict>>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// The names of all cases, in order.
pub fn case_names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

macro_rules! cases {
    ($($module:ident: $($name:ident)+;)+) => {
        /// All cases.
        pub static CASES: &[Case] = &[$($(
            Case { name: stringify!($name), run: |context| Box::pin($module::$name(context)) },
        )+)+];
    };
}

cases! {
    clause_01_one_holder:
        clause_01_a_free_resource_is_granted
        clause_01_a_busy_answer_names_the_holder
        clause_01_resources_do_not_interfere
        clause_01_namespaces_do_not_interfere
        clause_01_hostile_names_are_kept_apart;
    clause_01_under_load:
        clause_01_fifty_claims_have_one_winner
        clause_01_a_concurrent_history_is_clean;
    clause_02_tokens:
        clause_02_tokens_rise_across_release
        clause_02_tokens_rise_across_expiry
        clause_02_tokens_rise_across_revocation
        clause_02_tokens_rise_across_reconnection
        clause_02_a_token_is_above_the_floor
        clause_02_a_wild_floor_is_refused
        clause_02_renewal_keeps_the_token;
    clause_03_exact_match:
        clause_03_renewal_matches_the_token
        clause_03_renewal_matches_the_lease_id
        clause_03_release_matches_the_token
        clause_03_release_matches_the_lease_id
        clause_03_release_by_lease_id_alone_is_for_the_own_claim
        clause_03_a_late_release_leaves_the_successor
        clause_03_gone_says_released
        clause_03_gone_says_expired
        clause_03_gone_says_superseded
        clause_03_gone_says_revoked
        clause_03_gone_says_absent;
    clause_04_renewals:
        clause_04_renew_extends
        clause_04_renew_never_creates
        clause_04_renew_never_revives
        clause_04_renew_never_shortens
        clause_04_a_lower_ttl_does_not_distort_the_record
        clause_04_renew_after_revocation_is_refused
        clause_04_a_batch_is_answered_in_order
        clause_04_a_batch_may_be_empty_or_large;
    clause_05_repeated_claims:
        clause_05_a_repeated_claim_gets_the_same_grant
        clause_05_a_repeated_claim_starts_the_ttl_anew
        clause_05_a_repeat_of_a_released_claim_is_spent
        clause_05_a_repeat_of_an_expired_claim_is_spent
        clause_05_a_repeat_of_a_revoked_claim_is_spent
        clause_05_a_spent_claim_keeps_no_place;
    clause_06_durations:
        clause_06_a_grant_lasts_its_ttl
        clause_06_a_renewal_lasts_its_ttl
        clause_06_a_grant_ends
        clause_06_a_lapse_that_another_found_is_told_once
        clause_06_lock_delay_follows_an_expiry
        clause_06_lock_delay_does_not_follow_a_release
        clause_06_the_answered_ttl_is_honest
        clause_06_a_ttl_above_the_namespaces_is_refused
        clause_06_an_absurd_lock_delay_is_refused;
    clause_07_unknown:
        clause_07_a_lost_request_is_unavailable
        clause_07_a_lost_answer_is_unknown
        clause_07_an_unknown_claim_can_be_asked_again
        clause_07_an_unknown_claim_can_be_taken_back;
    clause_08_amnesia:
        clause_08_a_forgetful_namespace_is_quarantined
        clause_08_a_quarantine_ends
        clause_08_survivors_may_renew_in_quarantine
        clause_08_nobody_adopts_in_quarantine
        clause_08_a_survivor_is_adopted_after_the_quarantine
        clause_08_places_may_be_taken_in_quarantine
        clause_08_the_order_holds_when_a_quarantine_ends
        clause_08_a_ready_namespace_is_not_quarantined;
    clause_09_places:
        clause_09_places_are_counted_from_zero
        clause_09_asking_again_keeps_the_place
        clause_09_try_once_takes_no_place
        clause_09_a_place_can_be_given_up
        clause_09_a_granted_claim_has_no_place
        clause_09_an_inspection_names_the_waiters
        clause_09_an_unrefreshed_place_dies
        clause_09_recheck_is_bounded_by_what_remains;
    clause_09_queue:
        clause_09_waiters_are_served_in_order
        clause_09_the_first_is_served_after_an_expiry
        clause_09_try_once_passes_no_waiter
        clause_09_a_freed_resource_is_reserved_for_the_first
        clause_09_a_silent_waiter_blocks_only_for_the_reservation
        clause_09_a_dead_waiter_blocks_only_for_the_reservation
        clause_09_nobody_starves;
    clause_09_wakes:
        clause_09_a_release_wakes_the_first_alone
        clause_09_a_revocation_now_wakes_the_first
        clause_09_who_leaves_wakes_the_next
        clause_09_who_has_nothing_to_do_wakes_the_next;
    clause_10_durability:
        clause_10_a_grant_survives_a_crash
        clause_10_a_release_survives_a_crash
        clause_10_tokens_rise_across_a_crash
        clause_10_a_revocation_survives_a_crash;
    once_per:
        once_per_skips_within_the_period
        once_per_counts_from_the_start_of_the_run
        once_per_ignores_failures
        once_per_is_over_after_the_period
        once_per_is_recorded_by_the_holder_alone;
    revoking:
        revoke_keeps_the_resource_busy_until_the_old_end
        revoke_lets_the_holder_release
        revoke_then_release_keeps_the_reason_and_the_success
        revoke_now_frees_at_once
        revoke_of_another_token_changes_nothing
        revoke_of_nothing_says_how_it_ended
        revoke_wakes_the_holder;
    history:
        history_tells_who_held_and_how_it_ended
        history_counts_an_expiry_once
        history_leaves_out_what_has_not_ended
        history_is_long_enough_and_bounded;
    listing:
        list_shows_what_is_held_or_waited_for
        list_takes_a_prefix_literally
        list_pages_without_gaps
        list_refuses_wrong_limits
        list_remembers_the_free;
    purging:
        purge_leaves_what_was_used
        purge_forgets_what_nobody_has_used_for_a_week;
    namespaces:
        profile_keeps_the_engines_word
        prepare_finds_an_existing_namespace
        prepare_fresh_is_refused_where_the_namespace_exists
        prepare_sets_the_longest_ttl
        inspect_of_an_unknown_resource_is_empty;
    cancelling:
        cancelled_acquires_leave_nothing_that_outlives_their_ttl
        cancelled_calls_leave_the_client_usable
        cancelled_waits_for_a_wake_lose_none;
}
