"""The tests that take longer than ten seconds on each push, with their reasons: tests/support/durations.py holds it.

A test that waits for what takes so long in earnest belongs here; one that merely does much belongs into
`make test-all`, or is made smaller.
"""

STILL = "a process counts as standing still after ten seconds"

LONG = {
    "consumer/test_supervisord.py": {
        "test_dj15_dj16_it_starts_restarts_after_kill_9_and_stops_in_time": "supervisord starts and stops consumers",
    },
    "dashboard/test_browser.py": {
        "test_the_dashboard_in_a_browser": "one browser visits every page at two widths, light and dark",
    },
    "documents/test_demo_pages.py": {
        "test_every_page_in_a_browser": "one browser visits every page of a running demo",
    },
    "documents/test_example_project.py": {
        "test_the_sites_own_tests_pass": "a whole test suite in another process",
        "test_the_demo_at_one_go": "pictures are made, and mails and reports sent",
        "test_to_8_killed_workers_lose_nothing": "two workers are killed, and their leases run out",
    },
    "faults/test_async_threads.py": {
        "test_commands_that_wait_for_a_locked_row_take_the_database_from_no_others": "a time limit, and its grace",
    },
    "faults/test_coroutines.py": {
        "test_what_commands_do_to_the_loop_costs_them_alone": "each misdeed at once",
        "test_what_a_loop_dies_of_is_lost_and_then_runs_in_a_process_of_its_own": "consumers end, leases run out",
        "test_what_kills_its_process_runs_in_one_of_its_own_in_the_end": "consumers end, leases run out",
        "test_what_blocks_the_loop_for_longer_than_its_lease_is_lost_alone": "a function blocks for twelve seconds",
    },
    "faults/test_exactly_once.py": {
        "test_kill9_loses_nothing_and_repeats_little_dj15_to8": "three consumers are killed in turn, and replaced",
    },
    "faults/test_innocents.py": {
        "test_many_that_kill_their_workers_are_put_aside_and_no_innocent_with_them": "each ends consumers",
        "test_consumers_killed_again_and_again_cost_no_message": "kills for five seconds, and as often as it takes",
    },
    "faults/test_isolation.py": {
        "test_one_that_stands_still_is_killed_and_counts_as_lost": STILL,
    },
    "faults/test_latency.py": {
        "test_idleness_is_cheap_to21": "an idle consumer is watched for twenty seconds",
    },
    "faults/test_limits.py": {
        "test_what_uses_up_all_memory_ends_no_consumer_that_lives_on": "memory is gone for seconds, six times",
        "test_a_consumer_one_of_whose_threads_was_killed_goes_on_or_says_70": "a consumer ends twice, leases run out",
    },
    "faults/test_lost_answers.py": {
        "test_claims_whose_answers_are_lost_cost_no_message": "answers are lost for many times a lease",
    },
    "faults/test_outages.py": {
        "test_consumers_ride_out_an_outage_dj22_to18": "a server of the test's own is away for seconds",
    },
    "faults/test_poison.py": {
        "test_what_kills_its_worker_is_put_aside_and_its_neighbours_are_not_to10": "consumers end, leases run out",
        "test_df21_what_kills_its_worker_ends_in_the_failed_queue_after_its_attempts": "consumers end, leases run out",
    },
    "faults/test_processes.py": {
        "test_processes_that_die_again_and_again_are_started_less_and_less_often": "pauses of up to four seconds",
        "test_one_that_stands_still_is_replaced_and_work_schedule_and_reaping_go_on": STILL,
        "test_one_in_which_a_command_holds_the_gil_is_replaced_and_what_it_had_is_run": STILL,
        "test_one_that_moves_again_in_time_is_not_disturbed": "it stands still until another one has the schedule",
        "test_processes_are_replaced_under_load_without_a_gap": "six processes start one after the other",
        "test_one_process_keeps_the_schedule_and_another_one_once_it_is_killed": "ticks of a schedule of one second",
        "test_storms_of_kills_lose_nothing": "three processes are killed, leases run out",
    },
    "faults/test_silence.py": {
        "test_what_has_ended_is_settled_though_idle_connections_are_forgotten": "silence is noticed after ten seconds",
    },
}
"""File below tests/, test, reason."""
