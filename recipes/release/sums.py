"""Write the digests of the embedded package, and the digest of this list into `taps.model.embedded`.

    python recipes/release/sums.py

To be called when a file of packages/pocket has changed, together with a new version of that package and of
taps-vlm, which requires it by its exact version.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POCKET = ROOT / "packages" / "pocket" / "src" / "taps_pocket"
CODE = ROOT / "src" / "taps" / "embedded.py"


def sums() -> str:
    """A line for each file of data, as sha256sum writes it."""
    files = [path for path in sorted(POCKET.rglob("*")) if path.is_file() and is_data(path)]
    names = {path.relative_to(POCKET).as_posix(): path for path in files}
    return "".join(f"{digest(path.read_bytes())}  {name}\n" for name, path in names.items())


def is_data(path: Path) -> bool:
    return path.suffix not in (".py", ".pyc") and path.name != "SHA256SUMS"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    text = sums()
    (POCKET / "SHA256SUMS").write_text(text)
    line = f'SUMS_DIGEST = "{digest(text.encode())}"'
    CODE.write_text(re.sub(r'^SUMS_DIGEST = ".*"$', line, CODE.read_text(), flags=re.MULTILINE))
    print(text, end="")
