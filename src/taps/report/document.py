"""One HTML file that needs no other, for light and dark, for desks and phones: its style, its one script."""

from __future__ import annotations

import html
from collections.abc import Iterable
from functools import cache
from importlib import resources


@cache
def _text(name: str) -> str:
    return (resources.files("taps.report") / name).read_text(encoding="utf-8")


def document(title: str, body: Iterable[str]) -> str:
    """A page with this title; its body begins with the heading."""
    text = "\n".join(part for part in body if part)
    script = f"<script>{_text('sort.js')}</script>\n" if "class=sortable" in text else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_text('page.css')}</style></head>\n<body><main>\n{text}\n</main>{script}</body></html>\n"
    )


def charts(pictures: Iterable[str], *, small: bool = False) -> str:
    """Pictures side by side, as many as there is room for."""
    inside = "\n".join(pictures)
    return f'<div class="charts{" small" if small else ""}">\n{inside}\n</div>' if inside else ""
