"""Published weights by name: where they are, and how they come here."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from taps.clip.config import ClipConfig, architectures, builtin_config, named_config
from taps.errors import WeightsError
from taps.files import sha256_of

OPEN_CLIP_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
HF_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
CONNECT = 5  # seconds within which the hub's machine must answer
OPEN_CLIP_CACHE = Path("~/.cache/clip")
"""Where open_clip and OpenAI's own code keep what they fetch from elsewhere than the hub."""


@functools.cache
def pretrained() -> dict[str, dict[str, dict[str, Any]]]:
    """Architecture → name of weights, as open_clip has them → where they are and what sets them apart."""
    text = (resources.files("taps.clip") / "facts" / "pretrained.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


def activations_differ(name: str) -> bool:
    """Whether published weights of an architecture have different activations."""
    return any("activation" in entry for entry in pretrained().get(name, {}).values())


@dataclass(frozen=True)
class Published:
    """Weights that somebody has published for an architecture.

    Attributes:
        config: What model they are of.
        repository: On the hub.
        files: Names the weights may have there, the best first.
        cached: Their name in open_clip's own cache, where they were once published elsewhere.
        words: Repository of the tokenizer, where the model has one of its own.
    """

    config: ClipConfig
    repository: str
    files: tuple[str, ...]
    cached: str | None
    words: str | None

    @property
    def needed(self) -> list[str]:
        """Every file that is needed, by repository and name."""
        weights = f"{self.repository}: {' or '.join(self.files)}"
        return [weights] + ([f"{self.words}: {' and '.join(TOKENIZER_FILES)}"] if self.words else [])

    def steps(self) -> list[str]:
        """What to type where there is a network, and then here."""
        end = "-gelu" if activations_differ(self.config.name) else ""
        end = "-quickgelu" if self.config.activation == "quick_gelu" else end
        fetch = [f"hf download {self.repository} {self.files[0]} --local-dir DIR"]
        fetch[0] += "".join(f"  (or {file}, where the repository has that alone)" for file in self.files[1:])
        if self.words:
            fetch.append(f"hf download {self.words} {' '.join(TOKENIZER_FILES)} --local-dir DIR")
        load = f"--model {self.config.name}{end} --pretrained DIR/{self.files[0]}"
        return [*fetch, f"copy DIR here, then: {load}"]


def published(name: str, tag: str | None) -> Published:
    """Weights by open_clip's names for architecture and weights; the first there are if no tag is given."""
    builtin_config(name)  # says which names there are
    tags = pretrained().get(name, {})
    if not tags:
        raise WeightsError(f"No weights are published for {name}; use random or the path of a file.")
    tag = tag or next(iter(tags))
    if tag not in tags:
        raise WeightsError(
            f"Unknown weights {tag!r} for {name}; use {', '.join([*tags, 'random'])} or the path of a file."
        )
    entry, values = tags[tag], architectures()[name]
    told = {key: value for key, value in entry.items() if key not in ("repo", "file", "cached")}
    files = (entry["file"],) if "file" in entry else OPEN_CLIP_FILES
    config = named_config(name, {**values, **told})
    return Published(config, entry["repo"], files, entry.get("cached"), values.get("words"))


def fetch_weights(wanted: Published) -> Path:
    """The file of weights, from a cache or from the hub."""
    old = OPEN_CLIP_CACHE.expanduser() / (wanted.cached or "")
    if wanted.cached and old.is_file():
        return old
    return fetch_first(wanted.repository, wanted.files)


def fetch_tokenizer(repository: str) -> Path:
    """The path of a repository's tokenizer.json, its configuration beside it."""
    for file in reversed(TOKENIZER_FILES):
        path = fetch(repository, file)
    return path


def fetch_first(repository: str, files: Sequence[str]) -> Path:
    """The first of several files that a repository has; where it cannot be asked, that the cache has."""
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
    """Compare a file of the Hugging Face cache with the checksum it is stored under there.

    Large files lie in the cache under their SHA-256; of others, and of files elsewhere, it is told.
    """
    stored, digest = path.resolve().name, sha256_of(path)
    if len(stored) != len(digest):
        return f"sha256 {digest}"
    if stored != digest:
        raise WeightsError(f"{path} is damaged: its checksum is not {stored}; remove it and fetch it again.")
    return "checksum right"


def _reachable() -> bool:
    """Whether the hub's machine answers. Its client would try again for half a minute before it says so."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if getproxies().keys() & {"http", "https", "all"}:  # another machine knows the way
        return True
    address = urlsplit(constants.ENDPOINT)
    try:
        port = address.port or {"http": 80}.get(address.scheme, 443)
        socket.create_connection((address.hostname or "", port), timeout=CONNECT).close()
    except OSError:
        return False
    return True


class AbsentError(WeightsError):
    """A repository can be reached and has no such file."""


def fetch(repository: str, file: str, *, from_cache: bool = False) -> Path:
    """One file through huggingface_hub: its cache, HF_ENDPOINT, offline mode and resuming all hold.

    The hub's client compares the size, and with it the checksum it stores files under, before a download
    counts as whole.
    """
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
