"""Accuracy against views against milliseconds: what `--set views=` and `--quick` buy, as one chart.

    python benchmarks/views_accuracy.py --data caltech101-test.zip --images 500 --png docs/figures/views.png

The default method on one thread; a learner for each number of views, and all of them see every image in turn:
other work on the machine slows all alike. Time is the processor's, from the decoded image to the prediction,
answers included. Whoever is asked about an image gives its label.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from taps import Learner, load_clip
from taps.data import Dataset, load_dataset, sign_digits
from taps.default import FRACTION, QUICK, VIEWS

Row = dict[str, float]


def settings_of(views: int) -> dict[str, float]:
    """Those of --quick for its number of views; no view is dropped where there are few."""
    share = QUICK["fraction"] if views <= QUICK["views"] else FRACTION
    return {"views": views, "fraction": max(share, 1 / views)}


def measured(data: Dataset, model: str, counts: list[int], rate: float) -> list[Row]:
    """A row for each number of views."""
    clip, length = load_clip(model, device="cpu"), len(data)
    learners = {
        views: Learner(clip, data.classes, rate=rate, expected=length, **settings_of(views))
        for views in counts
    }
    right, taken = dict.fromkeys(counts, 0), {views: [] for views in counts}
    for index in range(length):
        image, label = data.image(index), data.labels[index]
        for views, learner in learners.items():
            began = time.process_time()
            said = learner.predict_one(image)
            if said.ask:
                learner.learn_one(said.id, data.classes[label])
            taken[views].append(time.process_time() - began)
            right[views] += said.label == data.classes[label]
    return [
        {
            "views": views,
            "accuracy": right[views] / length,
            "error": (right[views] / length * (1 - right[views] / length) / length) ** 0.5,
            "ms": 1000 * statistics.median(taken[views]),
            "answers": learners[views].asked,
        }
        for views in counts
    ]


def draw(rows: list[Row], title: str, path: Path) -> None:
    """Milliseconds across, accuracy up, the number of views at each point."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4))
    across, up = [row["ms"] for row in rows], [100 * row["accuracy"] for row in rows]
    axis.errorbar(across, up, yerr=[100 * row["error"] for row in rows], fmt="o-", color="#1f6feb", capsize=3)
    names = {int(QUICK["views"]): " (--quick)", VIEWS: " (default)"}
    for row, x, y in zip(rows, across, up, strict=True):
        words = f"{row['views']:.0f}{names.get(int(row['views']), '')}"
        axis.annotate(words, (x, y), textcoords="offset points", xytext=(6, -14))
    axis.set_xscale("log")
    axis.set_xlabel("processor milliseconds per image, one thread")
    axis.set_ylabel("accuracy (%), bars: one standard error")
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.3, which="both")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", help="a folder or zip with one folder a class; the bundled digits unless given"
    )
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--views", default="1,2,4,8,16,32")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    data = load_dataset(given.data) if given.data else sign_digits()
    data = data.shuffled(seed=0).take(range(min(given.images, len(data))))
    rows = measured(data, given.model, [int(word) for word in given.views.split(",")], given.rate)
    for row in rows:
        print(json.dumps(row), flush=True)
    told = f"{data.name}: {len(data)} images, {len(data.classes)} classes, {given.model}, rate {given.rate:g}"
    if given.json:
        given.json.write_text(json.dumps({"what": told, "rows": rows}, indent=1) + "\n")
    if given.png:
        draw(rows, told, given.png)


if __name__ == "__main__":
    main()
