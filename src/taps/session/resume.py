"""Going on with a run that was stopped: which one, and whether it is still the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from taps.aliases import current
from taps.clip import Clip
from taps.data.sources import split_archive
from taps.errors import SettingsError, StateError
from taps.files import read_json
from taps.methods.registry import all_methods
from taps.session.options import RunOptions
from taps.session.record import EVENTS, SPEC
from taps.session.stream import Stream

FREE = ("folder", "limit", "device", "annotator")  # what a run may go on with otherwise than it began
SUMMARY = "summary.json"


def identity(clip: Clip, stream: Stream) -> dict[str, str]:
    """What must be the same for a run to go on: the weights; the images, their labels and their order."""
    return {"fingerprint": clip.fingerprint, "images": stream.digest()}


def check_identity(folder: Path, now: dict[str, Any]) -> None:
    """Refuse to go on with a run that was started with other weights or other images."""
    begun = read_json(folder / SPEC) if (folder / SPEC).is_file() else {}
    for name, told in (("fingerprint", "other weights"), ("images", "other images, labels or another order")):
        if name in begun and begun[name] != now[name]:
            raise StateError(
                f"The run in {folder} was started with {told} ({begun[name]}, now {now[name]}); "
                "give the same ones to continue, or start another with another --out."
            )


def stored_options(out: Path) -> RunOptions:
    """The options of the run in a folder."""
    if not (out / SPEC).is_file():
        raise StateError(f"{out} holds no run to continue; give the folder of one with --out.")
    spec = current(read_json(out / SPEC))
    known = {item.name for item in fields(RunOptions)}
    try:
        return RunOptions(**{name: value for name, value in spec["options"].items() if name in known})
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{out} holds no run of `taps run` ({error!r}); choose another --out.") from error


def check_plugins(folder: Path) -> None:
    """Refuse the run of a method that nobody has made known here.

    The folder says which plugin had it. Plugins are code, and a folder may come from anybody: no plugin is
    imported unless its user names it.
    """
    spec = read_json(folder / SPEC)
    named, method = spec.get("plugins"), spec.get("options", {}).get("method")
    if named and str(method).removesuffix("+") not in all_methods():
        again = " ".join(f"--plugin {name!r}" for name in named)
        raise SettingsError(
            f"The run in {folder} has the method {method!r} of a plugin, which is code and is not run "
            f"unasked; where you trust it, add {again}."
        )


def resumed_options(out: Path, options: RunOptions, given: Collection[str]) -> RunOptions:
    """The options a run was started with; a sentence where one that is given now contradicts them.

    Args:
        out: Folder of the run.
        options: As they are now.
        given: Names of those that somebody typed; the others are defaults and contradict nothing.
    """
    stored = stored_options(out)
    check_plugins(out)
    before, now = stored.plain(), options.plain()
    for name in given:
        if name in before and name not in FREE and now[name] != before[name]:
            raise SettingsError(
                f"The run in {out} was started with {_told(name, before[name])}, not "
                f"{_told(name, now[name])}; leave the option out to continue it, or choose another --out."
            )
    free = {name: getattr(options, name) for name in FREE if name in given}
    resumed = replace(stored, **free)
    place = Path(resumed.folder or "")
    if place.is_absolute() and not place.exists() and split_archive(place) is None:
        raise StateError(
            f"The images of the run in {out} were in {place}; say where they are now: "
            f"taps run FOLDER --resume --out {out}"
        )
    return resumed


def _told(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    flag = "--set" if name == "settings" else "" if name == "folder" else f"--{name}"
    shown = " ".join(f"{key}={part}" for key, part in value.items()) if isinstance(value, dict) else value
    return f"{flag} {shown}".strip() if value not in (None, {}) else f"no {flag}"


def last_run(below: Path, folder: str | None = None) -> Path:
    """The run below a folder that was worked on last; one that is not finished goes before others.

    Args:
        below: Where runs without --out are put.
        folder: Only runs over these images.
    """
    wanted = None if folder is None else RunOptions(folder).plain()["folder"]
    found = [spec.parent for spec in below.glob(f"*/{SPEC}")]
    if wanted is not None:
        found = [out for out in found if stored_options(out).folder == wanted]
    if not found:
        over = "" if folder is None else f" over {folder}"
        raise SettingsError(f"No run{over} in {below} can be continued; give its folder with --out.")
    return max(found, key=lambda out: (not (out / SUMMARY).is_file(), _touched(out)))


def _touched(out: Path) -> float:
    return max((out / name).stat().st_mtime for name in (EVENTS, SPEC) if (out / name).is_file())
