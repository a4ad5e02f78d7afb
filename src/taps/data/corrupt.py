"""Every corruption by name: our own, and fifteen after ImageNet-C behind `imagenet-c-like/`."""

from __future__ import annotations

from taps.data.filters import FILTERS, Corruption, Rng
from taps.data.imagenet_c import IMAGENET_C
from taps.errors import SettingsError
from taps.types import PixelArray

KINDS: dict[str, Corruption] = {**FILTERS, **IMAGENET_C}
"""Every corruption by name."""
ALL_C, BENCHMARK = "imagenet-c-like", "imagenet-c"


def corrupt(image: PixelArray, kind: str, severity: int, rng: Rng) -> PixelArray:
    """The image under one corruption.

    Args:
        image: Pixels, height × width × 3.
        kind: A name from `KINDS`.
        severity: 1 (slight) to 5 (heavy).
        rng: Where chance comes from; the kinds without chance leave it alone.

    >>> import numpy as np
    >>> grey = np.full((8, 8, 3), 100, np.uint8)
    >>> corrupt(grey, "invert", 5, np.random.default_rng(0))[0, 0].tolist()
    [155, 155, 155]
    """
    kind = named(kind)
    check_kind(kind, severity)
    return KINDS[kind](image, severity, rng)


def named(kind: str) -> str:
    """A corruption's name. The benchmark's own is taken, but is not what the corruption is called.

    >>> named("imagenet-c/fog"), named("sketch")
    ('imagenet-c-like/fog', 'sketch')
    """
    group, slash, rest = kind.partition("/")
    return f"{ALL_C}{slash}{rest}" if group == BENCHMARK else kind


def check_kind(kind: str, severity: int) -> None:
    """A sentence where there is no such corruption."""
    if kind not in KINDS:
        raise SettingsError(f"Unknown corruption {kind!r}: use mix, {ALL_C}, or some of {', '.join(KINDS)}.")
    if severity not in (1, 2, 3, 4, 5):
        raise SettingsError(f"A severity of {severity} is not possible; use 1 to 5.")


def kinds_of(text: str | None) -> tuple[str | None, ...]:
    """The corruptions that `--corrupt` names, one stream each: separated by commas, or all of a group.

    >>> kinds_of("sketch, imagenet-c/fog"), kinds_of(None), len(kinds_of("imagenet-c"))
    (('sketch', 'imagenet-c-like/fog'), (None,), 15)
    """
    if text is None:
        return (None,)
    names = [named(part.strip()) for part in text.split(",") if part.strip()]
    return tuple(kind for name in names for kind in (IMAGENET_C if name == ALL_C else (name,)))
