"""What was found while a copy of a data set was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taps.data.dataset import Sample
from taps.data.names import shown


@dataclass(frozen=True)
class Finding:
    """Something about a copy of a data set.

    Attributes:
        level: `error` where it cannot be loaded rightly, `wrong` where it loads but is not the set that
            published numbers are from, `note` for what does no harm.
        text: One sentence.
        count: How many files, rows or folders it is about.
    """

    level: str
    text: str
    count: int = 1


@dataclass
class Survey:
    """What was found while a set was looked at.

    Attributes:
        findings: All there is to say.
        root: The folder the images are in.
        classes: Readable class names.
        samples: The images that are there and rightly labelled.
        skipped: Files that are no images.
    """

    findings: list[Finding] = field(default_factory=list)
    root: Path | None = None
    classes: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)
    skipped: int = 0

    def say(self, level: str, text: str, count: int = 1) -> None:
        """Add a finding."""
        self.findings.append(Finding(level, text, count))

    def say_which(self, level: str, text: str, which: Sequence[str], most: int = 5) -> None:
        """Add a finding about some files, rows or folders, and name the first of them; none, no finding."""
        if which:
            self.say(level, f"{text}: {shown(which, most)}.", len(which))
