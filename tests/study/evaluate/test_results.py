"""Results read back: only what can be compared is compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from taps.errors import DataError, SettingsError
from taps.files import write_json
from taps.study.evaluate.results import read_results
from tests.made_up import made_up_folder


def test_runs_are_cut_to_what_all_have(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), n=50)
    path = tmp_path / "runs/pets/taps/2/predictions.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:31]) + "\n")
    results = read_results(tmp_path)
    assert {len(result.run) for runs in results.results.values() for result in runs} == {30}
    assert max(result.whole for result in results.of("pets", "taps")) == 50


def test_runs_over_other_images_are_refused(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "tpt", "taps"), n=50)
    path = tmp_path / "runs/pets/tpt/2/predictions.csv"
    header, first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, second, first, *rest]))
    with pytest.raises(DataError, match="did not see the same images of pets in the same order"):
        read_results(tmp_path)


def test_seeds_that_a_method_lacks_are_dropped_for_all(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "tpt", "taps"))
    (tmp_path / "runs/pets/tpt/3/row.json").unlink()
    results = read_results(tmp_path)
    for method in ("zero_shot", "tpt", "taps"):
        assert [result.seed for result in results.of("pets", method)] == [1, 2]
    assert results.dropped == 2


def test_a_method_without_common_seeds_is_left_out_alone(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2))
    made_up_folder(tmp_path, methods=("tpt",), seeds=(7,))
    results = read_results(tmp_path)
    assert results.methods == ["zero_shot", "taps"]
    assert results.dropped == 1


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, methods=("zero_shot", "taps")))
    pair = results.paired("pets", "taps", "zero_shot")
    assert pair is not None
    mine, base = ([r.top1 for r in results.of("pets", m)] for m in ("taps", "zero_shot"))
    assert pair.difference == pytest.approx(sum(a - b for a, b in zip(mine, base, strict=True)) / 3)


def test_other_images_cannot_be_paired(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), n=20)
    path = tmp_path / "runs/pets/taps/1/predictions.csv"
    path.write_text(path.read_text().replace("/3.jpg", "/99.jpg"))
    with pytest.raises(DataError, match="same images"):
        read_results(tmp_path).paired("pets", "taps", "zero_shot")


def test_unfinished_runs_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1,))
    noted = [{"dataset": "pets", "method": "tpt", "seed": s, "why": "time"} for s in (1, 2)]
    noted.append({"dataset": "pets", "method": "taps", "seed": 1, "why": "was to be longer"})
    file = tmp_path / "unfinished.json"
    write_json(file, {"runs": noted})
    assert read_results(tmp_path).missing() == ["Unfinished: tpt on pets, seed 1, 2: time."]
    file.write_text(file.read_text().replace('"tpt"', '"tda"'))
    assert read_results(tmp_path).missing() == []
    assert f"{file} is damaged (its checksum does not match); unfinished runs are not listed" in caplog.text


def test_only_some_methods_and_sets(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, datasets=("pets", "dtd")))
    part = results.only(("zero_shot", "taps"), ("dtd",))
    assert (part.datasets, part.methods) == (["dtd"], ["zero_shot", "taps"])


def test_folders_without_results_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results"):
        read_results(tmp_path)
    made_up_folder(tmp_path, methods=("taps",), seeds=(1,))
    with pytest.raises(SettingsError, match="'zero_shot' has no results"):
        read_results(tmp_path)
    (tmp_path / "runs/pets/taps/1/row.json").unlink()
    with pytest.raises(DataError, match="No run in"):
        read_results(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    made_up_folder(tmp_path, methods=("zero_shot",), seeds=(1,))
    (tmp_path / "runs/pets/zero_shot/1/run.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        read_results(tmp_path)
