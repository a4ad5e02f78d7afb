"""A folder full of a user's files under the names that commands write, and the commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = """
.lock .writable .taps predictions.csv predictions.csv.part predictions.csv.new labels.csv sorted.csv
events.jsonl rows.bin run.json summary.json report.html report.md report.tex results.json pooled.json
unfinished.json row.json crash.txt leaderboard.html leaderboard.tex leaderboard.csv leaderboard.json
learner.json learner.previous.json state-1-0-aaaaaaaa.safetensors config.json prompts.safetensors
model.safetensors parts.json meta.json features.npy store.sqlite store.sqlite.sha256 starts state/learner.json
outputs/a.npy plots/in/asked.svg runs/in/taps/1/run.json bin/000001/images/aa bin/7zip/7z.txt
export-2024/report.txt heads/1 heads/mine.txt images/ab/notes.part snapshots/000000000001/manifest.json
snapshots/000000000001.part/x before-1/x view_ensemble/predictions.csv store/mine.txt a.json
a.stats new.unfinished new.part sorted/ant/0.png sorted/bee/0.png sorted/not-sure/ant/0.png
sorted/ant/mine.txt
"""


def fill(home: Path) -> None:
    """Images, copies of them, files with the names of ours, folders, links; some are read-only."""
    rng = np.random.default_rng(0)
    for name in ("ant/0.png", "ant/1.png", "bee/0.png", "bee/1.png"):
        path = home / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
    for name in NAMES.split():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"mine: {name}\n")
    (home / "identity").write_text("of somebody\n" * 20)  # longer than a store's
    shutil.copytree(home / "in", home / "copies")  # the same bytes as what is sorted
    for place in ("sorted/ant", "sorted/bee", "sorted/copies"):
        shutil.copytree(home / "in" / "ant", home / place, dirs_exist_ok=True)
    for name in ("ant__0.png", "ant__1.png", "bee__0.png"):
        for folder in ("ant", "bee"):
            (home / "sorted" / folder / name).write_text(f"another picture {name}")
    (home / "far.png").write_bytes((home / "in" / "ant" / "0.png").read_bytes())
    (home / "in" / "bee" / "link.png").symlink_to(home / "far.png")
    (home / "sorted" / "bee" / "linked.png").symlink_to("../../far.png")
    (home / "linked").symlink_to("copies")
    (home / "lost").symlink_to("nowhere")
    for name in ("report.html", "in/ant/1.png", "run.json"):
        (home / name).chmod(0o444)


def snapshot(home: Path) -> dict[str, tuple[object, ...]]:
    """Every file, folder and link: what it is, and what is in it."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", path.stat().st_mode)
        else:
            found[name] = ("file", path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
    return found


def lost(before: dict[str, tuple[object, ...]], home: Path) -> list[str]:
    """What is not as it was; new files may be there, too."""
    after = snapshot(home)
    return [name for name, what in before.items() if after.get(name) != what]


TINY = ["--model", "tiny"]
RUN = ["run", "in", *TINY, "--method", "zero_shot+", "--rate", "0.5", "--out"]
EVAL = ["eval", "--dataset", "in", *TINY, "--no-baselines", "--method", "zero_shot", "--seeds", "1", "--out"]
PREDICT = ["predict", "in", *TINY, "--quiet"]
WATCH = ["watch", "in", *TINY, "--classes", "ant,bee", "--every", "0.05", "--limit", "2"]
TRAIN = ["train", "maple", "--data", "in", *TINY, "--shots", "1", "--epochs", "1", "--out"]
STATS = ["stats", "--data", "in", *TINY, "--out"]
LABEL = ["label", "in", *TINY, "--no-browser", "--budget", "1", "--views", "2", "--store"]
DEMO = ["demo", *TINY, "--limit", "4", "--views", "2", "--method", "zero_shot", "--out"]
SERVE = ["serve", *TINY, "--port", "0", "--store"]
TOKEN = ["token", "create", "--role", "label"]
SORT = ["--sort-into", "sorted", "--sure", "0.5"]
PLACES = (".", "sorted", "linked", "store", "bin", "runs", "report.html")
NEAR = (".", "in", "in/ant", "report.html", "linked/..")  # where nothing is sorted to
FILES = ("in/ant/0.png", "report.html", "predictions.csv", "labels.csv")

DONE = {  # what a command writes goes to new places, beside all the files
    "run": [[*RUN, "new1", *SORT], [*RUN, "new2", *SORT, "--link"]],
    "predict": [[*PREDICT, "--out", "new.csv", *SORT], [*PREDICT, "--out", "new.csv", *SORT, "--link"]],
    "watch": [[*WATCH, "--out", "new3.csv", *SORT]],
    "eval": [[*EVAL, "new4"]],
    "compare": [["compare", "new4"]],
    "report": [["report", "new4", "--quiet"]],
    "features": [["features", "in", *TINY, "--views", "1"]],
    "train": [[*TRAIN, "new5"]],
    "stats": [[*STATS, "s.stats", "--prompts", "new5"], ["stats", "merge", "s.stats", "--out", "m.stats"]],
    "demo": [[*DEMO, "new6"]],
    "token": [[*TOKEN, "tokens"]],
    "backup": [["backup", "tokens", "copy"]],
    "recover": [["recover", "tokens"]],
    "label": [[*LABEL, "new7", *SORT]],
}
REFUSED = {  # what a command would write goes to a place of somebody's
    "run": [
        *([*RUN, place] for place in PLACES),
        *([*RUN, "x", "--sort-into", place] for place in NEAR),
        [*RUN, ".", "--resume"],
    ],
    "predict": [
        *([*PREDICT, "--out", file] for file in FILES),
        *([*PREDICT, "--out", "x.csv", "--sort-into", place] for place in NEAR),
        PREDICT,
    ],
    "watch": [[*WATCH, "--out", "leaderboard.csv"], WATCH],
    "eval": [*([*EVAL, place] for place in PLACES), [*EVAL, ".", "--resume"]],
    "compare": [["compare", "."]],
    "report": [["report", "."], ["report", "runs"]],
    "paper": [["paper", "table1", "--out", place] for place in PLACES],
    "train": [[*TRAIN, "copies"], [*TRAIN, "lost"], [*TRAIN, "new"], [*TRAIN, "new", "--resume"]],
    "stats": [[*STATS, "a.stats"], [*STATS, "lost"], [*STATS, "new"], [*STATS, "new", "--resume"]],
    "demo": [*([*DEMO, place] for place in PLACES), [*DEMO, ".", "--serve"]],
    "token": [[*TOKEN, place] for place in PLACES],
    "backup": [["backup", place, "x"] for place in PLACES],
    "recover": [["recover", place] for place in PLACES],
    "serve": [[*SERVE, place] for place in PLACES],
    "label": [[*LABEL, place] for place in PLACES],
    "models": [["models", "import", "m.bin", "--model", "tiny", "--out", "copies"]],
    "prompts": [["prompts", "import", "m.bin", "--kind", "coop", *TINY, "--out", "copies"]],
    "bench": [["bench", "step", *TINY, "--json", "a.json", "--classes", "2", "--buffer", "0", "--quick"]],
}
READ = {"doctor", "methods", "data"}  # they write nothing
