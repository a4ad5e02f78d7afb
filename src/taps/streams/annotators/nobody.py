"""Nobody answers."""

from __future__ import annotations

from taps.streams.annotators.base import Context, annotator


@annotator("none")
def nobody(context: Context) -> None:
    return None
