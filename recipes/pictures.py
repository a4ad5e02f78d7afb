"""What the recipes that make pictures share."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image


def save(shot: bytes, path: Path) -> None:
    """Keep a screenshot as WebP: it travels with the repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(io.BytesIO(shot)).convert("RGB").save(path, quality=85, method=6)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")
