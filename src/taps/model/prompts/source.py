"""Source statistics: mean and variance of the image tower's features on a source set, whole and per class.

They are collected in one pass (Chan's parallel update), so that shards can be made apart and merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from taps.errors import SettingsError, StateError
from taps.files import read_tensors, write_tensors

TENSORS = ("mean", "variance", "class_means", "class_variances")


@dataclass(frozen=True)
class SourceStats:
    """Statistics of the inputs of some vision blocks.

    Attributes:
        layers: The vision blocks.
        count: Images of the whole set.
        mean: [layers, tokens, width].
        variance: The same shape, biased.
        classes: Names of the classes with statistics of their own; may be empty.
        numbers: Which class of its name each of them is in the source set: two of ImageNet's are a "missile".
        class_counts: Images of each class [classes].
        class_means: [classes, layers, tokens, width].
        class_variances: The same shape.
        model: Fingerprint of the model they were made with.
        prompts: Fingerprint of the prompts they were made with; empty for none.
        merged: Fingerprints of the parts that they were merged or rounded from.
    """

    layers: tuple[int, ...]
    count: int
    mean: Tensor
    variance: Tensor
    classes: tuple[str, ...]
    class_counts: Tensor
    class_means: Tensor
    class_variances: Tensor
    model: str
    prompts: str
    merged: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()  # none in older files: one class a name

    def check(self, *, model: str, prompts: str) -> None:
        """Refuse statistics that belong to another model or to other prompts."""
        if self.model != model:
            raise StateError(
                f"The source statistics were made with model {self.model}, not {model}; "
                "make them with `taps stats`."
            )
        if self.prompts != prompts:
            raise StateError(
                f"The source statistics were made with prompts {self.prompts or 'none'}, not "
                f"{prompts or 'none'}; make them with `taps stats --prompts`."
            )

    def of_classes(self, classes: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        """Mean and variance of each class, found by name.

        Of several source classes of one name, each is taken for the class in the same place where the stream
        has as many of that name; else they are taken together.
        """
        rows: dict[str, list[int]] = {}
        for row, _ in sorted(enumerate(self.numbers or [0] * len(self.classes)), key=lambda pair: pair[1]):
            rows.setdefault(self.classes[row].casefold(), []).append(row)
        missing = [name for name in classes if name.casefold() not in rows]
        if missing:
            raise SettingsError(
                f"Fine alignment needs source statistics of every class, but {len(missing)} have none, "
                f"such as {missing[0]!r}; set weight_fine to 0 or make statistics that hold them."
            )
        names, found = [name.casefold() for name in classes], []
        for place, name in enumerate(names):
            own = rows[name]
            if names.count(name) == len(own):
                own = [own[names[:place].count(name)]]
            found.append(self._together(own))
        return found

    def _together(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        if len(rows) == 1:
            return self.class_means[rows[0]], self.class_variances[rows[0]]
        moments = RunningMoments()
        for row in rows:
            count = int(self.class_counts[row])
            moments.merge(count, self.class_means[row], self.class_variances[row].double() * count)
        return moments.mean, moments.variance

    @property
    def fingerprint(self) -> str:
        """Identifies these statistics by a sample of their values, the model and the prompts."""
        origin = (self.layers, self.count, self.classes, self.model, self.prompts)
        digest = hashlib.sha256(repr(origin).encode())
        for name in TENSORS:
            flat = getattr(self, name).detach().flatten()
            digest.update(flat[:: max(1, len(flat) // 65536)].double().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    @property
    def parts(self) -> tuple[str, ...]:
        """Fingerprints of the sets of images in them; rounding and merging keep them."""
        return self.merged or (self.fingerprint,)

    def save(self, path: str | Path, dtype: torch.dtype | None = torch.float16) -> None:
        """Write one safetensors file; half precision is enough for alignment, None keeps every bit."""
        meta = {
            "layers": list(self.layers),
            "count": self.count,
            "classes": list(self.classes),
            "numbers": list(self.numbers),
            "class_counts": self.class_counts.tolist(),
            "model": self.model,
            "prompts": self.prompts,
            "parts": list(self.parts),
        }
        write_tensors(Path(path), {name: _stored(getattr(self, name), dtype) for name in TENSORS}, meta)

    @classmethod
    def load(cls, path: str | Path) -> SourceStats:
        try:
            tensors, meta = read_tensors(Path(path))
            return cls(
                layers=tuple(meta["layers"]),
                count=meta["count"],
                classes=tuple(meta["classes"]),
                class_counts=torch.tensor(meta["class_counts"]),
                model=meta["model"],
                prompts=meta["prompts"],
                merged=tuple(meta.get("parts", ())),  # older files have none
                numbers=tuple(meta.get("numbers", ())),
                **{
                    name: value.to(torch.promote_types(value.dtype, torch.float32))
                    for name, value in tensors.items()
                },
            )
        except Exception as error:
            raise StateError(
                f"{path} does not hold source statistics ({error}); make them with `taps stats`."
            ) from error


def _stored(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """In the wanted precision, or in single where the values exceed its range: some channels are huge."""
    if dtype is None or tensor.dtype == dtype:
        return tensor
    fits = not tensor.numel() or float(tensor.abs().max()) <= torch.finfo(dtype).max
    return tensor.to(dtype if fits else torch.float32)


class RunningMoments:
    """Count, mean and sum of squared deviations, updated batch by batch and mergeable.

    >>> running = RunningMoments()
    >>> running.add(torch.tensor([[1.0], [3.0]]))
    >>> running.mean.item(), running.variance.item()
    (2.0, 1.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(())
        self.spread = torch.zeros(())

    @property
    def variance(self) -> Tensor:
        return self.spread / max(self.count, 1)

    def add(self, batch: Tensor) -> None:
        """Take in a batch [N, ...] in double precision."""
        batch = batch.double()
        self.merge(len(batch), batch.mean(dim=0), batch.var(dim=0, correction=0) * len(batch))

    def merge(self, count: int, mean: Tensor, spread: Tensor) -> None:
        """Chan's update: join two sets of samples known by their moments."""
        if count == 0:
            return
        if self.count == 0:
            self.count, self.mean, self.spread = count, mean.double(), spread.double()
            return
        total = self.count + count
        delta = mean.double() - self.mean
        self.mean = self.mean + delta * (count / total)
        self.spread = self.spread + spread.double() + delta * delta * (self.count * count / total)
        self.count = total


def merge_stats(parts: Sequence[SourceStats]) -> SourceStats:
    """Statistics of all images of several parts, exact as far as the parts' own digits go.

    The parts have the same model, prompts and blocks, and all or none have classes.
    """
    first, names = parts[0], [name for part in parts for name in part.parts]
    if len(set(names)) < len(names):
        raise StateError("Two of the parts are the same; its images would count twice. Give each part once.")
    for part in parts[1:]:
        part.check(model=first.model, prompts=first.prompts)
        if part.layers != first.layers or part.mean.shape != first.mean.shape:
            raise StateError(
                f"Statistics of blocks {part.layers} cannot be merged with those of {first.layers}; "
                "make them of the same blocks."
            )
        if bool(part.classes) != bool(first.classes):
            raise StateError("Statistics with classes cannot be merged with ones without; make them alike.")
    whole = RunningMoments()
    by_class: dict[tuple[str, int], RunningMoments] = {}
    for part in parts:
        numbers = part.numbers or (0,) * len(part.classes)
        whole.merge(part.count, part.mean, part.variance.double() * part.count)
        for row, key in enumerate(zip(part.classes, numbers, strict=True)):
            count = int(part.class_counts[row])
            spread = part.class_variances[row].double() * count
            by_class.setdefault(key, RunningMoments()).merge(count, part.class_means[row], spread)
    made = stats_from(whole, by_class, layers=first.layers, model=first.model, prompts=first.prompts)
    return replace(made, merged=tuple(sorted(names)))


def stats_from(
    whole: RunningMoments,
    by_class: Mapping[tuple[str, int], RunningMoments],
    *,
    layers: tuple[int, ...],
    model: str,
    prompts: str,
) -> SourceStats:
    """Statistics from running moments, those of classes by name and number; the empty are left out."""
    seen = {key: moments for key, moments in by_class.items() if moments.count}
    none = whole.mean.new_zeros(0, *whole.mean.shape)
    return SourceStats(
        layers=layers,
        count=whole.count,
        mean=whole.mean,
        variance=whole.variance,
        classes=tuple(name for name, _ in seen),
        numbers=tuple(number for _, number in seen),
        class_counts=torch.tensor([moments.count for moments in seen.values()], dtype=torch.long),
        class_means=torch.stack([moments.mean for moments in seen.values()]) if seen else none,
        class_variances=torch.stack([moments.variance for moments in seen.values()]) if seen else none,
        model=model,
        prompts=prompts,
    )
