"""`taps ablate`: one thing of TAPS changed at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("ablate")
def ablate(
    name: Annotated[
        str, typer.Argument(help="rate, alpha, buffer, selection, eviction, alignment, reset or policy.")
    ],
    dataset: Annotated[
        str,
        typer.Option("--dataset", "--data", help="Names (`taps data list`) or paths, separated by commas."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    model: Annotated[str, typer.Option(help="pocket, ViT-B-16, a checkpoint's path, …")] = "pocket",
    pretrained: Annotated[
        str | None, typer.Option(help="Weights for an architecture: a file, openai, laion2b.")
    ] = None,
    prompts: Annotated[str | None, typer.Option(help="A directory of trained prompts.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Source statistics, for the ablation of alignment.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(envvar="TAPS_DATA", help="Folder that holds the named data sets.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="One run of each variant for each.")] = "1,2,3",
    rate: Annotated[float | None, typer.Option(help="Share of images to ask about.")] = None,
    buffer: Annotated[int | None, typer.Option(help="How many labelled images are kept.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many images of each order.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Published settings: auto, or a name such as dtd.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting of taps: name=value.")
    ] = None,
    corrupt: Annotated[
        str | None, typer.Option(help="See every image through a corruption, or `mix`.")
    ] = None,
    severity: Annotated[int, typer.Option(help="Of the corruption, 1 to 5.")] = 3,
    jobs: Annotated[int, typer.Option(help="Runs side by side, each a process with one thread.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with what is in the folder.")] = False,
    plots: Annotated[bool, typer.Option(help="Draw the figure (needs the extra `plot`).")] = True,
) -> None:
    """Repeat one of the paper's ablations: a table and a figure.

    Says where the buffer never filled, or nothing was asked, so that the ablation cannot show anything.
    """
    from rich.console import Console

    from taps.cli.common import parse_settings
    from taps.cli.eval import parse_list, parse_seeds
    from taps.cli.progress import RunsProgress
    from taps.evaluate import plan
    from taps.evaluate.evaluate import evaluate
    from taps.evaluate.jobs import ModelSpec, StreamSpec
    from taps.evaluate.results import read_results
    from taps.files import write_text
    from taps.report import ablations
    from taps.report.figure import pyplot

    if plots:
        pyplot()  # a missing library is said before the hours, not after
    values = {"rate": rate, "buffer": buffer, "source": source, **parse_settings(set_ or [])}
    shipped = plan.has_source(ModelSpec(model, pretrained), prompts)
    variants = ablations.variants(name, values, shipped_source=shipped)
    plan.check_values([ablations.METHOD], values)
    streams = plan.open_streams(
        [
            StreamSpec(place, None if root is None else str(root), corrupt, severity if corrupt else 3)
            for place in parse_list(dataset)
        ]
    )
    runs = plan.make_jobs(
        [stream for stream, _ in streams],
        ModelSpec(model, pretrained),
        ["zero_shot", *variants],
        parse_seeds(seeds),
        values,
        prompts=prompts,
        preset=preset,
        limit=limit,
    )
    console = Console()
    with RunsProgress(console) as progress:
        outcome = evaluate(
            runs,
            out,
            processes=jobs,
            device=device,
            resume=resume,
            lengths={stream.name: len(loaded) for stream, loaded in streams},
            watcher=progress.watcher,
        )
    results = read_results(out, baseline="zero_shot")
    text = ablations.ablation_text(name, results)
    if plots:
        ablations.draw_ablation(name, results, out / f"{name}.png")
        text += f"\n![{name}]({name}.png)\n"
    write_text(out / f"{name}.md", text)
    print(text)
    print(out / f"{name}.md")
    for run in outcome.unfinished:
        console.print(
            f"unfinished: {run['dataset']} {run['method']} seed {run['seed']}: {run['why']}", markup=False
        )
    if outcome.unfinished:
        raise typer.Exit(1)
