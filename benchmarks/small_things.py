"""What a person waits for at the command line, what an idle service keeps, how much a busy machine matters.

    python benchmarks/small_things.py --repeats 7 --json docs/results/speed/small-things.json

Each time is of a process of its own, from start to end, on the cores this one may use; medians of seconds.
The processor's time beside it does not wait for others: on a busy machine it says more.
The first prediction is `taps predict` on a folder of one photo, and `Learner.predict_one` in a fresh Python.
Busy means one process for each core that computes without a pause; a stream of images then runs with the
threads the command chooses and with a single one, in turn (left out with --no-streams).
Memory is that of `taps serve` and all its processes: pages of their own once, whoever shares them, and the
libraries' files as the largest of the processes sees them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from service import processes_of

import taps
from taps.data import demo_dataset

TAPS = [sys.executable, "-m", "taps"]
CLASSES = "cat,dog,horse,bird,fish,cup,chair,lamp,pizza,car"
FIRST = (
    "import taps; clip = taps.load_clip('pocket'); "
    f"learner = taps.Learner(clip, {CLASSES.split(',')!r}, method='view_ensemble+'); "
    "learner.predict_one('photo/0.png')"
)
IMAGES = 30
AIMS = {"taps --help": 0.1, "taps predict, one image": 3.0, "Learner.predict_one, the first": 3.0}
IDLE_AIM = 450  # MB
# As the installed script starts it.
HELP = "import sys; sys.argv = ['taps', '--help']; from taps.cli.start import run; run()"
Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-streams", action="store_true", help="only the table")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    found: dict[str, object] = {"cores": cores, "repeats": options.repeats}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_images(folder)
        predict = [*TAPS, "predict", "photo", "--classes", CLASSES, "--out", "first.csv"]
        print(f"{'':<34} {'wall':>8} {'processor':>10}")
        for name, command in (
            ("taps --help", [sys.executable, "-c", HELP]),
            ("a wrong option", [*TAPS, "run", "photo", "--no-such"]),
            ("taps predict, one image", predict),
            ("Learner.predict_one, the first", [sys.executable, "-c", FIRST]),
        ):
            found[name] = times = timed(command, folder, options.repeats)
            wall, processor = (statistics.median(values) for values in times.values())
            aim = f"  (aim {AIMS[name]:.1f})" if name in AIMS else ""
            print(f"{name:<34} {wall:6.2f} s {processor:8.2f} s{aim}", flush=True)
        found["service"] = service(folder)
        for busy in () if options.no_streams else (False, True):
            found["busy" if busy else "quiet"] = streams(folder, options.repeats, cores if busy else 0)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def write_images(folder: Path) -> None:
    """A folder of one photo, and one of some."""
    data = demo_dataset()
    for name, count in (("photo", 1), ("photos", IMAGES)):
        (folder / name).mkdir()
        for index in range(count):
            Image.fromarray(data.image(index)).save(folder / name / f"{index}.png")


def timed(command: list[str], folder: Path, repeats: int) -> Times:
    """Seconds on the clock and of the processor, for each repeat."""
    times: Times = {"wall": [], "processor": []}
    for _ in range(repeats):
        before = processor_seconds()
        times["wall"].append(seconds(command, folder))
        times["processor"].append(processor_seconds() - before)
    return times


def processor_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def service(folder: Path) -> dict[str, float]:
    """MB of a service with the embedded model: before anything is asked of it, and with one stream."""
    command = [*TAPS, "serve", "--model", "pocket", "--store", "store", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        url = next(line.split()[-1] for line in process.stdout if "Serving at" in line)
        found = {"idle": memory(process.pid)}
        with taps.Client(url) as client:
            client.create_stream("photos", CLASSES.split(","), method="view_ensemble+")
            client.predict("photos", folder / "photo" / "0.png")
        found["one stream"] = memory(process.pid)
    finally:
        process.terminate()
        process.wait()
    for name, value in found.items():
        aim = f"  (aim {IDLE_AIM})" if name == "idle" else ""
        print(f"{f'taps serve, {name}':<34} {value:6.0f} MB{aim}", flush=True)
    return found


def memory(pid: int) -> float:
    """MB of a process and its descendants: own pages, files of the one that sees most, those in memory."""
    pids = processes_of(pid)
    own = sum(field(Path(f"/proc/{each}/smaps_rollup"), "Pss_Anon") for each in pids)
    files = max(field(Path(f"/proc/{each}/status"), "RssFile") for each in pids)
    return ((own + files) * 1024 + held_in_memory(pid)) / 1e6


def held_in_memory(pid: int) -> int:
    """Bytes of files that a process made in memory: shared weights, which nobody counts as his own."""
    links = [link for link in Path(f"/proc/{pid}/fd").iterdir() if str(link.readlink()).startswith("/memfd:")]
    return sum(link.stat().st_blocks * 512 for link in links)


def field(path: Path, name: str) -> int:
    """KiB that the kernel tells under a name."""
    return int(re.findall(rf"^{name}:\s+(\d+)", path.read_text(), re.MULTILINE)[0])


def seconds(command: list[str], folder: Path, **settings: str) -> float:
    """How long a command takes in a process of its own; a wrong option is the only one that may fail."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, check=False)
    took = time.perf_counter() - began
    if done.returncode and "--no-such" not in command:
        sys.exit(done.stderr.decode())
    return took


def streams(folder: Path, repeats: int, burners: int) -> dict[str, list[float]]:
    """A stream with the threads the command chooses and with one, in turn, beside so many busy processes."""
    times: dict[str, list[float]] = {"chosen": [], "one thread": []}
    with burning(burners):
        for turn in range(repeats):
            for name, settings in (("chosen", {}), ("one thread", {"OMP_NUM_THREADS": "1"})):
                command = [
                    *TAPS,
                    "run",
                    "photos",
                    "--classes",
                    CLASSES,
                    "--oracle",
                    "none",
                    "--set",
                    "views=16",
                ]
                out = f"{burners}-{name}-{turn}".replace(" ", "-")
                times[name].append(seconds([*command, "--out", out], folder, **settings))
    chosen, one = (statistics.median(values) for values in times.values())
    where = f"{IMAGES} images, {burners} busy processes"
    print(f"{where:<34} {chosen:6.2f} s, {one:.2f} s with one thread: {chosen / one:.2f}", flush=True)
    return times


@contextmanager
def burning(count: int) -> Iterator[None]:
    """So many processes that compute without a pause."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
