"""The figures of docs/scale.rst, as ``tests/benchmarks/scale.py --save`` wrote them."""

import json
from pathlib import Path

from svg import BAD, FAINT, LEFT, MUTED, ONE, RIGHT, TWO, circle, drawing, line, text

SAVED = json.loads(Path(__file__).with_name("scale.json").read_text())
VERBS = {"put": ONE, "put_many": MUTED, "claim": TWO}
BAND, MOST = 84, 3.0
"""The height of one backend, and the highest ratio that it shows."""


def short(number: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return str(number)


def band(backend: str, steps: list[dict], top: float) -> list[str]:
    """Each step a column; each verb a dot in it, as high as its cost beside that in an empty queue."""

    def height(ratio: float) -> float:
        return round(top + BAND - 24 - (BAND - 34) * min(ratio, MOST) / MOST, 1)

    shapes = [text(4, top + 12, backend)]
    for ratio in (1, 2):
        shapes += [
            line(
                LEFT,
                height(ratio),
                RIGHT,
                height(ratio),
                stroke=BAD if ratio == 2 else FAINT,
                dash="4 3" * (ratio == 2),
            ),
            text(LEFT - 4, height(ratio) + 4, f"{ratio}×", anchor="end", size=11, fill=MUTED),
        ]
    for number, step in enumerate(steps):
        x = round(LEFT + (RIGHT - LEFT) * (number + 0.5) / len(steps), 1)
        shapes += [circle(x, height(step["verbs"][verb]["ratio"]), 3, fill=fill) for verb, fill in VERBS.items()]
        words = f"{short(step['size'])} {step['kind']}"
        shapes.append(text(x, top + BAND - 8, words, anchor="middle", size=9, fill=MUTED))
    return shapes


def drawings() -> dict[str, str]:
    shapes = []
    for number, (verb, fill) in enumerate(VERBS.items()):
        shapes += [circle(LEFT + 90 * number, 10, 3, fill=fill), text(LEFT + 8 + 90 * number, 14, verb, size=11)]
    for number, (backend, steps) in enumerate(SAVED.items()):
        shapes += band(backend, steps, 22 + BAND * number)
    told = "What put, put_many and claim cost in a queue of each size, beside what they cost in an empty one"
    return {"scale": drawing(told, 22 + BAND * len(SAVED), *shapes)}
