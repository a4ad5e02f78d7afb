"""What `taps serve` is started with."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from taps.errors import SettingsError

MB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What one request, one token, one stream may take.

    Attributes:
        body: Bytes an image may have; counted while they come in.
        json: Bytes any other body may have.
        pixels: Pixels an image may have; read from its header, before anything is decoded.
        formats: Formats of images that are taken, as Pillow calls them, separated by commas.
        rate: Requests a second for each token, on average; twice as many may come at once.
        queue: Requests that may wait for one stream.
        uploads: Requests with an image that may be under way at a time; a token has half of them at most.
    """

    body: int = field(default=10 * MB, metadata={"flags": ("--max-body",), "min": 1})
    json: int = field(default=MB, metadata={"flags": ("--max-json",), "min": 1})
    pixels: int = field(default=20_000_000, metadata={"flags": ("--max-pixels",), "min": 1})
    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
    rate: float = 200.0
    queue: int = field(default=32, metadata={"min": 1})
    uploads: int = field(default=128, metadata={"min": 1})


@dataclass(frozen=True)
class ServeOptions:
    """A service: its store, its model, its address.

    Attributes:
        store: Where everything is kept: a folder, or postgresql://… with --files.
        files: Folder of images and snapshots beside a PostgreSQL store.
        anew: Begin a new store in a folder whose database is gone; what is there is set aside.
        model: pocket, ViT-B-16, a checkpoint's path, …
        pretrained: Weights for an architecture: a file, openai, laion2b.
        device: cpu or cuda; by default a GPU where one is found.
        processes: Processes that compute, on a CPU; by default one a core; 0 for threads.
        ray: Compute on a Ray cluster: auto, local or HOST:PORT; see `taps eval`. Then --processes are actors
            there, at most; machines must see the model at the same path.
        gpus_per_process: GPUs of each of those actors; may be a share of one.
        host: Address; others than loopback need a token to exist.
        port: 0 for any that is free.
        allowed_host: A name the service is called by. May be repeated.
        label_studio: URL of a Label Studio whose projects use /label-studio here.
        label_studio_token: Its access token, to fetch images.
        image_hosts: Other hosts its images may come from, separated by commas.
    """

    store: str = "taps-store"
    files: Path | None = None
    anew: bool = False
    model: str = "pocket"
    pretrained: str | None = None
    device: str | None = None
    processes: int | None = None
    ray: str | None = field(default=None, metadata={"metavar": "[ADDRESS]"})
    gpus_per_process: float = 0.0
    host: str = "127.0.0.1"
    port: int = field(default=8000, metadata={"max": 65_535})
    allowed_host: list[str] = field(default_factory=list)
    label_studio: str | None = None
    label_studio_token: str = field(default="", metadata={"envvar": "LABEL_STUDIO_API_KEY"})
    image_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any("/" in host for host in self.image_hosts):
            named = ",".join(self.image_hosts)
            raise SettingsError(
                f"--image-hosts {named!r} names hosts, such as images.example.org or nas:9000."
            )
        if self.processes is not None and self.processes < 0:
            raise SettingsError(f"--processes is {self.processes}; give 0 for threads, or how many.")

    def processes_on(self, device: str) -> int:
        """How many processes are to compute on a kind of device."""
        if device != "cpu" and self.processes:
            raise SettingsError(f"--processes are for the CPU; on {device} learners are threads: give 0.")
        if self.processes and sys.platform != "linux":  # elsewhere they could not share the weights
            raise SettingsError("--processes need Linux; give 0, and learners are threads.")
        if self.processes is None:
            return (os.cpu_count() or 1) if device == "cpu" and sys.platform == "linux" else 0
        return self.processes
