"""A method with a label head on it, which learns from every answer in feature space (`taps.head`).

The inner method predicts as it does alone. The head takes its prediction, zero-shot and the confident views'
mean as experts, learns residuals on each from the labels, and weights them by how they predicted the labels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.asking.question import KINDS, YES_NO_SECONDS
from taps.asking.rules import RULES, Acquisition, narrowness, novelty
from taps.default import ACQUISITION
from taps.errors import QueryError
from taps.head.experts import HeadSettings
from taps.head.head import DOUBT, Head, LabelledExample
from taps.head.history import History
from taps.head.neighbours import NEAR, Neighbourhood, RecentImages, row_length
from taps.head.notes import notes_on
from taps.learning.fast.capture import CudaCapture
from taps.learning.fast.device_head import DeviceHead
from taps.learning.memory import check_item
from taps.methods import Asking, BatchedMethod, Method, MethodOutput, ReplayItem, Snapshot, setting
from taps.methods.base import to_array, to_arrays, to_tensors, with_prefix, without_prefix
from taps.saved import check_plain, text
from taps.types import OUTSIDE, Answer, FloatArray

Array = NDArray[np.float64]
DEVICES = ("cuda",)  # where the head predicts beside the model


class HeadedSettings(Asking):
    """What a head adds to a method's settings.

    Attributes:
        policy: "paced" (the highest scores, at an exact rate), or one of the policies of `taps`.
        acquisition: The asking rule (`taps.asking.rules`), which scores each image.
        explore: Share of the questions that are put at random, whatever `acquisition` is. From their
            answers the learner estimates how good all its predictions are.
        refit: How many of the last labels are refitted with every new one; older ones keep their weight.
        questions: What is asked: "class" (which one it is), "yes_no" (is it the likeliest one?) or
            "both", whichever is expected to tell more a second. A question of less time takes less of the
            rate and of the budget. None for "both" where `budget_seconds` is given, else "class".
        yes_no_seconds: Seconds that a yes or no takes.
        neighbourhood: Which neighbours vote when an image is answered or predicted again: those it had
            "then", when it came; or those it has "now", which takes a seventeenth of the memory.
    """

    policy: str = "paced"
    acquisition: str = setting(ACQUISITION, choices=RULES)
    explore: float = setting(0.1, at_least=0, at_most=1)
    refit: int = setting(128, at_least=1)
    questions: str | None = setting(None, choices=(*KINDS, "both"))
    yes_no_seconds: float = setting(YES_NO_SECONDS, above=0)
    neighbourhood: str = setting("then", choices=("then", "now"))


@dataclass(frozen=True)
class HeadOutput:
    """The head's prediction of an image."""

    probs: Array
    density: float  # mean cosine to its neighbours
    reject: float  # probability that it shows none of the classes
    rows: Tensor  # it and its neighbours, as `Neighbourhood` has them


class Headed(BatchedMethod):
    """A label head on an inner method."""

    asks = True
    takes_any_answer = True

    def __init__(self, inner: Method, classes: tuple[str, ...], settings: HeadedSettings, seed: int) -> None:
        self.inner = inner
        self.classes = classes
        self.settings = settings
        self.inputs = inner.head_inputs()
        self.bases = self.inputs.bases
        dim = int(self.inputs.text.shape[1])
        grid = HeadSettings(refit=settings.refit)
        self.head = Head(dim, len(classes), len(self.bases), self.inputs.several, grid)
        self.acquisition = Acquisition(settings.acquisition, seed)
        self.history = History(self.head, settings.undo)
        self.people = [""]  # annotators; answers without a name are those of one person
        self._anew = settings.neighbourhood == "now"  # whether neighbours are looked for when needed
        self.device_head: DeviceHead | None = None
        if self.inputs.text.device.type in DEVICES:
            captures = self.inputs.text.is_cuda and settings.engine != "eager"
            graphs = CudaCapture(self.inputs.text.device) if captures else None
            self.device_head = DeviceHead(self.head, self.inputs.text.device, graphs, self._read)

    @property
    def examples(self) -> dict[int, LabelledExample]:
        """The last answers, by the id of their image."""
        return self.history.examples

    @property
    def needs_features_only(self) -> bool:
        return self.inner.needs_features_only

    def batch_key(self) -> Hashable:
        """The head changes nothing in the inner method's part of the work."""
        return self.inner.batch_key() if isinstance(self.inner, BatchedMethod) else None

    def encode_batch(self, methods: Sequence[Method], views: Sequence[Tensor]) -> list[Any]:
        assert isinstance(self.inner, BatchedMethod)
        inner = [each.inner if isinstance(each, Headed) else each for each in methods]
        return self.inner.encode_batch(inner, views)

    def predict(self, views: Tensor, ahead: Any = None) -> MethodOutput:
        if ahead is None:
            return self.finish(self.inner.predict(views))
        assert isinstance(self.inner, BatchedMethod)
        return self.finish(self.inner.predict(views, ahead))

    def finish(self, output: MethodOutput) -> MethodOutput:
        """The head's prediction, from the inner method's."""
        device_head = self.device_head
        own = self._on_host(output) if device_head is None else self._on_device(device_head, output)
        if own is None:
            return replace(output, entropy=float("nan"), item=None)  # never asked about, never learned
        assert output.feature is not None
        feature = output.feature.detach()
        score = self.acquisition.score(
            probs=lambda: own.probs,
            entropy=lambda: output.entropy,
            feature=lambda: to_array(feature),
            counts=lambda: self.head.counts,
            density=lambda: own.density,
            leverage=lambda: self.head.leverage(self._look(own.rows)),
            sensitivity=lambda: self._sensitivity(own, feature),
        )
        item = output.item or ReplayItem(pixels=None, views=None, feature=feature.clone())
        item = replace(item, beliefs=own.rows[:1].clone() if self._anew else own.rows)
        probs = torch.from_numpy(own.probs).to(output.probs.dtype)
        return replace(output, probs=probs, item=item, score=score, reject=own.reject)

    def _sensitivity(self, own: HeadOutput, feature: Tensor) -> float:
        """By how much the likeliest class's probability changes when all views of the image move a little."""
        look, noise = self._look(own.rows), self.acquisition.noise(len(feature))
        moved = torch.nn.functional.normalize(feature + torch.from_numpy(noise).to(feature), dim=-1)
        with torch.no_grad():  # every base moves as zero-shot does
            change = (self._zero_shot(moved) - self._zero_shot(feature)).float().cpu().numpy()
        nearby = replace(look, rows=look.rows.copy())
        nearby.features[0] += noise
        nearby.logs[0] += change
        likeliest = int(own.probs.argmax())
        return abs(float(own.probs[likeliest]) - float(self.head.predict(nearby)[likeliest]))

    def predict_kept(self, item: ReplayItem) -> FloatArray:
        """The head's prediction now, on the bases' predictions of then.

        All answers count alike for the classes' shares: the image may be of long ago.
        """
        self._bring()
        return self.head.predict(self._kept_look(item), again=True).astype(np.float32)

    def row_of(self, item: ReplayItem) -> FloatArray:
        """The image's feature, then its row of the neighbourhood."""
        assert item.beliefs is not None
        return torch.cat([item.feature.float().cpu(), item.beliefs[0].float().cpu()]).numpy()

    def predict_rows(self, rows: Sequence[FloatArray]) -> Iterator[FloatArray]:
        """The head's predictions now; all the images given are neighbours of each other."""
        self._bring()
        count, dim, bases = self.head.recent.shape
        looks = [
            self._widened(self._look(torch.from_numpy(row[None, dim:])), torch.from_numpy(row[:dim]))
            for row in rows
        ]
        together = RecentImages((count, dim), (bases, len(self.classes)), max(1, len(rows)))
        for look in looks:
            together.remember(look.rows[0])
        for look in looks:
            around = together.around(look.rows[0])
            yield self.head.predict(around, again=True).astype(np.float32)

    def wanted_kept(self, items: Sequence[ReplayItem], open: Sequence[ReplayItem]) -> Array:
        """Narrow margin × density × novelty beside what is answered or asked about."""
        self._bring()
        looks = [self._kept_look(item) for item in items]
        known = [example.look for example in self.examples.values()]
        known += [self._kept_look(each) for each in open]
        scores = [max(look.density, 0.0) * narrowness(self.head.predict(look, again=True)) for look in looks]
        return np.array(scores) * novelty(_units(looks), _units(known))

    def _bring(self) -> None:
        """Copy what a device holds of the stream to the host, as far as kept images need it."""
        if self.device_head is not None:
            self.device_head.bring() if self._anew else self.device_head.bring_stream()

    def _kept_look(self, item: ReplayItem) -> Neighbourhood:
        """A kept image and its neighbours."""
        assert item.beliefs is not None
        look = self._widened(self._look(item.beliefs.detach().clone()), item.feature)
        return self.head.recent.around(look.rows[0]) if self._anew else look

    def _on_host(self, output: MethodOutput) -> HeadOutput | None:
        features, logs = self._read(*self._given(output))
        flat = torch.cat([features.reshape(-1), logs.reshape(-1)]).double().cpu().numpy()  # in one go
        if not np.isfinite(flat).all():
            return None
        seen = features.numel()
        look = self.head.see(flat[:seen].reshape(features.shape), flat[seen:].reshape(logs.shape))
        rows = torch.from_numpy(look.rows)
        return HeadOutput(self.head.predict(look), look.density, self.head.reject(look), rows)

    def _on_device(self, device_head: DeviceHead, output: MethodOutput) -> HeadOutput | None:
        # A tuner has read its probabilities on the host by now; captured work reads the device alone.
        seen = device_head.see(*(each.to(device_head.device) for each in self._given(output)))
        values, classes = seen.told.cpu().numpy(), len(self.classes)
        if not np.isfinite(values).all():
            return None
        device_head.keep(seen)
        reject = self.head.outside.probability(values[classes + 2 :])
        return HeadOutput(values[:classes], float(values[classes]), reject, seen.look.clone())

    def _given(self, output: MethodOutput) -> list[Tensor]:
        """What `_read` reads of an output: the views' features [V, d], then the bases beside zero-shot."""
        assert output.feature is not None
        given = [output.feature[None] if output.features is None else output.features]
        if "view_ensemble" in self.bases:
            assert output.ensemble is not None
            given.append(output.ensemble)
        return given if len(self.bases) == len(given) else [*given, output.probs]

    @torch.no_grad()
    def _read(self, features: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        """The views' features [V, d], and each base's log-probabilities [B, K]."""
        rows = [self._zero_shot(features[0]), *others]
        if self.bases[-1] not in ("zero_shot", "view_ensemble"):  # the method's own: probabilities
            rows[-1] = torch.log(rows[-1].clamp_min(1e-12)).to(rows[0])
        return features, torch.stack(rows)

    def _zero_shot(self, feature: Tensor) -> Tensor:
        """Log-probabilities at the loaded prompts [K]."""
        text = self.inputs.text
        return torch.log_softmax(self.inputs.classifier.logits(feature[None].to(text), text)[0], dim=-1)

    def learn_answer(self, id: int, answer: Answer, item: ReplayItem) -> None:
        self.learn_head(id, answer, item)
        if self.inner.asks and isinstance(answer.label, int):
            self.inner.learn(id, answer.label, replace(item, beliefs=None))

    def learn_head(self, id: int, answer: Answer, item: ReplayItem) -> None:
        """Teach the head alone."""
        if answer.annotator not in self.people:
            self.people.append(answer.annotator)
        self._bring()
        look = self._kept_look(item)
        label = answer.label if isinstance(answer.label, int) else OUTSIDE
        no = tuple(index for index in answer.no if isinstance(index, int))
        self.history.learn(id, look, label, no, self.people.index(answer.annotator))
        if self.device_head is not None:
            self.device_head.learned()

    def check(self, snapshot: Snapshot) -> None:
        people = snapshot.values["head"]["people"]
        self.history.check(to_arrays(without_prefix("head.", snapshot.tensors)), max(1, len(people)))

    def check_item(self, item: ReplayItem) -> None:
        self.inner.check_item(item)
        shape = self.head.recent.shape
        widths = [row_length(shape, classes) for classes in (1, len(self.classes))]
        rows = (range(1, 2 + NEAR), range(widths[0], widths[1] + 1, self.head.recent.shape[2]))
        check_item(item, self.inputs.text.dtype, feature=self.inputs.text.shape[1:])
        check_item(item, torch.float32, beliefs=rows)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        self.learn_answer(id, Answer(label), item)

    def _look(self, rows: Tensor) -> Neighbourhood:
        return Neighbourhood(rows.cpu().numpy(), self.head.recent.shape)

    @torch.no_grad()
    def _widened(self, look: Neighbourhood, feature: Tensor) -> Neighbourhood:
        """The bases' predictions from before some classes were added, as if these had been there.

        A new class gets zero-shot's probability in every base; among the others nothing changes.
        """
        new = len(self.classes) - look.logs.shape[2]
        if not new:
            return look
        logs = self._zero_shot(feature).float().cpu()
        old, added = logs[:-new].logsumexp(dim=0), logs[-new:].expand(len(self.bases), new)
        return look.widened(torch.cat([torch.from_numpy(look.logs[0]) + old, added], dim=1).numpy())

    def remembers(self, id: int) -> bool:
        return self.history.remembers(id)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """Take an answer back: the head is as if it had never been given.

        The labels after it are learned again without it. The inner method forgets it as far as it can.
        """
        if not self.remembers(id):
            raise QueryError(
                f"The answer for sample {id} is not among the last {self.settings.undo}; raise undo."
            )
        self.history.forget(id)
        if self.device_head is not None:
            self.device_head.learned()
        if self.inner.asks and label != OUTSIDE:
            self.inner.forget(id, label, replace(item, beliefs=None))

    def grow(self, old: Self) -> None:
        self.inner.grow(old.inner)
        self._restore_head(old.snapshot())
        self.history.learn_all_again()
        if self.device_head is not None:
            self.device_head.learned()

    def summary(self) -> dict[str, Any]:
        if self.device_head is not None:
            self.device_head.bring_stream()
        found = self.inner.summary() | self.head.summary()
        found["head_look_again"] = [id for id, example in self.examples.items() if example.doubt > DOUBT]
        answers = self.head.mixture.answers
        found["head_annotators"] = {
            name: {"answers": int(answers[person]), "noise": round(self.head.noise_of(person), 4)}
            for person, name in enumerate(self.people)
            if person < len(answers) and answers[person]
        }
        return found | {"notes": notes_on(found, self.head.counts, self.classes)}

    def snapshot(self) -> Snapshot:
        inner = self.inner.snapshot()
        if self.device_head is not None:
            self.device_head.bring()
        arrays = self.head.arrays() | self.history.arrays()
        own = with_prefix("head.", to_tensors(arrays))
        values = {
            "bases": list(self.bases),
            "acquisition": self.acquisition.values(),
            "people": list(self.people),
        }
        return Snapshot(inner.tensors | own, inner.values | {"head": values})

    def restore(self, snapshot: Snapshot) -> None:
        inner = {name: value for name, value in snapshot.tensors.items() if not name.startswith("head.")}
        self.inner.restore(Snapshot(inner, snapshot.values))
        self._restore_head(snapshot)

    def _restore_head(self, snapshot: Snapshot) -> None:
        arrays = to_arrays(without_prefix("head.", snapshot.tensors))
        values = snapshot.values["head"]
        check_plain(values, {"people": [text]}, "head")
        self.head.restore(arrays)
        self.people = list(values["people"])
        self.acquisition.restore(values["acquisition"])
        self.history.restore(arrays)
        if self.device_head is not None:
            self.device_head.load()


def _units(looks: Sequence[Neighbourhood]) -> Array:
    """Unit features that images are compared by [N, d]."""
    features = np.array([look.features[0, -1] for look in looks], dtype=np.float64)
    if not len(features):
        return features.reshape(0, 0)
    units: Array = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    return units
