"""Every registered method keeps the contract; learners that break it are caught, each for what it does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from taps import Learner
from taps.checks import ContractError, check_method
from taps.checks.states import footprint
from taps.errors import QueryError, TapsError
from taps.methods import MethodOutput
from taps.methods.registry import find_method, list_methods
from taps.model.clip import Clip
from taps.model.images.decode import load_image
from taps.model.prompts import Prompts
from taps.model.prompts.families import FAMILIES
from taps.types import PixelArray, Prediction
from tests.statistics import made_up_stats
from tests.walks import same_state

CLASSES = ("cat", "hot dog", "ship")
# Small views, a memory that fills at once, and a question at every image.
ASKING: dict[str, Any] = {"buffer": 3, "policy": "fixed", "tau0": 0.0, "undo": 2, "recent": 2, "refit": 3}
SMALL: dict[str, Any] = {
    "views": 4,
    "fraction": 0.5,
    "contexts": 2,
    "memory": 4,
    "sure": 2,
    "steps": 2,
    "window": 4,
    **ASKING,
}


def settings_of(name: str, clip: Clip, maple_prompts: Prompts) -> dict[str, Any]:
    """What a method needs beyond its own defaults to be checked on the tiny model."""
    method = find_method(name)
    chosen = {key: value for key, value in SMALL.items() if key in method.known}
    if method.prompts in FAMILIES:
        chosen["prompts"] = maple_prompts if method.prompts == "maple" else method.prompts
    if getattr(method.settings, "weight_coarse", 0):
        chosen["source"] = made_up_stats(clip, maple_prompts, CLASSES)
    return chosen


@pytest.mark.parametrize("name", list_methods())
def test_every_registered_method_keeps_the_contract(tiny: Clip, maple_prompts: Prompts, name: str) -> None:
    chosen = settings_of(name, tiny, maple_prompts)
    length = 12 if "refit" in chosen else 6  # a head's neighbours vote from the 17th image on
    report = check_method(lambda seed: Learner(tiny, CLASSES, name, seed=seed, **chosen), length=length)
    assert len(report.checks) == 11
    assert (report.asked > 0) == find_method(name).asks


@pytest.mark.parametrize(("name", "views"), [("taps", 1), ("zero_shot+", None), ("tip_adapter", None)])
def test_a_method_of_large_memories_keeps_it_with_the_settings_of_the_page(
    tiny: Clip, name: str, views: int | None
) -> None:
    """As docs/own-method.md has them: memories of their own size take more images to fill."""
    settings: dict[str, Any] = {"policy": "fixed", "tau0": 0.0, "undo": 4}
    settings |= {} if views is None else {"views": views}
    report = check_method(lambda seed: Learner(tiny, CLASSES, name, seed=seed, **settings), length=12)
    assert len(report.checks) == 11


@pytest.mark.parametrize(
    "name", [name for name in list_methods() if "as_published" in find_method(name).known]
)
def test_so_does_every_form_as_published(tiny: Clip, maple_prompts: Prompts, name: str) -> None:
    chosen = settings_of(name, tiny, maple_prompts) | {"as_published": True}
    check_method(lambda seed: Learner(tiny, CLASSES, name, seed=seed, **chosen), length=6)


@pytest.mark.parametrize("name", list_methods())
def test_a_look_leaves_no_trace_in_any_method(
    tiny: Clip, maple_prompts: Prompts, picture: Callable[[int], PixelArray], name: str
) -> None:
    chosen = settings_of(name, tiny, maple_prompts)
    learner = Learner(tiny, CLASSES, name, seed=0, **chosen)
    for number in range(3):
        if learner.predict_one(picture(number)).ask:
            learner.learn_one(number, number)
    before = learner.state_dict()
    looks = [
        learner.predict_one(picture(3), update=False),
        learner.repredict(1, picture(1)),
        learner.predict_one(picture(3), update=False),
    ]
    assert same_state(learner.state_dict(), before)
    said = learner.predict_one(picture(3))
    assert looks[0].probs.tobytes() == looks[2].probs.tobytes() == said.probs.tobytes()
    assert (looks[0].id, looks[0].ask, looks[1].id) == (said.id, said.ask, 1)


@pytest.mark.parametrize("name", list_methods())
def test_looks_at_many_images_do_not_depend_on_their_order(
    tiny: Clip, maple_prompts: Prompts, picture: Callable[[int], PixelArray], name: str
) -> None:
    learner = Learner(tiny, CLASSES, name, seed=0, **settings_of(name, tiny, maple_prompts))
    for number in range(18 if name in ("neighbours", "zero_shot+") else 3):
        if learner.predict_one(picture(number)).ask:
            learner.learn_one(number, number % 3)
    before, images = learner.state_dict(), [picture(number) for number in (30, 31, 32, 33)]
    said = learner.predict_many(images, update=False)
    turned = learner.predict_many(images[::-1], update=False)[::-1]
    assert same_state(learner.state_dict(), before)
    for image, one, other in zip(images, said, turned, strict=True):
        alone = learner.predict_one(image, update=False)
        assert one.id == other.id == alone.id
        assert np.allclose(one.probs, alone.probs, atol=1e-5)
        assert np.allclose(other.probs, alone.probs, atol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {"reset": "never", "guard_window": 5},
        {"reset": "every:3"},
        {"prompts": "coop", "reset": "never"},
        {"weight_fine": 0.1, "weight_coarse": 0.1},
        {"weight_fine": 0.1, "align": "paper", "align_layers": (0, 1), "reset": "never"},
        {"augmix": True},
        {"policy": "quantile", "rate": 0.5, "warmup": 2},
        {"eviction": "age_uncertainty"},
        {"buffer": 0},
    ],
)
def test_taps_keeps_it_in_all_its_forms(tiny: Clip, maple_prompts: Prompts, more: dict[str, Any]) -> None:
    chosen = settings_of("taps", tiny, maple_prompts) | {"prompts": maple_prompts, **more}
    if "weight_fine" in more:
        chosen["source"] = made_up_stats(tiny, maple_prompts, CLASSES)
    report = check_method(lambda seed: Learner(tiny, CLASSES, "taps", seed=seed, **chosen), length=6)
    assert report.asked > 0


class Honest:
    """A learner of one's own: the mean colour of each class. It keeps the contract."""

    def __init__(self, seed: int = 0) -> None:
        self.seen = 0
        self.sums = torch.zeros(3, 3, dtype=torch.float64)
        self.counts = torch.ones(3, dtype=torch.float64)
        self.open: dict[int, torch.Tensor] = {}

    def predict_one(self, image: Any) -> Prediction:
        colour = self.colour(image)
        distance = ((self.sums / self.counts[:, None] - colour) ** 2).sum(dim=1)
        probs = torch.softmax(-distance, dim=0).numpy().astype(np.float32)
        id, self.seen = self.seen, self.seen + 1
        self.open = {id: colour}
        return Prediction(id, int(probs.argmax()), "", probs, 0.5, 0.0, True, 0.0)

    def colour(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(load_image(image)).double().mean(dim=(0, 1)) / 255

    def learn_one(self, id: int, label: int) -> None:
        if id not in self.open:
            raise QueryError(f"Sample {id} is not open.")
        self.sums[label] += self.open.pop(id)
        self.counts[label] += 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "tensors": {"sums": self.sums.clone(), "counts": self.counts.clone()},
            "open": {str(id): colour.clone() for id, colour in self.open.items()},
            "values": {"seen": self.seen},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = state["tensors"]["sums"].clone(), state["tensors"]["counts"].clone()
        self.open = {int(id): colour.clone() for id, colour in state["open"].items()}
        self.seen = state["values"]["seen"]


class Remembers(Honest):
    """Keeps what it was told in the class, and knows it the next time it sees the image."""

    told: ClassVar[dict[str, int]] = {}

    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        self.now = hashlib.sha256(load_image(image).tobytes()).hexdigest()
        if self.now in self.told:
            said.probs[:] = np.eye(3, dtype=np.float32)[self.told[self.now]]
        return said

    def learn_one(self, id: int, label: int) -> None:
        super().learn_one(id, label)
        self.told[self.now] = label


class Revises(Honest):
    """Hands out an array and writes the label into it when it comes."""

    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        self.last = said.probs
        return said

    def learn_one(self, id: int, label: int) -> None:
        super().learn_one(id, label)
        self.last[:] = np.eye(3, dtype=np.float32)[label]


class Peeks(Honest):
    """Sees labels to come: told the same list as the oracle, it uses the next one."""

    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        if self.seen > 4:
            said.probs[:] = np.random.default_rng(PEEKED["calls"]).dirichlet(np.ones(3))
        PEEKED["calls"] += 1
        return said


PEEKED = {"calls": 0}


class Mixes(Honest):
    """Gives every image of a backlog what belongs to the last."""

    def predict_many(self, images: list[Any]) -> list[Prediction]:
        said = [self.predict_one(image) for image in images]
        return [replace(each, probs=said[-1].probs) for each in said]


class Hoards(Honest):
    """Never lets go of an image; its state does not tell."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.all: list[Any] = []

    def predict_one(self, image: Any) -> Prediction:
        self.all.append(self.colour(image))
        return super().predict_one(image)


class HoardsInAClosure(Honest):
    """The same, where a glance at its attributes would not find it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        hidden: list[Any] = []
        self.keep = lambda image: hidden.append(np.array(image))

    def predict_one(self, image: Any) -> Prediction:
        self.keep(load_image(image))
        return super().predict_one(image)


DICE = np.random.default_rng(0)


class Dices(Honest):
    """Draws from a generator that is no part of its state."""

    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        said.probs[:] = DICE.dirichlet(np.ones(3))
        return said


class Forgets(Honest):
    """Leaves its counts out of its state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.counts = torch.ones(3, dtype=torch.float64)


class ForgetsQuietly(Honest):
    """Has a counter that its state never mentions."""

    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        self.secret = getattr(self, "secret", 0) + 1
        tilted = said.probs ** np.float32(1 + 1 / self.secret)
        said.probs[:] = tilted / tilted.sum()
        return said


class Poisoned(Honest):
    """Believes any array, and NaN stays in its mean for ever."""

    def colour(self, image: Any) -> torch.Tensor:
        if isinstance(image, np.ndarray) and image.dtype == np.float64:
            return torch.from_numpy(image).mean(dim=(0, 1))
        return super().colour(image)


class HalfRefuses(Honest):
    """Counts an image before it is refused."""

    def predict_one(self, image: Any) -> Prediction:
        self.seen += 1
        said = super().predict_one(image)
        self.seen -= 1
        return said


class Unnormalised(Honest):
    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        said.probs[:] *= 2
        return said


class SameId(Honest):
    def predict_one(self, image: Any) -> Prediction:
        said = super().predict_one(image)
        self.open = {7: next(iter(self.open.values()))}
        return Prediction(7, said.index, "", said.probs, 0.5, 0.0, True, 0.0)


class TakesAnything(Honest):
    def learn_one(self, id: int, label: int) -> None:
        if id in self.open:
            super().learn_one(id, label)


class NeedsLabels(Honest):
    """Cannot go on before it is told."""

    def predict_one(self, image: Any) -> Prediction:
        if self.open:
            raise RuntimeError("tell me first")
        return super().predict_one(image)


class UndoesBadly(Honest):
    """Refuses to take an answer back, but counts it."""

    def undo(self, id: int) -> str:
        self.counts[0] += 1
        raise QueryError("Nothing is taken back here.")


class GrowsBadly(Honest):
    """Takes a class in and goes on without it."""

    def add_class(self, names: str) -> None:
        self.seen += 0


class UndoesToNothing(Honest):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.told: dict[int, torch.Tensor] = {}

    def learn_one(self, id: int, label: int) -> None:
        colour = self.open.get(id)
        super().learn_one(id, label)
        self.told = {} if colour is None else {id: colour}

    def undo(self, id: int) -> str:
        self.open[id] = self.told[id]
        self.sums[:] = float("nan")
        return ""


def test_a_learner_of_ones_own_passes() -> None:
    report = check_method(Honest)
    assert report.asked == report.images == 12
    assert report.bytes > 0


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Remembers, "Two learners of one seed disagree"),
        (Dices, "Two learners of one seed disagree"),
        (Peeks, "disagree"),
        (Revises, "changed when its label came"),
        (Hoards, "grows by"),
        (HoardsInAClosure, "grows by"),
        (Forgets, "not the state that comes out"),
        (ForgetsQuietly, "A resumed stream disagrees"),
        (Poisoned, "not finite"),
        (HalfRefuses, "refused, but changed the state"),
        (Unnormalised, "not a distribution"),
        (SameId, "the same id"),
        (TakesAnything, "which was not open"),
        (NeedsLabels, "tell me first"),
        (UndoesBadly, "Taking an answer back was refused, but changed the state"),
        (UndoesToNothing, "After an answer was taken back, predictions are not finite"),
        (Mixes, "Images predicted together and one by one disagree"),
        (GrowsBadly, "With a class added, images have 3 probabilities, not 4"),
    ],
)
def test_learners_that_break_the_contract_are_caught(broken: type[Honest], said: str) -> None:
    Remembers.told.clear()
    with pytest.raises(ContractError, match=said) as caught:
        check_method(broken)
    assert isinstance(caught.value, TapsError)
    assert isinstance(caught.value, AssertionError)
    assert "\n" not in str(caught.value)


def test_tolerance_lets_rounding_pass() -> None:
    class Rounds(Honest):
        def predict_one(self, image: Any) -> Prediction:
            said = super().predict_one(image)
            said.probs[0] += np.float32(DICE.uniform(-1e-5, 1e-5))
            return said

    with pytest.raises(ContractError):
        check_method(Rounds)
    check_method(Rounds, tolerance=1e-4)


def test_images_of_ones_own_are_streamed() -> None:
    seen: list[int] = []

    class Watches(Honest):
        def colour(self, image: Any) -> torch.Tensor:
            seen.append(int(np.asarray(load_image(image)).reshape(-1)[0]))
            return super().colour(image)

    check_method(Watches, images=[np.full((4, 4, 3), value, np.uint8) for value in (50, 90)], length=6)
    assert {50, 90} <= set(seen)
    assert set(seen) <= {50, 90, 0, 255, 7, 9}


@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda: torch.zeros(1000), 4000),
        (lambda: np.zeros(1000), 8000),
        (lambda: {"a": [(np.zeros(1000)[:1],)]}, 8000),
        (lambda: torch.zeros(1000)[:1], 4000),
        (lambda: "x" * 4000, 4000),
    ],
)
def test_a_footprint_reaches_what_is_held(make: Callable[[], Any], least: int) -> None:
    assert least <= footprint(make()) < least + 2000


def test_a_footprint_counts_shared_memory_once() -> None:
    tensor = torch.zeros(1000)
    assert footprint([tensor, tensor[1:], {"again": tensor}]) < 6000


def test_the_page_names_everything_that_an_output_holds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-method.md").read_text(encoding="utf-8")
    said = page.split("`predict` returns a `MethodOutput`", 1)[1].split("\n\n", 1)[0]
    assert {each.name for each in fields(MethodOutput)} <= set(re.findall(r"`(\w+)`", said))
