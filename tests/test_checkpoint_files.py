"""What a saved learner's files say, field by field, with a model and a state made by hand."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from taps.errors import DamagedError, StateError
from taps.files import read_json, read_tensors, write_json
from taps.learner import checkpoint
from taps.learner.checkpoint import INDEX, PREVIOUS
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats


def model(**changes: Any) -> Any:
    told = {
        "source": "some-model",
        "pretrained": "weights.pt",
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "config": SimpleNamespace(name="ViT-X"),
        "fingerprint": "f1",
    }
    return SimpleNamespace(**told | changes)


def state(seen: int = 3, seed: int = 5, **tensors: torch.Tensor) -> dict[str, Any]:
    inner = {"kind": "coop", "suffix": "{}."}
    values = {"seen": seen, "answered": 2, "method": "taps", "model": "f1", "seed": seed, "state": inner}
    return {"tensors": tensors, "values": values}


def statistics(count: int = 9) -> SourceStats:
    return SourceStats(
        layers=(0,),
        count=count,
        mean=torch.rand(1, 2, 3),
        variance=torch.rand(1, 2, 3),
        classes=("a",),
        class_counts=torch.tensor([count]),
        class_means=torch.rand(1, 1, 2, 3),
        class_variances=torch.rand(1, 1, 2, 3),
        model="f1",
        prompts="p",
    )


def names(directory: Path, pattern: str) -> set[str]:
    return {path.name for path in directory.glob(pattern)}


def test_the_index_says_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prompts = Prompts("coop", {"context": torch.ones(1)}, "{}.", "ViT-X", "f1", record={})
    settings = {"rate": 0.1, "prompts": prompts, "source": "stats", "other": Path("x"), "layers": (1, 2)}
    saved = state(a=torch.arange(3.0))
    checkpoint.save(tmp_path / "deep" / "er", saved, settings, model(), {"position": 7})
    index = read_json(tmp_path / "deep" / "er" / INDEX)
    (tensors,) = names(tmp_path / "deep" / "er", "state-*")
    assert tensors.startswith("state-3-2-")
    assert tensors.endswith(".safetensors")
    assert len(tensors) == len("state-3-2-12345678.safetensors")
    assert {name: value for name, value in index.items() if name not in ("checksum", "format")} == {
        "clip": {
            "source": "some-model",
            "pretrained": "weights.pt",
            "device": "cpu",
            "dtype": "bfloat16",
            "name": "ViT-X",
        },
        "settings": {
            "rate": 0.1,
            "prompts": None,
            "source": str(tmp_path / "stats"),
            "other": str(tmp_path / "x"),
            "layers": [1, 2],
        },
        "tensors": tensors,
        "source": None,
        "values": saved["values"],
        "extra": {"position": 7},
    }
    assert "\n" not in (tmp_path / "deep" / "er" / INDEX).read_text().rstrip("\n")
    found = checkpoint.read(tmp_path / "deep" / "er")
    assert found.state["values"] == saved["values"]
    assert found.state["tensors"]["a"].tolist() == [0, 1, 2]
    assert found.extra == {"position": 7}
    assert found.source is None
    assert found.directory == tmp_path / "deep" / "er"


def test_settings_come_back_as_they_were_given(tmp_path: Path) -> None:
    saved = state(**{"method.anchor.context": torch.ones(2), "other.method.anchor.x": torch.ones(1)})
    checkpoint.save(tmp_path, saved, {"layers": (1, 2), "prompts": "somewhere", "rate": 0.5}, model())
    settings = checkpoint.read(tmp_path).settings(model())
    assert settings["layers"] == (1, 2)
    assert settings["rate"] == 0.5
    assert set(settings) == {"layers", "prompts", "rate"}
    prompts = settings["prompts"]
    assert list(prompts.parameters) == ["context"]
    assert torch.equal(prompts.parameters["context"], torch.ones(2))
    assert (prompts.kind, prompts.suffix, prompts.record) == ("coop", "{}.", {})
    expected = Prompts("coop", dict(prompts.parameters), "{}.", "ViT-X", "f1", record={})
    assert vars(prompts) == vars(expected)
    checkpoint.save(tmp_path / "none", state(), {"prompts": "hand"}, model())
    assert checkpoint.read(tmp_path / "none").settings(model()) == {"prompts": "hand"}


def test_a_state_without_tensors_is_a_state(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, state(), {}, model())
    (name,) = names(tmp_path, "state-*")
    tensors, _ = read_tensors(tmp_path / name)
    assert {key: value.tolist() for key, value in tensors.items()} == {"empty": [0.0]}
    assert checkpoint.read(tmp_path).extra == {}


def test_statistics_are_written_once_and_removed_when_others_come(tmp_path: Path) -> None:
    first, second = statistics(), statistics(10)
    checkpoint.save(tmp_path, state(), {"source": first}, model())
    (name,) = names(tmp_path, "source-*")
    assert name == f"source-{first.fingerprint}.safetensors"
    before = (tmp_path / name).stat().st_mtime_ns, (tmp_path / name).stat().st_ino
    checkpoint.save(tmp_path, state(4), {"source": first}, model())
    assert ((tmp_path / name).stat().st_mtime_ns, (tmp_path / name).stat().st_ino) == before
    found = checkpoint.read(tmp_path)
    assert found.source is not None
    assert found.settings(model())["source"] is found.source
    assert torch.equal(found.source.mean, first.mean)
    for seen in (5, 6):
        checkpoint.save(tmp_path, state(seen), {"source": second}, model())
    assert names(tmp_path, "source-*") == {f"source-{second.fingerprint}.safetensors"}


def test_two_states_of_a_stream_are_kept_and_nothing_else(tmp_path: Path) -> None:
    for seen in (1, 2, 3):
        checkpoint.save(tmp_path, state(seen), {}, model())
        (tmp_path / "mine.safetensors").write_bytes(b"not ours")
    newest, before = (read_json(tmp_path / name) for name in (INDEX, PREVIOUS))
    assert (newest["values"]["seen"], before["values"]["seen"]) == (3, 2)
    assert names(tmp_path, "*.safetensors") == {newest["tensors"], before["tensors"], "mine.safetensors"}
    checkpoint.save(
        tmp_path, state(4, seed=6), {}, model()
    )  # another stream: nothing of the old one helps it
    assert names(tmp_path, "state-*") == {read_json(tmp_path / INDEX)["tensors"]}


@pytest.mark.parametrize("broken", ["index", "tensors", "format", "other"])
def test_a_damaged_newest_state_does_not_push_the_whole_one_out(tmp_path: Path, broken: str) -> None:
    for seen in (1, 2):
        checkpoint.save(tmp_path, state(seen), {}, model())
    index = read_json(tmp_path / INDEX)
    if broken == "index":
        (tmp_path / INDEX).write_text("{")
    elif broken == "tensors":
        (tmp_path / index["tensors"]).unlink()
    elif broken == "format":
        write_json(tmp_path / INDEX, index | {"format": 99})
    else:
        write_json(tmp_path / INDEX, index | {"values": index["values"] | {"seed": 77}})
    checkpoint.save(tmp_path, state(3), {}, model())
    kept = read_json(tmp_path / PREVIOUS)
    assert kept["values"]["seen"] == 1
    assert (tmp_path / kept["tensors"]).is_file()
    assert "\n" not in (tmp_path / PREVIOUS).read_text().rstrip("\n")


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match=r"/file/out cannot be written \("):
        checkpoint.save(tmp_path / "file" / "out", state(), {}, model())


def test_what_belongs_to_a_state_is_checked_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for seen in (1, 2):
        checkpoint.save(tmp_path, state(seen), {}, model(), {"mark": seen})

    def refuse_two(extra: dict[str, Any]) -> None:
        if extra["mark"] == 2:
            raise DamagedError("predictions are cut")

    with caplog.at_level(logging.WARNING, "taps"):
        assert checkpoint.read(tmp_path, refuse_two).extra == {"mark": 1}
    assert caplog.messages == ["predictions are cut; the state saved before it is used, of image 1."]

    def refuse_all(extra: dict[str, Any]) -> None:
        raise DamagedError("all is lost")

    with pytest.raises(StateError, match=r"does not hold a saved learner \(all is lost\)\.$"):
        checkpoint.read(tmp_path, refuse_all)


def test_half_of_a_state_is_none(tmp_path: Path) -> None:
    assert not checkpoint.exists(tmp_path)
    checkpoint.save(tmp_path, state(1), {}, model())
    assert checkpoint.exists(tmp_path)
    checkpoint.save(tmp_path, state(2), {}, model())
    (tmp_path / INDEX).unlink()
    assert checkpoint.exists(tmp_path)
    assert checkpoint.read(tmp_path).index["values"]["seen"] == 1
    (tmp_path / PREVIOUS).unlink()
    assert not checkpoint.exists(tmp_path)
    with pytest.raises(StateError, match="does not hold a saved learner"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize("form", [1, 99])
def test_another_format_is_named(tmp_path: Path, form: int) -> None:
    checkpoint.save(tmp_path, state(), {}, model())
    write_json(tmp_path / INDEX, read_json(tmp_path / INDEX) | {"format": form})
    with pytest.raises(StateError, match=f"format {form}"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize(("device", "asked"), [("cpu", "cpu"), ("cuda", None)])
def test_the_model_is_loaded_from_where_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, asked: str | None
) -> None:
    calls: list[tuple[Any, ...]] = []

    def load(*given: Any, **named: Any) -> str:
        calls.append((given, named))
        return "the model"

    monkeypatch.setattr(checkpoint, "load_clip", load)
    checkpoint.save(tmp_path, state(), {}, model(device=torch.device(device)))
    assert str(checkpoint.read(tmp_path).load_clip()) == "the model"
    wanted = {"pretrained": "weights.pt", "device": asked, "dtype": torch.bfloat16}
    assert calls == [(("some-model",), wanted)]


def test_a_model_of_no_name_is_asked_for(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, state(), {}, model(source=None))
    with pytest.raises(StateError, match=r"^The model 'ViT-X' of .* was not loaded by name; give clip=\.$"):
        checkpoint.read(tmp_path).load_clip()


def test_only_paths_and_statistics_are_written_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = {"source": "~/stats", "prompts": "maple", "place": Path("a/../b"), "off": None}
    checkpoint.save(tmp_path / "out", state(), settings, model())
    assert read_json(tmp_path / "out" / INDEX)["settings"] == {
        "source": str(tmp_path / "home" / "stats"),
        "prompts": "maple",
        "place": str(tmp_path / "b"),
        "off": None,
    }
