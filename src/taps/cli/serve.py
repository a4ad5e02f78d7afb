"""`taps serve`: predictions over HTTP, and a model that learns from the answers."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def serve(
    store: Annotated[
        str, typer.Option(help="Where everything is kept: a folder, or postgresql://… with --files.")
    ] = "taps-store",
    files: Annotated[
        Path | None, typer.Option(help="Folder of images and snapshots beside a PostgreSQL store.")
    ] = None,
    model: Annotated[str, typer.Option(help="pocket, ViT-B-16, a checkpoint's path, …")] = "pocket",
    pretrained: Annotated[
        str | None, typer.Option(help="Weights for an architecture: a file, openai, laion2b.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    host: Annotated[
        str, typer.Option(help="Address; others than loopback need a token to exist.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name the service is called by. May be repeated.")
    ] = None,
    max_body: Annotated[int, typer.Option(help="Bytes a request may have.")] = 10 << 20,
    max_pixels: Annotated[int, typer.Option(help="Pixels an image may have.")] = 20_000_000,
    rate: Annotated[float, typer.Option(help="Requests a second for each token.")] = 200.0,
    queue: Annotated[int, typer.Option(help="Requests that may wait for one stream.")] = 32,
    label_studio: Annotated[
        str | None, typer.Option(metavar="URL", help="A Label Studio whose projects use /label-studio here.")
    ] = None,
    label_studio_token: Annotated[
        str, typer.Option(envvar="LABEL_STUDIO_API_KEY", help="Its access token, to fetch images.")
    ] = "",
    image_hosts: Annotated[
        str, typer.Option(metavar="HOSTS", help="Other hosts its images may come from, separated by commas.")
    ] = "",
    workers: Annotated[int, typer.Option(help="One, always: a learner has one owner.")] = 1,
) -> None:
    """Serve predictions over HTTP; uncertain images wait for an expert, the model learns from the answers.

    Streams are made over HTTP (`docs/serve.md`). Everything acknowledged survives a crash.
    """
    from taps.errors import SettingsError

    if workers != 1:
        raise SettingsError(
            "--workers must be 1: a stream's learner lives in one process, and two would learn apart. "
            "One process serves many streams; for more, start another service with its own --store."
        )
    from taps.cli.options import parse_list

    hosts = parse_list(image_hosts)
    if any("/" in host for host in hosts):
        raise SettingsError(
            f"--image-hosts {image_hosts!r} names hosts, such as images.example.org or nas:9000."
        )
    from taps.serve import logs
    from taps.serve.limits import Limits
    from taps.serve.store import Store

    logs.set_up()
    sys.setswitchinterval(0.001)  # an answer does not wait 5 ms for a learner that computes
    limits = Limits(body=max_body, pixels=max_pixels, rate=rate, queue=queue)
    opened = Store(store, files)

    from taps.clip import load_clip
    from taps.serve.labelstudio import LabelStudio
    from taps.serve.run import make_server
    from taps.serve.service import Service

    clip = load_clip(model, pretrained=pretrained, device=device)
    studio = LabelStudio(label_studio, label_studio_token, hosts) if label_studio else None
    # Uvicorn stops by itself at SIGTERM and then sends it once more: by then there are learners to save.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with Service(opened, clip, queue=queue) as service:
        make_server(
            service, host=host, port=port, limits=limits, hosts=allowed_host, studio=studio, ready=_say
        ).run()


def _say(url: str) -> None:
    print(f"Serving at {url}", flush=True)
