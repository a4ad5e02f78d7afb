"""Where the time of the step goes on a CPU: by stage, and by operator.

    python benchmarks/cpu_stages.py --model pocket --classes 100 --views 64 --threads 2 --json stages.json

The stages are the functions of `taps/step.py`, called one after the other as `take_step` calls them, every
image starting from the same prompts, with 150 labelled images. Medians of milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch.profiler import profile

from taps import load_clip
from taps.learning.gradient import point_at
from taps.learning.step import differentiate_views, move, predict_view, score_views, step_gradient
from taps.model.prompts.maple import Maple
from taps.study.bench.measure import photo
from taps.study.bench.step import IMAGE, Case, fill, make_learner, tuner_of, views_of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clip = load_clip(options.model)
    prompts = Maple().initial(clip, torch.Generator().manual_seed(0))
    learner = make_learner(clip, Case(options.classes, 150, "sample", options.views), prompts, "eager")
    views = views_of(photo(*IMAGE), clip, options.views, "tensor", 0)
    fill(learner, views, 150)
    tuner = tuner_of(learner)
    classifier, start, settings = tuner.classifier, tuner.anchor, tuner.step_settings
    times: dict[str, list[float]] = defaultdict(list)

    def step() -> None:
        marks = [time.perf_counter()]
        scored = score_views(classifier, start, views, settings)
        marks.append(time.perf_counter())
        # Once more inside the next: taken off below.
        differentiate_views(classifier, start, scored, settings).pull_back()
        marks.append(time.perf_counter())
        gradient = step_gradient(classifier, start, scored, tuner.memory, settings, None)
        new, _, _ = move(classifier, start, tuner.fresh, gradient, settings)
        marks.append(time.perf_counter())
        end = point_at(classifier, new, graph=False)
        marks.append(time.perf_counter())
        predict_view(classifier, scored, new, text=end.text)
        marks.append(time.perf_counter())
        score, views_back, update, text, predict = (1e3 * (b - a) for a, b in itertools.pairwise(marks))
        for name, value in (
            (f"score {options.views} views", score),
            ("confident views there and back", views_back),
            ("back through the text tower, AdamW", update - views_back),
            ("texts at the new prompts", text),
            ("view 0 at the new prompts", predict),
        ):
            times[name].append(value)

    step()
    times.clear()
    for _ in range(options.repeats):
        step()
    stages = {name: statistics.median(values) for name, values in times.items()}
    with profile() as record:
        learner.method.predict(views)
    spent = {event.key: event.self_cpu_time_total / 1e3 for event in record.key_averages()}
    operators = dict(sorted(spent.items(), key=lambda item: -item[1])[:8])
    total = sum(spent.values())
    for name, value in stages.items():
        print(f"{name:<36} {value:7.1f} ms")
    print(f"{'all stages':<36} {sum(stages.values()):7.1f} ms\n")
    for name, value in operators.items():
        print(f"{name:<60} {100 * value / total:5.1f} %")
    if options.json:
        shares = {name: value / total for name, value in operators.items()}
        options.json.write_text(json.dumps({"stages_ms": stages, "operators": shares}, indent=1) + "\n")


if __name__ == "__main__":
    main()
