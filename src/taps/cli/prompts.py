"""`taps prompts show` and `taps prompts import`."""

from __future__ import annotations

from pathlib import Path

import typer

from taps.cli.options import check_new, new_app
from taps.cli.tables import show_json
from taps.files import json_text

app = new_app(no_args_is_help=True, help="Look at trained prompts, or import public checkpoints.")


@app.command("show")
def show(
    directory: Path = typer.Argument(..., help="Directory made by `taps train` or `taps prompts import`."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of text."),
) -> None:
    """Say what prompts are of, which model they belong to, and how they were made."""
    from taps.prompts import Prompts

    prompts = Prompts.from_pretrained(directory)
    facts = {
        "kind": prompts.kind,
        "base": prompts.base,
        "base_fingerprint": prompts.base_fingerprint,
        "fingerprint": prompts.fingerprint,
        "suffix": prompts.suffix,
        "parameters": {name: list(value.shape) for name, value in prompts.parameters.items()},
        "numbers": sum(value.numel() for value in prompts.parameters.values()),
        "record": dict(prompts.record),
    }
    if as_json:
        show_json(facts)
        return
    for name, value in facts.items():
        print(f"{name}: {json_text(value, ensure_ascii=False) if isinstance(value, dict) else value}")


@app.command("import")
def import_(
    file: Path = typer.Argument(..., help="Checkpoint of CoOp's, CoCoOp's or MaPLe's public code."),
    kind: str = typer.Option(..., "--kind", help="coop, cocoop or maple."),
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
    from taps.clip import load_clip
    from taps.prompts.foreign import import_prompts

    check_new(out)
    clip = load_clip(model, pretrained=pretrained, device="cpu")
    prompts = import_prompts(file, kind, clip, suffix=suffix, position=position)
    save_whole(prompts, out)
    print(f"{out}: {kind} prompts for {prompts.base}.")
