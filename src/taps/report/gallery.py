"""Small pictures on a page, inside the page itself."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence

from PIL import Image

from taps.types import PixelArray

Card = tuple[str, str]
"""Address of a picture, "" for none, and the HTML below it."""


def thumbnail(pixels: PixelArray, side: int = 96) -> str:
    """A small JPEG as a data address."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def gallery(title: str, cards: Sequence[Card]) -> str:
    """Cards below a heading; nothing where there are none."""
    if not cards:
        return ""
    figures = []
    for picture, caption in cards:
        image = f'<img src="{picture}" alt="">' if picture else ""
        figures.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    heading = f"<h2>{html.escape(title)}</h2>" if title else ""
    return f"{heading}<div class=gallery>{''.join(figures)}</div>"
