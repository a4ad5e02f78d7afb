"""Published weights by name, downloaded from the Hugging Face hub."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from taps.errors import WeightsError
from taps.files import sha256_of
from taps.model.clip.config import ClipConfig, architectures, builtin_config, named_config, pretrained
from taps.registry import nearest

OPEN_CLIP_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
HF_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
CONNECT = 5  # seconds within which the hub must answer
OPEN_CLIP_CACHE = Path("~/.cache/clip")  # of open_clip's and OpenAI's downloads from elsewhere


def activations_differ(name: str) -> bool:
    """Whether published weights of an architecture have different activations."""
    return any("activation" in entry for entry in pretrained().get(name, {}).values())


@dataclass(frozen=True)
class Published:
    """Published weights of an architecture."""

    config: ClipConfig
    repository: str
    files: tuple[str, ...]  # names of the weights there, the best first
    cached: str | None  # their name in open_clip's own cache, where they were published elsewhere first
    tokenizer: str | None  # repository of the model's own tokenizer

    @property
    def needed(self) -> list[str]:
        """Every file that is needed, by repository and name."""
        weights = f"{self.repository}: {' or '.join(self.files)}"
        return [weights] + ([f"{self.tokenizer}: {' and '.join(TOKENIZER_FILES)}"] if self.tokenizer else [])

    def steps(self) -> list[str]:
        """Commands for a machine with a network, and then for this one."""
        end = "-gelu" if activations_differ(self.config.name) else ""
        end = "-quickgelu" if self.config.activation == "quick_gelu" else end
        steps = [f"hf download {self.repository} {self.files[0]} --local-dir DIR"]
        steps[0] += "".join(f"  (or {file}, where the repository has that alone)" for file in self.files[1:])
        if self.tokenizer:
            steps.append(f"hf download {self.tokenizer} {' '.join(TOKENIZER_FILES)} --local-dir DIR")
        load = f"--model {self.config.name}{end} --pretrained DIR/{self.files[0]}"
        return [*steps, f"copy DIR here, then: {load}"]

    def fetch(self) -> tuple[Path, Path | None]:
        """The files of weights and tokenizer, from a cache or from the hub."""
        tokenizer = None
        if self.tokenizer:
            fetch(self.tokenizer, "tokenizer_config.json")
            tokenizer = fetch(self.tokenizer, "tokenizer.json")
        if self.cached and (old := OPEN_CLIP_CACHE.expanduser() / self.cached).is_file():
            return old, tokenizer
        return fetch_first(self.repository, self.files), tokenizer


def published(name: str, tag: str | None) -> Published:
    """Weights by open_clip's names for architecture and weights; without a tag, the first of them."""
    builtin_config(name)  # raises for an unknown name
    tags = pretrained().get(name, {})
    if not tags:
        raise WeightsError(f"No weights are published for {name}; use random or the path of a file.")
    tag = tag or next(iter(tags))
    if tag not in tags:
        raise WeightsError(
            f"Unknown weights {tag!r} for {name}; use {', '.join([*tags, 'random'])} or the path of a file."
            f"{nearest(tag, tags)}"
        )
    entry, values = tags[tag], architectures()[name]
    changes = {key: value for key, value in entry.items() if key not in ("repo", "file", "cached")}
    files = (entry["file"],) if "file" in entry else OPEN_CLIP_FILES
    config = named_config(name, {**values, **changes})
    return Published(config, entry["repo"], files, entry.get("cached"), values.get("words"))


def fetch_first(repository: str, files: Sequence[str]) -> Path:
    """The first of several files that a repository has, or offline that the cache has."""
    for file in files[:-1]:
        try:
            return fetch(repository, file)
        except AbsentError:
            continue
        except WeightsError:
            # Without a network: any of the files that an earlier call has fetched will do.
            for kept in files:
                with contextlib.suppress(WeightsError):
                    return fetch(repository, kept, from_cache=True)
            raise
    return fetch(repository, files[-1])


def check_sum(path: Path) -> str:
    """Compare a file of the Hugging Face cache with the SHA-256 that large files there have as their name.

    Of other files the SHA-256 is returned.
    """
    stored, digest = path.resolve().name, sha256_of(path)
    if len(stored) != len(digest):
        return f"sha256 {digest}"
    if stored != digest:
        raise WeightsError(f"{path} is damaged: its checksum is not {stored}; remove it and fetch it again.")
    return "checksum right"


def _reachable() -> bool:
    """Whether the hub answers. Its client would retry for half a minute before it fails."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if getproxies().keys() & {"http", "https", "all"}:  # the proxy resolves the address
        return True
    address = urlsplit(constants.ENDPOINT)
    try:
        port = address.port or {"http": 80}.get(address.scheme, 443)
        socket.create_connection((address.hostname or "", port), timeout=CONNECT).close()
    except OSError:
        return False
    return True


class AbsentError(WeightsError):
    """The repository answers and has no such file."""


def fetch(repository: str, file: str, *, from_cache: bool = False) -> Path:
    """One file through huggingface_hub, with its cache, HF_ENDPOINT, offline mode, resuming and checksums."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError:
        raise WeightsError(
            f"Downloading {repository} needs the extra 'hub': pip install 'taps-vlm[hub]', or give the "
            "path of a file."
        ) from None
    try:
        return Path(hf_hub_download(repository, file, local_files_only=from_cache or not _reachable()))
    except Exception as error:
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise AbsentError(f"{repository} has no file {file}; check the name.") from None
        raise WeightsError(
            f"{file} of {repository} is not in the Hugging Face cache and could not be downloaded "
            f"({type(error).__name__}); put it into a directory and give that directory's path, "
            "or connect and try again."
        ) from error
