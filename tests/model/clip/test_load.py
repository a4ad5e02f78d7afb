"""Weights from every layout there is, and what is refused."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from taps import load_clip
from taps.errors import SettingsError, TapsError, WeightsError
from taps.model.clip import Clip, ClipConfig, config, hub
from taps.model.clip.config import builtin_config
from taps.model.clip.formats import openai_config
from taps.model.clip.keys import dequantise
from taps.model.clip.load import find_device, find_dtype
from taps.model.clip.model import count_parameters, initialise
from taps.model.clip.tokenizer import CLIP_TOKENIZER
from taps.model.clip.weights import build, fingerprint

CONFIG = ClipConfig(
    name="small",
    embed_dim=16,
    image_size=32,
    patch_size=16,
    vision_width=128,
    vision_layers=2,
    vision_heads=2,
    text_width=64,
    text_layers=3,
    text_heads=1,
    context_length=77,
    vocab_size=49408,
    activation="quick_gelu",
    mean=builtin_config("ViT-B-32").mean,
    std=builtin_config("ViT-B-32").std,
)
Write = Callable[[dict[str, Tensor], Path], Path]


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """OpenAI's key names; every value random, biases and norms too."""
    clip = initialise(Clip(CONFIG), torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(6)
    return {
        name: value.detach() + 0.05 * torch.randn(value.shape, generator=generator)
        for name, value in clip.named_parameters()
    }


def hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under Hugging Face's names, with the index buffers of old files."""
    renamed: dict[str, Tensor] = {
        "logit_scale": state["logit_scale"],
        "text_model.embeddings.token_embedding.weight": state["token_embedding.weight"],
        "text_model.embeddings.position_embedding.weight": state["positional_embedding"],
        "text_model.embeddings.position_ids": torch.arange(77)[None],
        "text_projection.weight": state["text_projection"].T,
        "vision_model.embeddings.class_embedding": state["visual.class_embedding"],
        "vision_model.embeddings.patch_embedding.weight": state["visual.conv1.weight"],
        "vision_model.embeddings.position_embedding.weight": state["visual.positional_embedding"],
        "vision_model.embeddings.position_ids": torch.arange(5)[None],
        "visual_projection.weight": state["visual.proj"].T,
    }
    for part in ("weight", "bias"):
        renamed[f"text_model.final_layer_norm.{part}"] = state[f"ln_final.{part}"]
        renamed[f"vision_model.pre_layrnorm.{part}"] = state[f"visual.ln_pre.{part}"]
        renamed[f"vision_model.post_layernorm.{part}"] = state[f"visual.ln_post.{part}"]
        for tower, old, layers in (("text", "", 3), ("vision", "visual.", 2)):
            for index in range(layers):
                new = f"{tower}_model.encoder.layers.{index}"
                block = f"{old}transformer.resblocks.{index}"
                joined = state[f"{block}.attn.in_proj_{part}"].chunk(3)
                for letter, value in zip("qkv", joined, strict=True):
                    renamed[f"{new}.self_attn.{letter}_proj.{part}"] = value
                for theirs, ours in (
                    ("self_attn.out_proj", "attn.out_proj"),
                    ("layer_norm1", "ln_1"),
                    ("layer_norm2", "ln_2"),
                    ("mlp.fc1", "mlp.c_fc"),
                    ("mlp.fc2", "mlp.c_proj"),
                ):
                    renamed[f"{new}.{theirs}.{part}"] = state[f"{block}.{ours}.{part}"]
    return {name: value.contiguous().clone() for name, value in renamed.items()}


def hf_directory(state: dict[str, Tensor], folder: Path) -> Path:
    folder.mkdir()
    save_file(hugging_face(state), folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "clip",
                "projection_dim": 16,
                "text_config": {
                    "hidden_size": 64,
                    "intermediate_size": 256,
                    "num_hidden_layers": 3,
                    "num_attention_heads": 1,
                    "hidden_act": "quick_gelu",
                },
                "vision_config": {
                    "hidden_size": 128,
                    "intermediate_size": 512,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 2,
                    "image_size": 32,
                    "patch_size": 16,
                    "hidden_act": "quick_gelu",
                },
            }
        )
    )
    return folder


def hf_shards(state: dict[str, Tensor], folder: Path) -> Path:
    hf_directory(state, folder)
    (folder / "model.safetensors").unlink()
    weights = hugging_face(state)
    where = {name: f"model-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(weights)}
    for file in set(where.values()):
        save_file({name: value for name, value in weights.items() if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


def hf_bin(state: dict[str, Tensor], folder: Path) -> Path:
    hf_directory(state, folder)
    (folder / "model.safetensors").unlink()
    torch.save(hugging_face(state), folder / "pytorch_model.bin")
    return folder


def open_clip_words(**vision: object) -> dict[str, Any]:
    """What open_clip writes beside weights of this model."""
    return {
        "model_cfg": {
            "embed_dim": 16,
            "quick_gelu": True,
            "vision_cfg": {"image_size": 32, "layers": 2, "width": 128, "patch_size": 16, **vision},
            "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 3},
        },
        "preprocess_cfg": {"mean": list(CONFIG.mean), "std": list(CONFIG.std)},
    }


def open_clip_directory(state: dict[str, Tensor], folder: Path, words: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    save_file(state, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(words or open_clip_words()))
    return folder


def open_clip_training_checkpoint(state: dict[str, Tensor], folder: Path) -> Path:
    folder.mkdir()
    nested = {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in state.items()}}
    torch.save(nested, folder / "open_clip_pytorch_model.bin")
    (folder / "open_clip_config.json").write_text(json.dumps(open_clip_words()))
    return folder


def own_directory(state: dict[str, Tensor], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(state, folder / "model.safetensors")
    (folder / "taps_config.json").write_text(json.dumps(CONFIG.to_dict()))
    return folder


class Holder(nn.Module):
    """Holds parameters under dotted names, as a scripted CLIP does."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


def openai_archive(state: dict[str, Tensor], folder: Path) -> Path:
    """A TorchScript archive like OpenAI's: half-precision matrices, and three numbers as buffers."""
    folder.mkdir()
    root = Holder()
    for name, value in state.items():
        *path, last = name.split(".")
        module: nn.Module = root
        for part in path:
            if part not in dict(module.named_children()):
                module.add_module(part, Holder())
            module = dict(module.named_children())[part]
        half = value.ndim > 1 and "embedding" not in name
        module.register_parameter(last, nn.Parameter(value.half() if half else value, requires_grad=False))
    for name, number in (("input_resolution", 32), ("context_length", 77), ("vocab_size", 49408)):
        root.register_buffer(name, torch.tensor(number))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(root).save(str(folder / "small.pt"))
    return folder / "small.pt"


@pytest.mark.parametrize(
    "write",
    [
        hf_directory,
        hf_bin,
        hf_shards,
        open_clip_directory,
        open_clip_training_checkpoint,
        own_directory,
        openai_archive,
    ],
)
def test_every_layout_gives_the_same_model(weights: dict[str, Tensor], tmp_path: Path, write: Write) -> None:
    clip = load_clip(write(weights, tmp_path / "model"), device="cpu")
    assert replace(clip.config, name="small") == CONFIG
    loaded = dict(clip.named_parameters())
    assert loaded.keys() == weights.keys()
    for name, value in weights.items():
        halved = write is openai_archive and value.ndim > 1 and "embedding" not in name
        assert torch.equal(loaded[name], value.half().float() if halved else value), name
    assert clip.encode_text(["cat", "dog"]).shape == (2, 16)
    assert clip.encode_image(torch.zeros(1, 3, 32, 32)).shape == (1, 16)


def test_all_layouts_and_half_precision_have_one_fingerprint(
    weights: dict[str, Tensor], tmp_path: Path
) -> None:
    writers = (hf_directory, hf_bin, open_clip_directory, own_directory, openai_archive)
    names = {
        load_clip(write(weights, tmp_path / write.__name__), device="cpu").fingerprint for write in writers
    }
    assert len(names) == 1
    assert fingerprint({name: value.half() for name, value in weights.items()}) in names
    changed = {**weights, "ln_final.bias": weights["ln_final.bias"] + 0.01}
    assert fingerprint(changed) not in names
    clip = load_clip(tmp_path / "hf_directory", device="cpu", dtype=torch.bfloat16)
    assert clip.fingerprint in names


def test_an_architecture_by_name_takes_a_file(tmp_path: Path, tiny: Clip) -> None:
    """Heads of 24 or 32 cannot be told from the weights; the architecture's name tells them."""
    file = tmp_path / "tiny.safetensors"
    save_file({name: value.detach().clone() for name, value in tiny.named_parameters()}, file)
    loaded = load_clip("tiny", pretrained=file, device="cpu")
    assert loaded.config == tiny.config
    assert torch.equal(loaded.encode_text(["cat", "dog"]), tiny.encode_text(["cat", "dog"]))
    with pytest.raises(WeightsError, match=r"number of heads; .* as pretrained: tiny would fit"):
        load_clip(file)


def test_a_bare_file_that_fits_nothing_is_asked_about(weights: dict[str, Tensor], tmp_path: Path) -> None:
    for state in (weights, hugging_face(weights)):
        save_file(state, tmp_path / "bare.safetensors")
        with pytest.raises(WeightsError, match=r"does not say what model it is of; .* config.json"):
            load_clip(tmp_path / "bare.safetensors")


def test_a_bare_resnet_is_known_by_its_shapes() -> None:
    with torch.device("meta"):
        made = Clip(builtin_config("RN50x4"))
    read = openai_config(dict(made.named_parameters()), name="RN50x4")
    assert read == replace(builtin_config("RN50x4"), activation="quick_gelu")


def small_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    """`small` and `small-H`, as if they had been published with either activation."""
    sizes = {key: value for key, value in CONFIG.to_dict().items() if key not in ("name", "activation")}
    monkeypatch.setitem(config.architectures(), "small", sizes)
    tags = {"laion": {"repo": "a/b"}, "openai": {"repo": "a/c", "activation": "quick_gelu"}}
    monkeypatch.setitem(config.pretrained(), "small", tags)


@pytest.mark.parametrize("write", [torch.save, save_file, "numbers"])
def test_the_activation_of_a_bare_file_is_asked_for(
    weights: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    """OpenAI's, MetaCLIP's and DFN's weights want QuickGELU, LAION's GELU, and the file may not say."""
    small_architectures(monkeypatch)
    file = tmp_path / ("bare.safetensors" if write is save_file else "bare.pt")
    if write == "numbers":  # OpenAI's own numbers were kept: no question is left
        torch.save({**weights, "input_resolution": torch.tensor(32)}, file)
        assert load_clip("small", pretrained=file, device="cpu").config == replace(CONFIG)
        assert load_clip(file, device="cpu").config.activation == "quick_gelu"
        return
    write(weights, file)
    with pytest.raises(WeightsError, match=r"small-quickgelu for weights of OpenAI.* small-gelu for others"):
        load_clip("small", pretrained=file)
    with pytest.raises(WeightsError, match=r"as pretrained: small-quickgelu, small-gelu would fit"):
        load_clip(file)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    quick, plain = (load_clip(f"small-{end}", pretrained=file, device="cpu") for end in ("quickgelu", "gelu"))
    assert (quick.config.activation, plain.config.activation) == ("quick_gelu", "gelu")
    assert quick.config == CONFIG
    assert not torch.allclose(quick.encode_image(images), plain.encode_image(images), atol=1e-3)


def test_an_open_clip_directory_is_read_to_the_last_word(weights: dict[str, Tensor], tmp_path: Path) -> None:
    """Heads are not 64 wide everywhere, and each model has its own way with pixels."""
    words = open_clip_words(head_width=32)
    words["model_cfg"]["quick_gelu"] = False
    words["preprocess_cfg"] = {
        "mean": [0.5, 0.4, 0.3],
        "std": [0.2, 0.3, 0.4],
        "interpolation": "bilinear",
        "resize_mode": "squash",
    }
    read = load_clip(open_clip_directory(weights, tmp_path / "model", words), device="cpu").config
    assert (read.vision_heads, read.text_heads, read.activation) == (4, 1, "gelu")
    assert (read.mean, read.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    assert read.framing == {"size": 32, "resize": "squash", "interpolation": "bilinear"}


@pytest.mark.parametrize(
    ("tower", "change", "said"),
    [
        ("vision_cfg", {"attentional_pool": True}, "attentional_pool=True"),
        ("vision_cfg", {"pool_type": "avg"}, "pools by 'avg'"),
        ("vision_cfg", {"timm_model_name": "vitamin_small"}, "timm's vitamin_small"),
        ("text_cfg", {"hf_model_name": "roberta-base"}, "hf_model_name='roberta-base'"),
        ("text_cfg", {"pool_type": "first"}, "pools by 'first'"),
        ("text_cfg", {"embed_cls": True}, "embed_cls=True"),
    ],
)
def test_open_clip_models_of_another_kind_are_refused_by_what_sets_them_apart(
    weights: dict[str, Tensor], tmp_path: Path, tower: str, change: dict[str, object], said: str
) -> None:
    words = open_clip_words()
    words["model_cfg"][tower].update(change)
    with pytest.raises(WeightsError, match=re.escape(said)):
        load_clip(open_clip_directory(weights, tmp_path / "model", words))


def test_a_hugging_face_directory_says_how_pixels_are_prepared(
    weights: dict[str, Tensor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = hf_directory(weights, tmp_path / "model")
    load_clip(folder, device="cpu")
    assert "no preprocessor_config.json" in caplog.text
    pixels = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.5, 0.5], "resample": 2}
    pixels |= {"size": {"height": 32, "width": 32}, "do_center_crop": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels))
    read = load_clip(folder, device="cpu").config
    assert (read.mean, read.std) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert (read.resize, read.interpolation) == ("squash", "bilinear")
    pixels |= {"size": {"shortest_edge": 32}, "do_center_crop": True, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels))
    read = load_clip(folder, device="cpu").config
    assert (read.resize, read.interpolation) == ("shortest", "bicubic")


def test_files_of_timm_beside_those_of_open_clip_are_left_alone(
    weights: dict[str, Tensor], tmp_path: Path
) -> None:
    """Its repositories have the image tower alone in the file and the layout that transformers would use."""
    folder = open_clip_directory(weights, tmp_path / "both")
    save_file({"blocks.0.norm1.weight": torch.ones(3)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architecture": "vit_base_patch16_clip_224"}))
    assert load_clip(folder, device="cpu").fingerprint == fingerprint(weights)


def test_every_named_architecture_is_as_large_as_it_says() -> None:
    for name in config.architectures():
        sizes = builtin_config(name)
        assert config.architectures()[name]["parameters"] == count_parameters(sizes), name
        assert sizes.vision_projection or sizes.embed_dim == sizes.vision_width, name


def test_every_published_name_is_of_a_known_architecture() -> None:
    for name, tags in config.pretrained().items():
        for tag in tags:
            found = hub.published(name, tag)
            assert found.repository.count("/") == 1
            assert (found.tokenizer is None) == (found.config.tokenizer == "clip")
    assert hub.published("ViT-B-16", None).config.activation == "quick_gelu"
    assert hub.published("ViT-B-16", "datacomp_xl_s13b_b90k").config.activation == "gelu"
    assert hub.published("ViT-H-14", "dfn5b").config.resize == "squash"
    assert hub.published("ViT-L-14", "laion2b_s32b_b82k").config.mean == (0.5, 0.5, 0.5)
    heads = {name: builtin_config(name).vision_heads for name in ("ViT-H-14", "ViT-g-14", "ViT-bigG-14")}
    assert heads == {"ViT-H-14": 16, "ViT-g-14": 16, "ViT-bigG-14": 16}


def test_a_model_too_large_for_the_device_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("taps.model.clip.load.CONTAINER_LIMITS", (tmp_path / "max", tmp_path / "none"))
    (tmp_path / "max").write_text(f"{2**29}\n")
    with pytest.raises(WeightsError, match=r"ViT-B-32 takes 0\.6 GB in float32, and cpu has 0\.5 GB"):
        load_clip("ViT-B-32", pretrained="random", device="cpu")
    (tmp_path / "max").write_text("max\n")  # no limit
    monkeypatch.setattr(
        "taps.model.clip.load.os.sysconf", lambda name: 1000
    )  # a thousand pages of a thousand
    with pytest.raises(WeightsError, match=r"ViT-B-32 takes 0\.6 GB in float32, and cpu has 0\.0 GB"):
        load_clip("ViT-B-32", pretrained="random", device="cpu")


class SinglePrecision(TorchDispatchMode):
    """Counts the numbers in single precision that operations of torch hold at once; views hold none."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        before = [each.untyped_storage() for each in args if isinstance(each, Tensor)]
        if isinstance(made, Tensor) and made.dtype == torch.float32 and made.device.type == "cpu":
            storage = made.untyped_storage()
            if not any(storage is each for each in before):
                self.change(storage.nbytes() // 4)
                weakref.finalize(storage, self.change, -storage.nbytes() // 4)
        return made

    def change(self, numbers: int) -> None:
        self.held += numbers
        self.most = max(self.most, self.held)


@pytest.mark.parametrize("form", ["random", "safetensors", "pt"])
def test_halves_are_made_without_the_whole_in_single_precision(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {key: value for key, value in CONFIG.to_dict().items() if key not in ("name", "activation")}
    monkeypatch.setitem(config.architectures(), "small", {**sizes, "vocab_size": 500})
    monkeypatch.setattr("taps.model.clip.load.CLIP_TOKENIZER", replace(CLIP_TOKENIZER, size=500))
    monkeypatch.setitem(config.pretrained(), "small", {"here": {"repo": "a/b"}})
    with SinglePrecision() as counted:
        whole = load_clip("small", pretrained="random", device="cpu")
    state = {name: value.clone() for name, value in whole.named_parameters()}
    largest, total = (pick(value.numel() for value in state.values()) for pick in (max, sum))
    assert counted.most >= total > 4 * largest  # the whole would be seen
    given: str | Path = form
    if form != "random":
        given = tmp_path / f"whole.{form}"
        (save_file if form == "safetensors" else torch.save)(state, given)
    with SinglePrecision() as counted:
        half = load_clip("small", pretrained=given, device="cpu", dtype=torch.bfloat16)
    assert counted.most < 2.5 * largest
    for name, value in half.named_parameters():
        kept = torch.float32 if name == "logit_scale" else torch.bfloat16
        assert value.dtype == kept
        assert torch.equal(value, state[name].to(kept)), name


def test_int8_rows_come_back(weights: dict[str, Tensor], tmp_path: Path) -> None:
    """Rows of whole numbers and one scale for each: matrices, convolutions, nothing else."""
    packed: dict[str, Tensor] = {}
    for name, value in weights.items():
        if value.ndim < 2:
            packed[name] = value.half()
            continue
        scale = value.flatten(1).abs().amax(dim=1) / 127
        rows = scale.reshape(-1, *[1] * (value.ndim - 1))
        packed[name] = (value / rows).round().to(torch.int8)
        packed[f"{name}.scale"] = scale
    clip = load_clip(own_directory(packed, tmp_path / "packed"), device="cpu")
    for name, value in clip.named_parameters():
        step = weights[name].flatten(1).abs().amax(dim=1).max() / 127 if value.ndim > 1 else 2e-3
        assert (value - weights[name]).abs().max() <= 0.51 * step + 1e-6, name
    assert dequantise(packed).keys() == weights.keys()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("ln_final.bias"), "missing keys: ln_final.bias"),
        (lambda s: s.update(extra=torch.zeros(1)), "unknown keys: extra"),
        (lambda s: s.update({"ln_final.bias": torch.zeros(3)}), r"ln_final.bias is \(3,\), not \(64,\)"),
        (lambda s: s["ln_final.bias"].fill_(float("nan")), "not finite in ln_final.bias"),
        (lambda s: s["text_projection"][0].fill_(float("inf")), "not finite in text_projection"),
        (
            lambda s: s.update({"ln_final.bias": torch.zeros(64, dtype=torch.int8)}),
            "ln_final.bias is torch.int8",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_their_keys(
    weights: dict[str, Tensor], tmp_path: Path, change: Callable[[dict[str, Tensor]], None], said: str
) -> None:
    state = {name: value.clone() for name, value in weights.items()}
    change(state)
    with pytest.raises(WeightsError, match=said):
        load_clip(own_directory(state, tmp_path / "bad"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("visual.conv1.weight"), "'visual.conv1.weight' is missing"),
        (lambda s: s.update({"visual.conv1.weight": torch.zeros(128)}), "too few dimensions"),
    ],
)
def test_archives_that_hold_no_clip_are_refused(
    weights: dict[str, Tensor], tmp_path: Path, change: Callable[[dict[str, Tensor]], None], said: str
) -> None:
    state = {**weights, "input_resolution": torch.tensor(32)}
    change(state)
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(WeightsError, match=said):
        load_clip(tmp_path / "bad.pt")


def test_many_wrong_keys_are_counted_not_listed(weights: dict[str, Tensor]) -> None:
    state = {**weights, **{f"extra.{index:02}": torch.zeros(1) for index in range(30)}}
    with pytest.raises(WeightsError, match=r"extra.00, .*extra.07 and 22 more"):
        build(CONFIG, state, source="here")


class Sneaky:
    """Runs when it is unpickled by anything that runs pickled code."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("archive", [True, False])
def test_pickled_code_is_not_run(weights: dict[str, Tensor], tmp_path: Path, archive: bool) -> None:
    mark, file = tmp_path / "was_run", tmp_path / "model.pt"
    if archive:
        torch.save({"state_dict": weights, "more": Sneaky(mark)}, file)
    else:
        file.write_bytes(pickle.dumps(Sneaky(mark)))
    with pytest.raises(WeightsError, match="never pickled code"):
        load_clip(file)
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"no weights at all", b"\x00" * 4096])
@pytest.mark.parametrize("name", ["model.safetensors", "model.pt", "model.bin"])
def test_files_of_anything_else_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match="model"):
        load_clip(tmp_path / name)


def test_a_damaged_archive_is_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    whole = openai_archive(weights, tmp_path / "model")
    data = bytearray(whole.read_bytes())
    place = data.find(b"code/__torch__")
    data[place + 40 : place + 400] = bytes(360)
    whole.write_bytes(data)
    with pytest.raises(WeightsError):
        load_clip(whole)


def test_a_state_dict_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(2)}, tmp_path / "numbers.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    for name in ("numbers.pt", "list.pt"):
        with pytest.raises(WeightsError, match="state dict of tensors"):
            load_clip(tmp_path / name)


def test_other_models_and_empty_directories_are_refused(weights: dict[str, Tensor], tmp_path: Path) -> None:
    folder = hf_directory(weights, tmp_path / "model")
    (folder / "config.json").write_text('{"model_type": "blip"}')
    with pytest.raises(WeightsError, match="'blip' model; only 'clip'"):
        load_clip(folder)
    (folder / "config.json").write_text("[")
    with pytest.raises(WeightsError, match="cannot be read as JSON"):
        load_clip(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsError, match="put the weights there"):
        load_clip(tmp_path / "empty")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/model", "models/nowhere.pt", "nowhere.safetensors"])
def test_paths_that_do_not_exist_are_named(name: str) -> None:
    with pytest.raises(WeightsError, match="No file or directory"):
        load_clip(name)


def test_unknown_names_and_weights_are_refused_with_those_there_are() -> None:
    with pytest.raises(WeightsError, match=r"Unknown model 'ViT-G-99'; .*`taps models` lists"):
        load_clip("ViT-G-99")
    with pytest.raises(WeightsError, match=r"use openai, .*laion2b_s34b_b79k, .*metaclip_fullcc, .*random"):
        load_clip("ViT-B-32", pretrained="nothing")
    with pytest.raises(WeightsError, match="trained with quick_gelu, not gelu; load ViT-B-16"):
        load_clip("ViT-B-16-gelu", pretrained="openai")


@pytest.mark.parametrize("name", ["ViT-B-16", "somebody/some-clip"])
def test_offline_and_absent_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # it was read from there when first imported
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError) as caught:
        load_clip(name)
    sentence = str(caught.value)
    assert "not in the Hugging Face cache" in sentence
    assert "put it into a directory" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("write", [hf_directory, hf_shards, open_clip_directory])
def test_a_repository_is_fetched_as_it_is_laid_out(
    weights: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    errors = pytest.importorskip("huggingface_hub.errors")
    folder = write(weights, tmp_path / "there")
    if write is not open_clip_directory:
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3]}))
    here = tmp_path / "here"
    here.mkdir()

    def download(repository: str, file: str, *, local_files_only: bool) -> str:
        assert repository == "somebody/some-clip"
        if not (folder / file).is_file():
            raise errors.EntryNotFoundError("none")
        shutil.copyfile(folder / file, here / file)
        return str(here / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("taps.model.clip.hub._reachable", lambda: True)
    clip = load_clip("somebody/some-clip", device="cpu")
    assert clip.config.name == "somebody/some-clip"
    assert clip.config.mean == (CONFIG.mean if write is open_clip_directory else (0.1, 0.2, 0.3))
    assert clip.fingerprint == fingerprint(weights)


@pytest.mark.parametrize("given", [torch, None, 3, b"tiny", "", "x" * 300, "a/" + "b" * 5000])
def test_what_is_no_name_and_no_path_is_a_sentence(given: Any) -> None:
    with pytest.raises(WeightsError, match="name or its path"):
        load_clip(given)
    if given is not None:
        with pytest.raises(WeightsError, match="name or its path"):
            load_clip("ViT-B-16", pretrained=given)


def test_a_loaded_model_is_no_name(tiny: Clip) -> None:
    with pytest.raises(WeightsError, match="Clip"):
        load_clip(tiny)  # type: ignore[arg-type]


def test_a_vocabulary_without_its_tokenizer_is_refused_at_once(
    weights: dict[str, Tensor], tmp_path: Path
) -> None:
    fewer = weights | {"token_embedding.weight": weights["token_embedding.weight"][:1000]}
    folder = hf_directory(fewer, tmp_path / "model")
    told = json.loads((folder / "config.json").read_text())
    told["text_config"]["vocab_size"] = 1000
    (folder / "config.json").write_text(json.dumps(told))
    with pytest.raises(WeightsError, match="tokenizer"):
        load_clip(folder)


def test_builtin_names_win_over_folders_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_clip("tiny").config.name == "tiny"


def test_relative_paths_are_remembered_in_full(
    weights: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf_directory(weights, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    clip = load_clip("model", device="cpu")
    assert clip.source == str((tmp_path / "model").resolve())
    assert load_clip("tiny").source == "tiny"


def test_nothing_of_torch_that_is_slow_to_import_is_needed() -> None:
    code = (
        "import sys; sys.modules['sympy'] = None; import numpy, taps; "
        "learner = taps.Learner(taps.load_clip('tiny', device='cpu'), ['cat', 'dog'], 'tpt', views=4); "
        "image = numpy.zeros((9, 9, 3), numpy.uint8); "
        "learner.predict_one(image); learner.predict_many([image] * 2)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_tiny_model_is_always_the_same() -> None:
    one, other = load_clip("tiny", device="cpu"), load_clip("tiny", device="cpu")
    for name, value in one.named_parameters():
        assert torch.isfinite(value).all(), name
        assert torch.equal(value, dict(other.named_parameters())[name])


@pytest.mark.parametrize("field", [{"activation": "relu"}, {"image_size": 15}, {"text_heads": 3}])
def test_configurations_that_cannot_be_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(TapsError):
        replace(CONFIG, **field)  # type: ignore[arg-type]
    values = CONFIG.to_dict()
    assert ClipConfig.from_dict(json.loads(json.dumps(values))) == CONFIG
    del values["mean"]
    with pytest.raises(WeightsError, match="lacks"):
        ClipConfig.from_dict(values)


def test_precisions_have_the_names_people_use() -> None:
    assert load_clip("tiny", dtype="fp64").dtype == torch.float64
    assert find_dtype("bfloat16") == find_dtype("bf16") == find_dtype(torch.bfloat16) == torch.bfloat16
    for unknown in ("fp8", torch.int64):
        with pytest.raises(SettingsError, match="use fp32, bf16"):
            find_dtype(unknown)


def test_a_device_that_is_not_there_is_a_sentence() -> None:
    assert find_device("cpu").type == "cpu"
    for absent in ("abacus", "cuda:99"):
        with pytest.raises(SettingsError, match=f"'{absent}' cannot be used here"):
            find_device(absent)
