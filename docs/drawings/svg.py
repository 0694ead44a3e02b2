"""The shapes that the drawings are made of. Their colours are variables of ``docs/_static/djqueue.css``."""

from collections.abc import Sequence
from html import escape

WIDTH = 440
"""Units across: about a pixel on a telephone, somewhat more on a screen."""
LEFT, RIGHT = 58, 428
"""Where a time line begins and ends."""


def paint(name: str, fallback: str) -> str:
    return f"var(--drawing-{name}, {fallback})"


LINE, FAINT, TEXT = paint("line", "#555"), paint("faint", "#ddd"), paint("text", "#111")
MUTED, FILL = paint("muted", "#666"), paint("fill", "#f6f6f6")
ONE, TWO, BAD = paint("one", "#2563c9"), paint("two", "#1a7f4b"), paint("bad", "#c0392b")


def drawing(title: str, height: float, *shapes: str) -> str:
    """A whole drawing; ``title`` says what it shows, for those who do not see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" font-size="13">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *shapes, "</svg>", ""])


def text(
    x: float, y: float, words: str, *, anchor: str = "start", fill: str = TEXT, size: float = 13, code: bool = False
) -> str:
    family = ' font-family="var(--font-stack--monospace, monospace)"' if code else ""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}"{family}'
    return f'<text {place} style="fill: {fill}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = LINE, width: float = 1, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    place = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {place} stroke-width="{width:g}"{dashes} style="stroke: {stroke}"/>'


def arrow(*points: tuple[float, float], stroke: str = LINE, dash: str = "") -> str:
    """A line through the points, with a head at the last one; its last piece is level or upright."""
    (x1, y1), (x2, y2) = points[-2:]
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    behind_x, behind_y = x2 - 7 * dx, y2 - 7 * dy
    sides = [(behind_x - 4 * dy, behind_y - 4 * dx), (behind_x + 4 * dy, behind_y + 4 * dx)]
    head, path = (" ".join(f"{x:g},{y:g}" for x, y in place) for place in ([(x2, y2), *sides], points))
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{path}" fill="none" stroke-width="1.3"{dashes} style="stroke: {stroke}"/>\n'
        f'<polygon points="{head}" style="fill: {stroke}"/>'
    )


def circle(x: float, y: float, r: float, *, fill: str = ONE, stroke: str = "none") -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" stroke-width="1.3" style="fill: {fill}; stroke: {stroke}"/>'


def rect(
    x: float, y: float, width: float, height: float, *, fill: str = FILL, stroke: str = "none", radius: float = 4
) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    return f'<rect {place} stroke-width="1.3" style="fill: {fill}; stroke: {stroke}"/>'


def box(x: float, y: float, width: float, words: Sequence[str], *, stroke: str = LINE, height: float = 34) -> str:
    """A box with a word, and a smaller one below it."""
    middle = x + width / 2
    first, *rest = words
    lines = [text(middle, y + (height / 2 + 4 if not rest else 15), first, anchor="middle", fill=stroke)]
    lines += [text(middle, y + 28, one, anchor="middle", fill=MUTED, size=11) for one in rest]
    return "\n".join([rect(x, y, width, height, stroke=stroke), *lines])


class Axis:
    """A time line from 0 to ``seconds``."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def at(self, second: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * second / self.seconds, 1)

    def scale(self, top: float, bottom: float, step: float, unit: str = "s") -> str:
        """Upright lines with their seconds below."""
        marks = []
        second = 0.0
        while second <= self.seconds:
            x, words = self.at(second), f"{second:g}{' ' + unit if second == 0 else ''}"
            marks += [
                line(x, top, x, bottom, stroke=FAINT),
                text(x, bottom + 13, words, anchor="middle", fill=MUTED, size=11),
            ]
            second += step
        return "\n".join(marks)

    def row(self, y: float, name: str) -> str:
        return "\n".join([text(4, y + 4, name, size=12, fill=MUTED), line(LEFT, y, RIGHT, y, stroke=FAINT)])
