"""`taps+` and its kin: any method, with a head that learns from every answer in feature space.

The method inside goes on as it always did. Beside its prediction stand those it had on the way, zero-shot and
the confident views' mean, at no cost; the head learns from the labels on top of all of them and decides, by
the labels alone, whom to believe (`taps.head`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, make_dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.active import SCORES, Chooser
from taps.adapt.memory import ReplayItem
from taps.clip import Clip
from taps.errors import QueryError
from taps.head.head import DOUBT, NONE, Head, LabelledExample
from taps.head.history import History
from taps.head.neighbours import Look
from taps.head.notes import notes_on
from taps.head.readings import HeadSettings
from taps.methods import ensemble, taps, zero_shot  # noqa: F401  (they register what heads are put on)
from taps.methods.base import Method, MethodOutput, Snapshot
from taps.methods.ranges import setting
from taps.methods.registry import find_method, method
from taps.methods.settings import Asking
from taps.types import Answer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plus(Asking):
    """What a head adds to a method's settings.

    Attributes:
        policy: "paced" (the highest scores, at an exact rate), or one of the policies of `taps`.
        ask_by: Whom to ask about: "entropy" (H_t), "margin", "random", "leverage" (new to the labels),
            "coverage" (classes with few labels) or "density" (narrow margin, and like many others).
        explore: Share of the questions that are put at random, whatever `ask_by` says.
        refit: How many of the last labels are refitted with every new one; older ones keep their say.
    """

    policy: str = "paced"
    ask_by: str = setting("density", choices=tuple(SCORES))
    explore: float = setting(0.1, at_least=0, at_most=1)
    refit: int = setting(128, at_least=1)


class Headed(Method):
    """A method with a label head.

    Args:
        inner: The method that is ridden on.
        classes: Class names.
        settings: Of the head, and the policy's name.
        seed: For random choices.
    """

    asks = True
    takes_any_answer = True

    def __init__(self, inner: Method, classes: tuple[str, ...], settings: Plus, seed: int) -> None:
        self.inner = inner
        self.classes = classes
        self.settings = settings
        self.ground = inner.footing()
        self.bases = self.ground.bases
        dim = int(self.ground.text.shape[1])
        grid = HeadSettings(refit=settings.refit)
        self.head = Head(dim, len(classes), len(self.bases), self.ground.several, grid)
        self.chooser = Chooser(settings.ask_by, seed, settings.explore * settings.rate)
        self.history = History(self.head, settings.undo)
        self.people = [""]  # who has answered; answers without a name are those of one person

    @property
    def examples(self) -> OrderedDict[int, LabelledExample]:
        """The last answers by the id of their image."""
        return self.history.examples

    def predict(self, views: Tensor) -> MethodOutput:
        output = self.inner.predict(views)
        features, logs = self._on_host(output)
        if not (np.isfinite(features).all() and np.isfinite(logs).all()):
            return replace(output, entropy=float("nan"), item=None)  # never asked about, never learned
        look = self.head.see(features, logs)
        probs = self.head.predict(look)
        score = self.chooser.score(
            probs, output.entropy, self.head.counts, look.density, partial(self.head.leverage, look)
        )
        item = output.item or ReplayItem(pixels=None, views=None, feature=_kept(output.feature))
        item = replace(item, beliefs=torch.from_numpy(look.packed()))
        told = torch.from_numpy(probs).to(output.probs)
        return replace(output, probs=told, item=item, score=score, reject=self.head.reject(look))

    @torch.no_grad()
    def _on_host(self, output: MethodOutput) -> tuple[Array, Array]:
        """The views' features and what the bases say, brought to the host in one go."""
        feature = _kept(output.feature)
        features = feature[None] if output.features is None else output.features
        rows = [self._zero_shot(feature)]
        if "view_ensemble" in self.bases:
            rows.append(_kept(output.ensemble))
        if len(self.bases) > len(rows):
            rows.append(torch.log(output.probs.clamp_min(1e-12)).to(rows[0]))
        flat = torch.cat([features.reshape(-1), *rows]).double().cpu().numpy()
        seen = features.numel()
        return flat[:seen].reshape(features.shape), flat[seen:].reshape(len(rows), -1)

    def _zero_shot(self, feature: Tensor) -> Tensor:
        """Log-probabilities at the loaded prompts [K]."""
        text = self.ground.text
        return torch.log_softmax(self.ground.classifier.logits(feature[None].to(text), text)[0], dim=-1)

    def hear(self, id: int, answer: Answer, item: ReplayItem) -> None:
        if answer.expert not in self.people:
            self.people.append(answer.expert)
        packed = _kept(item.beliefs).cpu().numpy()
        look = self._widened(Look.unpacked(packed, self._shape, len(self.bases)), item.feature)
        label = answer.label if isinstance(answer.label, int) else NONE
        no = tuple(index for index in answer.no if isinstance(index, int))
        self.history.learn(id, look, label, no, self.people.index(answer.expert))
        if self.inner.asks and label != NONE:
            self.inner.learn(id, label, replace(item, beliefs=None))

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        self.hear(id, Answer(label), item)

    @property
    def _shape(self) -> tuple[int, int]:
        """How many features of an image the head works with, and of what length."""
        return 1 + self.ground.several, int(self.ground.text.shape[1])

    @torch.no_grad()
    def _widened(self, look: Look, feature: Tensor) -> Look:
        """What the bases said before some classes were added, as if these had been there.

        Of a class that was not there, each base says what zero-shot says; among the others it is as it was.
        """
        new = len(self.classes) - look.logs.shape[2]
        if not new:
            return look
        said = self._zero_shot(feature).float().cpu()
        old, added = said[:-new].logsumexp(dim=0), said[-new:].expand(len(self.bases), new)
        return look.widened(torch.cat([torch.from_numpy(look.logs[0]) + old, added], dim=1).numpy())

    def remembers(self, id: int) -> bool:
        return self.history.remembers(id)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """Take an answer back: the head is as if it had never been given.

        The labels that came after it are judged and learned anew without it. The method inside forgets it
        too, as far as it can.

        Raises:
            QueryError: The answer is none of the last `undo` ones.
        """
        if not self.remembers(id):
            raise QueryError(
                f"The answer for sample {id} is none of the last {self.settings.undo}; raise undo."
            )
        self.history.forget(id)
        if self.inner.asks and label != NONE:
            self.inner.forget(id, label, replace(item, beliefs=None))

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def summary(self) -> dict[str, Any]:
        found = self.inner.summary() | self.head.summary()
        found["head_look_again"] = [id for id, example in self.examples.items() if example.doubt > DOUBT]
        answers = self.head.mixture.answers
        found["head_experts"] = {
            name: {"answers": int(answers[person]), "noise": round(self.head.noise_of(person), 4)}
            for person, name in enumerate(self.people)
            if person < len(answers) and answers[person]
        }
        return found | {"notes": notes_on(found, self.head.counts, self.classes)}

    def snapshot(self) -> Snapshot:
        inner = self.inner.snapshot()
        arrays = self.head.arrays() | self.history.arrays()
        tensors = {f"head.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
        values = {"bases": list(self.bases), "chooser": self.chooser.values(), "people": list(self.people)}
        return Snapshot(inner.tensors | tensors, inner.values | {"head": values})

    def restore(self, snapshot: Snapshot) -> None:
        own = {name: value for name, value in snapshot.tensors.items() if not name.startswith("head.")}
        self.inner.restore(Snapshot(own, snapshot.values))
        arrays = {
            name.removeprefix("head."): value.cpu().numpy()
            for name, value in snapshot.tensors.items()
            if name.startswith("head.")
        }
        self.head.restore(arrays)
        self.people = list(snapshot.values["head"]["people"])
        self.chooser.restore(snapshot.values["head"]["chooser"])
        self.history.restore(arrays, self._shape, len(self.bases))


def with_head(name: str, *, line: str, **defaults: float) -> None:
    """Register the method `name+`: the same with a head, for any method that has a `footing`.

    Args:
        name: Of the method.
        line: What `taps methods` says of it.
        **defaults: Settings whose default is another than without a head.
    """
    inner = find_method(name)

    def build(clip: Clip, classes: tuple[str, ...], settings: Any, seed: int) -> Headed:
        return Headed(inner.build(clip, classes, settings, seed), classes, settings, seed)

    own = [(key, type(value).__name__, value) for key, value in defaults.items()]
    settings = make_dataclass(
        f"{inner.settings.__name__}Plus", own, bases=(Plus, inner.settings), frozen=True
    )
    method(f"{name}+", settings, prompts=inner.prompts, line=line)(build)


def _kept(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.detach().clone()


with_head("taps", line="TAPS, and a head that learns from every answer.")
with_head("zero_shot", line="Zero-shot CLIP, and the same head.")
# Beyond 16 views the head gains little, and time grows with them; of so few, more than a tenth is kept.
with_head("view_ensemble", line="The confident views' mean, and the same head.", views=16, fraction=0.25)
