"""`recipes/results.py` from zips to its page, with the tiny model."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from pathlib import Path

import label
import numpy as np
import pytest
import results
import results_page
from label import read_rows

from taps.errors import DataError

METHODS = ["zero_shot", "view_ensemble", "tda", "linear_probe", "zero_shot+", "view_ensemble+"]


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    """Two sets, encoded as the recipe says."""
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("features")
    for name in ("dtd", "rsscn7"):
        with zipfile.ZipFile(data / f"{name}.zip", "w") as packed:
            for file in sorted(pictures.rglob("*.png")):
                packed.write(file, file.relative_to(pictures))
    words = ["encode", "--data", str(data), "--out", str(out), "--model", "tiny", "--views", "2"]
    given = label.parser().parse_args([*words, "--limit", "20"])
    for name in ("dtd", "rsscn7"):
        label.encode_one(name, given)
    return out


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "feature_methods", lambda clip, text_tuners: METHODS)
    monkeypatch.setattr(results, "RATES", (0.01, 0.05))
    monkeypatch.setattr(results, "RULES", ("random", "margin"))
    monkeypatch.setattr(results, "STREAMS", ("class after class",))
    monkeypatch.setattr(results, "commit", lambda: "abc")
    monkeypatch.setattr(results_page, "RESAMPLES", 200)
    results_page.weights.cache_clear()


def run(features: Path, out: Path, *more: str) -> None:
    words = ["run", "--features", str(features), "--out", str(out), "--model", "tiny", "--views", "2"]
    results.main([*words, "--sets", "dtd,rsscn7", "--orders", "2", *more])


def test_from_zips_to_the_page(
    small: None, features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(features, tmp_path / "out", "--seconds", "0")
    assert "streams to run, about" in capsys.readouterr().out  # said beforehand
    assert read_rows(tmp_path / "out" / "rows.jsonl") == []
    run(features, tmp_path / "out")
    rows = read_rows(tmp_path / "out" / "rows.jsonl")
    assert len({results.key(row) for row in rows}) == len(rows)
    plain = [row for row in rows if not row["situation"] and row["stateless"]]
    assert {row["order"] for row in plain} == {0}  # once for all orders
    run(features, tmp_path / "out")
    assert len(read_rows(tmp_path / "out" / "rows.jsonl")) == len(rows)
    results.main(
        ["page", "--out", str(tmp_path / "out"), "--docs", str(tmp_path / "docs"), "--model", "tiny"]
    )
    page = (tmp_path / "docs" / "results.md").read_text()
    assert len(page.split()) <= 1000
    assert page.count("| --- |") + page.count("|---|") <= 6
    assert "Commit abc" in page
    held = json.loads((tmp_path / "docs" / "results.json").read_text())
    assert set(held["origin"]["digests"]) == {*METHODS, "dota"}
    lines = list(csv.DictReader((tmp_path / "docs" / "results.csv").read_text().splitlines()))
    usual = [row for row in rows if (row["method"], row["situation"]) == ("zero_shot", "")]
    (line,) = [x for x in lines if (x["method"], x["situation"]) == ("zero_shot", "")]
    assert float(line["accuracy"]) == pytest.approx(np.mean([row["accuracy"] for row in usual]), rel=1e-4)
    assert re.search(r"`view_ensemble\+` \(\d", page)


def test_rows_of_another_commit_are_refused(small: None, features: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"commit": "old", "seconds": 1.0, "method": "tda"}) + "\n"
    )
    with pytest.raises(DataError, match="old"):
        run(features, tmp_path)


def test_an_interval_over_images_and_orders_is_that_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    differences = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=(3, 50))
    differences[0, :5] = np.nan
    drawn = results_page.resampled(differences)
    plain = []
    for _ in range(4000):
        orders, images = rng.integers(3, size=3), rng.integers(50, size=50)
        plain.append(np.nanmean(differences[orders][:, images]))
    assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx(np.quantile(plain, [0.025, 0.975]), abs=0.03)


def test_holm_corrects_as_the_procedure_says() -> None:
    assert results_page.holm([0.01, 0.04, 0.02]) == pytest.approx([0.03, 0.04, 0.04])
    assert results_page.holm([0.5, 0.6]) == [1.0, 1.0]
