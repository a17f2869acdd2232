//! `leasehold run`, as a user starts it: the real binary, real processes, and every coordinator.
//!
//! The supervision has tests of its own; these show that its promises hold for a command under a real lease, and what
//! those who wait see of it. A case is a function; the list below says whether it is about the command, and so runs on every
//! coordinator, or about the lease file.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod bench;
mod contend;
#[path = "../engines/mod.rs"]
mod engines;
mod outages;
mod outcomes;
mod preempt;
mod promises;
mod servers;
mod skips;
mod suspend;

use std::{process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Trial};

use engines::Engine;

type Case = (&'static str, fn());

macro_rules! cases {
    ($($module:ident: $($name:ident)+;)+) => {
        &[$($((stringify!($name), $module::$name),)+)+]
    };
}

/// On every coordinator.
const EVERYWHERE: &[Case] = cases! {
    outcomes:
        a_busy_resource_is_75_and_says_who_since_when_which_token_and_what_to_do
        a_command_that_cannot_start_is_127_or_126_and_holds_nothing
        a_revoked_holder_is_79_and_its_command_ends_within_the_grace
        max_hold_ends_a_command_that_takes_too_long
        once_per_runs_once_and_says_nothing_the_second_time
        once_per_runs_once_whichever_of_several_fires_first
        a_run_inside_a_run_of_the_same_resource_does_not_wait_for_itself
        the_command_can_ask_whether_the_lease_is_still_its_own
        json_goes_to_the_standard_error_and_the_standard_output_is_the_commands
        a_wrapper_told_to_end_ends_a_command_that_obeys
        acquire_with_its_output_closed_gives_the_lease_back;
    preempt:
        a_preempted_command_is_told_who_asks_and_why_and_hands_over
        a_refused_wish_leaves_the_holder_alone_and_names_the_command_that_revokes
        a_preempted_command_that_does_not_end_is_ended_by_the_deadline
        a_holder_that_does_not_listen_is_said_to_and_an_operator_that_gives_up_takes_the_wish_back;
    promises:
        promise_1_a_holder_stopped_past_its_ttl_finds_its_tree_dead_and_itself_lost
        promise_2_term_reaches_the_command_and_the_lease_is_kept_until_it_has_ended
        promise_4_a_daemon_left_behind_keeps_neither_the_lease_nor_the_wrapper
        promise_4_leftovers_are_ended_on_request
        promise_5_exit_codes_pass_unchanged_and_the_report_says_whose_they_are
        a_command_longer_than_the_ttl_is_renewed_through
        a_pipe_that_the_command_closes_is_closed
        no_guard_is_left_for_the_first_process_of_a_container_to_reap
        a_stopped_guard_is_roused_and_keeps_its_promises;
    suspend:
        a_stop_of_the_whole_group_for_longer_than_the_ttl_ends_nothing
        a_lease_revoked_during_a_stop_of_the_whole_group_is_lost_and_not_free_before_the_end
        a_stop_signal_beside_a_revocation_frees_nothing_under_a_living_command
        a_command_that_ends_while_suspended_frees_the_resource_and_keeps_its_code;
};

/// Where waiters have an order: these look at who waits, or rely on it that everybody's turn comes.
const IN_LINE: &[Case] = cases! {
    contend:
        two_runs_at_once_run_one_after_the_other
        thirty_runs_at_once_never_overlap_and_each_gets_its_turn_although_some_give_up;
    outcomes:
        a_signal_while_waiting_gives_the_place_up_and_is_died_of;
    promises:
        promise_3_kill_9_of_the_wrapper_ends_the_tree_and_lets_the_waiter_in
        promise_3_with_the_guard_killed_too_the_ttl_lets_the_waiter_in
        a_wrapper_that_fails_frees_the_resource_only_after_the_last_death;
};

/// Where ended grants are remembered, and where they are not.
const HISTORY: &[Case] = cases! {
    skips:
        a_run_that_was_not_needed_is_in_the_history_with_who_came_and_why
        many_that_come_at_once_all_find_room
        what_is_noted_is_bounded_and_no_resource_of_anybodys;
};
const NO_HISTORY: &[Case] = cases! {
    skips:
        where_there_is_no_history_a_run_that_was_not_needed_says_so;
};

const ON_A_FILE: &[Case] = cases! {
    outages:
        a_short_outage_is_ridden_out_and_the_command_hears_nothing_of_it
        a_release_that_was_not_confirmed_is_tried_until_the_program_ends
        a_success_that_nobody_confirms_is_80
        a_waiter_uses_no_processor_time
        with_nothing_configured_it_works_in_the_users_own_place;
    outcomes:
        bad_words_are_64_and_ask_nobody
        an_unreachable_coordinator_is_not_75
        the_lease_file_taken_away_ends_the_command
        no_secret_and_no_stray_variable_reaches_the_command
        the_command_finds_the_coordinator_with_its_settings
        a_folder_that_no_url_can_say_does_not_keep_the_command_from_asking;
    suspend:
        a_guard_that_cannot_connect_at_once_tries_again
        a_release_that_the_guard_could_not_make_is_said_and_the_code_is_still_the_commands;
};

/// Each on a server of its own, which it kills.
const BEHIND_A_NETWORK: &[(&str, servers::Case)] = cases! {
    servers:
        a_server_that_is_back_within_the_ttl_costs_the_command_nothing
        a_server_that_is_away_for_longer_than_the_ttl_ends_the_command;
};

fn main() -> ExitCode {
    let engines: Vec<Arc<dyn Engine>> = engines::all().into_iter().map(Arc::from).collect();
    let mut trials = Vec::new();
    for engine in &engines {
        let file = if engine.name() == "sqlite" { ON_A_FILE } else { &[] };
        // Of these coordinators Redlock alone has neither.
        let line = if engine.has_queue() { IN_LINE } else { &[] };
        let past = if engine.has_history() { HISTORY } else { NO_HISTORY };
        for &(name, case) in EVERYWHERE.iter().chain(line).chain(past).chain(file) {
            let (name, engine) = (format!("{}::{name}", engine.name()), Arc::clone(engine));
            trials.push(Trial::test(name, move || {
                bench::on(engine);
                case();
                Ok(())
            }));
        }
    }
    for &(engine, make) in servers::ALL {
        for &(name, case) in BEHIND_A_NETWORK {
            trials.push(Trial::test(format!("{engine}::{name}"), move || {
                case(&make());
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
