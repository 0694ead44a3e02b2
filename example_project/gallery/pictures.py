"""Pillow's part: from a file to a smaller file."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from PIL import Image, ImageOps

from gallery.models import Photo, thumbnail_path

EXTENSIONS = ("bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp")
PILLOW_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for files that are broken in one way or another."""


class Unreadable(Exception):
    """A file that is no picture, or a broken one."""


def make_smaller(photo: Photo, size: str) -> tuple[int, int]:
    """Write the thumbnail of that size; its width and height. Raises Unreadable."""
    longest = settings.THUMBNAIL_SIZES[size]
    try:
        with photo.file.open("rb") as file:
            thumbnail = read_smaller(file, longest)
    except PILLOW_ERRORS as error:
        raise Unreadable(f"{photo.file.name}: {error}") from None
    with replacing(thumbnail_path(photo.pk, size)) as draft:
        thumbnail.save(draft, "JPEG", quality=85)
    return thumbnail.size


def read_smaller(file: BinaryIO, longest: int) -> Image.Image:
    """The picture, upright, in plain colours, and never larger than it was."""
    with Image.open(file) as image:
        image.draft("RGB", (longest, longest))  # JPEG: decode no more than is needed
        upright = in_plain_colours(ImageOps.exif_transpose(image))
    upright.thumbnail((longest, longest))
    return upright


def in_plain_colours(image: Image.Image) -> Image.Image:
    """As RGB, on white where it is transparent."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16"):  # which Pillow would cut off at 255
        image = image.convert("I").point(lambda level: level * (1 / 256)).convert("L")
    layers = image.convert("RGBA")
    paper = Image.new("RGBA", layers.size, "white")
    return Image.alpha_composite(paper, layers).convert("RGB")


@contextmanager
def replacing(path: Path):
    """A file to write, which takes the place of the one at this path when it is complete, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture of a common format does. Reads no more than that."""
    if path.suffix.lower().lstrip(".") not in EXTENSIONS:
        return False
    try:
        with Image.open(path):
            return True
    except PILLOW_ERRORS:
        return False
