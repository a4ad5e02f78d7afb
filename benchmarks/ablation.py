"""What each layer of the machinery earns: plain steps, `torch.compile`, our graphs, each kernel alone, all.

    python benchmarks/ablation.py --model ViT-B-16 --json ablation.json > ablation.md     # needs a GPU
    python benchmarks/ablation.py --model tiny --classes 3 --buffer 2 --views 4 --repeats 1     # a rehearsal

Every way has the algorithmic savings (shared text prefix, one text forward per point, running sums), and
takes the same steps: episodic, continual, eight streams at once, and a method that looks at features alone.
Milliseconds are medians with quartiles, for one step with views ready. The first way is measured once more at
the end: what differs between the two is the machine. What a device lacks is left out, and a line says so.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._functorch.config
from pool import run_steps
from torch import Tensor
from torch.utils._pytree import tree_map

from taps.errors import SettingsError
from taps.learner import Learner
from taps.learning.fast import features
from taps.methods.settings import Settings
from taps.model.clip import Clip
from taps.model.clip.load import load_clip
from taps.model.kernels import verify
from taps.model.prompts.maple import Maple
from taps.study.bench.measure import class_names, clock, machine, photo, summarise
from taps.study.bench.step import (
    IMAGE,
    Case,
    fill,
    free_memory,
    keep_busy,
    make_learner,
    views_of,
    with_memory,
)  # fmt: skip

KERNELS = (
    "quick_gelu_kernels", "linear_gelu_kernel", "text_attention_kernel",
    "self_attention_kernel", "norm_kernel",
)  # fmt: skip
STREAMS = 8
Step = Callable[[], object]


@dataclass(frozen=True)
class Way:
    """How steps are computed.

    Attributes:
        name: In the table.
        engine: Of the method.
        kernels: Those that may be used.
        mode: Of `torch.compile`; None where it is not called.
    """

    name: str
    engine: str = "eager"
    kernels: tuple[str, ...] = ()
    mode: str | None = None


def ways() -> list[Way]:
    alone = [Way(f"graphs + {name}", "graph", (name,)) for name in KERNELS]
    without = [
        Way(f"graphs + all but {name}", "graph", tuple(other for other in KERNELS if other != name))
        for name in KERNELS
    ]
    plain = Way("plain")
    compiled = [Way(f"torch.compile, {mode}", mode=mode) for mode in ("reduce-overhead", "max-autotune")]
    both = [Way("kernels, no graphs", "eager", KERNELS), Way("graphs", "graph")]
    return [plain, *compiled, *both, *alone, *without, Way("graphs + all", "graph", KERNELS), plain]


def compiled(clip: Clip, mode: str) -> Clip:
    """Both towers by `torch.compile`. What they give is copied: the next call would write over it."""
    torch._functorch.config.donated_buffer = False  # a point's way back is taken more than once

    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        made = torch.compile(forward, mode=mode)
        return lambda *given: tree_map(
            lambda each: each.clone() if isinstance(each, Tensor) else each, made(*given)
        )

    clip.visual.forward = wrapped(clip.visual.forward)
    clip._packed = wrapped(clip._packed)  # type: ignore[method-assign]
    return clip


def steps(
    clip: Clip, classes: int, buffer: int, views: int, engine: str
) -> Iterator[tuple[str, Callable[[], Step]]]:
    """What is measured, by name; each is made when it is its turn."""
    image = photo(*IMAGE)
    ready = views_of(image, clip, views, "tensor", 0)

    def adapting(reset: str) -> Step:
        learner = make_learner(clip, Case(classes, buffer, reset, views), prompts_of(clip), engine)
        fill(learner, ready, buffer)
        return lambda: learner.method.predict(ready)

    def together() -> Step:
        case = Case(classes, 0, "sample", views)
        learners = [make_learner(clip, case, prompts_of(clip), engine) for _ in range(STREAMS)]
        return lambda: run_steps(learners, [ready] * STREAMS)

    def frozen() -> Step:
        learner = Learner(clip, class_names(classes), "view_ensemble+", views=views)
        return lambda: learner.method.predict(ready)

    yield "episodic", lambda: adapting("sample")
    yield "continual", lambda: adapting("never")
    yield f"{STREAMS} streams", together
    yield "view_ensemble+", frozen


def prompts_of(clip: Clip) -> Any:
    return Maple().initial(clip, torch.Generator().manual_seed(0))


@contextmanager
def as_told(way: Way) -> Iterator[None]:
    """Only the kernels of a way are used meanwhile, and no graph where it has none, whatever the method."""
    verify.wait_for_trials()
    verify.LEFT_OUT |= set(KERNELS) - set(way.kernels)
    with ExitStack() as stack:
        stack.callback(verify.LEFT_OUT.clear)
        if way.engine == "eager":
            stack.enter_context(patch.object(Settings, "engine", "eager"))
            stack.enter_context(patch.object(features, "_capture_of", lambda device: None))
        yield


def measure(
    master: Clip, way: Way, classes: int, given: argparse.Namespace, device: torch.device
) -> list[dict[str, Any]]:
    """A row for each kind of step; one that this device cannot take has a note in the place of a time."""
    rows = []
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with as_told(way):
        clip = copy.deepcopy(master).to(device=device, dtype=dtype)
        clip = compiled(clip, way.mode) if way.mode else clip
        for name, make in steps(clip, classes, given.buffer, given.views, way.engine):
            row: dict[str, Any] = {"way": way.name, "classes": classes, "step": name}
            try:
                rows.append(row | timed(make, given.repeats, device))
            except (SettingsError, RuntimeError) as error:
                rows.append(row | {"note": str(error).partition("\n")[0][:120]})
            free_memory(device)
    torch.compiler.reset()
    return rows


def timed(make: Callable[[], Step], repeats: int, device: torch.device) -> dict[str, Any]:
    def warm() -> Step:
        step = make()
        for _ in range(3):  # captures, compiles
            step()
        return step

    step, mib = with_memory(warm, device)
    keep_busy(device)
    return {"ms": vars(summarise([clock(step, device) for _ in range(repeats)])), "mib": mib}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: a row for each way, a column for each kind of step."""
    columns = list(dict.fromkeys((row["step"], row["classes"]) for row in rows))
    yield "| way | " + " | ".join(f"{step}, {classes:,} classes" for step, classes in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for number in dict.fromkeys(row["number"] for row in rows):
        mine = {(row["step"], row["classes"]): row for row in rows if row["number"] == number}
        name = next(iter(mine.values()))["way"]
        yield f"| {name} | " + " | ".join(cell(mine.get(column)) for column in columns) + " |"


def cell(row: dict[str, Any] | None) -> str:
    if row is None or "ms" not in row:
        return "–"
    ms = row["ms"]
    return f"{ms['median']:.2f} ({ms['low']:.2f}–{ms['high']:.2f}), {row['mib']:,.0f} MiB"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--classes", default="100,1000")
    parser.add_argument("--buffer", type=int, default=150, help="labelled images")
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="ways whose name begins so")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(words)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    master = load_clip(given.model, pretrained=None if given.model == "tiny" else "random", device="cpu")
    rows: list[dict[str, Any]] = []
    chosen = [way for way in ways() if way.name.startswith(given.only)]
    if device.type != "cuda":
        chosen = [way for way in chosen if not way.kernels and way.engine == "eager"]
        print("No GPU: our graphs and kernels are left out.", file=sys.stderr)
    for number, way in enumerate(chosen):
        for classes in map(int, given.classes.split(",")):
            rows += [row | {"number": number} for row in measure(master, way, classes, given, device)]
            for row in rows[-4:]:
                print(row, file=sys.stderr, flush=True)
            if given.json:
                told = {"machine": machine(device), "model": given.model, "rows": rows}
                given.json.write_text(json.dumps(told, indent=1) + "\n")
    print("\n".join(table(rows)))
    for note in dict.fromkeys(f"{row['way']}: {row['note']}" for row in rows if "note" in row):
        print(f"\nNot measured: {note}.")


if __name__ == "__main__":
    main()
