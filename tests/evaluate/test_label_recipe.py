"""recipes/label.py on a miniature zip: stored features are the images', streams over them the methods'."""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

import taps
from taps.data import load_dataset
from taps.learner import Learner

RECIPES = Path(__file__).parents[2] / "recipes"
CLASSES = ("field", "forest", "river")
VIEWS = 4


@pytest.fixture
def label(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The recipe as a module, its workers as threads; it takes one thread of torch's, which is put back."""
    monkeypatch.syspath_prepend(str(RECIPES))
    import label as recipe

    monkeypatch.setattr(recipe, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    threads = torch.get_num_threads()
    yield recipe
    torch.set_num_threads(threads)


@pytest.fixture
def features(label: ModuleType, tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "rsscn7.zip", "w") as archive:
        for place in range(24):
            buffer = io.BytesIO()
            colour = np.eye(3)[place % 3] * 150
            pixels = (colour + rng.integers(0, 100, (40, 36, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(buffer, format="PNG")
            archive.writestr(f"{CLASSES[place % 3]}/{place}.png", buffer.getvalue())
    given = argparse.Namespace(model="tiny", views=VIEWS, limit=None, out=tmp_path, data=tmp_path)
    label.encode_one("rsscn7", given)
    return label.feature_file("rsscn7", tmp_path, VIEWS)


def job(method: str, **settings: object) -> dict[str, object]:
    return {
        "set": "rsscn7",
        "order": 1,
        "method": method,
        "settings": settings,
        "noise": 0.0,
        "sorted": False,
    }


def test_a_stream_of_stored_features_is_a_stream_of_images(label, features, tmp_path):
    """Zero-shot and the views' mean say what learners say of the images themselves, one by one."""
    clip, dataset = taps.load_clip("tiny", device="cpu"), load_dataset(tmp_path / "rsscn7.zip")
    for method, settings in (("zero_shot", {}), ("view_ensemble", {"views": VIEWS, "fraction": 0.5})):
        learner = Learner(clip, dataset.classes, method, **settings)
        right = [
            int(learner.method.predict(label.view(clip, dataset, index, VIEWS)).probs.argmax())
            == sample.label
            for index, sample in enumerate(dataset.samples)
        ]
        row = label.run_stream(job(method, **settings), str(features), "tiny")
        assert row["accuracy"] == pytest.approx(100 * np.mean(right))
        assert row["images"] == len(dataset)
    assert np.load(features)["features"].shape == (24, VIEWS, clip.config.embed_dim)


def test_every_method_of_the_plans_runs(label, features):
    views = {"views": VIEWS, "fraction": 0.5}
    for method in {plan["method"] for plan in label.plans()} - {"probe", "zero_shot", "view_ensemble"}:
        settings = {} if method == "neighbours" else {"rate": 0.25}
        settings |= {} if method == "zero_shot+" else views
        settings |= {"prompts": "hand"} if method == "taps+" else {}
        row = label.run_stream(job(method, **settings), str(features), "tiny")
        assert row["asked"] == (0 if method == "neighbours" else pytest.approx(6, abs=2)), method
    told = label.run_stream(job("probe", rate=0.25), str(features), "tiny")
    assert told["asked"] == 6


def test_a_stopped_run_goes_on(label, features, tmp_path, monkeypatch):
    """No plan is begun after the time is over; the next run does what is left."""
    plans = [plan | {"set": "rsscn7"} for plan in label.plans(VIEWS) if plan["method"] == "zero_shot"][:1]
    monkeypatch.setattr(label, "plans", lambda views: iter(plans))
    given = argparse.Namespace(
        model="tiny", views=VIEWS, out=tmp_path, orders=5, only="", jobs=1, seconds=-1.0
    )
    label.run_all(given)
    assert label.read_rows(tmp_path / "rows.jsonl") == []
    given.seconds = 60.0
    for _ in range(2):
        label.run_all(given)
        (row,) = label.read_rows(tmp_path / "rows.jsonl")
    assert row["method"] == "zero_shot"


def test_situations_are_what_they_are_called(label):
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 50))
    streams = {
        situation: labels[label.stream_of(labels, job("") | {"situation": situation, "limit": 100})]
        for situation in label.SITUATIONS
    }
    assert len(set(streams["few classes"])) == 3
    whole = labels[label.stream_of(labels, job("") | {"situation": "one class mostly"})]
    assert sorted(np.bincount(whole))[-1] == 50
    assert len(whole) == 62
    assert (np.diff(streams["class after class"]) != 0).sum() == len(set(streams["class after class"])) - 1
    assert (streams["wrong"] == streams[""]).all()


def test_the_page_of_tables_is_what_its_rows_say(label, tmp_path):
    """Rows of 0.2 name settings and questions otherwise; they are read all the same."""
    from label_page import write_page

    kept = RECIPES.parent / "docs" / "results"
    page = (kept / "label-tables.md").read_text(encoding="utf-8")
    made = page.split("` at ")[1].split(".\n")[0]
    write_page(kept / "label", tmp_path, label.read_rows, made)
    assert (tmp_path / "results" / "label-tables.md").read_text(encoding="utf-8") == page
