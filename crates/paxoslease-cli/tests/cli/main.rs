//! The real binary, alone and against real cells.

mod conversation;
mod hold;
mod serve;
mod snippets;
mod support;
mod terminal;

use conversation::check;

#[test]
fn bad_usage_and_unreachable_cells_have_clear_errors() {
    check("usage");
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    check("manual");
}

#[test]
fn leases_are_acquired_renewed_released_and_shown() {
    check("leases");
}

#[test]
fn secrets_come_from_files_and_stay_there() {
    check("trust");
}

#[test]
fn certificates_and_tokens_are_made_once_and_privately() {
    check("certs");
}

#[test]
fn serve_refuses_settings_that_do_not_fit_together() {
    check("serve");
}

#[test]
fn simulations_are_repeatable_and_explained() {
    check("sim");
}

#[test]
fn a_load_is_reported_and_bad_usage_is_refused_before_it() {
    check("bench");
}

#[test]
fn a_lock_runs_one_command_at_a_time() {
    check("hold");
}

#[test]
fn a_lock_waits_through_outages_and_keeps_its_lease() {
    check("once");
}

#[test]
fn a_lock_ends_its_command_before_the_lease() {
    check("lose");
}

#[test]
fn one_candidate_leads_and_the_next_takes_over() {
    check("elect");
}

#[test]
fn watches_waiters_and_status_show_what_others_do() {
    check("look");
}

#[test]
fn cells_with_tls_and_tokens_refuse_strangers() {
    check("secure");
}

#[test]
fn only_a_start_without_a_snapshot_has_a_quarantine() {
    check("nodes");
}

#[test]
fn a_cell_of_dev_says_how_to_reach_it_and_outlives_a_node() {
    check("dev");
}

#[test]
fn the_recipes_for_stores_refuse_a_late_holder() {
    check("fences");
}

#[test]
fn the_recipes_for_other_locks_work() {
    check("migrating");
}

#[test]
fn the_steps_for_operators_work() {
    check("operating");
}

#[test]
fn a_cron_job_runs_once() {
    check("cron");
}
