"""The board of lanes: whose turn it is, what leaves together, and what is remembered."""

import pytest

from djqueue.flow.board import Board, Waiting
from djqueue.flow.gates import Gate, Lane
from djqueue.flow.windows import Window

NOW = 1_000_000
ORDERED = Gate(ordered=True)


def board_of(**lanes):
    """A board of lanes, each with its gate and the entries that wait in it."""
    board = Board()
    board.fill(((Lane(name, gate), entries) for name, (gate, entries) in lanes.items()), NOW)
    return board


def entries(*seqs, rank=0, lost=()):
    return [Waiting(rank, seq, seq, seq in lost) for seq in seqs]


def left(board, limit=10, ahead=0, own=None):
    """What leaves in each unit; None for an entry in no lane."""
    units = board.units(lambda: own, limit, ahead, NOW)
    return [unit and [one.seq for one in unit.waiting] for unit in units]


def test_lanes_of_one_priority_take_turns():
    board = board_of(a=(Gate(), entries(1, 2)), b=(Gate(), entries(3, 4)))
    assert left(board) == [[1], [3], [2], [4]]


def test_the_higher_priority_goes_first():
    assert left(board_of(a=(Gate(), entries(1)), b=(Gate(), entries(2, rank=-1)))) == [[2], [1]]


def test_lanes_and_entries_in_none_alternate():
    assert left(board_of(a=(Gate(), entries(1, 2))), limit=4, own=0) == [[1], None, [2], None]


def test_of_an_ordered_lane_one_run_is_out():
    board = board_of(a=(Gate(ordered=True, max_run=2), entries(1, 2, 3)))
    assert left(board) == [[1, 2]]
    assert board.lanes["a"].in_flight == 2
    assert board.waiting("a") == 1


def test_what_was_lost_leaves_alone():
    assert left(board_of(a=(Gate(max_run=3), entries(1, 2, 3, 4, lost={2})))) == [[1], [2], [3, 4]]


def test_lanes_within_another_share_its_gate():
    inner = Gate(parent="all", parent_gate=Gate(concurrency=2))
    board = board_of(a=(inner, entries(1, 2)), b=(inner, entries(3, 4)), all=(Gate(concurrency=2), ()))
    assert left(board) == [[1], [3]]
    assert {name: lane.in_flight for name, lane in board.lanes.items()} == {"a": 1, "b": 1, "all": 2}


def test_what_waits_for_a_worker_is_not_throttled():
    board = board_of(a=(Gate(windows=(Window(5, 60),)), entries(1, 2, 3)))
    assert left(board, limit=3, ahead=2) == [[1]]
    assert board.first_rank() == 0, "it may leave for a worker that is free"


def test_a_lane_that_tells_nothing_is_forgotten():
    board = board_of(a=(ORDERED, entries(1)))
    board.remove("a", 1)
    board.place("a", NOW)
    assert board.lanes == {}


@pytest.mark.parametrize("within", ["b", "a"])
def test_a_lane_within_a_lane_that_is_within_another_leaves_nothing(within):
    """No level is below the second, whatever was written; and nobody asks for ever."""
    first, second = Gate(parent="b", parent_gate=Gate()), Gate(parent=within, parent_gate=Gate())
    board = board_of(a=(first, entries(1)), b=(second, ()))
    board.place("a", NOW)
    board.place("b", NOW)
    assert left(board) == []
