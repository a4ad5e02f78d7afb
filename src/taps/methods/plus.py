"""`taps+` and its kin: any method, with a head that learns from every answer in feature space.

The method inside goes on as it always did. Beside its prediction stand those it had on the way, zero-shot and
the confident views' mean, at no cost; the head learns from the labels on top of all of them and decides, by
the labels alone, whom to believe (`taps.head`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, make_dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.active import SCORES, Chooser
from taps.adapt.memory import ReplayItem
from taps.clip import Clip
from taps.errors import QueryError
from taps.head.examples import LabelledExample, example_arrays, examples_from
from taps.head.head import DOUBT, Head
from taps.head.notes import notes_on
from taps.methods import ensemble, taps, zero_shot  # noqa: F401  (they register what heads are put on)
from taps.methods.base import Method, MethodOutput, Snapshot
from taps.methods.ranges import setting
from taps.methods.registry import find_method, method
from taps.methods.settings import Asking

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plus(Asking):
    """What a head adds to a method's settings.

    Attributes:
        policy: "paced" (the highest scores, at an exact rate), or one of the policies of `taps`.
        ask_by: Whom to ask about: "entropy" (H_t), "margin", "random", "leverage" (new to the labels),
            "coverage" (classes with few labels) or "density" (uncertain and typical).
    """

    policy: str = "paced"
    ask_by: str = setting("random", choices=tuple(SCORES))


class Headed(Method):
    """A method with a label head.

    Args:
        inner: The method that is ridden on.
        classes: Class names.
        settings: Of the head, and the policy's name.
        seed: For random choices.
    """

    asks = True

    def __init__(self, inner: Method, classes: tuple[str, ...], settings: Plus, seed: int) -> None:
        self.inner = inner
        self.classes = classes
        self.settings = settings
        footing = inner.footing()
        self.classifier, self.text, self.bases = footing.classifier, footing.text, footing.bases
        dim = int(self.text.shape[1])
        self.head = Head(dim, len(classes), len(self.bases))
        self.chooser = Chooser(settings.ask_by, dim, seed)
        self.examples: OrderedDict[int, LabelledExample] = OrderedDict()

    def predict(self, views: Tensor) -> MethodOutput:
        output = self.inner.predict(views)
        feature, beliefs = self._footing(output)
        if not (np.isfinite(feature).all() and np.isfinite(beliefs).all()):
            return replace(output, entropy=float("nan"), item=None)  # never asked about, never learned
        self.head.see(beliefs)
        probs = self.head.predict(feature, beliefs)
        score = self.chooser.score(feature, probs, output.entropy, self.head.counts, self.head.leverage)
        item = output.item or ReplayItem(pixels=None, views=None, feature=_kept(output.feature))
        item = replace(item, beliefs=torch.from_numpy(beliefs).to(item.feature.device))
        told = torch.from_numpy(probs).to(output.probs)
        return replace(output, probs=told, item=item, score=score)

    @torch.no_grad()
    def _footing(self, output: MethodOutput) -> tuple[Array, Array]:
        """The image's feature and what the bases say of it, brought to the host in one go."""
        feature = _kept(output.feature)
        rows = [torch.log_softmax(self.classifier.logits(feature[None], self.text)[0], dim=-1)]
        if "view_ensemble" in self.bases:
            rows.append(_kept(output.ensemble))
        if len(self.bases) > len(rows):
            rows.append(torch.log(output.probs.clamp_min(1e-12)).to(rows[0]))
        flat = torch.cat([feature, *rows]).double().cpu().numpy()
        return flat[: len(feature)], flat[len(feature) :].reshape(len(rows), -1)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        feature = item.feature.double().cpu().numpy()
        beliefs = self._widened(item.feature, _kept(item.beliefs)).double().cpu().numpy()
        self.examples[id] = self.head.learn(feature, beliefs, label)
        while len(self.examples) > self.settings.undo:
            self.examples.popitem(last=False)
        if self.inner.asks:
            self.inner.learn(id, label, replace(item, beliefs=None))

    @torch.no_grad()
    def _widened(self, feature: Tensor, beliefs: Tensor) -> Tensor:
        """What the bases said before some classes were added, as if these had been there.

        Of a class that was not there, each base says what zero-shot says; among the others it is as it was.
        """
        missing = len(self.classes) - beliefs.shape[1]
        if not missing:
            return beliefs
        logits = self.classifier.logits(feature[None].to(self.text), self.text)[0]
        said = torch.log_softmax(logits.to(beliefs), dim=-1)
        old, new = said[:-missing].logsumexp(dim=0), said[-missing:].expand(len(beliefs), missing)
        return torch.cat([beliefs + old, new], dim=1)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """Take an answer back: the head is as if it had never been given.

        The labels that came after it are judged and learned anew without it. The method inside forgets it
        too, as far as it can.

        Raises:
            QueryError: The answer is none of the last `undo` ones.
        """
        if id not in self.examples:
            raise QueryError(
                f"The answer for sample {id} is none of the last {self.settings.undo}; raise undo."
            )
        ids = list(self.examples)
        later = ids[ids.index(id) + 1 :]
        again = self.head.forget(self.examples.pop(id), [self.examples[other] for other in later])
        self.examples.update(zip(later, again, strict=True))
        if self.inner.asks:
            self.inner.forget(id, label, replace(item, beliefs=None))

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def summary(self) -> dict[str, Any]:
        found = self.inner.summary() | self.head.summary()
        found["head_look_again"] = [id for id, example in self.examples.items() if example.doubt > DOUBT]
        return found | {"notes": notes_on(found, self.head.counts, self.classes)}

    def snapshot(self) -> Snapshot:
        inner = self.inner.snapshot()
        arrays = self.head.arrays() | example_arrays(self.examples) | self.chooser.arrays()
        tensors = {f"head.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
        values = {"numbers": self.head.numbers(), "bases": list(self.bases), "chooser": self.chooser.values()}
        return Snapshot(inner.tensors | tensors, inner.values | {"head": values})

    def restore(self, snapshot: Snapshot) -> None:
        own = {name: value for name, value in snapshot.tensors.items() if not name.startswith("head.")}
        self.inner.restore(Snapshot(own, snapshot.values))
        arrays = {
            name.removeprefix("head."): value.cpu().numpy()
            for name, value in snapshot.tensors.items()
            if name.startswith("head.")
        }
        values = snapshot.values["head"]
        self.head.restore(arrays, values["numbers"])
        self.chooser.restore(arrays, values["chooser"])
        self.examples = examples_from(arrays)


def with_head(name: str, *, line: str) -> None:
    """Register the method `name+`: the same with a head, for any method that has a `footing`."""
    inner = find_method(name)

    def build(clip: Clip, classes: tuple[str, ...], settings: Any, seed: int) -> Headed:
        return Headed(inner.build(clip, classes, settings, seed), classes, settings, seed)

    settings = make_dataclass(f"{inner.settings.__name__}Plus", [], bases=(Plus, inner.settings), frozen=True)
    method(f"{name}+", settings, prompts=inner.prompts, line=line)(build)


def _kept(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.detach().clone()


with_head("taps", line="TAPS, and a head that learns from every answer.")
with_head("zero_shot", line="Zero-shot CLIP, and the same head.")
with_head("view_ensemble", line="The confident views' mean, and the same head.")
