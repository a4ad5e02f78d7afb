"""Prompts: a few learned tensors, the tokens made of them, and the model they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from taps.errors import PromptsError
from taps.files import read_json, read_tensors, write_json, write_tensors, writing
from taps.model.clip import Clip
from taps.model.prompts.families import FAMILIES, Parameters, PromptTokens

CONFIG_FILE, TENSORS_FILE = "config.json", "prompts.safetensors"
TEXTS = ("kind", "suffix", "base", "base_fingerprint")  # in the config
WORDS = "a photo of a"  # what a learned context starts from


@dataclass(frozen=True, repr=False)
class Prompts:
    """Learned prompts.

    >>> Prompts("coop", {"context": torch.zeros(4, 256)}, "{}.", "pocket", "")
    Prompts('coop', context (4, 256), suffix='{}.', base='pocket')

    Attributes:
        kind: Name of the family.
        parameters: The learned tensors.
        suffix: Text behind the learned tokens, with `{}` for the class name.
        base: Name of the model they were made for.
        base_fingerprint: Identifies that model's weights.
        record: How they were made: data, shots, epochs, seed.
    """

    kind: str
    parameters: Parameters
    suffix: str
    base: str
    base_fingerprint: str
    record: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in self.parameters.items())
        return f"Prompts({self.kind!r}, {shapes}, suffix={self.suffix!r}, base={self.base!r})"

    @property
    def fingerprint(self) -> str:
        """Identifies the values; source statistics record it."""
        digest = hashlib.sha256(f"{self.kind}|{self.suffix}|{self.base_fingerprint}".encode())
        for name in sorted(self.parameters):
            digest.update(name.encode())
            digest.update(self.parameters[name].detach().float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def save_pretrained(self, directory: str | Path) -> None:
        """Write `config.json` and `prompts.safetensors`; the base model is named, not copied."""
        path = Path(directory)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        config = {name: getattr(self, name) for name in TEXTS}
        write_tensors(path / TENSORS_FILE, {name: value.float() for name, value in self.parameters.items()})
        write_json(path / CONFIG_FILE, {**config, "record": dict(self.record)})

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> Prompts:
        """Read what `save_pretrained` wrote."""
        path = Path(directory)
        try:
            config = read_json(path / CONFIG_FILE)
            parameters, _ = read_tensors(path / TENSORS_FILE)
        except Exception as error:
            raise PromptsError(
                f"{path} does not hold readable prompts ({error}); give a directory made by `taps train`."
            ) from error
        if str(config.get("kind")) not in FAMILIES:
            raise PromptsError(
                f"{path} holds prompts of an unknown kind; name the plugin that has it with "
                "--plugin, or make them again with `taps train`."
            )
        _refuse_not_finite(parameters, f"{path} holds")
        absent = [name for name in TEXTS if not isinstance(config.get(name), str)]
        if absent:
            raise PromptsError(f"{path / CONFIG_FILE} lacks {', '.join(absent)}; make the prompts again.")
        texts = {name: config[name] for name in TEXTS}
        return cls(parameters=parameters, record=config.get("record", {}), **texts)


def prompts_for(clip: Clip, kind: str, parameters: Parameters, suffix: str, **record: Any) -> Prompts:
    """Prompts that belong to a model."""
    return Prompts(kind, parameters, suffix, clip.config.name, clip.fingerprint, record)


def check_base(prompts: Prompts, clip: Clip) -> None:
    """Refuse prompts that were made for other weights, or whose tensors do not fit the model."""
    if prompts.base_fingerprint != clip.fingerprint:
        raise PromptsError(
            f"These prompts were made for {prompts.base} (weights {prompts.base_fingerprint}), not for "
            f"{clip.config.name} (weights {clip.fingerprint}); train some for this model with `taps train`."
        )
    check_shapes(prompts, clip)


def check_shapes(prompts: Prompts, clip: Clip) -> None:
    """Refuse tensors that are missing, unknown, of another width, or not finite."""
    wanted = FAMILIES[prompts.kind].shapes(clip.config, prompts.parameters)
    given = {name: tuple(value.shape) for name, value in prompts.parameters.items()}
    wrong = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
    if not wrong and 0 in given["context"]:
        raise PromptsError("The prompts have no context tokens; make them again with `taps train`.")
    if wrong:
        name = wrong[0]
        raise PromptsError(
            f"{prompts.kind} prompts for {clip.config.name} have {name} of shape "
            f"{wanted.get(name, 'none')}, but these have {given.get(name, 'none')}; they are another model's."
        )
    _refuse_not_finite(prompts.parameters, "The prompts hold")


def _refuse_not_finite(parameters: Parameters, subject: str) -> None:
    broken = [name for name, value in parameters.items() if not torch.isfinite(value).all()]
    if broken:
        raise PromptsError(f"{subject} values that are not finite in {', '.join(broken)}; make them again.")


def prompt_tokens(kind: str, parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    """Learned tensors → the tokens of both towers; cocoop needs the image's normalised `feature`."""
    return FAMILIES[kind].tokens(parameters, feature)


def word_vectors(clip: Clip, words: str) -> Tensor:
    """Token embeddings of a few words, the usual start of a learned context [tokens, width]."""
    ids = torch.tensor(clip.tokenizer.encode(words), device=clip.device)
    vectors: Tensor = clip.token_embedding(ids)
    return vectors.detach().clone().float()
