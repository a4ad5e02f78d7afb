"""Images that were tampered with get clean refusals; a hundred thousand are in tests/chaos."""

from __future__ import annotations

from pathlib import Path

from tests.serve.mutants import throw
from tests.serve.zygote import Zygote


def test_tampered_images_are_refused_cleanly(zygote: Zygote, tmp_path: Path) -> None:
    found = throw(zygote, tmp_path, 200)
    assert found["statuses"].keys() > {200, 415, 422}
