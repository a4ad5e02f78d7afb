"""What many tests share: small models, one set of prompts, small pictures. Fixtures only."""

from __future__ import annotations

import re
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from PIL import Image

from taps import load_clip
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.maple import Maple
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec
from taps.types import PixelArray

# A shared machine may be slow at any moment: no test depends on time. And what passed once passes again: the
# examples are the same every time. Others are tried with `--hypothesis-profile explore`.
UNCHECKED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("taps", deadline=None, derandomize=True, suppress_health_check=UNCHECKED)
settings.register_profile("explore", settings.get_profile("taps"), derandomize=False)
# For mutants: what kills one need not be made small.
settings.register_profile("mutants", settings.get_profile("taps"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("taps")


def pytest_configure() -> None:
    """Started in the background by a script, a process ignores Ctrl-C; tests that send it need it heard."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line what was skipped, and which command brings it."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(skips_line([str(report.longrepr[2]) for report in skipped]))


def skips_line(reasons: list[str]) -> str:
    """One line for all reasons: packages to install make one command, the rest is counted."""
    plain = [reason.removeprefix("Skipped: ") for reason in reasons]
    wanted = [re.search(r"apt-get install ([\w-]+)", reason) for reason in plain]
    packages = Counter(found[1] for found in wanted if found)
    rest = Counter(reason for reason, found in zip(plain, wanted, strict=True) if not found)
    line = f"Skipped: {len(plain)}."
    if packages:
        line += f" `apt-get install {' '.join(sorted(packages))}` brings {packages.total()} of them."
    if rest:
        reasons = [f"{count} × {reason}" for reason, count in rest.most_common()]
        line += f" {'The rest' if packages else 'Why'}: {', '.join(reasons)}."
    return line


def pytest_runtest_setup() -> None:
    """What a test draws from torch is the same whichever tests ran before it."""
    torch.manual_seed(0)


def pytest_itemcollected(item: Any) -> None:
    """Tell mutmut 3.8 a test's name where it looks for it."""
    item._nodeid = item.nodeid


@pytest.fixture(scope="session")
def tiny() -> Clip:
    """The tiny random model, float32, on the CPU."""
    return load_clip("tiny", device="cpu")


@pytest.fixture(scope="session")
def tiny64() -> Clip:
    """The same in double precision, for comparisons to the last digits."""
    return load_clip("tiny", device="cpu", dtype=torch.float64)


@pytest.fixture(scope="session")
def maple_prompts(tiny: Clip) -> Prompts:
    """MaPLe prompts of random values: nothing in them is zero or symmetric."""
    return Maple().initial(tiny, torch.Generator().manual_seed(11))


@pytest.fixture(scope="session")
def picture() -> Callable[[int], PixelArray]:
    """A small picture for each number, coarse enough to survive being resized."""

    def make(number: int) -> PixelArray:
        rng = np.random.default_rng(number)
        blocks = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)
        return blocks.repeat(8, axis=0).repeat(8, axis=1)

    return make


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of eight noisy pictures each."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for name in ("ant", "bee", "cat"):
        (root / name).mkdir()
        for i in range(8):
            Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


@pytest.fixture
def make_job(pictures: Path) -> Callable[..., Job]:
    """A run of the tiny model on the pictures; every image is asked about unless said otherwise."""

    def make(method: str = "taps", seed: int = 1, root: Path = pictures, **changes: Any) -> Job:
        asks = {"views": 4, "policy": "fixed", "tau0": 0.0, "buffer": 5} if method == "taps" else {}
        settings = changes.pop("settings", asks)
        return Job(
            StreamSpec(str(root), name="pictures"), ModelSpec("tiny"), method, seed, settings, **changes
        )

    return make


@pytest.fixture
def disk_room() -> Callable[[int], AbstractContextManager[None]]:
    """As good as a disk with little room: no file can grow beyond so many bytes."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)

    return limited
