"""HTML pages that need no other file, for light and dark, desks and phones; pictures side by side."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

from PIL import Image

from taps.types import PixelArray

Card = tuple[str, str]
"""Address of a picture, "" for none, and the HTML below it."""


@cache
def _text(name: str) -> str:
    return (resources.files("taps.study.report") / name).read_text(encoding="utf-8")


def document(title: str, body: Iterable[str]) -> str:
    """A page with this title; its body begins with the heading."""
    text = "\n".join(part for part in body if part)
    script = f"<script>{_text('sort.js')}</script>\n" if "class=sortable" in text else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_text('page.css')}</style></head>\n<body><main>\n{text}\n</main>{script}</body></html>\n"
    )


def side_by_side(pictures: Iterable[str], *, small: bool = False) -> str:
    """Pictures side by side, as many as there is room for; empty ones are left out."""
    inside = "\n".join(picture for picture in pictures if picture)
    return f'<div class="charts{" small" if small else ""}">\n{inside}\n</div>' if inside else ""


def thumbnail(pixels: PixelArray, side: int = 96) -> str:
    """A small JPEG as a data address."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def card(picture: str, row: Mapping[str, str], *small: str) -> Card:
    """A picture with a row of `predictions.csv`: prediction, label where it is known, and small lines."""
    mark = {"1": " class=right", "0": " class=wrong"}.get(row["correct"], "")
    caption = f"<span{mark}>{html.escape(row['predicted'])}</span> {float(row['probability']):.0%}"
    caption += f"<br>→ <b>{html.escape(row['truth'])}</b>" if row["truth"] else ""
    return picture, caption + "".join(f"<br><small>{html.escape(line)}</small>" for line in small if line)


def gallery(title: str, cards: Sequence[Card]) -> str:
    """Cards below a heading; "" where there are none."""
    if not cards:
        return ""
    figures = []
    for picture, caption in cards:
        image = f'<img src="{picture}" alt="">' if picture else ""
        figures.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    heading = f"<h2>{html.escape(title)}</h2>" if title else ""
    return f"{heading}<div class=gallery>{''.join(figures)}</div>"
