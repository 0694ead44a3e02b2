"""On which store each fault is seen: on all that its mark names in `make test-all`, on the one of this table per push.

A fault has one row, and every store has its share of them: tests/test_selection.py holds both. Take a store that the
fault can hurt; where it makes no difference, the one with the fewest rows.
"""

STORES = ("sqlite", "postgres", "mariadb", "redis", "redis-blocking")

PER_PUSH = {
    "test_debounce_storm": {
        "test_df14_df15_runs_keep_their_distance_and_no_call_is_lost": "postgres",
    },
    "test_exactly_once": {
        "test_three_consumers_run_each_message_exactly_once_dj19": "mariadb",
        "test_kill9_loses_nothing_and_repeats_little_dj15_to8": "postgres",
    },
    "test_fork": {
        "test_a_command_may_fork": "postgres",
        "test_what_a_consumer_has_locked_is_free_once_it_is_killed_though_its_child_lives": "mariadb",
    },
    "test_garbage": {
        "test_garbage_in_the_store_is_put_aside_unread_to19": "sqlite",
    },
    "test_idle_lanes": {
        "test_what_waits_for_its_lane_costs_an_idle_claim_nothing": "postgres",
        "test_a_consumer_beside_what_waits_looks_no_more_often_than_beside_nothing": "redis",
    },
    "test_innocents": {
        "test_many_that_kill_their_workers_are_put_aside_and_no_innocent_with_them": "redis",
        "test_what_no_worker_had_begun_is_not_lost_though_it_was_claimed_for_a_free_one": "mariadb",
        "test_consumers_killed_again_and_again_cost_no_message": "redis",
    },
    "test_isolation": {
        "test_it_ends_like_any_other_in_another_process_with_its_result": "postgres",
        "test_lost_together_with_their_consumers_are_more_starts_than_may_be_seen_to_die": "mariadb",
        "test_what_is_throttled_runs_in_a_process_of_its_own_and_no_window_has_more_starts": "postgres",
    },
    "test_latency": {
        "test_a_blocking_consumer_begins_at_once_dj23_to21": "redis-blocking",
        "test_a_polling_consumer_begins_within_its_longest_pause_dj14": "mariadb",
    },
    "test_limits": {
        "test_what_uses_up_all_memory_ends_no_consumer_that_lives_on": "sqlite",
        "test_a_consumer_without_descriptors_says_so_and_ends": "redis-blocking",
        "test_a_command_that_closes_the_standard_streams_costs_nothing_else": "sqlite",
        "test_a_consumer_one_of_whose_threads_was_killed_goes_on_or_says_70": "redis",
        "test_a_command_whose_child_returns_exits_or_raises_runs_once": "sqlite",
    },
    "test_lost_answers": {
        "test_claims_whose_answers_are_lost_cost_no_message": "postgres",
        "test_a_completion_whose_answer_is_lost_has_its_results_and_its_signals": "mariadb",
        "test_a_put_whose_answer_is_lost_until_the_message_has_run_is_one_message": "redis-blocking",
    },
    "test_outages": {
        "test_cut_connections_are_made_anew_dj22": "postgres",
    },
    "test_own_loops": {
        "test_what_a_killed_loop_ran_is_run_by_another_loop_soon_after_its_lease": "redis-blocking",
    },
    "test_poison": {
        "test_what_kills_its_worker_is_put_aside_and_its_neighbours_are_not_to10": "postgres",
        "test_what_kills_its_worker_while_its_arguments_are_decoded_is_put_aside_too": "postgres",
        "test_df21_what_kills_its_worker_ends_in_the_failed_queue_after_its_attempts": "sqlite",
        "test_df21_however_it_kills_its_worker": "redis-blocking",
        "test_what_is_throttled_and_kills_its_worker_takes_two_consumers_down_at_most": "redis",
        "test_in_a_program_of_ones_own_it_runs_alone_and_takes_two_consumers_down_at_most": "sqlite",
    },
    "test_processes": {
        "test_a_killed_process_is_started_again_and_what_it_ran_is_run": "sqlite",
        "test_processes_are_replaced_under_load_without_a_gap": "redis",
        "test_at_a_stop_all_processes_let_end_what_runs_and_start_nothing": "redis-blocking",
        "test_when_the_supervisor_is_killed_its_processes_stop_and_nothing_is_lost": "sqlite",
        "test_one_that_stands_still_is_replaced_and_work_schedule_and_reaping_go_on": "postgres",
    },
    "test_recovery": {
        "test_what_a_killed_consumer_ran_begins_again_soon_after_the_start_of_the_next": "mariadb",
        "test_a_child_that_outlives_its_killed_consumer_does_not_delay_that": "redis-blocking",
        "test_processes_of_one_supervisor_take_over_from_each_other": "sqlite",
    },
    "test_schedulers": {
        "test_each_tick_is_enqueued_once_by_three_schedulers_and_a_restart_dj12": "postgres",
        "test_three_consumers_keep_the_minutes_dj12": "redis-blocking",
    },
    "test_shards": {
        "test_sq1_sq9_shards_keep_their_order_while_consumers_are_killed": "postgres",
        "test_sq9_a_dead_workers_shard_is_taken_over_within_its_lease": "redis",
        "test_sq10_who_stood_still_removes_nothing_of_the_new_owner_and_begins_nothing": "redis",
    },
    "test_signals": {
        "test_what_runs_ends_and_nothing_new_begins_dj16": "mariadb",
        "test_what_was_claimed_ahead_goes_back_at_once_and_uncounted_dj16": "redis",
        "test_what_outlasts_the_grace_is_handed_back_dj16": "sqlite",
        "test_a_second_signal_does_not_wait_dj16": "redis-blocking",
        "test_an_idle_consumer_stops_soon_dj23": "postgres",
    },
    "test_silence": {
        "test_what_has_ended_is_settled_though_idle_connections_are_forgotten": "postgres",
    },
    "test_stopped_process": {
        "test_completion_of_a_zombie_is_refused_to4": "redis",
        "test_failure_of_a_zombie_changes_nothing_to4": "mariadb",
        "test_late_completion_is_accepted_if_nobody_took_over_to5": "sqlite",
        "test_a_short_stop_repeats_nothing_to6": "redis-blocking",
        "test_what_waited_in_a_zombie_is_not_run_by_it_to6": "postgres",
    },
    "test_throttles": {
        "test_tq3_tq11_tq15_a_window_has_what_it_may_and_no_item_comes_twice": "redis",
        "test_tq5_spacing_is_that_of_all_processes": "postgres",
        "test_tq9_queues_of_one_name_share_what_may_leave": "postgres",
        "test_tq16_processes_with_wrong_clocks_change_nothing": "redis",
        "test_tq18_what_a_killed_process_held_is_delivered_again": "redis-blocking",
    },
    "test_transactions": {
        "test_a_message_belongs_to_its_transaction": "mariadb",
        "test_a_message_is_sent_on_commit": "redis-blocking",
    },
}
"""Module, test, and the store on which each push sees it."""
