"""A run's rows as files for other tools (CSV, FiftyOne, Label Studio), and labels read back from them.

FiftyOne's files are those of its type `FiftyOneImageClassificationDataset`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import quoteattr

from taps.data import Dataset, manifest
from taps.data.dataset import Sample
from taps.disk import check_table, claim
from taps.errors import DataError, StateError
from taps.files import csv_line, json_text, read_json, write_text
from taps.streams.record import SPEC, read_predictions, read_rows
from taps.streams.row import Row

FIELDS = ("predictions", "questions", "answers")
"""FiftyOne: each is one file of labels, to be merged into a field of the same name."""
CONTROL, IMAGE = "class", "image"
LOCAL = "/data/local-files/?d="


def read_run(folder: str | Path) -> list[Row]:
    """The images of a run (`taps run`), in stream order; with full paths where they come from a folder."""
    folder = Path(folder)
    try:
        spec, rows, cells = read_json(folder / SPEC), read_rows(folder), read_predictions(folder)
    except (OSError, StateError) as error:
        raise DataError(f"{folder} is not the folder of a run ({error}).") from error
    images = Path(spec["options"]["folder"])
    base = images if images.is_dir() else images.parent if images.suffix in (".csv", ".jsonl") else None
    known = {int(row["t"]) for row in cells}
    return [replace(row, name=str(base / row.name) if base else row.name) for row in rows if row.seq in known]


def with_labels(dataset: Dataset, answers: Mapping[str, str]) -> Dataset:
    """The same images with other labels; those without an answer lose theirs.

    Args:
        dataset: The images.
        answers: Class of each image, by its path: in full, or the end of it, as long as one image has it.
    """
    keys = [sample.path for sample in dataset.samples]
    places = {name: index for index, name in enumerate(dataset.classes)}
    found: dict[int, int] = {}
    for path, label in answers.items():
        if label not in places:
            raise DataError(f"{path} is labelled {label!r}, which is not one of the {len(places)} classes.")
        found[_find_key(path, keys)] = places[label]
    samples = (replace(sample, label=found.get(index)) for index, sample in enumerate(dataset.samples))
    return replace(dataset, samples=tuple[Sample, ...](samples))


def _find_key(path: str, keys: list[str]) -> int:
    """The image of a data set that a path means: that with the longest common end, if it is one only."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    for length in range(len(parts), 0, -1):
        tail = "/".join(parts[-length:])
        found = [index for index, key in enumerate(keys) if key == tail or key.endswith("/" + tail)]
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(f"{path} could be {len(found)} images; give more of its path.")
    raise DataError(f"{path} is not one of the {len(keys)} images.")


def write_csv(file: str | Path, rows: Iterable[Row]) -> None:
    """One row an image: path, label (the annotator's answer), predicted, probability, asked."""
    columns = "path,label,predicted,probability,asked"
    lines = [
        csv_line((each.name, each.answer or "", each.label, each.probability, int(each.asked)))
        for each in rows
    ]
    text = "".join([f"{columns}\n", *lines])
    write_text(Path(file), text, lambda path: check_table(path, re.compile(columns)))


def read_csv(file: str | Path) -> dict[str, str]:
    """Label of each image by its path; rows without a label are left out."""
    rows = manifest.read_rows(Path(file))
    if rows and not {"path", "label"} <= rows[0].keys():
        raise DataError(f"{file} has no columns path and label, only {', '.join(rows[0])}.")
    return {row["path"]: row["label"] for row in rows if row["label"]}


def write_fiftyone(folder: str | Path, rows: Sequence[Row]) -> None:
    """Write `data.json`, which names the images, and a file of labels for each of `FIELDS`.

    Questions are labelled "asked" or "not asked"; answers are the annotator's.
    """
    folder = Path(folder)
    claim(folder)
    ids = [f"{number:07d}" for number in range(len(rows))]
    paths = {id + Path(each.name).suffix: each.name for id, each in zip(ids, rows, strict=True)}
    write_text(folder / "data.json", json_text(paths))
    labels: dict[str, dict[str, Any]] = {field: {} for field in FIELDS}
    for id, each in zip(ids, rows, strict=True):
        labels["predictions"][id] = {"label": each.label, "confidence": each.probability}
        labels["questions"][id] = {"label": "asked" if each.asked else "not asked"}
        if each.answer:
            labels["answers"][id] = {"label": each.answer}
    for field, found in labels.items():
        write_text(folder / f"{field}.json", json_text({"classes": None, "labels": found}))


def read_fiftyone(labels: str | Path, data: str | Path | None = None) -> dict[str, str]:
    """Class of each image by its path, from a file of labels.

    Args:
        labels: `labels.json` of an export, or a file of `write_fiftyone`.
        data: The `data.json` that names the images; that beside the labels unless given. Without one, images
            are in the folder `data` beside the labels and called by their names without the ending.
    """
    labels = Path(labels)
    found = _read_fiftyone(labels)
    names = Path(data) if data is not None else labels.parent / "data.json"
    if names.is_file():
        named_by = _read_fiftyone(names)  # with the ending of the file, or as FiftyOne writes it, without
        paths = {str(Path(name).with_suffix("")): path for name, path in named_by.items()} | named_by
    else:
        base = labels.parent / "data"
        files = [path for path in sorted(base.rglob("*")) if path.is_file()]
        paths = {str(path.relative_to(base).with_suffix("")): str(path) for path in files}
    named = {id: _class_name(value, found.get("classes")) for id, value in found.get("labels", {}).items()}
    lost = [id for id, name in named.items() if name and id not in paths]
    if lost:
        raise DataError(f"{labels} labels {lost[0]!r}, which no image is called; give the data.json of it.")
    return {str(paths[id]): name for id, name in named.items() if name}


def _class_name(value: Any, classes: Sequence[str] | None) -> str:
    value = value.get("label") if isinstance(value, dict) else value
    if isinstance(value, int) and classes:
        return str(classes[value])
    return "" if value is None else str(value)


def _read_fiftyone(path: Path) -> dict[str, Any]:
    found = _parse(path)
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no labels of a FiftyOneImageClassificationDataset.")
    return found


def _parse(file: str | Path) -> Any:
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}).") from error


def label_config(classes: Sequence[str]) -> str:
    """Label Studio's labelling interface for a project: one image, one class."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in classes)
    return (
        f'<View>\n  <Image name="{IMAGE}" value="${IMAGE}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{IMAGE}" choice="single" showInline="true">\n'
        f"{choices}  </Choices>\n</View>\n"
    )


TASK = {"data", "meta", "predictions", "annotations"}


def write_label_studio(file: str | Path, rows: Iterable[Row], *, root: str | Path = "/") -> None:
    """Write a JSON file of Label Studio tasks, with predictions and with the answers there are.

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
    write_text(Path(file), json_text(tasks, indent=1) + "\n", _is_tasks)


def _is_tasks(file: Path) -> bool:
    """Whether a file is what `write_label_studio` wrote, and not what Label Studio made of it."""
    try:
        tasks = json.loads(file.read_bytes())
        return all(task.keys() <= TASK and task["meta"].keys() == {"asked"} for task in tasks)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _result(label: str) -> list[dict[str, Any]]:
    return [{"from_name": CONTROL, "to_name": IMAGE, "type": "choices", "value": {"choices": [label]}}]


def read_label_studio(file: str | Path) -> dict[str, str]:
    """Class of each image by its path, from an export as JSON or JSON-MIN.

    The last annotation of a task counts; skipped ones do not.
    """
    tasks = _parse(file)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise DataError(f"{file} is no list of Label Studio's tasks: export the project as JSON.")
    found = {_path(task): _choice(task) for task in tasks}
    return {path: label for path, label in found.items() if label}


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
