"""Write the digests of the embedded package, sign them, and write the public key into `taps.embedded`.

    openssl genpkey -algorithm ed25519 -out KEY
    python recipes/release/sums.py --key KEY

To be called when a file of packages/pocket has changed, together with a new version of that package. The key
stays with who releases it; with another key, taps-vlm needs a new version too.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
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
    return path.suffix not in (".py", ".pyc") and not path.name.startswith("SHA256SUMS")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def public(key: Path) -> str:
    """The public half of a private key, in hexadecimal: the last 32 bytes of its DER form."""
    command = ["openssl", "pkey", "-in", str(key), "-pubout", "-outform", "DER"]
    return subprocess.run(command, check=True, capture_output=True).stdout[-32:].hex()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--key", type=Path, required=True, help="a private Ed25519 key in PEM form")
    key = parser.parse_args().key
    listed, signature = POCKET / "SHA256SUMS", POCKET / "SHA256SUMS.sig"
    listed.write_text(sums())
    sign = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", listed, "-out", signature]
    subprocess.run(sign, check=True)
    CODE.write_text(
        re.sub(r'^SIGNER = ".*"$', f'SIGNER = "{public(key)}"', CODE.read_text(), flags=re.MULTILINE)
    )
    print(listed.read_text(), end="")


if __name__ == "__main__":
    main()
