//! The list of cases by theme, and the macro that turns each into a test.

/// Emits one test per case: `<theme>::<case>`, each on a fresh queue from the function `$fresh`.
macro_rules! tests {
    ($fresh:path: $($theme:ident { $($case:ident)* })*) => {
        $(mod $theme {
            $(#[tokio::test]
            async fn $case() {
                let (queue, clock) = $fresh().await;
                crate::conformance::$theme::$case(&queue, &clock).await;
            })*
        })*
    };
}

/// Emits one test per case of every theme.
macro_rules! cases {
    ($fresh:path) => {
        crate::conformance::tests! {
            $fresh:
            basics {
                a_job_goes_from_submit_to_its_result
                the_same_id_twice_is_one_job
                an_idempotency_key_gives_one_job_or_a_conflict
                an_idempotency_key_twice_in_one_call_gives_one_job
                a_conflict_accepts_nothing_of_its_bulk
                a_cancelled_job_never_gets_a_result
                a_cancelled_job_leaves_its_lane
                many_jobs_are_cancelled_at_once
                another_tenants_job_cannot_be_cancelled
                a_large_result_lies_under_the_winning_attempt
                lists_page_newest_first_and_filter
                depth_counts_ready_jobs
                unknown_ids_are_not_found
            }
            order {
                a_lane_is_first_in_first_out
                a_reply_with_large_inputs_ends_early_and_the_rest_keeps_its_turn
                urgent_priorities_go_first
                lanes_take_turns
                a_worker_gets_only_what_fits_and_the_biggest_first
                a_job_for_later_waits_for_its_time
                old_work_gets_every_twentieth_start
                young_work_waits_however_often_it_is_passed_over
                old_work_that_no_worker_here_can_take_stops_nobody
                a_loaded_model_takes_more_where_there_is_no_room_for_another
                what_is_loaded_goes_first_for_as_long_as_loading_takes
                a_gpu_is_held_by_one_worker_for_a_large_job_that_has_waited
            }
            fairness {
                nobody_starts_later_than_alone_at_its_share
                a_share_is_as_large_as_its_weight
                seconds_of_a_gpu_are_shared_and_not_jobs
                jobs_that_share_a_call_pay_their_part_of_it
                jobs_that_share_a_process_pay_their_part_of_it
                nobody_pays_for_waiting_inside_a_worker
                nobody_pays_for_a_job_that_is_handed_back
                a_wrong_estimate_is_made_good_after_the_finish
                who_comes_back_is_neither_owed_nor_punished
                the_classes_of_a_priority_share_a_large_gpu
                no_name_of_a_tenant_moves_the_shelf
                a_run_is_paid_for_before_its_tenant_comes_back
            }
            limit_scopes {
                a_tenant_runs_no_more_than_it_may
                an_endpoint_runs_no_more_than_it_may_and_stops_nobody_else
                a_cap_of_nothing_stops_all_until_it_is_lifted
                nothing_of_a_disabled_tenant_starts_until_it_is_enabled_whatever_its_limits
                every_end_of_an_attempt_gives_its_place_back
                starts_a_minute_are_spread_over_it
                a_rate_of_nothing_starts_nothing
                a_weight_of_nothing_breaks_no_shelf
                a_gate_that_opens_wakes_a_waiter
                a_quota_refuses_all_of_a_call_and_says_why
                what_is_used_is_counted
                what_holds_a_job_back_is_told
            }
            budgets {
                a_gate_whose_budget_is_spent_starts_nothing_until_midnight
                what_runs_goes_on_and_is_told_of
                a_budget_of_nothing_lets_nothing_start_on_any_day
                a_pause_stays_until_the_budget_is_raised_or_lifted
                a_pause_and_limits_do_not_overwrite_each_other
                what_is_spent_at_a_gate_is_told_by_day
                an_endpoint_without_budget_stops_nobody_else
            }
            keys {
                jobs_of_one_key_run_one_after_the_other_in_order
                different_keys_and_tenants_do_not_wait_for_one_another
                a_key_lets_through_as_many_as_it_says
                however_the_holder_ends_the_next_goes_on
                a_waiter_that_leaves_lets_the_others_wait_in_peace
                a_waiter_let_on_too_early_keeps_its_place
                a_long_line_for_one_key_stops_nobody_behind_it
                a_waiter_before_a_closed_endpoint_stops_nobody_else
                jobs_of_one_key_on_several_endpoints_start_in_the_order_of_their_submit
                every_free_place_of_a_key_is_taken_in_the_order_of_submit
                a_job_that_comes_back_keeps_its_place_among_endpoints
                a_job_for_another_worker_stops_nobody_with_its_key
                a_job_set_aside_for_one_that_does_not_start_goes_on_after_a_while
            }
            time {
                a_job_that_nobody_starts_in_time_expires
                a_job_that_started_in_time_may_end_later
                a_deadline_ends_a_job_wherever_it_stands
                a_job_whose_time_is_over_does_not_start
                an_ended_job_does_not_expire
            }
            leases {
                an_expired_lease_goes_to_the_front_under_a_new_fence
                a_job_that_keeps_losing_its_worker_fails_in_the_end
                an_extended_lease_is_not_reaped
                a_stale_worker_can_end_nothing
                a_report_told_twice_counts_once
                a_released_job_is_first_again_and_has_lost_nothing
                the_jobs_of_a_worker_that_has_ended_come_back_at_once
                a_lease_says_how_many_jobs_its_lane_has_left
                a_worker_holds_no_more_than_its_slots_run_and_a_few_ahead
                every_way_a_lease_ends_gives_its_place_back
                jobs_that_share_a_slot_take_a_part_of_it
                who_holds_as_many_as_it_may_passes_the_wake_on
            }
            retries {
                a_failed_attempt_is_retried_after_a_backoff_until_the_budget_is_spent
                a_final_failure_is_not_retried
                our_own_failures_have_a_budget_of_their_own
                only_the_failures_that_the_policy_names_are_retried
                the_wait_follows_the_policy
                running_out_of_memory_has_a_budget_of_its_own
                a_job_that_crashes_on_two_workers_is_poison
                a_job_that_crashes_on_one_worker_is_not_poison
                a_job_that_has_outgrown_its_gpu_goes_on_at_the_front_of_a_larger_class
                a_job_that_has_outgrown_every_gpu_fails
                a_worker_that_waits_for_a_larger_gpu_is_woken_by_a_job_that_has_outgrown_its_own
            }
            dependencies {
                a_job_waits_for_the_success_of_another
                a_job_that_wants_an_end_takes_any
                a_failed_dependency_is_told_at_once
                a_cancelled_dependency_is_told_too
                a_job_waits_for_all_it_names
                a_job_that_many_wait_for_tells_them_in_pieces
                what_has_ended_already_is_not_waited_for
                an_unknown_dependency_is_refused
                anothers_job_cannot_be_waited_for
                no_job_waits_for_itself
                a_job_may_wait_for_one_of_its_own_call
                what_is_not_settled_is_given_out_again
                a_blocked_job_can_be_cancelled_and_leaves_nothing_to_settle
            }
            steps {
                a_blocked_job_goes_on_with_the_input_it_was_given
                a_blocked_job_for_later_still_waits_for_its_time
                of_two_who_settle_one_is_heard
                a_step_is_a_job_that_its_job_waits_for
                a_result_is_not_seen_before_it_is_allowed
                an_allowed_result_may_be_another
                a_rejected_result_is_never_seen
                a_held_result_can_expire
            }
            costs {
                every_attempt_that_ends_is_counted_once
                jobs_that_shared_a_call_share_what_it_cost
                what_is_released_or_lost_or_cancelled_is_not_counted
                each_tenant_endpoint_batch_and_machine_is_counted_apart
                a_run_over_midnight_is_counted_in_both_days
                the_tokens_of_a_job_are_counted_once
                tokens_add_up_after_jobs_without_tokens
                a_result_that_a_step_checks_has_its_tokens_counted
                tokens_count_on_the_day_of_the_end
            }
            signals {
                one_submit_wakes_one_waiter_the_smallest_that_fits
                demands_wake_only_who_meets_them_and_that_once
                who_has_the_model_is_woken_then_the_cheapest
                a_wake_is_passed_on_while_there_is_work
                a_waiter_that_left_says_whether_a_wake_is_under_way
                a_watched_job_signals_each_change
                who_submits_hears_of_the_job_without_asking
                events_are_kept_in_order_and_only_from_the_holder
                outputs_are_found_by_their_index_within_bounds_and_only_from_the_holder
                outputs_that_readers_have_are_stored_without_a_signal
            }
        }
    };
}

pub(crate) use {cases, tests};
