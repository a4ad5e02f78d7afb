"""`taps methods`, `models`, `data` and `prompts`: list, check, fetch and import them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column

from taps.cli.options import check_new, new_app
from taps.cli.terminal import show_json, show_table
from taps.files import json_text

app = new_app()
models = new_app(help="List the models that load, fetch one, or import a file of weights.")
data = new_app(no_args_is_help=True, help="List data sets, or check a copy of one.")
prompts = new_app(no_args_is_help=True, help="Look at trained prompts, or import public checkpoints.")
app.add_typer(models, name="models")
app.add_typer(data, name="data")
app.add_typer(prompts, name="prompts")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Pretrained = Annotated[str | None, typer.Option(help="Which weights; by default the first.")]


@app.command()
def methods(
    name: str | None = typer.Argument(None, help="A method: list its settings and their defaults."),
    as_json: AsJson = False,
) -> None:
    """List the methods with one line each, or the settings of one of them."""
    from taps.methods.registry import all_methods, find_method, settings
    from taps.methods.settings import allowed

    if name is None:
        known = all_methods()
        rows: dict[str, object] = {key: method.line for key, method in known.items()}
        columns = ["method", "asks", "what it does"]
        cells = [(key, "yes" if method.asks else "", method.line) for key, method in known.items()]
    else:
        rows, kind = settings(name), find_method(name).settings
        columns = ["setting", "default", "allowed"]
        cells = [(each.name, str(each.default), allowed(kind, each)) for each in fields(kind)]
    if as_json:
        show_json(rows)
        return
    show_table([Column(name, no_wrap=name == columns[0], overflow="fold") for name in columns], cells)


@models.callback(invoke_without_command=True)
def list_models(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """List the models that are known by name: size, image side, and the weights there are."""
    if context.invoked_subcommand is not None:
        return
    from taps.model.clip.config import architectures, pretrained

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


@models.command("show")
def show_model(
    name: str = typer.Argument(..., help="An architecture that `taps models` lists."),
    pretrained: Pretrained = None,
) -> None:
    """Say what a model is, where its weights are, and the steps to use it offline."""
    from taps.model.clip.config import architectures
    from taps.model.clip.find import plain_name
    from taps.model.clip.hub import published

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


@models.command("pull")
def pull(
    name: str = typer.Argument(..., help="An architecture that `taps models` lists."),
    pretrained: Pretrained = None,
) -> None:
    """Fetch a model's files into the Hugging Face cache and compare their checksums.

    What the cache has, or open_clip's, is not fetched again; an interrupted download continues. HF_ENDPOINT,
    HF_HOME and HF_HUB_OFFLINE hold.
    """
    from taps.model.clip.find import find
    from taps.model.clip.hub import check_sum

    files = find(name, pretrained)
    if files.weights is None:
        print(f"{name} has random weights: nothing is to be fetched.")
    for path in (files.weights, files.tokenizer):
        if path is not None:
            print(f"{path}: {path.stat().st_size / 2**20:,.1f} MiB, {check_sum(path)}")


@models.command("import")
def import_model(
    file: Path = typer.Argument(..., help="A file of weights."),
    model: str = typer.Option(
        ...,
        "--model",
        help="Its architecture; end it in -quickgelu or -gelu where the file cannot say which.",
    ),
    out: Path = typer.Option(..., "--out", help="Directory for the model; it must not exist yet."),
) -> None:
    """Convert a file of weights into a directory that --model loads by its path."""
    from taps.errors import SettingsError
    from taps.model.clip.find import find, write_directory

    check_new(out)
    if not file.is_file():
        raise SettingsError(f"File {file} not found; check the path.")
    write_directory(find(model, str(file)), out)
    print(f"{out}: {model} from {file.name}; use it with --model {out}.")


@models.command("verify")
def verify(
    name: str = typer.Argument("pocket", help="The embedded model, or one whose files are here already."),
    pretrained: Pretrained = None,
) -> None:
    """Compare a model's files with the digests they were released with.

    The embedded model's are in a list in its package, and the digest of this list is in the code. Files of
    the Hugging Face cache are compared with the checksum they are stored under.
    """
    if name != "pocket":
        return pull(name, pretrained)
    from taps.model.embedded import embedded_folder, verify_embedded

    for file, digest in verify_embedded().items():
        print(f"{digest}  {file}")
    print(f"{embedded_folder()}: every file is as released.")


@data.command("list")
def list_sets(as_json: AsJson = False) -> None:
    """List the sets that can be called by name, and where each should lie below --root."""
    from taps.data.sets import named_sets

    if as_json:
        names = ("id", "name", "classes", "images", "layout", "template")
        rows = [{name: getattr(each, name) for name in names} for each in named_sets().values()]
        show_json(rows)
        return
    columns = [
        Column("name", no_wrap=True),
        *(Column(name, justify="right") for name in ("classes", "images")),
        *(Column(name, overflow="fold") for name in ("layout below --root", "template")),
    ]
    show_table(
        columns,
        [(s.id, f"{s.classes:,}", f"{s.images:,}", s.layout, s.template) for s in named_sets().values()],
    )


@data.command("check")
def check(
    name: str = typer.Argument(
        ..., help="Name of a set, as in `taps data list`; or a folder or zip of your own."
    ),
    root: Path | None = typer.Option(
        None, "--root", envvar="TAPS_DATA", help="Folder that holds the named data sets."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of text."),
) -> None:
    """Say what is missing, wrong or cannot be read. Exit code 1 if anything is."""
    from taps.data import find_set
    from taps.data.check import check_dataset, check_folder
    from taps.errors import DataError

    own = find_set(name) is None or (root is None and Path(name).exists())
    if not own and root is None:
        raise DataError(f"{name} needs --root, the folder that holds the data sets, or a path.")
    result = check_folder(name) if own else check_dataset(name, root or Path())
    if as_json:
        shown = {key: getattr(result, key) for key in ("name", "ok", "classes", "images", "expected")}
        place = None if result.root is None else str(result.root)
        findings = [{"level": f.level, "count": f.count, "text": f.text} for f in result.findings]
        show_json({**shown, "root": place, "findings": findings})
    else:
        for finding in result.findings:
            print(f"{finding.level}: {finding.text}")
        state = ("all can be read" if own else "as published") if result.ok else "see above"
        print(
            f"{result.name}: {result.images:,} of {result.expected:,} images, "
            f"{result.classes:,} classes, {state}."
        )
    raise typer.Exit(0 if result.ok else 1)


@prompts.command("show")
def show_prompts(
    directory: Path = typer.Argument(..., help="Directory made by `taps train` or `taps prompts import`."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of text."),
) -> None:
    """Say what prompts are of, which model they belong to, and how they were made."""
    from taps.model.prompts import Prompts

    found = Prompts.from_pretrained(directory)
    facts = {
        "kind": found.kind,
        "base": found.base,
        "base_fingerprint": found.base_fingerprint,
        "fingerprint": found.fingerprint,
        "suffix": found.suffix,
        "parameters": {name: list(value.shape) for name, value in found.parameters.items()},
        "numbers": sum(value.numel() for value in found.parameters.values()),
        "record": dict(found.record),
    }
    if as_json:
        show_json(facts)
        return
    for name, value in facts.items():
        print(f"{name}: {json_text(value, ensure_ascii=False) if isinstance(value, dict) else value}")


@prompts.command("import")
def import_checkpoint(
    file: Path = typer.Argument(..., help="Checkpoint of the public code of a family."),
    kind: str = typer.Option(..., "--kind", help="Its family: coop, cocoop, maple."),
    model: str = typer.Option(
        ..., "--model", help="The CLIP it was trained for: pocket, ViT-B-16, a checkpoint's path, …"
    ),
    pretrained: str | None = typer.Option(
        None, "--pretrained", help="Weights for an architecture: a file, openai, laion2b."
    ),
    position: str | None = typer.Option(
        None, "--position", help="Where CoOp's class name stood in training: end (others cannot be used)."
    ),
    suffix: str | None = typer.Option(
        None,
        "--suffix",
        help="What follows the learned tokens, such as 'of a {}.', where it is not the usual.",
    ),
    out: Path = typer.Option(..., "--out", help="Directory for the prompts; it must not exist yet."),
) -> None:
    """Import prompts that a public code has trained. Nothing in the file is executed."""
    from taps.cli.train import save_whole
    from taps.model.clip import load_clip
    from taps.model.prompts.foreign import import_prompts

    check_new(out)
    clip = load_clip(model, pretrained=pretrained, device="cpu")
    found = import_prompts(file, kind, clip, suffix=suffix, position=position)
    save_whole(found, out)
    print(f"{out}: {kind} prompts for {found.base}.")
