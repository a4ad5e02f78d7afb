"""A learner in a zip is unpacked only where that takes no more than it may."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from taps.errors import DataError
from taps.streams.predict import load_learner


def test_a_zip_that_unpacks_to_very_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(5):
            with archive.open(f"learner/{number}", "w") as file:
                for _ in range(128):
                    file.write(bytes(1 << 20))
    with pytest.raises(DataError, match="would unpack to"):
        load_learner(path)
