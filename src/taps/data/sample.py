"""The images that come with the package: small parts of Caltech 101 and of the Sign Language Digits."""

from __future__ import annotations

from pathlib import Path

from taps.data.corrupt import corrupt_dataset
from taps.data.dataset import Dataset
from taps.data.folder import load_folder
from taps.model.embedded import embedded

CORRUPTIONS = ("gaussian_noise", "gaussian_blur", "contrast", "sketch")


def bundled_sample() -> Path:
    """The zip of the Caltech 101 sample; ATTRIBUTION.md beside it names the authors."""
    return embedded("images/caltech101-sample.zip")


def sign_digits() -> Dataset:
    """400 pictures of hands that show a digit, 40 of each: a set on which labels help much.

    >>> len(sign_digits()), sign_digits().classes[:3]
    (400, ('eight', 'five', 'four'))
    """
    return load_folder(embedded("images/sign-digits-sample.zip"), "sign-digits")


def demo_dataset() -> Dataset:
    """The bundled sample with a third of the images corrupted, always in the same way.

    >>> data = demo_dataset()
    >>> sum(sample.note != "" for sample in data.samples) * 3 == len(data)
    True
    """
    clean = load_folder(bundled_sample(), "caltech101-sample")
    return corrupt_dataset(clean, CORRUPTIONS, severity=3, seed=2025, fraction=1 / 3)
