"""What was counted per minute on the dashboard: in numbers, as plots, and in the table of their values."""

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from djqueue.consumer.rates import Sampler, spans_of
from djqueue.dashboard import plots
from djqueue.dashboard.plots import Series, Words
from tests.dashboard.calls import counted, heartbeat, send_receipt, transfer
from tests.dashboard.conftest import ROOT
from tests.dashboard.test_pages import get, put, text_of

pytestmark = pytest.mark.backends("memory", database=True)
STORES = pytest.mark.backends("memory", "sqlite", "redis", database=True)
EVIL = "<script>alert('x')</script>\"'>&"
WORDS = Words(lambda value: f"{value:g} pieces", lambda moment: f"at {moment:g}")


def numbers_of(page: str, command: str) -> dict[str, str]:
    """The numbers in the row of a command."""
    row = next(one for one in page.split("<tr>") if f'title="{command}"' in one)
    return dict(re.findall(r'data-label="([\w ]+)"[^>]*>([^<]+)<', row))


@STORES
def test_commands_show_what_was_counted_in_the_last_hour_and_day(queue, superuser):
    for minutes in (5, 10):
        counted(queue, send_receipt.name, minutes, 0.2, done=1_000, failed=3, retried=2, discarded=1)
    counted(queue, send_receipt.name, 300, done=7)
    hour, day = (
        numbers_of(get(superuser, "commands/", period=period), send_receipt.name) for period in ("hour", "day")
    )
    assert (hour["Done"], hour["Failed"], day["Done"]) == ("2,000", "6", "2,007")
    assert hour["Others"] == "4 retried, 2 discarded"
    assert "ms" in hour["Median run"] + hour["Median wait"] + hour["P95 run"]
    page = get(superuser, "commands/")
    titles = re.findall(r"<svg[^>]*><title>([^<]+)", page)
    assert titles == ["2,000 done and 6 failed in the last hour", "2,007 done and 6 failed in the last day"]
    declared = numbers_of(page, transfer.name)
    assert (declared["Done"], declared["Median run"], declared["Last hour"]) == ("0", "-", "-"), "that are declared"


@STORES
def test_a_command_has_plots_and_a_table_of_their_values(queue, superuser):
    counted(queue, send_receipt.name, 5, 0.2, done=40, failed=3, discarded=1)
    there = re.search(r"commands/one/\?([^\"]+)", get(superuser, "commands/"))[1]
    page = get(superuser, f"commands/one/?{unescape(there)}")
    assert page.count('<svg class="djq-plot"') == 6, "attempts, how long they ran and waited: of the hour and the day"
    assert "Attempts: done, failed, others; at most 44" in page and "done 40, failed 3, others 1" in page
    row = next(one for one in page.split("<tr>") if 'data-label="Failed" class="num djq-red">3<' in one)
    assert 'data-label="Done" class="num">40<' in row and "1 discarded" in row
    unknown = superuser.get(ROOT + "commands/one/", {"queue": "default", "command": EVIL})
    assert unknown.status_code == 404 and "counted nothing of it" in text_of(unknown)
    assert "<script>alert" not in unknown.content.decode()


@STORES
def test_queues_and_the_overview_say_what_comes_in_and_is_done_and_when_they_are_drained(queue, superuser):
    now = queue.store.shared.now()
    put(queue, *(f"{number:03}" for number in range(100)))
    Sampler().look(queue, now - 150)
    queue.complete(queue.claim(60))
    Sampler().look(queue, now)
    counted(queue, send_receipt.name, 1, done=60, failed=5)
    overview = text_of(superuser.get(ROOT))
    assert re.search(r"1\d a minute 0 a minute come in", overview)
    assert re.search(r"drained in 1m (40|3\d)s", overview)
    page = get(superuser, "queues/").partition(f">{queue.alias}<")[2]
    row = dict(re.findall(r'data-label="([\w/]+)"[^>]*>([^<]+)<', page.partition("</tr>")[0]))
    assert re.fullmatch(r"1\d", row["Done/min"]) and re.fullmatch(r"0\.[89]|1(\.\d)?", row["Failed/min"])
    assert row["In/min"] == "0" and re.fullmatch(r"1m (40|3\d)s", row["Drain"])
    assert superuser.get(ROOT).content.decode().count('<svg class="djq-plot"') == 2


def test_the_overview_says_since_when_no_consumer_has_counted(queue, superuser):
    assert "No consumer has counted in the last day." in get(superuser)
    heartbeat(queue, "web-1:42:beef", 60.0)
    assert re.search(r"No consumer has counted since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.", get(superuser))
    heartbeat(queue, "web-1:42:beef")
    assert "No consumer has counted" not in get(superuser)


@pytest.mark.parametrize("value", ["Infinity", "NaN", "-5", "1" + "0" * 400, '"<b>"', "[1]"])
def test_what_others_wrote_among_the_counts_is_shown_as_far_as_it_can_be(queue, superuser, value):
    store = queue.store.shared
    minute, quarter = spans_of(store.now())
    counts = f'{{"counts":{{"app.<b>x":[{{"done":{value},"<b>":{value}}},[0.5,1,{value}],[0.5,2,3]]}}}}'
    for length, start in (minute, quarter):
        store.put(f"rates:named:{queue.base_name}:{length}:{start}", counts.encode(), 60)
    sample = f'{{"at":{store.now()},"ready":{value},"delayed":1,"leased":1,"failed":1,"done":1}}'
    store.put(f"sample:named:{queue.base_name}:60:{minute[1]}", sample.encode(), 60)
    for path in ("", "queues/", "commands/", "commands/one/?queue=default&command=app.<b>x"):
        page = superuser.get(ROOT + path)
        assert page.status_code in (200, 404) and "<b>x" not in page.content.decode()


# ---- Plots


def paths(svg: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall("path")


def test_bars_are_stacked_and_each_is_within_the_picture():
    plot = plots.bars("Calls", [0, 60, 120], [Series("done", [10, 0, 1000]), Series("failed", [0, 5, 1000])], WORDS)
    done, failed = paths(plot.svg)
    assert (done.get("class"), failed.get("class"), plot.most) == ("djq-done", "djq-failed", "2000 pieces")
    assert done.get("d").count("M") == failed.get("d").count("M") == 2, "none for nothing"
    boxes = [tuple(map(float, one)) for path in (done, failed) for one in re.findall(BAR, path.get("d"))]
    assert all(0 <= x <= x + wide <= 600.1 and -0.1 <= y - tall < y <= 120 for x, y, wide, tall in boxes)
    assert min(tall for *_, tall in boxes) >= 4, "few among many are seen"


BAR = r"M([\d.]+) ([\d.]+)h([\d.]+)v-([\d.]+)"


def test_a_line_has_gaps_and_every_span_of_time_says_its_values():
    plot = plots.lines("Time", [0, 60, 120, 180], [Series("median", [1.0, None, 2.0, 3.0])], WORDS)
    [line] = paths(plot.svg)
    assert (line.get("d").count("M"), line.get("d").count("L")) == (2, 1)
    titles = [one.text for one in ElementTree.fromstring(plot.svg).iter("title")]
    assert titles[:3] == ["Time: median; at most 3 pieces", "at 0: median 1 pieces", "at 60: nothing"]


def test_a_plot_of_nothing_and_of_strange_words():
    for make in (plots.bars, plots.lines):
        assert paths(make(EVIL, [0], [Series("done", [None])], WORDS).svg) == []
    assert "<script>" not in plots.spark(EVIL, [Series("done", [1])])
