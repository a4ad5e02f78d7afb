"""Everything docs/speed.md says of a GPU, in one run: are the numbers right, and how fast do they come?

python benchmarks/gpu.py --out results/
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import torch

from taps.clip import Clip
from taps.clip.load import load_clip
from taps.evaluate.bench import clock, machine, photo, summarise
from taps.evaluate.bench_profile import kernel_times, stage_times
from taps.evaluate.bench_step import Case, cases, fill, make_learner, measure_step, views_of
from taps.methods.tuner import Tuner
from taps.prompts import maple
from taps.views import make_views, sample_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Models:
    """Random weights, drawn once."""

    def __init__(self, name: str) -> None:
        self.master = load_clip(name, pretrained="random")

    def __call__(self, dtype: torch.dtype, device: torch.device) -> Clip:
        return copy.deepcopy(self.master).to(device=device, dtype=dtype)


def compare_engines(load: Models) -> list[dict[str, object]]:
    """How far the recorded step is from the plain one, and bf16 from float32."""
    rows = []
    for reset in ("sample", "never"):
        case = Case(100, 8, reset)
        streams = {}
        for dtype, engine in (
            (torch.float32, "eager"),
            (torch.float32, "graph"),
            (torch.bfloat16, "eager"),
            (torch.bfloat16, "graph"),
        ):
            clip = load(dtype, DEVICE)
            prompts = maple.initial(clip, torch.Generator().manual_seed(0))
            learner = make_learner(clip, case, prompts, engine)
            probs = []
            for step in range(5):
                views = views_of(photo(375, 500, seed=step), clip, case.views, "tensor", step)
                if step == 1:
                    fill(learner, views, case.buffer)
                verdict = learner.method.predict(views)
                probs.append(torch.cat([verdict.probs.cpu(), torch.tensor([verdict.entropy])]))
            streams[dtype, engine] = torch.stack(probs)
        for a, b in (
            ((torch.float32, "graph"), (torch.float32, "eager")),
            ((torch.bfloat16, "graph"), (torch.bfloat16, "eager")),
            ((torch.bfloat16, "graph"), (torch.float32, "eager")),
        ):
            off = [float((x - y).norm() / y.norm()) for x, y in zip(streams[a], streams[b], strict=True)]
            rows.append({"reset": reset, "of": f"{a[1]} {a[0]}", "against": f"{b[1]} {b[0]}", "off": off})
            print(rows[-1], flush=True)
    return rows


def profile_case(load: Models, case: Case) -> dict[str, object]:
    clip = load(torch.bfloat16, DEVICE)
    learner = make_learner(clip, case, maple.initial(clip, torch.Generator().manual_seed(0)), "auto")
    views = views_of(photo(375, 500), clip, case.views, "tensor", 0)
    fill(learner, views, case.buffer)
    for _ in range(3):
        learner.method.predict(views)
    assert isinstance(learner.method, Tuner)
    row = {
        "case": vars(case),
        "stages_ms": stage_times(learner.method),
        "kernels": kernel_times(learner.method, views),
    }
    print(case, row["stages_ms"])
    for kernel in row["kernels"]:
        print(f"  {kernel['ms']:8.3f} ms {kernel['calls']:7.1f} × {kernel['kernel'][:110]}")
    return row


def measure_views() -> dict[str, object]:
    image = photo(375, 500)

    def make(step: int, backend: str) -> object:
        generator = sample_generator(0, step)
        return make_views(image, views=64, size=224, generator=generator, device=DEVICE, backend=backend)

    make(0, "tensor")
    times = {
        backend: [clock(lambda s=s, b=backend: make(s, b), DEVICE) for s in range(10)]
        for backend in ("tensor", "pillow")
    }
    row = {backend: vars(summarise(values)) for backend, values in times.items()}
    print("views", row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--classes", default="100,1000")
    parser.add_argument("--buffers", default="0,150,1500")
    parser.add_argument("--cases", default="", help="instead of all: classes:buffer:reset,…")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--skip", default="", help="any of compare, profile, views, steps")
    options = parser.parse_args()
    began = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    load = Models(options.model)
    report: dict[str, object] = {"machine": machine(DEVICE), "model": options.model}

    def keep(name: str, value: object) -> None:
        report[name] = value
        (options.out / "gpu.json").write_text(json.dumps(report, indent=1, default=str) + "\n")
        print(f"-- {name} done at {time.perf_counter() - began:.0f} s", flush=True)

    counts = [int(each) for each in options.classes.split(",")]
    buffers = [int(each) for each in options.buffers.split(",")]
    if "compare" not in options.skip:
        keep("compare", compare_engines(load))
    if "views" not in options.skip:
        keep("views", measure_views())
    if "profile" not in options.skip:
        keep("profile", [profile_case(load, Case(counts[-1], 150, reset)) for reset in ("sample", "never")])
    if "steps" not in options.skip:
        rows = []
        named = [each.split(":") for each in options.cases.split(",") if each]
        wanted = [Case(int(k), int(n), reset) for k, n, reset in named]
        for case in wanted or cases(counts, buffers, ("sample", "never"), 64):
            repeats = options.repeats if case.buffer <= 150 else max(3, options.repeats // 3)
            got = measure_step(
                load, case, device=DEVICE, dtype=torch.bfloat16, repeats=repeats, reference=case.buffer <= 150
            )
            rows.append(got.to_dict())
            show = {
                k: (round(v["median"], 2) if isinstance(v, dict) and "median" in v else v)
                for k, v in got.to_dict().items()
            }
            print(show, flush=True)
            keep("steps", rows)


if __name__ == "__main__":
    main()
