"""Images are sorted into a folder for each class; uncertain ones apart."""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from taps.data.dataset import Dataset
from taps.data.sources import FolderSource
from taps.errors import DataError, SettingsError
from taps.session.options import SortOptions
from taps.session.record import read_predictions

UNSURE = "not-sure"


def place_of(dataset: Dataset, key: str) -> Path | None:
    """Where an image lies on the disk; None where it is inside a zip."""
    source = dataset.source
    return (source.base / key).absolute() if isinstance(source, FolderSource) else None


def check_sorting(folder: str | Path | None, options: SortOptions) -> None:
    """Refuse to sort into the folder that the images come from: the copies would be images of it, too."""
    if options.sort_into is None or folder is None:
        return
    images, into = Path(folder).expanduser().resolve(), options.sort_into.resolve()
    if into == images or images in into.parents:
        raise SettingsError(f"--sort-into {into} is inside the folder of images; choose one outside of it.")


def sort_all(dataset: Dataset, images: Iterable[tuple[str, str, float]], options: SortOptions) -> None:
    """Sort images, by path, class and probability; copies in the folder of an earlier class are removed."""
    if options.sort_into is None:
        return
    before: defaultdict[str, list[Path]] = defaultdict(list)
    for folder in (options.sort_into, options.sort_into / UNSURE):
        for file in folder.glob("*/*"):
            before[file.name].append(file)
    for key, label, probability in images:
        target = sort_image(dataset, key, label, probability, options)
        assert target is not None
        for file in before[target.name]:
            if file != target and _same(file, target):
                file.unlink()


def _same(one: Path, other: Path) -> bool:
    """Whether two files are links to one file, or have the same bytes."""
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    return one.is_file() and filecmp.cmp(one, other, shallow=False)


def sort_image(
    dataset: Dataset, key: str, label: str, probability: float, options: SortOptions
) -> Path | None:
    """Copy one image, or link to it, into the folder of its class; where it is now.

    Subfolders become part of its name, so that none replaces another. Without --sort-into it does nothing.
    """
    if options.sort_into is None:
        return None
    into = options.sort_into / UNSURE if probability < options.sure else options.sort_into
    folder = into / folder_name(label)
    target = folder / _flat(key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = place_of(dataset, key)
        if place is not None and place.name == target.name and folder.samefile(place.parent):
            return target  # it lies there already
        target.unlink(missing_ok=True)
        if place is None:
            target.write_bytes(dataset.source.read(key))
        elif options.link:
            os.symlink(place, target)
        else:
            shutil.copy2(place, target)
    except OSError as error:
        raise DataError(f"{target} cannot be written ({error.strerror}); choose another folder.") from error
    return target


def sort_run(folder: Path, dataset: Dataset, options: SortOptions) -> None:
    """Sort all images of a run: by the answer, or by the last prediction."""

    def known(row: dict[str, str]) -> tuple[str, str, float]:
        if row["asked"] == "1" and row["label"]:
            return row["path"], row["label"], 1.0
        if row.get("final"):
            return row["path"], row["final"], float(row["final_probability"])
        return row["path"], row["predicted"], float(row["probability"])

    sort_all(dataset, map(known, read_predictions(folder)), options)


def _flat(key: str) -> str:
    """A path as a file's name; a digest tells paths apart that would get the same one.

    >>> _flat("cats/1.png"), _flat("cats__1.png"), _flat("a_b.png")
    ('cats__1.png', 'cats__1-fc660761.png', 'a_b.png')
    """
    name = key.replace("/", "__")
    if not any(unclear in key for unclear in ("__", "_/", "/_")):
        return name
    stem, dot, suffix = name.rpartition(".")
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{stem}-{digest}{dot}{suffix}" if stem else f"{name}-{digest}"


def folder_name(label: str) -> str:
    """A class's folder: its name without characters that lead elsewhere or that file systems refuse.

    >>> folder_name("golden retriever"), folder_name("../../etc"), folder_name("con/aux"), folder_name("..")
    ('golden retriever', '_.._etc', 'con_aux', '_')
    """
    plain = re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", label).strip(" ")
    plain = re.sub(r"^\.+", "", plain).rstrip(".")
    return plain[:120] or "_"
