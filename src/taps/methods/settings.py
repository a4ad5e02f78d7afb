"""Settings that methods have in common: dataclasses that build on each other, each field with its range.

A range stands where the setting is defined: `views: int = setting(64, at_least=1)`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, cast, dataclass_transform

from torch import Tensor

from taps.asking.base import POLICIES
from taps.asking.buffer import EVICTIONS
from taps.asking.question import YES_NO_SECONDS
from taps.errors import SettingsError
from taps.learning.fast import ENGINES
from taps.learning.losses import select_confident
from taps.model.images.views import BACKENDS
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats
from taps.registry import nearest

# Plain types by name: what a value may be, and how an error calls it.
TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "None": ((type(None),), ""),
    "Path": ((Path,), "a path"),
    "Prompts": ((Prompts,), "prompts"),
    "SourceStats": ((SourceStats,), "statistics"),
    "tuple[str, ...]": ((tuple, list), "a list of texts"),
    "Mapping[str, Sequence[str]]": ((Mapping,), "a mapping of class names to texts"),
}
LARGEST = 1e15  # of any number
BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "at_least": (operator.ge, "of at least"),
    "above": (operator.gt, "above"),
    "at_most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


@dataclass(frozen=True)
class Range:
    """Bounds of a number, choices of a text, or a rule; `words` takes their place in errors."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: Collection[str] = ()
    rule: Callable[[Any], bool] | None = None
    words: str = ""

    def bounds(self) -> list[tuple[Callable[[Any, Any], bool], str, float]]:
        given = {name: getattr(self, name) for name in BOUNDS}
        return [(*BOUNDS[name], bound) for name, bound in given.items() if bound is not None]

    def holds(self, value: Any) -> bool:
        if isinstance(value, str):
            return (value in self.choices or not self.choices) and (self.rule is None or self.rule(value))
        return all(compare(value, bound) for compare, _, bound in self.bounds())


def setting(default: Any, **bounds: Any) -> Any:
    """A field of a settings dataclass and what it may be; numbers are finite in any case.

    Args:
        default: Its value where none is given.
        **bounds: `at_least`, `above`, `at_most`, `below`, `choices`; or `rule` and `words`.
    """
    return field(default=default, metadata={"range": Range(**bounds)})


def allowed(kind: type, each: Field[Any]) -> str:
    """What a setting may be, in words; empty where every value is allowed."""
    names, own = _types(each), _range(kind, each.name)
    words = own.words or f"one of {', '.join(own.choices)}"
    if not own.words and not own.choices:
        kinds = " or ".join(word for name, (_, word) in TYPES.items() if word and name in names)
        words = f"{kinds} {' and '.join(f'{word} {bound:g}' for _, word, bound in own.bounds())}".strip()
    return f"{words}, or None" if "None" in names else words


def _range(kind: type, name: str) -> Range:
    """The range of a setting; a subclass that only gives it another default keeps the one it had."""
    found = (vars(base).get("ranges", {}).get(name) for base in kind.__mro__)
    return next(filter(None, found), Range())


def _types(each: Field[Any]) -> set[str]:
    """Names of the plain types of a field; none where it takes other things as well."""
    text = each.type.__name__ if isinstance(each.type, type) else str(each.type)
    names = set(text.split(" | "))
    return names if names <= TYPES.keys() else set()


def _fits(kind: type, each: Field[Any], value: Any) -> bool:
    names = _types(each)
    if not names:
        return True
    if isinstance(value, bool) or value is None:  # a bool is an int to Python, but not here
        return ("None" if value is None else "bool") in names
    if not any(isinstance(value, TYPES[name][0]) for name in names):
        return False
    if isinstance(value, int | float) and not abs(value) <= LARGEST:  # NaN is not, either
        return False
    return _range(kind, each.name).holds(value)


@dataclass_transform(frozen_default=True)
class Settings:
    """What the learner reads of every method's settings. Every subclass is made a frozen dataclass.

    Here they are fixed; a method that leaves the choice to its user has a field of the same name, as
    `ViewSettings`, `TuneSettings`, `Asking` and `HeadedSettings` have, which say what each is for.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    ranges: ClassVar[dict[str, Range]] = {}  # of the class's own fields
    views = 1
    fraction = tsallis = 1.0
    view_backend = "tensor"
    augmix = False
    order = "predict_first"
    engine = "auto"
    undo = 100
    recent = 100
    questions = cast("str | None", "class")
    yes_no_seconds = YES_NO_SECONDS
    class_seconds = budget_seconds = cast("float | None", None)

    def __init_subclass__(cls) -> None:
        given = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        cls.ranges = {
            name: value.metadata["range"] for name, value in given.items() if "range" in value.metadata
        }
        dataclass(frozen=True)(cls)
        # A class may be decorated, too. `dataclass` refuses to write these twice, and `Settings` has its own;
        # and it takes factories off the class, where it would look for them again.
        del cls.__setattr__, cls.__delattr__
        for name in given.keys() - vars(cls).keys():
            setattr(cls, name, given[name])

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __post_init__(self) -> None:
        """Refuse values of another type or out of range, naming the field and the value."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not _fits(type(self), each, value):
                wanted = allowed(type(self), each)
                if isinstance(value, int | float) and LARGEST < abs(value) < math.inf:
                    wanted = f"a number below {LARGEST:g}"
                meant = nearest(str(value), _range(type(self), each.name).choices)
                raise SettingsError(
                    f"The setting {each.name} is {repr(value)[:80]}; it must be {wanted}.{meant}"
                )

    def confident(self, logits: Tensor) -> Tensor:
        """Indices of the views that are kept, the surest first, from their logits [n, K]."""
        return select_confident(logits, self.fraction, self.tsallis)


class TextSettings(Settings):
    """For methods that need class texts and one view.

    Attributes:
        template: The sentence a class name is put into, where no learned context takes its place. Or several,
            in a list or with "|" between them, or by name: "imagenet80", "imagenet7"; a class is their mean.
            None for "a photo of a {}.", or for `texts` alone.
        texts: Sentences of each class: a mapping of class name to list, or a JSON file of one. Beside them
            the given templates count; each sentence is put into those with {text} in them.
    """

    template: str | tuple[str, ...] | None = None
    texts: str | Path | Mapping[str, Sequence[str]] | None = None


class ViewSettings(TextSettings):
    """For methods that look at several views of an image.

    Attributes:
        views: How many, view 0 included.
        fraction: ρ, the share of most confident views that is kept.
        tsallis: q of the entropy that these are chosen by: 1 is Shannon's; below 1, unlikely classes count
            for more. ADTE's choice of entropy, with one q for all classes (theirs: one each, from a file).
        augmix: Whether random views are also mixed with distorted copies of themselves.
        view_backend: "tensor" or "pillow".
    """

    views: int = setting(64, at_least=1, at_most=10_000)
    fraction: float = setting(0.1, above=0, at_most=1)
    tsallis: float = setting(1.0, above=0)
    augmix: bool = False
    view_backend: str = setting("tensor", choices=BACKENDS)


def reset_setting(default: str) -> Any:
    """When tuned weights are reset: a setting in the words of `reset_period`."""

    def rule(value: str) -> bool:
        return re.fullmatch(r"sample|never|every:0*[1-9]\d*", value, re.ASCII) is not None

    return setting(default, rule=rule, words='"sample", "never" or "every:k" with k of at least 1')


class TuneSettings(ViewSettings):
    """For methods that tune prompts on each image.

    Attributes:
        prompts: What is tuned: "hand" (a context that starts as "a photo of a"), "coop", "maple", a directory
            made by `taps train`, or a `Prompts`; None for the method's own choice.
        lr: Learning rate; None for 4e-3 where every image starts afresh, 5e-5 where prompts carry over.
        weight_decay: Of AdamW.
        weight_entropy: Weight of H_t in the loss.
        weight_coarse: β, weight of alignment to the source set's statistics.
        align: "promptalign" (PromptAlign's published form) or "paper" (the printed equation).
        align_layers: Vision blocks whose inputs are aligned; None for the form's own choice.
        source: Source statistics, or the path of a file made by `taps stats`.
        reset: When prompts go back to the loaded ones: "sample", "never", or "every:k".
        guard: Whether prompts that carry over are restored when they collapse to few classes.
        guard_window: How many of the last images the guard looks at.
        engine: "auto" (captured as CUDA graphs where there is a GPU), "eager" or "graph"; same numbers.
    """

    prompts: str | Path | Prompts | None = None
    lr: float | None = setting(None, at_least=0)
    weight_decay: float = setting(0.01, at_least=0)
    weight_entropy: float = setting(1.0, at_least=0)
    weight_coarse: float = setting(0.0, at_least=0)
    align: str = setting("promptalign", choices=("promptalign", "paper"))
    align_layers: tuple[int, ...] | None = None
    source: str | Path | SourceStats | None = None
    reset: str = reset_setting("sample")
    guard: bool = True
    guard_window: int = setting(100, at_least=2)
    engine: str = setting("auto", choices=ENGINES)


class Asking(Settings):
    """For methods that ask an annotator: about which images, and how often.

    Attributes:
        policy: How scores become questions at a rate; "dynamic" is Algorithm 1 (`taps.asking`).
        rate: Share of images to ask about; 1 for every image.
        warmup: T_min, images before the threshold is estimated.
        tau0: τ0, threshold until then, in nats; 2 in the paper.
        tau0_relative: τ0 as a share of ln K instead; 0.4 where neither is given.
        switch_at: Achieved rate from which the stricter threshold holds; None for `rate` itself.
        budget: "soft" (the policy alone; Algorithm 1 guarantees no rate); or a cap beside the policy:
            "hard" (⌈rate · t⌉ questions after t images; ⌈rate · N⌉ for "paced" where N is known), or a number
            of questions: with `expected` it needs no rate.
        pace: When "paced" asks: "front" (early, while answers are as mixed as the classes are); "even"; or
            an exponent a: the budget times (t/N)^a after t of N images. Even where `expected` is not known.
        expected: N, images to come; after them the pace is even. Commands over a folder or a data set give
            its length; None where nobody knows.
        budget_seconds: Seconds of the annotator's time for all questions together; None for no limit.
        class_seconds: Seconds that picking a class takes; None for 1.6 + 2.175 · (log2 K − 1).
        order: "predict_first" (the tables' protocol) or "ask_first" (an answer is the prediction).
        undo: How many of the last answers can be taken back, where the method still remembers them.
        recent: How many of the last images that nobody asked about can still be given a label; fewer where
            their views take more than 128 MiB.
    """

    policy: str = setting("dynamic", choices=POLICIES)
    rate: float = setting(0.05, above=0, at_most=1)
    warmup: int = setting(30, at_least=0)
    tau0: float | None = None
    tau0_relative: float | None = None
    switch_at: float | None = None
    budget: str | int = setting(
        "soft", at_least=0, choices=("soft", "hard"), words="soft, hard, or a number of questions"
    )
    pace: str | float = setting(
        "front",
        above=0,
        at_most=1,
        choices=("even", "front"),
        words="even, front, or a number above 0 and at most 1",
    )
    expected: int | None = setting(None, at_least=1)
    budget_seconds: float | None = setting(None, above=0)
    class_seconds: float | None = setting(None, above=0)
    order: str = setting("predict_first", choices=("predict_first", "ask_first"))
    undo: int = setting(100, at_least=0)
    recent: int = setting(100, at_least=0)


class AskSettings(Asking, TuneSettings):
    """For methods that tune prompts on each image and on a memory of labelled ones.

    Attributes:
        weight_ce: α, weight of the labelled memory's cross-entropy.
        weight_fine: γ, weight of its alignment to source statistics.
        align_labelled: To which: those of its "class", or of the "whole" source set (the paper's ablation).
        update_queried: Whether an image that is asked about takes its entropy step, too; if not, it is
            predicted at the prompts as they are.
        buffer: L, how many labelled images are kept.
        eviction: "balanced" (Algorithm 2), "random", "oldest" or "age_uncertainty".
        chunk: Memory entries per forward where prompts carry over; on a GPU two forwards run at once.
    """

    weight_ce: float = setting(1.0, at_least=0)
    weight_fine: float = setting(0.0, at_least=0)
    align_labelled: str = setting("class", choices=("class", "whole"))
    update_queried: bool = True
    buffer: int = setting(150, at_least=0)
    eviction: str = setting("balanced", choices=EVICTIONS)
    chunk: int = setting(40, at_least=1)


def reset_period(reset: str) -> int:
    """After how many images prompts go back; 0 for never.

    >>> reset_period("sample"), reset_period("every:20"), reset_period("never")
    (1, 20, 0)
    """
    if reset.startswith("every:"):
        return int(reset.removeprefix("every:"))
    return 1 if reset == "sample" else 0
