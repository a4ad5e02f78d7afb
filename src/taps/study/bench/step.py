"""`taps bench step`: the published step and ours, alternating in one process."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor

from taps.learner import Learner
from taps.learning.memory import ReplayItem
from taps.methods.taps import PromptTuner
from taps.model.clip import Clip
from taps.model.images.views import make_views, sample_generator
from taps.model.prompts import Prompts
from taps.model.prompts.choose import untrained
from taps.process import peak_memory_mb, reset_peak
from taps.study.bench.measure import Timing, class_names, clock, photo, summarise, wait
from taps.study.bench.reference_step import ReferenceStep
from taps.types import PixelArray

log = logging.getLogger("taps")
TAUGHT = 4  # labelled images that really go through the model; the others repeat them
IMAGE = (375, 500)
Load = Callable[[torch.dtype, torch.device], Clip]
"""Makes the model in a number type on a device."""
Work = dict[str, Callable[[], object]]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Case:
    """One setting to measure."""

    classes: int
    buffer: int
    reset: str
    views: int = 64


@dataclass(frozen=True)
class StepTimings:
    """Milliseconds per image and peak MiB of one case; None where it did not fit into memory.

    Attributes:
        case: What was measured.
        reference: The published step, views ready.
        reference_views: The published step from a decoded image, views by Pillow.
        ours: Our step, views ready.
        ours_views: `predict_one` from a decoded image.
        learn: `learn_one` for one answer.
        speedup: Ratio of medians, views ready.
        speedup_views: Ratio of medians, from a decoded image.
        reference_mib: Peak memory of the published step.
        ours_mib: Peak memory of ours, the frozen weights included.
    """

    case: Case
    reference: Timing | None
    reference_views: Timing | None
    ours: Timing
    ours_views: Timing
    learn: Timing | None
    speedup: float | None
    speedup_views: float | None
    reference_mib: float | None
    ours_mib: float


def cases(
    classes: Sequence[int], buffers: Sequence[int], resets: Sequence[str], views: int
) -> Iterator[Case]:
    for reset, count, buffer in itertools.product(resets, classes, buffers):
        yield Case(count, buffer, reset, views)


def measure_step(
    load: Load,
    case: Case,
    *,
    device: torch.device,
    dtype: torch.dtype,
    repeats: int,
) -> StepTimings:
    """Measure one case. Memory is measured for each step alone, then both alternate.

    Args:
        load: Makes the model.
        case: What to measure.
        device: Where.
        dtype: Of our frozen weights; the published step keeps float32 and, on CUDA, fp16 autocast.
        repeats: Rounds; each times either step once.
    """
    image = photo(*IMAGE)
    free_memory(device)
    prepare = functools.partial(prepare_ours, load, case, image, device, dtype)
    (learner, views, learn), ours_mib = with_memory(prepare, device)
    work: Work = {
        "ours": lambda: learner.method.predict(views),
        "ours_views": lambda: learner.predict_one(image),
    }
    published, reference_mib = try_reference(load, case, tuner_of(learner).prompts, device, views)
    work |= {} if published is None else reference_work(published, views, image)
    got = alternate(work, repeats, device)
    return StepTimings(
        case,
        got.get("reference"),
        got.get("reference_views"),
        got["ours"],
        got["ours_views"],
        summarise(learn) if learn else None,
        ratio(got.get("reference"), got["ours"]),
        ratio(got.get("reference_views"), got["ours_views"]),
        reference_mib,
        ours_mib,
    )


def prepare_ours(
    load: Load, case: Case, image: PixelArray, device: torch.device, dtype: torch.dtype
) -> tuple[Learner, Tensor, list[float]]:
    """A learner that is warm, views of the image, and the milliseconds each answer took."""
    clip = load(dtype, device)
    learner = make_learner(clip, case, untrained(clip, "maple", torch.Generator().manual_seed(0)), "auto")
    views = views_of(image, clip, case.views, "tensor", 0)
    learn = fill(learner, views, case.buffer)
    for _ in range(2):
        learner.method.predict(views)
    learner.predict_one(image)
    return learner, views, learn


def with_memory(make: Callable[[], Made], device: torch.device) -> tuple[Made, float]:
    """Call a function; its result, and the highest memory in MiB: on a CPU that of the whole process."""
    held = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    reset_peak(device)
    made = make()
    wait(device)
    return made, peak_memory_mb(device) - held


def try_reference(
    load: Load, case: Case, prompts: Prompts, device: torch.device, views: Tensor
) -> tuple[ReferenceStep | None, float | None]:
    """The published step, warm, and its memory; None where it does not fit."""
    try:
        return with_memory(lambda: make_reference(load, case, prompts, device, views), device)
    except torch.OutOfMemoryError:
        log.warning("The published step runs out of memory at %s.", case)
    free_memory(device)
    return None, None


def alternate(work: Work, repeats: int, device: torch.device) -> dict[str, Timing]:
    """Time each piece of work once a round."""
    times: dict[str, list[float]] = {name: [] for name in work}
    keep_busy(device)
    for _ in range(repeats):
        for name, one in work.items():
            if device.type == "cuda":
                one()  # in a stream, an image comes after one like it: caches filled, clocks up
            times[name].append(clock(one, device))
    return {name: summarise(values) for name, values in times.items()}


def reference_work(published: ReferenceStep, views: Tensor, image: PixelArray) -> Work:
    """The published step with views ready, and with Pillow making them."""

    def from_image() -> object:
        return published(views_of(image, published.clip, len(views), "pillow", 0))

    return {"reference": lambda: published(views), "reference_views": from_image}


def make_learner(clip: Clip, case: Case, prompts: Prompts, engine: str) -> Learner:
    return Learner(
        clip,
        class_names(case.classes),
        "taps",
        prompts=prompts,
        views=case.views,
        buffer=max(case.buffer, 1),
        reset=case.reset,
        engine=engine,
        tau0=1e9,  # nobody is asked while the clock runs
        warmup=10**9,
    )


def make_reference(
    load: Load, case: Case, prompts: Prompts, device: torch.device, views: Tensor
) -> ReferenceStep:
    """The published step with a full memory, after its first image."""
    clip, names = load(torch.float32, device), class_names(case.classes)
    step = ReferenceStep(clip, names, prompts, reset=case.reset, half=device.type == "cuda")
    labels = torch.arange(case.buffer) % case.classes
    step.remember(views[torch.arange(case.buffer, device=views.device) % len(views)], labels)
    step(views)
    return step


def tuner_of(learner: Learner) -> PromptTuner:
    """The method of a learner from `make_learner`."""
    return cast(PromptTuner, learner.method)


def fill(learner: Learner, views: Tensor, count: int) -> list[float]:
    """Fill the memory: learn a few images, then repeat their entries; milliseconds per answer."""
    tuner = tuner_of(learner)
    assert tuner.memory is not None
    times = []
    for id in range(min(count, TAUGHT)):
        pixels = views[id % len(views)].contiguous()
        with torch.no_grad():
            prepared = tuner.classifier.clip.preprocess(pixels[None])
            feature = tuner.classifier.image(prepared, tuner.anchor.tokens.vision)[0]
        item = ReplayItem(pixels, None, feature)
        label = id % len(learner.classes)
        times.append(clock(lambda: tuner.learn(id, label, item), views.device))  # noqa: B023
    taught = tuner.memory.buffer.entries()
    for id in range(len(taught), count):  # the same entries again, without running the model
        payload = taught[id % len(taught)].payload
        tuner.memory.buffer.add(id, id % len(learner.classes), 1.0, payload)
        if payload.gradient is not None:
            tuner.memory.total = tuner.memory.total + payload.gradient
    return times[1:] or times


def views_of(image: PixelArray, clip: Clip, views: int, backend: str, step: int) -> Tensor:
    generator, framing = sample_generator(0, step), clip.config.framing
    return make_views(image, views=views, **framing, generator=generator, device=clip.device, backend=backend)


def ratio(slow: Timing | None, fast: Timing) -> float | None:
    return None if slow is None else slow.median / fast.median


def keep_busy(device: torch.device, seconds: float = 0.3) -> None:
    """Keep a GPU busy until its clocks are up: an idle one starts far below its speed."""
    if device.type != "cuda":
        return
    numbers = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            numbers @ numbers
        wait(device)


def free_memory(device: torch.device) -> None:
    """Free what the last case left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
