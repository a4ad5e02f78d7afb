"""The arithmetic against a simulation of it."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st
from plan import HOUR, app, plan_evaluation, plan_fleet
from typer.testing import CliRunner


@given(
    images=st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    methods=st.integers(1, 4),
    orders=st.integers(1, 3),
    gpus=st.integers(1, 9),
)
def test_runs_end_by_the_planned_time_in_any_order(
    images: list[int], methods: int, orders: int, gpus: int
) -> None:
    plan = plan_evaluation(images, methods, orders, gpus=gpus, ms=20.0)
    busy = [0.0] * gpus
    for run in images * (methods * orders):
        heapq.heapreplace(busy, busy[0] + run * 20.0 / 1000)
    assert plan.runs == len(images) * methods * orders
    assert abs(sum(busy) / HOUR - plan.gpu_hours) < 1e-9
    assert max(busy) / HOUR <= plan.hours + 1e-9
    assert plan.hours <= 2 * max(busy) / HOUR + 1e-9


def test_commands_say_the_arithmetic() -> None:
    said = CliRunner().invoke(app, ["eval", "--ms", "20", "--sets", "eurosat,dtd", "--gpus", "2"])
    assert "2 sets × 25 methods × 10 orders: 500 runs, 2,448,000 images" in said.output  # 8,100 + 1,692
    assert "= 13.6 hours of one GPU" in said.output
    assert "2 GPUs: 6.8 hours, the longest run 2.7 minutes" in said.output
    said = CliRunner().invoke(app, ["eval", "--ms", "10", "--sets", "dtd", "--runs-per-gpu", "2"])
    assert "423,000 × 10 ms / 2 at a time = 35.2 minutes of one GPU" in said.output
    said = CliRunner().invoke(
        app, ["stats", "--rate", "1000", "--images", "1200000", "--gpus", "4", "--parts", "100"]
    )
    assert "= 5.0 minutes" in said.output  # 1,200,000 / 4,000 = 300 s
    assert "12.0 s" in said.output  # 12,000 images a part
    assert "440 MB a second" in said.output  # 4,000 images of 110 kB
    said = CliRunner().invoke(app, ["cameras", "10000", "--ms", "10", "--load", "1"])
    fleet = plan_fleet(10_000, every=60, ms=10, load=1)
    assert fleet.gpus == 2  # 166.7 images a second, 100 on each
    assert "166.7 images a second" in said.output
    assert "2 GPUs" in said.output


def test_small_numbers_are_not_rounded_away() -> None:
    said = CliRunner().invoke(
        app, ["cameras", "1", "--ms", "10", "--every", "3600", "--rate", "0.013", "--load", "0.125"]
    )
    assert "= 0.000278 images a second" in said.output
    assert "× 12.5% busy" in said.output
    assert "1.3% asked about: 0.312 questions a day" in said.output  # 24 images
    said = CliRunner().invoke(app, ["stats", "--rate", "10", "--images", "5", "--gpus", "1"])
    assert "in 5 parts of 0.1 s" in said.output  # an image each
