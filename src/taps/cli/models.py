"""`taps models`: which frozen models there are, fetching one, importing a file of weights."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Column

from taps.cli.options import check_new, new_app
from taps.cli.tables import show_json, show_table

app = new_app(help="List the models that load, fetch one, or import a file of weights.")


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """List the models that are known by name: size, image side, and the weights there are."""
    if context.invoked_subcommand is not None:
        return
    from taps.clip.config import architectures, pretrained

    rows = [
        (name, f"{facts['parameters'] / 1e6:,.0f} M", facts["image_size"], ", ".join(tags))
        for name, tags in pretrained().items()
        for facts in (architectures()[name],)
    ]
    if as_json:
        keys = ("name", "parameters", "image_size", "pretrained")
        show_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    names = ("model", "parameters", "pixels", "pretrained")
    show_table([Column(name, no_wrap=name != "pretrained", overflow="fold") for name in names], rows)
    Console().print(
        "\n`taps models show NAME` says where its weights are and how to bring them to a machine without a "
        "network.\n'pocket' comes with the package; a directory or file of weights is given by its path.",
        highlight=False,
    )


@app.command("show")
def show(
    name: str = typer.Argument(..., help="An architecture that `taps models` lists."),
    pretrained: str | None = typer.Option(None, "--pretrained", help="Which weights; by default the first."),
) -> None:
    """Say what a model is, where its weights are, and the steps to use it offline."""
    from taps.clip.config import architectures
    from taps.clip.find import plain_name
    from taps.clip.hub import published

    if name == "pocket":
        print("pocket comes with the package: nothing is to be fetched.")
        return
    wanted = published(plain_name(name), pretrained)
    config, parameters = wanted.config, architectures()[plain_name(name)]["parameters"]
    gib = parameters / 2**30
    prompts = "text alone; the image tower is made of convolutions" if config.stages else "text and image"
    if not config.causal:
        prompts += "; texts are run whole, not from a prefix"
    facts = {
        "parameters": f"{parameters:,} ({4 * gib:.1f} GiB in float32, {2 * gib:.1f} in bfloat16)",
        "images": f"{config.image_size} pixels, {config.resize}, {config.interpolation}",
        "texts": f"{config.context_length} tokens of {config.vocab_size:,}",
        "activation": config.activation,
        "prompts": prompts,
        "repository": wanted.repository,
    }
    for key, value in facts.items():
        print(f"{key}: {value}")
    print("\nWithout a network, on a machine that has one:")
    for line in wanted.steps():
        print(f"  {line}")


@app.command("pull")
def pull(
    name: str = typer.Argument(..., help="An architecture that `taps models` lists."),
    pretrained: str | None = typer.Option(None, "--pretrained", help="Which weights; by default the first."),
) -> None:
    """Fetch a model's files into the Hugging Face cache and compare their checksums.

    What the cache has, or open_clip's, is not fetched again; a download that broke off goes on. HF_ENDPOINT,
    HF_HOME and HF_HUB_OFFLINE hold.
    """
    from taps.clip.find import find
    from taps.clip.hub import check_sum

    files = find(name, pretrained)
    if files.weights is None:
        print(f"{name} has random weights: nothing is to be fetched.")
    for path in (files.weights, files.tokenizer):
        if path is not None:
            print(f"{path}: {path.stat().st_size / 2**20:,.1f} MiB, {check_sum(path)}")


@app.command("import")
def import_(
    file: Path = typer.Argument(..., help="A file of weights."),
    model: str = typer.Option(
        ...,
        "--model",
        help="Its architecture; end it in -quickgelu or -gelu where the file cannot say which.",
    ),
    out: Path = typer.Option(..., "--out", help="Directory for the model; it must not exist yet."),
) -> None:
    """Make a directory of a file of weights that says all there is to know, to be loaded by its path."""
    from taps.clip.find import find, write_directory
    from taps.errors import SettingsError

    check_new(out)
    if not file.is_file():
        raise SettingsError(f"File {file} not found; check the path.")
    write_directory(find(model, str(file)), out)
    print(f"{out}: {model} from {file.name}; use it with --model {out}.")


@app.command("verify")
def verify(
    name: str = typer.Argument("pocket", help="The embedded model, or one whose files are here already."),
    pretrained: str | None = typer.Option(None, "--pretrained", help="Which weights; by default the first."),
) -> None:
    """Compare a model's files with the digests they were released with.

    The embedded model's are in a list in its package, and the digest of this list is in the code. Files of
    the Hugging Face cache are compared with the checksum they are stored under.
    """
    if name != "pocket":
        return pull(name, pretrained)
    from taps.embedded import embedded_folder, verify_embedded

    for file, digest in verify_embedded().items():
        print(f"{digest}  {file}")
    print(f"{embedded_folder()}: every file is as released.")
