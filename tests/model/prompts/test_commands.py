"""`taps methods`, `taps stats`, `taps prompts` as a user types them."""

import json
import zipfile
from dataclasses import replace

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from taps.cli.lookup import app as look_up
from taps.cli.lookup import prompts
from taps.cli.train import stats_app
from taps.errors import PromptsError, SettingsError, StateError
from taps.methods.registry import list_methods
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats


def call(app, *arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_methods_lists_all_of_them():
    assert set(json.loads(call(look_up, "methods", "--json").output)) == set(list_methods())
    text = call(look_up, "methods").output
    assert all(name in text for name in list_methods())
    assert json.loads(call(look_up, "methods", "tpt", "--json").output)["lr"] == 5e-3
    with pytest.raises(SettingsError, match="Unknown method"):
        call(look_up, "methods", "tppt")


@pytest.fixture
def files(tmp_path, maple_prompts, picture):
    maple_prompts.save_pretrained(tmp_path / "prompts")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for i in range(6):
            Image.fromarray(picture(i)).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"{('cat', 'dog')[i % 2]}/{i}.png")
    return tmp_path


def collect(files, out, *more):
    source = ("--model", "tiny", "--prompts", files / "prompts", "--data", files / "images.zip")
    return call(stats_app, *source, "--out", files / out, *more)


def test_stats_and_merge(files, maple_prompts):
    assert "6 images, 2 classes" in collect(files, "a", "--per-class", "--precise").output
    found = SourceStats.load(files / "a")
    assert (found.count, found.classes, found.layers) == (6, ("cat", "dog"), (0, 1))
    assert found.prompts == maple_prompts.fingerprint
    assert not (files / "a.unfinished").exists()
    with pytest.raises(StateError, match="the same"):
        call(stats_app, "merge", files / "a", files / "a", "--out", files / "b")
    replace(found, count=4, merged=()).save(files / "other", None)
    assert "10 images" in call(stats_app, "merge", files / "a", files / "other", "--out", files / "b").output
    both = SourceStats.load(files / "b")
    assert torch.allclose(both.mean.double(), found.mean.double(), atol=1e-2)


def test_stats_that_cannot_be_made_are_refused(files):
    collect(files, "a")
    with pytest.raises(SettingsError, match="exists already"):
        collect(files, "a")
    with pytest.raises(SettingsError, match="--layers"):
        collect(files, "b", "--layers", "one")
    with pytest.raises(SettingsError, match="0 to 3"):
        collect(files, "b", "--layers", "7")
    with pytest.raises(SettingsError, match="--data"):
        call(stats_app, "--model", "tiny", "--out", files / "b")
    with pytest.raises(StateError, match="source statistics"):
        call(stats_app, "merge", files / "a", files / "images.zip", "--out", files / "b")
    assert not (files / "b").exists()


def test_import_and_show(tmp_path, tiny):
    torch.save({"ctx": torch.ones(4, 48)}, tmp_path / "m")
    arguments = ("import", tmp_path / "m", "--model", "tiny", "--out", tmp_path / "out")
    with pytest.raises(PromptsError, match="does not say where the class name stood"):
        call(prompts, *arguments, "--kind", "coop")
    call(prompts, *arguments, "--kind", "coop", "--position", "end")
    assert Prompts.from_pretrained(tmp_path / "out").kind == "coop"
    shown = json.loads(call(prompts, "show", tmp_path / "out", "--json").output)
    assert (shown["base"], shown["numbers"]) == ("tiny", 192)
    assert "kind: coop" in call(prompts, "show", tmp_path / "out").output
    with pytest.raises(SettingsError, match="exists already"):
        call(prompts, *arguments, "--kind", "coop")


def test_a_checkpoint_of_another_kind_writes_nothing(tmp_path):
    torch.save({"ctx": torch.ones(4, 48)}, tmp_path / "m")
    with pytest.raises(PromptsError):
        call(
            prompts,
            "import",
            tmp_path / "m",
            "--model",
            "tiny",
            "--kind",
            "maple",
            "--out",
            tmp_path / "o",
        )
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
