"""The history on Redis, which keeps records in no order."""

import random

import pytest

from djqueue.backends.redis import protocol
from djqueue.messages.envelope import new_id

pytestmark = pytest.mark.server("redis")
MANY, PAGE = 3000, 50


def test_pages_are_the_newest_of_many_and_most_others_stay_in_the_store(queue, monkeypatch):
    moments = random.sample(range(1795432125500000, 1795432125500000 + 10 * MANY), MANY)
    records = {new_id(): b"%016d done" % moment for moment in moments}
    queue.history.keep([*records], [*records.values()])
    expected = sorted(records, key=records.__getitem__, reverse=True)
    monkeypatch.setattr(protocol, "AT_ONCE", 100)
    sent, call = [], queue.history._call
    monkeypatch.setattr(queue.history, "_call", lambda *asked: sent.append(call(*asked)) or sent[-1])
    page, found = queue.history.page(PAGE), []
    assert sum(len(answer) // 2 - 1 for answer in sent) < MANY / 4
    for _ in range(3):
        found += [row.id for row in page]
        page = queue.history.page(PAGE, page[-1].cursor)
    assert found == expected[: 3 * PAGE]
