"""`taps paper`: the paper's tables, ablations and propositions, each published number beside ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from taps.cli.eval import carry_out, tell_unfinished
from taps.cli.options import new_app, with_options
from taps.cli.terminal import show_table
from taps.study.evaluate.options import Execution
from taps.study.paper.parts import NAMES, PROPOSITIONS, find_parts
from taps.study.paper.plan import PaperOptions

app = new_app()


Parts = Annotated[list[str] | None, typer.Argument(help=f"Some of {', '.join(NAMES)}; all unless named.")]


@app.command("paper")
@with_options
def paper(
    options: PaperOptions,
    parts: Parts = None,
    out: Annotated[str, typer.Option(help="Folder of the runs and of the page paper.html.")] = "paper",
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where one is found.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Save and stop after so long.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only list what is there and missing.")] = False,
) -> None:
    """Repeat the paper: Tables 1 to 3, six ablations and both propositions, on one page beside its numbers.

    It begins with a list of what is there, what is missing and which command makes it. The same command goes
    on where it was stopped, to the same result. With --model pocket it runs on the bundled images, or on the
    zips below --root; with ViT-B-16 on the paper's sets below --root, with the paper's settings.
    """
    wanted = find_parts(parts or ())
    from taps.disk import claim, make_folder
    from taps.model.clip import load_clip
    from taps.study.evaluate.evaluate import is_evaluation
    from taps.study.paper.page import write_page
    from taps.study.paper.plan import expected_seconds, make_plan, with_statistics

    console, folder = Console(), Path(out)
    claim(folder, is_evaluation)
    clip = load_clip(options.model, pretrained=options.pretrained, device=device)
    plan = make_plan(options, wanted, with_statistics(options, wanted, clip, folder))
    show_table(["what", "found"], plan.checked, console=console)
    minutes_left = expected_seconds(plan, clip, jobs) / 60
    console.print(f"{len(plan.jobs)} runs, about {minutes_left:.0f} minutes if none is done yet.")
    if check:
        return
    how = Execution(jobs, device, minutes=minutes, resume=True)
    outcome = carry_out(console, plan.jobs, plan.lengths, folder, how) if plan.jobs else None
    if PROPOSITIONS in wanted:
        make_folder(folder / "theory")
        simulate(folder / "theory", console, quick=options.quick)
    print(write_page(folder, plan, f"The paper with {options.model}"))
    if outcome is not None:
        tell_unfinished(console, outcome)
    if any(found.startswith("missing") for _, found in plan.checked):
        raise typer.Exit(1)


def simulate(out: Path, console: Console, *, quick: bool) -> None:
    """Run the simulation of the propositions, which comes with the repository and not with the package."""
    script = Path(__file__).parents[3] / "recipes" / "theory" / "simulate.py"
    if not script.is_file():
        console.print("The propositions are simulated by recipes/theory/simulate.py of the repository.")
    elif not (out / "simulate.json").is_file():
        streams = "20" if quick else "2000"
        subprocess.run([sys.executable, str(script), "--streams", streams, "--out", str(out)], check=True)
