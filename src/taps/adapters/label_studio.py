"""Tasks of Label Studio: questions out, with what was predicted; people's annotations back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import quoteattr

from taps.errors import DataError
from taps.files import write_json
from taps.session.row import Row

CONTROL, IMAGE = "class", "image"
LOCAL = "/data/local-files/?d="


def label_config(classes: Sequence[str]) -> str:
    """The labelling interface for a project: one image, one class."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in classes)
    return (
        f'<View>\n  <Image name="{IMAGE}" value="${IMAGE}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{IMAGE}" choice="single" showInline="true">\n'
        f"{choices}  </Choices>\n</View>\n"
    )


def write_label_studio(file: str | Path, rows: Iterable[Row], *, root: str | Path = "/") -> None:
    """A JSON file of tasks to import: what was predicted, and where there is one, the answer.

    Args:
        file: Where to.
        rows: Images; to send questions alone, choose those with `asked` and no `answer`.
        root: The folder Label Studio serves files from (`LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT`).
    """
    tasks = []
    for each in rows:
        place = Path(each.name)
        inside = place.relative_to(root) if place.is_relative_to(root) else place
        prediction = {"result": _result(each.label), "score": each.probability, "model_version": "taps"}
        task: dict[str, Any] = {
            "data": {IMAGE: LOCAL + quote(inside.as_posix()), "path": each.name},
            "meta": {"asked": each.asked},
            "predictions": [prediction],
        }
        if each.answer:
            task["annotations"] = [{"result": _result(each.answer)}]
        tasks.append(task)
    write_json(Path(file), tasks)


def read_label_studio(file: str | Path) -> dict[str, str]:
    """Class of each image by its path, from an export as JSON or JSON-MIN.

    The last annotation of a task counts; those that were skipped do not.
    """
    try:
        tasks = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}).") from error
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise DataError(f"{file} is no list of Label Studio's tasks: export the project as JSON.")
    found = {_path(task): _choice(task) for task in tasks}
    return {path: label for path, label in found.items() if label}


def _result(label: str) -> list[dict[str, Any]]:
    return [{"from_name": CONTROL, "to_name": IMAGE, "type": "choices", "value": {"choices": [label]}}]


def _path(task: dict[str, Any]) -> str:
    data = task.get("data", task)  # JSON-MIN has the data beside the labels
    if "path" in data:
        return str(data["path"])
    address = urlsplit(str(data.get(IMAGE, "")))
    local = parse_qs(address.query).get("d")
    return local[0] if local else str(PurePosixPath(unquote(address.path)))


def _choice(task: dict[str, Any]) -> str:
    if "annotations" not in task:
        return str(task.get(CONTROL) or "")
    done = [each for each in task["annotations"] if not each.get("was_cancelled")]
    results = done[-1].get("result", []) if done else []
    choices = [each["value"]["choices"] for each in results if each.get("type") == "choices"]
    return str(choices[0][0]) if choices and choices[0] else ""
