"""Saved learners that somebody changed by hand, each under a right checksum, and a life after the load."""

from __future__ import annotations

import copy
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from taps import Learner
from taps.errors import TapsError
from taps.files import read_json, read_tensors, write_json, write_tensors
from taps.learner import checkpoint
from taps.model.clip import Clip
from taps.types import Answer, PixelArray
from tests.walks import CLASSES

Picture = Callable[[int], PixelArray]
WRONG: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3, 0.5, 10**6, 2**63, 10**30, -1e308, 1e308),
    *(float("nan"), float("inf"), "", "x", "every:3"),
    *([], [1], [[1, 2], [3]], ["a", "b"], {}, {"x": 1}, [None] * 4),
)
NUMBERS = (0.0, -1.0, 1.0, 1e-30, 1e6, 1e30, -1e30, float("nan"), float("inf"), -float("inf"))
KINDS = (torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool)


@dataclass(frozen=True)
class Original:
    """What a saved learner holds."""

    index: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, learner: Learner, directory: Path) -> Original:
        learner.save(directory, {"rows": 3})
        index = read_json(directory / checkpoint.INDEX)
        return cls(index, read_tensors(directory / index["tensors"])[0])

    def changed(self, chance: random.Random, directory: Path) -> str:
        """Write it with one change, or a few, and say what these were."""
        index, tensors = copy.deepcopy(self.index), dict(self.tensors)
        told = [_change(chance, index, tensors) for _ in range(chance.choice((1, 1, 1, 2)))]
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        write_tensors(directory / index_name(self.index), tensors)
        index["tensors"] = index_name(self.index)
        write_json(directory / checkpoint.INDEX, index, indent=None)
        return "; ".join(told)


def index_name(index: dict[str, Any]) -> str:
    return str(index["tensors"])


def _change(chance: random.Random, index: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    if tensors and chance.random() < 0.5:
        name = chance.choice(sorted(tensors))
        how, tensors[name] = chance.choice(list(_other_tensors(chance, tensors[name])))
        if chance.random() < 0.1:
            del tensors[name]
            how = "gone"
        return f"{name}: {how}"
    values = index.get("values")
    tree = values if isinstance(values, dict) and values and chance.random() < 0.5 else index
    holder, last, path = _place(chance, tree)
    how, value = _other_value(chance, holder[last])
    if how == "gone":
        del holder[last]
    else:
        holder[last] = value
    return f"{path}: {how}"


def _place(chance: random.Random, tree: Any) -> tuple[Any, Any, str]:
    """A place in a tree, the inner ones too: what holds it, its name there, and the way to it."""
    path: list[Any] = []
    while isinstance(tree, dict | list):
        name = chance.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        path.append(name)
        inner = tree[name]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.2:
            return tree, name, ".".join(map(str, path))
        tree = inner
    raise TypeError(tree)


def _other_value(chance: random.Random, value: Any) -> tuple[str, Any]:
    ways: list[tuple[str, Any]] = [("gone", None)]
    ways += [(repr(each)[:40], copy.deepcopy(each)) for each in WRONG]
    if isinstance(value, list) and value:
        ways += [("shorter", value[:-1]), ("twice", value + value), ("backwards", value[::-1])] * 3
    if isinstance(value, int | float) and not isinstance(value, bool):
        ways += [(f"{more:+}", value + more) for more in (-1, 1, 0.5, 1000)] * 3
    return chance.choice(ways)


def _other_tensors(chance: random.Random, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    for number in NUMBERS:
        if value.dtype == torch.float16 and 1e5 < abs(number) < math.inf:
            continue
        if value.is_floating_point() or number in (0, 1) or (number == -1 and value.dtype == torch.int64):
            yield f"all {number:g}", torch.full_like(value, number)
            if value.numel():
                one = value.clone().reshape(-1)
                one[chance.randrange(len(one))] = number
                yield f"one {number:g}", one.reshape(value.shape)
    for kind in KINDS:
        if kind != value.dtype:
            yield f"as {kind}", value.to(kind)
    yield "flat", value.reshape(-1)
    yield "deeper", value[None]
    yield "empty", torch.zeros(0, dtype=value.dtype)
    yield "a number", torch.zeros((), dtype=value.dtype)
    for axis in range(value.ndim):
        if value.shape[axis]:
            yield f"shorter in {axis}", value.narrow(axis, 0, value.shape[axis] - 1).contiguous()
        yield f"twice in {axis}", torch.cat([value, value], dim=axis)
        yield f"none in {axis}", value.narrow(axis, 0, 0).contiguous()
    if value.ndim > 1:
        yield "turned", value.transpose(0, -1).contiguous()


def lived(clip: Clip, method: str, picture: Picture, **settings: Any) -> Learner:
    """A learner that has seen and been told something of every kind."""
    learner = Learner(clip, CLASSES, method, seed=3, **settings)
    for number in range(20):
        learner.predict_one(picture(number))
        if number > 2 and number - 2 in learner.pending and number % 6:
            learner.learn_one(number - 2, number % len(CLASSES), annotator="Ann" if number % 2 else "")
    if learner.method.takes_any_answer:
        for given, answer in zip(learner.recent, (Answer(none=True), Answer(no=(1,))), strict=False):
            learner.learn_one(given, answer)
    if learner.pending[1:]:
        learner.skip(learner.pending[0])
    return learner


def live_on(learner: Learner, picture: Picture) -> None:
    """Everything that can be asked of a learner; an error that says what is wrong is an answer."""
    acts: list[Callable[[], Any]] = [
        lambda: learner.predict_one(picture(90)),
        lambda: [learner.learn_one(id, 1) for id in learner.pending[:2]],
        lambda: [learner.learn_one(id, no=0) for id in learner.pending[:1]],
        lambda: learner.repredict_kept([*learner.pending, *learner.recent]),
        lambda: learner.wanted_kept(learner.recent),
        lambda: learner.ask(learner.recent[0], drawn=True) if learner.recent else None,
        lambda: [learner.undo(id) for id in learner.answered_ids[-3:]],
        lambda: learner.skip(learner.pending[0]) if learner.pending else None,
        lambda: [learner.learn_one(id, 2, annotator="Bob") for id in learner.recent[:2]],
        lambda: learner.predict_many([picture(91), picture(92)]),
        lambda: learner.repredict(0, picture(0)),
        lambda: learner.add_class("lighthouse"),
        lambda: [learner.predict_one(picture(number)) for number in range(93, 97)],
        lambda: [learner.learn_one(id, 4) for id in learner.pending[:1]],
        lambda: [learner.undo(id) for id in learner.answered_ids[:1]],
        lambda: (learner.summary(), repr(learner)),
        lambda: copy.deepcopy(learner).predict_one(picture(97)),
    ]
    for act in acts:
        try:
            act()
        except TapsError:
            continue


def survive(
    clip: Clip, original: Original, chance: random.Random, directory: Path, picture: Picture, *, times: int
) -> None:
    """Change, load and use a saved learner many times; neither all nor none may be refused."""
    refused = 0
    for _ in range(times):
        told = original.changed(chance, directory)
        try:
            try:
                learner = Learner.load(directory, clip=clip)
            except TapsError:
                refused += 1
                continue
            live_on(learner, picture)
        except Exception as error:
            raise AssertionError(told) from error
    assert 0 < refused < times
