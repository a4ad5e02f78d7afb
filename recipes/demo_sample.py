"""Make the sample that comes with the package from a zip of Caltech 101's test images.

    python recipes/demo_sample.py caltech101-test.zip \
        packages/pocket/src/taps_pocket/images/caltech101-sample.zip
    python recipes/demo_sample.py caltech101-test.zip tests/assets/caltech101-even.zip \
        --classes 20 --each 22 --short-side 64 --quality 70

The second is for the tests: as many images of each of the largest classes, to train on some of them and to
measure on the rest. The zip holds `class/image`; the choice of classes and of images is seeded, so the same
zip gives the same sample.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from taps.data import Dataset, load_dataset

FIXED_DATE = (2025, 1, 1, 0, 0, 0)  # so that the zip has the same bytes whenever it is made


def choose(dataset: Dataset, classes: int, images: int, seed: int) -> list[int]:
    """Indices of `images` images from `classes` classes, at least four of each."""
    rng = np.random.default_rng(seed)
    of_class: dict[int, list[int]] = {}
    for index, sample in enumerate(dataset.samples):
        if sample.label is not None:
            of_class.setdefault(sample.label, []).append(index)
    ample = sorted(label for label, found in of_class.items() if len(found) >= 8)
    chosen = rng.choice(ample, size=classes, replace=False)
    picked: list[int] = []
    rest: list[int] = []
    for label in sorted(chosen):
        # No class may be more than a twentieth of the stream: three of Caltech's are a quarter of it.
        found = rng.permutation(of_class[int(label)])[: images // 20]
        picked += found[:4].tolist()
        rest += found[4:].tolist()
    return sorted(picked + rng.permutation(rest)[: images - len(picked)].tolist())


def choose_evenly(dataset: Dataset, classes: int, each: int, seed: int) -> list[int]:
    """Indices of `each` images of each of the largest classes."""
    rng = np.random.default_rng(seed)
    labels = np.array([-1 if sample.label is None else sample.label for sample in dataset.samples])
    counts = np.bincount(labels[labels >= 0], minlength=len(dataset.classes))
    largest = np.argsort(-counts, kind="stable")[:classes]
    return sorted(
        int(index)
        for label in sorted(largest)
        for index in rng.choice(np.flatnonzero(labels == label), size=each, replace=False)
    )


def shrink(data: bytes, short_side: int, quality: int) -> bytes:
    """The image with its short side at most this long, as WebP."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    scale = min(1.0, short_side / min(picture.size))
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, format="WEBP", quality=quality, method=6)
    # A second compression that saves nothing would only lose detail.
    return min(buffer.getvalue(), data, key=len) if scale == 1.0 else buffer.getvalue()


def main() -> None:
    """Read the arguments and write the zip."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--classes", type=int, default=48)
    parser.add_argument("--images", type=int, default=360)
    parser.add_argument("--each", type=int, help="so many of each of the largest classes")
    parser.add_argument("--short-side", type=int, default=96)
    parser.add_argument("--quality", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dataset = load_dataset(args.source)
    chosen = (
        choose_evenly(dataset, args.classes, args.each, args.seed)
        if args.each
        else choose(dataset, args.classes, args.images, args.seed)
    )
    with zipfile.ZipFile(args.target, "w", zipfile.ZIP_STORED) as archive:
        for index in chosen:
            member = zipfile.ZipInfo(str(Path(dataset.samples[index].path).with_suffix(".webp")), FIXED_DATE)
            archive.writestr(member, shrink(dataset.read(index), args.short_side, args.quality))
    print(f"{args.target}: {args.target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
