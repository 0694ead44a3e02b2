"""Drawings of how things hang together: the life of a message, its states, attempts, delays, shards."""

import svg
from svg import BAD, FAINT, MUTED, ONE, TWO, arrow, box, drawing, line, rect, text

from djqueue import Backoff


def life() -> str:
    return drawing(
        "Your code calls a command; the message waits in a queue; a worker of a consumer runs it; it is done, "
        "or it is tried again later, or it is in the failed queue",
        232,
        box(2, 40, 100, ["your code", "send_receipt(…)"]),
        rect(144, 10, 112, 128, stroke=FAINT),
        text(200, 26, "queue, in a store", anchor="middle", size=11, fill=MUTED),
        arrow((102, 57), (154, 57)),
        text(124, 50, "call", anchor="middle", size=11, fill=MUTED),
        box(154, 40, 92, ["ready"], stroke=ONE),
        box(154, 96, 92, ["delayed"], stroke=ONE),
        arrow((178, 96), (178, 74)),
        text(184, 89, "when due", size=11, fill=MUTED),
        rect(300, 10, 132, 128, stroke=FAINT),
        text(366, 26, "consumer", anchor="middle", size=11, fill=MUTED),
        box(308, 40, 120, ["worker", "runs the command"], stroke=TWO),
        arrow((246, 57), (308, 57)),
        text(278, 50, "claim", anchor="middle", size=11, fill=MUTED),
        arrow((336, 74), (336, 113), (246, 113)),
        text(291, 107, "retry", anchor="middle", size=11, fill=MUTED),
        arrow((366, 74), (366, 184)),
        text(360, 178, "returns", anchor="end", size=11, fill=MUTED),
        box(326, 184, 80, ["done"], stroke=TWO),
        arrow((404, 74), (404, 160), (200, 160), (200, 184), stroke=BAD),
        text(210, 155, "fails for good", size=11, fill=BAD),
        box(144, 184, 112, ["failed queue"], stroke=BAD),
        arrow((144, 201), (120, 201), (120, 66), (154, 66), dash="4 3"),
        text(114, 220, "queue_errors retry", anchor="end", size=11, fill=MUTED),
    )


def states() -> str:
    return drawing(
        "put makes a message ready or delayed; claim makes it leased; complete ends it, release and reap make it "
        "ready or delayed again, fail moves it to the failed queue, requeue brings it back",
        232,
        arrow((6, 47), (60, 47)),
        text(10, 41, "put", size=12, code=True),
        box(60, 30, 84, ["ready"], stroke=ONE),
        arrow((144, 40), (236, 40)),
        text(190, 34, "claim", anchor="middle", size=12, code=True),
        box(236, 30, 84, ["leased"], stroke=TWO),
        arrow((320, 47), (400, 47)),
        text(356, 41, "complete", anchor="middle", size=12, code=True),
        text(404, 51, "done", fill=TWO),
        arrow((236, 57), (144, 57)),
        text(190, 71, "release, reap", anchor="middle", size=11, code=True),
        arrow((28, 47), (28, 127), (60, 127)),
        text(32, 104, "delay", size=11, fill=MUTED),
        box(60, 110, 84, ["delayed"], stroke=ONE),
        arrow((102, 110), (102, 64)),
        text(96, 92, "when due", anchor="end", size=11, fill=MUTED),
        arrow((262, 64), (262, 127), (144, 127)),
        text(203, 121, "release(delay)", anchor="middle", size=11, code=True),
        arrow((296, 64), (296, 180), stroke=BAD),
        text(302, 128, "fail", size=12, code=True, fill=BAD),
        box(240, 180, 112, ["failed"], stroke=BAD),
        arrow((240, 197), (14, 197), (14, 58), (60, 58), dash="4 3"),
        text(130, 191, "requeue", anchor="middle", size=12, code=True),
    )


def retries() -> str:
    waits = [Backoff()(failures) for failures in range(1, 6)]
    starts = [0.0]
    for wait in waits:
        starts.append(starts[-1] + wait)
    axis, y = svg.Axis(80), 58
    shapes = [text(4, 14, "retries=5", code=True), axis.scale(28, 76, 10), axis.row(y, "starts")]
    for number, start in enumerate(starts, 1):
        shapes += [rect(axis.at(start) - 4, y - 9, 8, 18, fill=BAD if number < len(starts) else TWO, radius=2)]
    for before, after, wait in zip(starts, starts[1:], waits, strict=False):
        if wait > 5:
            middle = (axis.at(before) + axis.at(after)) / 2
            shapes.append(text(middle, y - 14, f"{wait:g} s", anchor="middle", size=11, fill=MUTED))
    shapes += [
        rect(svg.LEFT, 97, 6, 11, fill=BAD, radius=2),
        text(svg.LEFT + 10, 106, "raises an exception of retry_on", size=11),
        rect(svg.LEFT + 196, 97, 6, 11, fill=TWO, radius=2),
        text(svg.LEFT + 206, 106, "returns", size=11),
    ]
    told = f"With retries=5 six attempts begin after {', '.join(f'{start:g}' for start in starts)} seconds"
    return drawing(told, 114, *shapes)


def delays() -> str:
    axis = svg.Axis(60)
    y, below = 54, 104
    return drawing(
        "With delay=30 a call waits for 30 minutes, then for a free worker; with ttl=50 it may start until 50 minutes "
        "after the call, and expires then",
        140,
        axis.scale(24, 122, 10, "min"),
        axis.row(y, "delay"),
        rect(axis.at(0), y - 9, axis.at(30) - axis.at(0), 18, fill=FAINT),
        text((axis.at(0) + axis.at(30)) / 2, y + 4, "delayed", anchor="middle", size=12),
        rect(axis.at(30), y - 9, axis.at(36) - axis.at(30), 18, stroke=ONE),
        text(axis.at(30), y - 14, "ready: waits for a worker", size=11, fill=MUTED),
        rect(axis.at(36), y - 9, axis.at(42) - axis.at(36), 18, fill=TWO),
        text(axis.at(43), y + 4, "runs", size=12),
        axis.row(below, "ttl"),
        line(axis.at(0), below, axis.at(50), below, stroke=TWO, width=3),
        text(axis.at(1), below - 7, "it may start", size=12),
        line(axis.at(50), below - 12, axis.at(50), below + 12, stroke=BAD, width=2),
        text(axis.at(51), below - 7, "expires", size=12, fill=BAD),
        text(4, 14, "delay=timedelta(minutes=30), ttl=timedelta(minutes=50)", size=12, code=True),
    )


def shards() -> str:
    shapes = [
        text(118, 16, "lanes in the queue", anchor="middle", size=11, fill=MUTED),
        text(384, 16, "workers", anchor="middle", size=11, fill=MUTED),
    ]
    lanes = [("account 1", ["-15", "+10"], 0), ("account 2", ["-15", "+10", "+5"], None), ("account 3", ["+8"], 1)]
    workers = ["+5", "+20"]
    for row, (name, waiting, worker) in enumerate(lanes):
        y = 30 + 46 * row
        shapes += [text(4, y + 20, name, size=12), rect(66, y, 196, 32, stroke=FAINT)]
        for place, amount in enumerate(reversed(waiting)):
            x = 218 - 46 * place
            shapes += [
                rect(x, y + 5, 40, 22, stroke=ONE),
                text(x + 20, y + 20, amount, anchor="middle", size=12, code=True),
            ]
        if worker is None:
            shapes.append(text(268, y + 20, "next free worker", size=11, fill=MUTED))
        else:
            shapes += [
                arrow((262, y + 16), (344, y + 16)),
                rect(344, y, 80, 32, stroke=TWO),
                text(384, y + 20, f"book {workers[worker]}", anchor="middle", size=12, code=True),
                text(302, y + 11, "one at a time", anchor="middle", size=10, fill=MUTED),
            ]
    told = (
        "Three lanes, one for each account: the first booking of a lane runs while the next ones of that account wait"
    )
    return drawing(told, 172, *shapes)


def drawings() -> dict[str, str]:
    return {one.__name__: one() for one in (life, states, retries, delays, shards)}
