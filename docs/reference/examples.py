"""An extension of griffe: examples in docstrings are shown as code, also without a heading of their own."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

BLOCK = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Examples(Extension):
    """Puts a fence around each block that begins with `>>>`."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring and "\nExample" not in obj.docstring.value:
            fenced = BLOCK.sub(lambda block: f"```pycon\n{block[0]}\n```", obj.docstring.value)
            obj.docstring.value = fenced
