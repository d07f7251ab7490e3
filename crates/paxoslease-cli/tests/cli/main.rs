//! The real binary, alone and against real cells.

mod conversation;
mod hold;
mod picture;
mod serve;
mod snippets;
mod support;
mod terminal;

/// A test for each transcript, so that they run side by side.
macro_rules! transcripts {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                conversation::check($name);
            }
        )*
    };
}

transcripts! {
    bad_usage_and_unreachable_cells_have_clear_errors: "usage",
    the_manual_has_a_page_for_each_command: "manual",
    leases_are_acquired_renewed_released_and_shown: "leases",
    secrets_come_from_files_and_stay_there: "trust",
    certificates_and_tokens_are_made_once_and_privately: "certs",
    serve_refuses_settings_that_do_not_fit_together: "serve",
    simulations_are_repeatable_and_explained: "sim",
    a_load_is_reported_and_bad_usage_is_refused_before_it: "bench",
    a_lock_runs_one_command_at_a_time: "hold",
    a_lock_waits_through_outages_and_keeps_its_lease: "once",
    a_lock_ends_its_command_before_the_lease: "lose",
    one_candidate_leads_and_the_next_takes_over: "elect",
    watches_waiters_and_status_show_what_others_do: "look",
    cells_with_tls_and_tokens_refuse_strangers: "secure",
    durable_leases_outlive_all_members: "durable",
    only_a_start_without_a_snapshot_has_a_quarantine: "nodes",
    the_members_of_a_running_cell_change: "members",
    a_cell_of_dev_says_how_to_reach_it_and_outlives_a_node: "dev",
    the_recipes_for_stores_refuse_a_late_holder: "fences",
    the_recipes_for_other_locks_work: "migrating",
    the_steps_for_operators_work: "operating",
    a_cron_job_runs_once: "cron",
}
