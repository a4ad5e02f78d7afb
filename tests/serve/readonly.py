"""A store on a read-only mount: told in a sentence, and still looked at and copied.

Run as `unshare --mount python -m tests.serve.readonly FOLDER`: the mount is seen by this process alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from taps import load_clip
from taps.errors import TapsError
from taps.serve.backup import backup
from taps.serve.doctor import examine
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import beginning, png


def main(folder: Path) -> None:
    clip, place = load_clip("tiny", device="cpu"), folder / "store"
    with Service(Store(str(place)), clip) as service:
        service.create(beginning(), "test")
        service.send("pets", lambda session: session.predict(png(0), "x", "test")).result()
    for words in (["--bind", place], ["-o", "remount,bind,ro"]):
        subprocess.run(["mount", *words, place], check=True)
    try:
        with Service(Store(str(place)), clip):
            print("It started.")
    except TapsError as error:
        print(error)
    with Store.existing(str(place)) as store:
        print([finding.sentence for finding in examine(store) if finding.bad])
        backup(store, folder / "copy")
    with Service(Store(str(folder / "copy")), clip) as service:
        print(len(service.store.predictions(service.stream("pets").id)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
