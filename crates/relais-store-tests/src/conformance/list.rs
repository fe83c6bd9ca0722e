//! The one list of checks.
//!
//! Invariant: a check that is not in it fails this crate's own test.

/// Makes one test of each check. `$open` is the full path of an `async fn() -> Option<Box<dyn
/// Fixture>>` that gives an empty database, or `None` (loudly) where there is none.
#[macro_export]
macro_rules! store_conformance {
    ($open:path) => {
        $crate::conformance_tests! { @each $open;
            migration {
                an_empty_database_gets_every_script migrating_again_changes_nothing
                nodes_that_migrate_together_apply_each_script_once
                tables_of_the_user_stay_as_they_are
                a_database_without_tables_is_refused_with_what_to_do
                a_migrated_database_passes_the_check a_schema_of_a_newer_program_is_refused
                the_store_says_what_it_is
            }
            schema {
                a_plain_insert_of_five_columns_is_a_complete_message
                plain_inserts_get_ids_of_their_own a_plain_insert_may_name_its_key
                an_empty_key_is_a_key only_the_states_of_an_outbox_row_are_accepted
                only_the_states_of_an_inbox_row_are_accepted
                only_known_categories_and_error_stages_are_accepted required_columns_refuse_null
                required_columns_without_default_must_be_given an_inbox_row_has_defaults
                payload_and_headers_must_be_json headers_must_be_an_object
                ids_are_positive_and_attempts_bounded a_row_with_an_id_below_one_is_refused_or_delivered
                the_insert_of_a_consumer_needs_no_key_and_no_headers
                headers_of_a_sent_message_may_be_null an_inbox_row_needs_a_payload_or_its_raw_bytes
                one_source_and_message_id_is_one_row one_message_id_is_one_row_of_a_destination
                identities_are_not_empty_and_attempts_not_negative
                error_texts_hold_their_limit_of_any_characters
                a_dead_letter_takes_nulls_where_nothing_is_known
                a_lane_is_computed_from_the_key_alone strange_keys_have_a_lane_too
                an_id_is_never_used_twice no_open_row_of_another_writer_is_stranded
            }
            outbox {
                an_enqueued_message_is_pending_with_a_positive_id
                new_rows_are_found_by_their_ids_with_their_destinations
                destinations_with_fresh_or_due_rows_have_work
                every_field_of_a_message_comes_back a_large_batch_keeps_its_order
                nothing_to_write_is_nothing_written
                one_message_id_is_written_once_and_gives_the_same_row
                a_fetch_keeps_to_its_limit_and_order a_fetch_sees_only_its_destination
                a_fetch_sees_only_its_lanes a_row_waits_until_it_is_due
                a_delayed_message_is_invisible_until_due settled_rows_are_never_fetched_again
                a_dispatched_row_says_when settling_a_missing_row_is_refused_without_an_error
                a_settled_row_is_not_settled_again a_row_named_twice_in_a_batch_settles_once
                a_retry_stays_pending_and_the_last_error_stands
                a_pause_is_added_to_the_databases_now an_absurd_pause_waits_long_and_breaks_nothing
                success_clears_what_the_failures_left a_dead_row_keeps_its_reason
                an_untouched_row_stays_as_it_was a_large_mixed_batch_settles_in_one_go
                an_uncommitted_message_does_not_exist
                a_message_that_cannot_be_stored_stops_its_batch_for_good
                many_writers_at_once_all_get_through a_new_row_changes_the_number_that_wakes_workers
                headers_of_other_writers_can_be_read
            }
            send {
                one_id_to_two_destinations_is_two_messages
                messages_with_generated_ids_are_written_in_order
                one_id_with_other_content_is_refused an_edited_message_is_still_the_same
            }
            accept {
                every_field_of_a_received_message_comes_back what_a_message_lacks_stays_null
                a_message_that_comes_again_is_a_duplicate
                a_message_that_comes_again_after_its_end_is_a_duplicate
                duplicates_inside_one_batch_are_found_too one_id_from_two_sources_is_two_messages
                the_same_id_with_other_content_is_kept_as_a_conflict
                a_conflict_that_comes_again_is_kept_once a_conflict_inside_one_batch_is_found_too
                undecodable_bytes_are_kept_as_base64_with_the_reason no_bytes_at_all_are_kept_too
                undecodable_messages_are_compared_by_their_bytes
                ids_that_look_alike_are_different_messages
                ids_and_keys_at_their_limit_are_kept_whole a_large_batch_keeps_its_order
                positions_are_stored_with_the_messages
                the_last_position_of_a_partition_in_one_batch_stands
                a_batch_that_cannot_be_stored_moves_no_position
                times_no_calendar_holds_do_not_stop_the_batch
                a_zero_character_is_stored_or_refused_for_good
                nodes_that_accept_the_same_messages_store_each_once
            }
            inbox {
                a_fetch_keeps_to_its_limit_order_and_lanes
                a_processed_row_says_when
                a_retry_waits_and_the_last_error_stands
                an_absurd_pause_waits_long_and_breaks_nothing
                success_clears_what_the_failures_left
                a_dead_row_keeps_its_reason
                a_missing_or_settled_row_is_refused_without_an_error
                a_row_that_could_not_be_decoded_is_not_settled
                a_large_mixed_batch_settles_in_one_go
                messages_are_written_in_the_commit_that_processes
                a_message_that_cannot_be_stored_leaves_its_row_open
                a_message_id_already_there_is_not_written_again
                the_id_of_another_message_leaves_its_row_open
                a_row_named_twice_in_a_batch_has_one_effect
                a_delayed_message_of_a_handler_waits
                an_older_version_is_not_sent_and_an_equal_or_newer_one_is
                a_row_of_an_ignored_type_is_settled_with_the_reason
                versions_are_kept_per_aggregate
                versions_of_one_aggregate_in_one_batch_count_in_order
                a_message_is_handled_once_per_handler
                handling_once_needs_an_id_and_a_handler
                handling_once_takes_long_and_strange_names
                of_many_at_once_one_handles
            }
            quarantine {
                a_loss_is_noted_on_an_outbox_row_and_taken_back a_loss_is_noted_on_an_inbox_row_and_taken_back
                a_row_that_waits_without_an_attempt_holds_its_key
                a_row_in_quarantine_goes_again_when_another_worker_is_lost
                a_row_whose_hold_began_after_a_loss_is_not_acquitted_by_it
                a_row_in_quarantine_holds_its_key_until_another_worker_is_lost
            }
            controls {
                a_pause_is_read_by_every_process_until_it_ends
                a_second_pause_changes_nothing_and_is_not_recorded limits_and_resets_are_numbered
                a_resumed_process_type_ends_the_wait_of_its_rows
                a_report_replaces_the_last_one_of_its_process
                a_silent_process_is_lost_and_then_forgotten
            }
            credentials { a_secret_has_one_owner_until_its_lease_ends
                a_secret_is_replaced_and_read_by_the_next_owner
                who_lost_the_lease_of_a_secret_changes_nothing }
            lanes {
                a_worker_alone_holds_every_lane others_notice_when_a_worker_comes_or_leaves
                a_newcomer_takes_nothing_that_is_held two_workers_share_evenly
                three_workers_share_evenly more_workers_than_lanes_leave_no_worker_stuck
                scopes_share_nothing a_lane_given_back_is_handed_over_at_once_and_clean
                a_worker_that_leaves_frees_everything leaving_frees_lanes_the_worker_forgot
                a_lane_of_another_worker_cannot_be_given_back
                dead_workers_are_taken_over_unclean_with_a_new_epoch
                a_live_lease_is_not_taken_even_from_an_unannounced_worker
                an_expired_lease_is_taken_up_to_the_share a_lease_that_ends_later_than_any_can_is_taken
                one_lease_covers_the_lanes_of_all_scopes renewing_keeps_epoch_and_term
                an_expired_lease_that_was_not_taken_is_renewed_in_a_new_term
                lanes_of_an_owner_without_a_lease_are_taken_unclean
                a_forgotten_worker_leaves_its_lanes_free_and_unclean
                an_announced_worker_has_a_share_before_it_asks_for_lanes
                a_lease_that_lost_a_lane_is_never_renewed_in_the_same_term
                taking_a_lane_again_raises_the_epoch_for_the_same_name_too
                nodes_that_lease_together_never_share_a_lane
                nodes_that_work_together_dispatch_each_row_once
            }
            inboxes {
                each_inbox_has_its_own_rows_and_duplicates rows_of_an_inbox_without_a_live_worker_are_counted
                a_settled_row_is_copied_to_other_inboxes_once
                a_key_that_waits_in_one_inbox_continues_in_the_other a_key_is_parked_in_its_inbox_only
            }
            event_types {
                a_worker_learns_which_types_other_live_workers_know
                a_lane_handed_over_goes_to_a_worker_that_knows_the_type
                a_lane_handed_over_unclean_is_taken_unclean_once
                a_lane_wanted_by_no_live_worker_goes_to_any
                a_lane_of_another_worker_cannot_be_handed_over
                a_handed_over_lane_is_taken_by_one_of_many
                a_row_of_an_unknown_type_waits_without_an_attempt_and_holds_its_key
                a_retried_dead_letter_of_an_unknown_type_waits_from_the_start
            }
            fence {
                a_stale_worker_settles_no_outbox_row a_stale_worker_settles_no_inbox_row
                the_same_name_with_an_old_epoch_is_refused
                the_same_name_with_an_old_epoch_is_refused_in_the_inbox
                the_right_epoch_under_another_name_is_refused a_future_epoch_is_refused
                a_free_lane_refuses_every_worker a_worker_that_never_leased_is_refused
                the_lanes_of_one_destination_settle_no_row_of_another
                a_settlement_that_names_another_lane_than_the_rows_is_refused
                a_lease_that_ran_out_but_was_not_taken_still_settles
                of_a_mixed_batch_only_the_lanes_still_held_settle
                of_a_mixed_inbox_batch_only_the_lanes_still_held_settle
                of_a_mixed_batch_losses_are_noted_in_held_lanes_only
                a_row_an_operator_resolved_meanwhile_is_not_overwritten
                a_settlement_in_flight_and_a_take_over_never_both_win
                an_inbox_settlement_in_flight_and_a_take_over_never_both_win
            }
            order {
                a_row_in_backoff_holds_its_key_and_no_other a_due_row_goes_before_its_followers
                a_due_row_waits_behind_an_earlier_one_that_is_not
                a_row_in_backoff_does_not_hold_an_earlier_one
                backoff_holds_the_key_in_its_destination_only
                keys_that_look_alike_are_different_keys a_delayed_row_does_not_hold_its_key
                waiting_keys_in_front_do_not_fill_the_batch a_parked_key_waits_and_others_continue
                a_dead_letter_that_parks_nothing_lets_its_key_continue
                a_retried_dead_letter_is_first_in_its_key_again
                a_retried_dead_letter_goes_before_a_follower_in_backoff
                a_skipped_dead_letter_frees_its_key
                a_dead_letter_that_parks_nothing_does_not_inherit_the_key
                two_open_dead_letters_hold_their_key_until_both_are_resolved
                a_lower_id_that_commits_late_is_found a_lower_inbox_id_that_commits_late_is_found
                an_inbox_row_in_backoff_holds_its_key_and_no_other
                an_inbox_row_put_off_without_an_attempt_holds_its_key
                a_due_inbox_row_waits_behind_an_earlier_one_that_is_not
                a_parked_inbox_key_waits_for_an_operator
                waiting_inbox_keys_in_front_do_not_fill_the_batch rows_of_skipped_keys_are_left_out
                a_skipped_key_with_a_long_backlog_does_not_fill_the_batch
                rows_in_flight_are_left_out_and_do_not_fill_the_batch
            }
            dead_letters {
                a_dead_outbox_row_is_copied_with_everything
                a_dead_inbox_row_is_copied_with_everything
                what_the_row_lacks_is_null_in_its_dead_letter
                long_error_texts_are_cut_between_characters
                an_empty_reason_is_kept
                a_large_payload_is_kept_whole
                a_parked_key_names_its_dead_letter
                a_retried_outbox_row_starts_again
                a_retried_inbox_row_starts_again
                a_skipped_row_stays_failed
                a_decision_is_recorded_with_who_and_why
                a_decision_is_carried_out_once
                of_two_operators_at_once_one_decides
                a_row_that_is_no_longer_failed_is_not_retried_again
                a_retried_conflict_becomes_a_message_of_its_own
                a_skipped_conflict_stores_nothing
                many_rows_can_die_in_one_batch
            }
            repair {
                a_repaired_row_is_received_with_its_new_parts
                a_repair_is_recorded_with_who_and_why
                a_trial_says_the_same_and_changes_nothing
                a_repaired_row_takes_the_id_of_its_message
                a_message_that_is_there_already_is_not_handled_twice
                bytes_repaired_before_under_the_id_are_the_same_message
                an_id_that_has_other_content_is_not_changed
                an_id_of_another_source_is_another_message
                only_what_could_not_be_decoded_is_repaired
                of_two_operators_at_once_one_repairs
                a_message_that_comes_while_its_row_is_repaired_is_one_message
                a_repair_waits_for_a_message_that_is_being_received
                what_comes_again_after_its_repair_is_a_duplicate
                a_repaired_row_goes_before_later_rows_of_its_key
                a_repaired_row_is_found_long_after_later_ones
                a_repaired_row_of_a_parked_key_waits
                a_repair_changes_the_number_that_wakes_workers
                a_payload_that_is_no_json_leaves_the_row_as_it_was
                rows_to_repair_are_listed_oldest_first_by_every_filter
                a_page_of_rows_to_repair_has_an_upper_limit
            }
            inspect {
                an_empty_store_shows_every_status_with_zero
                ids_are_found_by_their_prefix inbox_messages_are_found_by_their_prefix
                the_overview_counts_every_status
                rows_behind_a_parked_key_are_counted_apart
                the_overview_shows_the_oldest_open_row
                the_overview_shows_what_waits_for_each_destination
                the_overview_shows_workers_and_whether_they_live
                lists_are_newest_first_and_paged
                a_page_has_an_upper_limit
                outbox_rows_are_filtered_by_every_field
                inbox_rows_are_filtered_by_every_field
                dead_letters_are_filtered_and_paged_without_gaps
                a_row_is_found_by_id_and_by_message_id
                what_is_not_there_is_not_found
                a_dead_letter_is_found_by_its_id
            }
            browse {
                a_short_list_is_looked_through_at_once
                what_is_far_back_in_the_inbox_is_found_page_by_page
                what_is_far_back_in_the_outbox_is_found_page_by_page
                the_list_of_a_key_is_complete_in_a_long_history
                rows_that_wait_are_found_at_once_while_they_are_few
                a_page_ends_where_rows_are_too_old
                what_is_far_back_among_dead_letters_is_found_page_by_page
            }
            fidelity {
                outbox_payloads_come_out_as_they_went_in
                inbox_payloads_come_out_as_they_went_in
                payloads_of_other_writers_come_out_as_they_went_in
                a_payload_of_a_megabyte_goes_through
                headers_come_out_as_they_went_in
                keys_come_out_as_they_went_in
                the_longest_key_can_wait_and_be_parked
                a_longer_key_of_another_writer_stops_at_the_door_or_can_wait
                a_dead_letter_is_a_faithful_copy
                what_relays_changes_nothing_but_the_state
            }
            bulk {
                a_job_is_planned_with_its_rows
                a_row_in_a_job_is_never_fetched_and_holds_its_key
                a_row_in_a_job_holds_its_key_in_its_destination_only
                rows_in_backoff_and_delayed_rows_that_are_due_can_be_planned
                a_destination_has_one_open_job
                a_plan_with_a_row_or_lane_that_is_not_ours_changes_nothing
                of_workers_that_plan_together_one_gets_its_job
                a_held_job_is_not_taken
                a_job_without_an_owner_is_taken_as_it_is_with_a_higher_epoch
                of_many_that_take_a_job_one_gets_it
                a_job_that_was_not_released_is_taken_after_a_loss
                lost_workers_are_counted_on_rows_of_a_job_and_cleared_by_any_answer
                a_worker_that_lost_the_job_changes_nothing
                a_settlement_and_a_take_over_never_both_win
                a_phase_moves_only_from_where_it_is
                what_the_target_named_and_the_last_note_are_kept
            }
            bulk_rows {
                rows_of_a_job_are_read_in_pages
                every_row_of_a_job_ends_as_its_fate_says
                a_job_ends_with_its_last_row
                rows_that_are_not_in_the_job_are_refused
                an_abandoned_job_sets_its_rows_free_as_they_were
                rows_set_free_are_found_at_once_and_before_their_followers
                an_operator_may_retry_a_dead_row_while_its_job_is_open
                a_discarded_dead_row_of_a_job_lets_its_key_continue
                an_unknown_job_strands_no_row
                workers_notice_rows_that_were_set_free_and_the_end_of_a_job
                rows_of_a_job_are_pending_to_operators
                jobs_are_listed_open_ones_first_then_newest
                ended_jobs_past_their_retention_go_and_open_ones_stay
                a_caller_that_goes_away_leaves_all_or_nothing
            }
            bytes {
                a_fetch_ends_with_the_row_that_reaches_its_bytes
                a_fetch_of_the_inbox_ends_with_the_row_that_reaches_its_bytes
                a_cut_by_bytes_is_a_prefix_of_due_and_fresh_rows raw_bytes_of_a_repaired_row_count
                a_fetch_without_payloads_has_the_same_rows
                a_fetch_of_the_inbox_without_payloads_is_refused
                rows_of_a_job_end_with_the_one_that_reaches_the_bytes
                rows_of_a_job_are_read_without_payloads
            }
            cleanup {
                finished_rows_past_their_retention_go
                finished_rows_within_their_retention_stay
                versions_that_were_not_seen_for_long_go
                the_time_of_the_end_counts_not_that_of_the_start
                unfinished_rows_stay_however_old
                a_pass_removes_no_more_than_it_may
                resolved_dead_letters_go_and_open_ones_stay
                a_resolved_dead_letter_goes_though_its_key_is_still_parked
                a_discarded_row_goes_with_its_dead_letter
                rows_retried_lately_do_not_stop_clean_up
                cleaning_up_beside_others_never_fails
                ended_processes_go_with_their_logs_and_timers
                the_last_change_of_a_process_counts
                an_old_process_with_an_open_dead_letter_stays
                attempts_go_with_their_row
            }
            process {
                insert_writes_the_process_and_its_first_event find_by_id_gives_every_field_back
                several_are_found_in_the_order_asked_for find_by_status_is_limited_and_newest_first
                find_by_type_and_status_gives_only_both a_list_continues_behind_a_page
                a_list_can_be_of_the_last_hour_or_of_one_key
                an_update_changes_the_status_and_logs_it an_update_changes_the_step_and_logs_it
                an_update_changes_the_data the_log_holds_every_event_newest_first
                the_log_keeps_to_its_limit_and_continues_behind_a_page find_by_business_key_is_exact
                a_released_business_key_can_be_used_again
                a_business_key_names_its_holder_and_else_the_newest_process
                every_state_transition_is_logged concurrent_updates_never_overwrite_each_other
                an_update_of_an_old_version_changes_nothing a_process_begins_once
                of_starts_at_once_one_begins
            }
            process_fidelity {
                nested_data_with_special_characters_comes_back_byte_for_byte
                all_twelve_event_types_come_back_from_the_log
                an_entry_keeps_who_why_and_what_else_there_is_to_say
                entries_of_one_message_are_found_in_every_process
                long_values_of_a_process_are_kept_whole what_a_process_does_not_have_is_null
                only_the_seven_states_are_accepted
            }
            process_settle {
                a_row_and_everything_of_its_process_settle_together
                messages_of_a_row_go_beside_those_of_its_processes
                a_stale_row_is_left_while_its_neighbours_settle
                one_stale_process_of_several_leaves_the_whole_row
                what_the_fence_refuses_changes_no_process a_settled_row_changes_no_process_again
                a_start_whose_key_is_taken_is_stale a_start_of_a_process_that_exists_is_stale
                many_processes_settle_in_one_batch a_batch_that_cannot_be_written_changes_nothing
                a_worker_and_an_operator_never_overwrite_each_other
            }
            process_dead_letters {
                insert_keeps_every_field_of_the_process insert_takes_long_values
                insert_without_a_business_key_or_a_text_takes_what_there_is
                a_process_has_at_most_one_open_dead_letter going_on_closes_the_open_dead_letter
                a_dead_letter_of_a_process_names_what_closed_it
                an_action_on_a_process_is_in_the_audit
                a_process_is_not_retried_by_its_dead_letter_alone
                skipping_the_dead_letter_of_a_process_only_closes_it
                a_stale_change_opens_and_closes_nothing
                a_process_that_never_went_well_may_begin_with_a_dead_letter
            }
            timers {
                without_timers_there_is_nothing_to_wait_for
                a_timer_fires_when_the_databases_time_has_come
                the_time_of_a_command_begins_when_it_has_left
                a_fired_timer_is_an_inbox_row_of_its_process each_timer_fires_once_however_many_ask
                firing_keeps_to_its_limit_and_takes_the_earliest a_cleared_timer_does_not_fire
                a_kept_timer_stays_and_a_new_one_replaces_it a_second_timer_of_a_command_fires_too
                timers_of_other_process_types_are_left_to_their_programs
                a_timer_due_at_once_fires_at_once the_overview_counts_processes_and_due_timers
            }
            edit {
                an_edit_changes_an_inbox_row_that_stays_failed_until_it_is_replayed
                an_edit_changes_an_outbox_row_too the_original_is_kept_after_two_edits
                every_edit_is_recorded what_is_resolved_is_not_edited
                only_json_can_be_edited_in an_edited_conflict_leaves_the_first_message_alone
                the_original_of_an_edited_message_is_still_a_duplicate a_process_is_not_edited
                of_edits_and_decisions_at_once_each_is_whole
                an_undecodable_row_is_closed_with_a_resolved_dead_letter
                only_what_could_not_be_read_is_discarded_and_only_once
                what_could_not_be_read_is_not_retried
            }
            operators {
                every_failed_attempt_of_an_outbox_row_is_kept
                every_failed_attempt_of_an_inbox_row_is_kept
                every_failed_attempt_in_a_bulk_job_is_kept what_was_no_failed_attempt_leaves_none
                a_retry_counts_its_attempts_from_the_start parked_keys_say_what_waits_behind_them
                a_parked_key_with_nothing_behind_it_has_no_waiting_rows
                a_message_id_finds_the_rows_of_every_source_and_no_row_number
                a_pending_row_becomes_a_dead_letter_by_an_operator
                of_an_operator_and_a_settlement_one_stands
                a_row_of_a_job_is_failed_by_an_operator
                a_delivery_after_an_operator_failed_the_row_is_noted
                what_a_message_caused_is_found_oldest_first
                dead_letters_of_a_message_are_found_resolved_or_not
                the_audit_is_listed_newest_first_and_in_pages
            }
            backoff {
                failing_keys_are_counted_beside_healthy_ones
                a_row_in_backoff_is_sent_now_and_keeps_attempts_and_order
                a_row_that_is_sent_now_is_settled_under_the_fence
                what_is_not_in_backoff_is_not_sent_now
                rows_of_a_key_keep_their_order_when_their_times_do_not
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Every `pub async fn` of the check modules stands in the macro's list, under its module.
    #[test]
    fn no_check_is_forgotten() {
        let modules = [
            ("accept", include_str!("accept.rs")),
            ("backoff", include_str!("backoff.rs")),
            ("bulk", include_str!("bulk.rs")),
            ("bulk_rows", include_str!("bulk_rows.rs")),
            ("bytes", include_str!("bytes.rs")),
            ("cleanup", include_str!("cleanup.rs")),
            ("credentials", include_str!("credentials.rs")),
            ("dead_letters", include_str!("dead_letters.rs")),
            ("fence", include_str!("fence.rs")),
            ("fidelity", include_str!("fidelity.rs")),
            ("inbox", include_str!("inbox.rs")),
            ("lanes", include_str!("lanes.rs")),
            ("migration", include_str!("migration.rs")),
            ("order", include_str!("order.rs")),
            ("outbox", include_str!("outbox.rs")),
            ("inspect", include_str!("inspect.rs")),
            ("repair", include_str!("repair.rs")),
            ("process", include_str!("process.rs")),
            ("process_fidelity", include_str!("process_fidelity.rs")),
            ("process_settle", include_str!("process_settle.rs")),
            ("process_dead_letters", include_str!("process_dead_letters.rs")),
            ("timers", include_str!("timers.rs")),
            ("edit", include_str!("edit.rs")),
            ("event_types", include_str!("event_types.rs")),
            ("inboxes", include_str!("inboxes.rs")),
            ("operators", include_str!("operators.rs")),
            ("schema", include_str!("schema.rs")),
            ("send", include_str!("send.rs")),
        ];
        let list = include_str!("list.rs").split("@each $open;\n").nth(1).expect("the list");
        let list = list.split("\n        }\n    };").next().expect("the end of the list");
        for (module, source) in modules {
            let part = list.split(&format!(" {module} {{")).nth(1).expect(module);
            let listed: BTreeSet<_> =
                part.split('}').next().expect(module).split_whitespace().collect();
            let written: BTreeSet<_> = source
                .split("\npub async fn ")
                .skip(1)
                .map(|rest| rest.split('(').next().expect("a name"))
                .collect();
            assert_eq!(listed, written, "{module}");
        }
    }
}
