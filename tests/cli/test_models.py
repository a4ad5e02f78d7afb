"""`taps models`: what is listed, what is fetched, what is imported."""

import hashlib
import json
import socket

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from taps import load_clip
from taps.cli import lookup
from taps.errors import SettingsError, WeightsError
from taps.model.clip import hub
from taps.model.clip.config import pretrained

LAION = "laion/CLIP-ViT-g-14-laion2B-s12B-b42K"


def call(*arguments):
    return CliRunner().invoke(lookup.models, [str(each) for each in arguments], catch_exceptions=False).output


def test_every_published_model_is_listed_with_its_size():
    rows = {row["name"]: row for row in json.loads(call("--json"))}
    assert rows.keys() == pretrained().keys()
    assert rows["ViT-B-32"]["parameters"] == "151 M"
    assert rows["ViT-bigG-14"]["parameters"] == "2,540 M"
    assert "dfn5b" in rows["ViT-H-14"]["pretrained"]
    assert "ViT-B-16-SigLIP2" in call()


def test_show_gives_the_steps_without_a_network():
    told = call("show", "ViT-B-16-SigLIP2")
    assert "hf download timm/ViT-B-16-SigLIP2 open_clip_model.safetensors" in told
    assert "tokenizer.json tokenizer_config.json" in told
    assert "224 pixels, squash, bicubic" in told
    assert "texts are run whole" in told
    told = call("show", "ViT-H-14", "--pretrained", "dfn5b")
    assert "--model ViT-H-14-quickgelu --pretrained DIR/open_clip_model.safetensors" in told
    assert "--model ViT-H-14-gelu" in call("show", "ViT-H-14", "--pretrained", "laion2b_s32b_b79k")
    assert "hf download" in call("show", "ViT-B-16-quickgelu")
    assert "made of convolutions" in call("show", "MobileCLIP2-S0")
    with pytest.raises(WeightsError, match="Unknown model 'nonsense'"):
        call("show", "nonsense")


def tiny_weights():
    return {name: value.detach().clone() for name, value in load_clip("tiny").named_parameters()}


def test_an_imported_file_leaves_no_question(tmp_path):
    save_file(tiny_weights(), tmp_path / "some.safetensors")
    call("import", tmp_path / "some.safetensors", "--model", "tiny-quickgelu", "--out", tmp_path / "model")
    clip = load_clip(tmp_path / "model", device="cpu")
    assert clip.config.activation == "quick_gelu"
    assert clip.config.name == "tiny"
    same = load_clip("tiny-quickgelu", pretrained=tmp_path / "some.safetensors", device="cpu")
    assert clip.fingerprint == same.fingerprint
    assert torch.equal(clip.encode_text(["cat"]), same.encode_text(["cat"]))
    with pytest.raises(SettingsError, match="exists already"):
        call("import", tmp_path / "some.safetensors", "--model", "tiny", "--out", tmp_path / "model")
    config = tmp_path / "model" / "taps_config.json"
    config.write_text(config.read_text().replace('"quick_gelu"', '"gelu"'))
    with pytest.raises(WeightsError, match=r"is damaged .*make it again with `taps models import`"):
        load_clip(tmp_path / "model", device="cpu")


def test_a_file_that_does_not_fit_writes_nothing(tmp_path):
    save_file({"logit_scale": torch.zeros(())}, tmp_path / "some.safetensors")
    with pytest.raises(WeightsError, match="missing keys"):
        call("import", tmp_path / "some.safetensors", "--model", "tiny", "--out", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def fake_hub(monkeypatch, tmp_path, files, damaged=False):
    """A hub that has some files, stored in a cache under their checksums as the hub's client does."""
    errors = pytest.importorskip("huggingface_hub.errors")
    asked = []

    def download(repository, file, *, local_files_only):
        asked.append((repository, file))
        if (repository, file) not in files:
            raise errors.EntryNotFoundError("none")
        content = files[repository, file]
        blob = tmp_path / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content[:-1] + b"!" if damaged else content)
        link = tmp_path / "snapshots" / file
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(blob)
        return str(link)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr(hub, "_reachable", lambda: True)
    monkeypatch.setattr(hub, "OPEN_CLIP_CACHE", tmp_path / "clip")
    return asked


def test_pull_takes_the_file_there_is_and_compares_its_checksum(tmp_path, monkeypatch):
    files = {(LAION, "open_clip_pytorch_model.bin"): b"weights"}
    asked = fake_hub(monkeypatch, tmp_path, files)
    told = call("pull", "ViT-g-14")
    assert "open_clip_pytorch_model.bin" in told
    assert "checksum right" in told
    assert [file for _, file in asked] == ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    fake_hub(monkeypatch, tmp_path, files, damaged=True)
    with pytest.raises(WeightsError, match="damaged"):
        call("pull", "ViT-g-14")


def test_pull_uses_what_open_clip_has_fetched(tmp_path, monkeypatch):
    asked = fake_hub(monkeypatch, tmp_path, {})
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "ViT-B-16.pt").write_bytes(b"weights")
    assert f"sha256 {hashlib.sha256(b'weights').hexdigest()}" in call("pull", "ViT-B-16")
    assert asked == []


def test_without_a_network_the_cache_is_searched_for_every_name_of_the_weights(tmp_path, monkeypatch):
    """A repository may have the older of two files alone, and nobody can be asked which."""
    errors = pytest.importorskip("huggingface_hub.errors")

    def download(repository, file, *, local_files_only):
        if (repository, file, local_files_only) == (LAION, "open_clip_pytorch_model.bin", True):
            return str(tmp_path / "model.bin")
        raise errors.LocalEntryNotFoundError("no network")

    (tmp_path / "model.bin").write_bytes(b"weights")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr(hub, "_reachable", lambda: True)
    assert "model.bin" in call("pull", "ViT-g-14")
    with pytest.raises(WeightsError, match="`taps models show RN50x4` gives the steps"):
        call("pull", "RN50x4")
    with pytest.raises(WeightsError, match=r"needs config\.json, preprocessor_config\.json and one of model"):
        call("pull", "some/repository")


@pytest.mark.parametrize(
    ("refused", "proxies", "tried"), [(True, {}, []), (True, {"https": "x:1"}, [True]), (False, {}, [True])]
)
def test_who_cannot_be_reached_is_not_tried_again_and_again(monkeypatch, refused, proxies, tried):
    """The hub's client would wait longer and longer, for half a minute in all, before it gives up."""
    constants = pytest.importorskip("huggingface_hub.constants")
    asked = []

    def download(repository, file, *, local_files_only):
        asked.extend([] if local_files_only else [True])
        raise OSError("no network")

    def connect(address, timeout):
        assert address == ("hub.example", 443)
        if refused:
            raise socket.gaierror("Name or service not known")
        return socket.socket()

    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("taps.model.clip.hub.getproxies", lambda: proxies, raising=False)
    with pytest.raises(WeightsError, match="`taps models show RN50x4` gives the steps"):
        call("pull", "RN50x4")
    assert asked == tried


def test_a_file_that_cannot_be_had_is_named_with_all_others(tmp_path, monkeypatch):
    fake_hub(monkeypatch, tmp_path, {})
    with pytest.raises(WeightsError) as caught:
        call("pull", "ViT-B-16-SigLIP2")
    for needed in ("timm/ViT-B-16-SigLIP2", "open_clip_model.safetensors", "tokenizer.json"):
        assert needed in str(caught.value)
