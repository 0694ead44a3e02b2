"""Drew the pictures in pictures/, so that they are nobody's but ours: python draw_pictures.py [FOLDER]"""

import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageColor, ImageDraw, ImageFilter

WIDTH, HEIGHT = 1800, 1200
ORIENTATION = 0x0112  # the EXIF tag


@dataclass(frozen=True)
class Landscape:
    """A sky between two colours, a sun at a point, and rows of hills that go from one colour to another."""

    name: str
    seed: int
    sky: tuple[str, str]
    sun: tuple[float, float]
    hills: tuple[str, str]
    roughness: float
    turned: bool = False
    """Kept lying on its side, with the note in its EXIF that cameras leave then."""


LANDSCAPES = (
    Landscape("morning-in-the-hills", 3, ("#fcd096", "#78aacd"), (0.7, 0.3), ("#beaaaf", "#263c3a"), 0.5),
    Landscape("evening_ridge", 8, ("#f69254", "#463262"), (0.3, 0.42), ("#aa5a64", "#1c1228"), 0.9),
    Landscape("winter-moon", 21, ("#a0b2cd", "#101834"), (0.55, 0.18), ("#96a5be", "#e1e8f0"), 0.7),
    Landscape("green-valley", 34, ("#e2f0f6", "#5c9ed6"), (0.25, 0.15), ("#96beb4", "#285c2c"), 0.4, turned=True),
)


def draw(landscape: Landscape) -> Image.Image:
    chance = random.Random(landscape.seed)
    image = sky(landscape.sky)
    image.paste((255, 250, 230), mask=disc(landscape.sun))
    rows = 6
    for row in range(rows):
        colour = blend(*landscape.hills, row / (rows - 1))
        outline = hills(chance, HEIGHT * (0.45 + 0.1 * row), 150 * (1 - row / 9), landscape.roughness)
        ImageDraw.Draw(image).polygon([(0, HEIGHT), *outline, (WIDTH, HEIGHT)], fill=colour)
    return image


def sky(colours: tuple[str, str]) -> Image.Image:
    column = Image.new("RGB", (1, HEIGHT))
    column.putdata([blend(colours[1], colours[0], min(1, y / (HEIGHT * 0.7))) for y in range(HEIGHT)])
    return column.resize((WIDTH, HEIGHT))


def disc(place: tuple[float, float]) -> Image.Image:
    """A bright disc with a soft glow, as a mask."""
    x, y, radius = place[0] * WIDTH, place[1] * HEIGHT, 70
    mask = Image.new("L", (WIDTH, HEIGHT))
    ImageDraw.Draw(mask).ellipse((x - 3 * radius, y - 3 * radius, x + 3 * radius, y + 3 * radius), fill=70)
    mask = mask.filter(ImageFilter.GaussianBlur(70))
    ImageDraw.Draw(mask).ellipse((x - radius, y - radius, x + radius, y + radius), fill=245)
    return mask.filter(ImageFilter.GaussianBlur(2))


def hills(chance: random.Random, base: float, height: float, roughness: float) -> list[tuple[float, float]]:
    """A line of hills: waves, each shorter and lower than the last."""
    waves = [(chance.uniform(0.8, 1.6) * 2**n, chance.uniform(0, math.tau), roughness**n) for n in range(7)]
    return [(x, base + height * sum(wave(x, *one) for one in waves) / 2) for x in range(0, WIDTH + 1, 4)]


def wave(x: float, times: float, shift: float, size: float) -> float:
    return size * math.sin(math.tau * times * x / WIDTH + shift)


def blend(one: str, other: str, share: float) -> tuple[int, ...]:
    pairs = zip(ImageColor.getrgb(one), ImageColor.getrgb(other), strict=True)
    return tuple(round(a + (b - a) * share) for a, b in pairs)


def save(landscape: Landscape, folder: Path):
    image, exif = draw(landscape), Image.Exif()
    if landscape.turned:
        image, exif[ORIENTATION] = image.transpose(Image.Transpose.ROTATE_90), 6
    image.save(folder / f"{landscape.name}.jpg", quality=82, optimize=True, exif=exif)


if __name__ == "__main__":
    for one in LANDSCAPES:
        save(one, Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "pictures"))
