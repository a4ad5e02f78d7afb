"""What large evaluations, source statistics or many cameras take, from measured times.

python recipes/plan.py eval --ms 10.2
python recipes/plan.py stats --rate 1370
python recipes/plan.py cameras 10000 --ms 7.8
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from taps.cli.main import run
from taps.cli.options import new_app, parse_list
from taps.data.registry import find_set, named_sets
from taps.errors import SettingsError

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
        questions_per_day: Put to annotators.
        annotator_hours_per_day: What they take to answer.
    """

    images_per_second: float
    gpus: int
    cameras_per_gpu: int
    questions_per_day: float
    annotator_hours_per_day: float


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
        answer: Seconds an annotator takes for one.

    >>> plan_fleet(10_000, every=60, ms=7).gpus
    2
    """
    images = cameras / every
    per_gpu = 1000 / ms * load
    questions = images * rate * 24 * HOUR
    return FleetPlan(
        images, math.ceil(images / per_gpu), int(per_gpu * every), questions, questions * answer / HOUR
    )


app = new_app(
    no_args_is_help=True,
    help="What an evaluation, source statistics or many cameras take, from measured times.",
)
MS = typer.Option(
    ...,
    "--ms",
    min=0.001,
    help="Milliseconds an image, as `benchmarks/bench.py pool` or `taps bench step` measured.",
)


@app.command("eval")
def evaluation(
    ms: float = MS,
    sets: str = typer.Option(
        "", help="Names of `taps data list`, separated by commas; all of them if not given."
    ),
    images: int | None = typer.Option(None, min=1, help="Only the first so many of each set (--limit)."),
    methods: int = typer.Option(25, min=1, help="How many methods."),
    orders: int = typer.Option(10, min=1, help="Seeds."),
    gpus: int = typer.Option(8, min=1, help="How many GPUs."),
    runs_per_gpu: float = typer.Option(1.0, min=1.0, help="Runs that share a GPU; --ms is theirs then."),
) -> None:
    """Every method on every set in every order."""
    wanted = parse_list(sets) or tuple(named_sets())
    sizes = []
    for name in wanted:
        if (found := find_set(name)) is None:
            raise SettingsError(f"There is no data set named {name!r}; `taps data list` has the names.")
        sizes.append(min(found.images, images or found.images))
    plan = plan_evaluation(sizes, methods, orders, gpus=gpus, ms=ms, runs_per_gpu=runs_per_gpu)
    print(
        f"{len(sizes)} sets × {methods} methods × {orders} orders: {plan.runs:,} runs, {plan.images:,} images"
    )
    shared = f" / {runs_per_gpu:g} at a time" if runs_per_gpu > 1 else ""
    print(f"{plan.images:,} × {ms:g} ms{shared} = {_time(plan.gpu_hours)} of one GPU")
    print(f"{_gpus(gpus)}: {_time(plan.hours)}, the longest run {_time(plan.longest)}")


@app.command()
def stats(
    rate: float = typer.Option(
        ..., min=0.001, help="Images a second of one GPU, as `taps stats` or benchmarks/packed.py measured."
    ),
    images: int = typer.Option(1_281_167, min=1, help="How many; ImageNet's training set unless given."),
    gpus: int = typer.Option(8, min=1, help="How many GPUs."),
    parts: int = typer.Option(256, min=1, help="Tasks the set is cut into (--parts)."),
    kilobytes: float = typer.Option(110.0, min=0.001, help="Of an image's file."),
) -> None:
    """Source statistics of a large set, and how fast its files must come."""
    parts = min(parts, images)
    plan = plan_stats(images, rate=rate, gpus=gpus, parts=parts, kilobytes=kilobytes)
    print(f"{images:,} images / ({_gpus(gpus)} × {rate:g} a second) = {_time(plan.seconds / HOUR)}")
    print(f"in {parts} parts of {plan.part_seconds:,.1f} s: at the end GPUs wait for one at most")
    print(f"{kilobytes:g} kB an image: {plan.megabytes_per_second:,.0f} MB a second from the shared disk")


@app.command()
def cameras(
    count: int = typer.Argument(10_000, min=1, help="How many cameras."),
    ms: float = MS,
    every: float = typer.Option(60.0, min=0.001, help="Seconds between two images of a camera."),
    load: float = typer.Option(0.7, min=0.01, max=1.0, help="Share of the time a GPU is to be busy."),
    rate: float = typer.Option(0.05, min=0.0, max=1.0, help="Share of images that is asked about."),
    answer: float = typer.Option(4.0, min=0.0, help="Seconds an annotator takes for an answer."),
) -> None:
    """Streams that share GPUs, and the annotators behind them."""
    plan = plan_fleet(count, every=every, ms=ms, load=load, rate=rate, answer=answer)
    pace = f"{_number(plan.images_per_second, 1)} images a second"
    print(f"{count:,} cameras, an image every {every:g} s = {pace}")
    pace = f"1000 / {ms:g} ms × {100 * load:g}% busy = {1000 / ms * load:,.0f} images a second"
    print(f"a GPU: {pace}, {plan.cameras_per_gpu:,} cameras")
    print(_gpus(plan.gpus))
    print(
        f"{100 * rate:g}% asked about: {_number(plan.questions_per_day, 0)} questions a day, "
        f"{_time(plan.annotator_hours_per_day)} of annotators at {answer:g} s each"
    )


def _gpus(count: int) -> str:
    return f"{count:,} GPUs" if count > 1 else "1 GPU"


def _number(value: float, digits: int) -> str:
    """With so many digits after the point; one below 1 with as many as tell something.

    >>> _number(1234.56, 1), _number(0.0002777, 1)
    ('1,234.6', '0.000278')
    """
    return f"{value:,.{digits}f}" if value >= 1 else f"{value:.3g}"


def _time(hours: float) -> str:
    """In the unit that fits.

    >>> _time(0.005), _time(0.15), _time(21.48), _time(1170.8)
    ('18.0 s', '9.0 minutes', '21.5 hours', '1,171 hours')
    """
    if hours < 1:
        return f"{3600 * hours:.1f} s" if hours < 1 / 60 else f"{60 * hours:.1f} minutes"
    return f"{hours:.1f} hours" if hours < 100 else f"{hours:,.0f} hours"


if __name__ == "__main__":
    run(app)
