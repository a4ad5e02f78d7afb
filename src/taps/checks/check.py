"""`check_method`: any method, a user's own too, put through the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taps.checks.contract import CHECKS, ContractError, Factory, Harness, answer, made_up_images


@dataclass(frozen=True)
class Report:
    """What `check_method` saw.

    Attributes:
        checks: Names of the checks passed.
        images: Length of the stream.
        asked: Questions in it. Where there are none, nothing was found out about learning from labels.
        bytes: What the learner held at the end of a stream three times as long.
    """

    checks: tuple[str, ...]
    images: int
    asked: int
    bytes: int


def check_method(
    factory: Factory, *, images: Sequence[Any] | None = None, length: int = 12, tolerance: float = 0.0
) -> Report:
    """Put a method through the contract; the first breach is an error that says what was wrong.

    Args:
        factory: `factory(seed=0)` makes a fresh learner. Let its memory be small, so that it is full before
            the stream ends, and let it ask often: `buffer=4, recent=4, policy="fixed", tau0=0.0`.
        images: Decodable images to stream, again from the first after the last; made up when not given.
        length: How many images a stream has.
        tolerance: How far two runs may differ in a probability. 0 on a CPU; accelerators may need more.

    Raises:
        ContractError: With a sentence about the first breach.

    >>> import taps
    >>> clip = taps.load_clip("tiny")
    >>> report = check_method(lambda seed: taps.Learner(clip, ["cat", "dog"], "zero_shot", seed=seed))
    >>> report.asked, len(report.checks)
    (0, 11)
    """
    harness = Harness(
        factory, list(images) if images is not None else made_up_images(length), length, tolerance
    )
    first = harness.stream(answer)
    for name, check in CHECKS.items():
        try:
            check(harness, first)
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(f"In the check {name!r} the method failed with {error!r}.") from error
    asked = sum(prediction.ask for prediction in first)
    return Report(tuple(CHECKS), length, asked, harness.bytes)
