"""What an evaluation, source statistics or a fleet of cameras take, from measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HOUR = 3600.0


@dataclass(frozen=True)
class EvaluationPlan:
    """An evaluation on several GPUs.

    Attributes:
        runs: How many there are.
        images: Predictions in all.
        gpu_hours: Of one GPU.
        hours: On all of them: the work evenly spread, and the longest run at the end.
        longest: Hours of the longest run, which no cluster shortens.
    """

    runs: int
    images: int
    gpu_hours: float
    hours: float
    longest: float


def plan_evaluation(
    images: Sequence[int], methods: int, orders: int, *, gpus: int, ms: float, runs_per_gpu: float = 1.0
) -> EvaluationPlan:
    """Every method on every set in every order.

    Each GPU takes the next run as soon as it is done with one, so at the end it is idle for at most one run's
    time, whatever their order.

    Args:
        images: Of each set.
        methods: How many.
        orders: Of each set: seeds.
        gpus: How many.
        ms: Milliseconds an image, while as many runs as below share a GPU.
        runs_per_gpu: Runs that share a GPU.

    >>> plan = plan_evaluation([1000, 3600], methods=2, orders=5, gpus=2, ms=100)
    >>> plan.runs, plan.images, round(plan.gpu_hours, 2), round(plan.longest, 2)
    (20, 46000, 1.28, 0.1)
    """
    total = sum(images) * methods * orders
    gpu_hours = total * ms / 1000 / runs_per_gpu / HOUR
    longest = max(images) * ms / 1000 / HOUR
    spread = gpu_hours / gpus
    hours = max(longest, spread + longest * (1 - 1 / (gpus * runs_per_gpu)))
    return EvaluationPlan(len(images) * methods * orders, total, gpu_hours, hours, longest)


@dataclass(frozen=True)
class StatsPlan:
    """Source statistics on several GPUs.

    Attributes:
        seconds: With the work evenly spread; at most one part's time more.
        part_seconds: Of one part on one GPU.
        megabytes_per_second: That the GPUs read together.
    """

    seconds: float
    part_seconds: float
    megabytes_per_second: float


def plan_stats(images: int, *, rate: float, gpus: int, parts: int, kilobytes: float) -> StatsPlan:
    """One pass over a set, in parts.

    Args:
        images: Of the set.
        rate: Images a second of one GPU.
        gpus: How many.
        parts: How many tasks.
        kilobytes: Of an image's file.

    >>> plan_stats(1_200_000, rate=500, gpus=8, parts=240, kilobytes=100)
    StatsPlan(seconds=300.0, part_seconds=10.0, megabytes_per_second=400.0)
    """
    return StatsPlan(images / rate / gpus, images / parts / rate, rate * gpus * kilobytes / 1000)


@dataclass(frozen=True)
class FleetPlan:
    """Cameras on several GPUs.

    Attributes:
        images_per_second: Of all cameras.
        gpus: That are needed.
        cameras_per_gpu: What one GPU carries.
        questions_per_day: Put to experts.
        expert_hours_per_day: What they take to answer.
    """

    images_per_second: float
    gpus: int
    cameras_per_gpu: int
    questions_per_day: float
    expert_hours_per_day: float


def plan_fleet(
    cameras: int, *, every: float, ms: float, load: float = 0.7, rate: float = 0.05, answer: float = 4.0
) -> FleetPlan:
    """Streams that share GPUs.

    Args:
        cameras: How many.
        every: Seconds between two images of one.
        ms: Milliseconds an image of streams that are batched.
        load: Share of the time a GPU is to be busy: images do not come evenly.
        rate: Share of images that is asked about.
        answer: Seconds an expert takes for one.

    >>> plan_fleet(10_000, every=60, ms=7).gpus
    2
    """
    images = cameras / every
    per_gpu = 1000 / ms * load
    questions = images * rate * 24 * HOUR
    return FleetPlan(
        images, math.ceil(images / per_gpu), int(per_gpu * every), questions, questions * answer / HOUR
    )
