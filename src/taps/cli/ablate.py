"""`taps ablate`: one thing of TAPS changed at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from taps.cli.eval import Out, carry_out, tell_unfinished
from taps.cli.options import new_app, with_options
from taps.evaluate.options import Execution, Setup

app = new_app()


@app.command("ablate")
@with_options
def ablate(
    name: Annotated[
        str, typer.Argument(help="rate, alpha, buffer, selection, eviction, alignment, reset or policy.")
    ],
    setup: Setup,
    out: Out,
    how: Execution,
    plots: Annotated[bool, typer.Option(help="Draw the figure.")] = True,
) -> None:
    """Repeat one of the paper's ablations: a table and a figure.

    Says where the buffer never filled, or nothing was asked, so that the ablation cannot show anything.
    """
    from taps.cluster.connect import find_ray

    find_ray(how.ray, how)  # before what takes long to import
    from rich.console import Console

    from taps.evaluate import plan
    from taps.evaluate.copies import working_folder
    from taps.evaluate.jobs import ModelSpec
    from taps.evaluate.results import read_results
    from taps.files import write_text
    from taps.report import ablations

    shipped = plan.has_source(ModelSpec(setup.model, setup.pretrained), setup.prompts)
    variants = ablations.variants(name, setup.values, shipped_source=shipped)
    plan.check_values([ablations.METHOD], setup.values)
    jobs, lengths = plan.plan_evaluation(setup, ["zero_shot", *variants])
    console = Console()
    with working_folder(out) as (folder, copies):
        outcome = carry_out(console, jobs, lengths, folder, how, copies)
        results = read_results(folder, baseline="zero_shot")
        text = ablations.ablation_text(name, results)
        if plots:
            ablations.draw_ablation(name, results, folder / f"{name}.svg")
            text += f"\n![{name}]({name}.svg)\n"
        write_text(folder / f"{name}.md", text)
    print(text)
    print(f"{out}/{name}.md")
    tell_unfinished(console, outcome)
