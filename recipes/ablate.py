"""The paper's ablations: one thing of TAPS changed at a time, everything else as it is.

python recipes/ablate.py eviction --dataset pets.zip --model pocket --out results/eviction
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from table_tools import has_source

from taps.cli.eval import Out, carry_out, tell_unfinished
from taps.cli.main import run
from taps.cli.options import new_app, with_options
from taps.cluster.connect import find_ray
from taps.errors import SettingsError
from taps.files import write_text
from taps.study.evaluate import plan
from taps.study.evaluate.jobs import ModelSpec
from taps.study.evaluate.options import Execution, Setup
from taps.study.evaluate.results import Result, Results, mean_of, read_results
from taps.study.report.charts import dotplot
from taps.study.report.svg import standalone
from taps.study.report.table import Table, markdown
from taps.study.report.tables import detail_table, difference_table, interval, score_table

app = new_app()
METHOD = "taps"
Variant = tuple[str, str, Mapping[str, Any]]


@dataclass(frozen=True)
class Ablation:
    """One question about the method.

    Attributes:
        question: What it asks, for titles.
        variants: Settings of each by its name in tables; the first is what the others are compared with.
        evicts: Whether it can only show something where the buffer fills.
        labels: Whether it can only show something where questions are asked.
        aligns: Whether it needs source statistics.
    """

    question: str
    variants: dict[str, dict[str, Any]]
    evicts: bool = False
    labels: bool = True
    aligns: bool = False


def _each(setting: str, values: Sequence[float], shown: str) -> dict[str, dict[str, Any]]:
    return {shown.format(value): {setting: value} for value in values}


ABLATIONS: dict[str, Ablation] = {
    "rate": Ablation(
        "How many questions are needed?",
        {"rate 1%": {"rate": 0.01}, "rate 5%": {"rate": 0.05}, "rate 10%": {"rate": 0.10}},
    ),
    "alpha": Ablation(
        "How much should labels weigh against entropy?",
        _each("weight_ce", (0.1, 0.5, 1.0, 2.0, 5.0, 10.0), "alpha {:g}"),
    ),
    "buffer": Ablation(
        "How large must the memory be?",
        _each("buffer", (25, 50, 100, 150), "buffer {:d}"),
        evicts=True,
    ),
    "selection": Ablation(
        "Is uncertainty the right reason to ask?",
        {"random": {"policy": "random"}, "by entropy": {"policy": "dynamic"}},
    ),
    "eviction": Ablation(
        "Does a class-balanced memory help?",
        {"random": {"eviction": "random"}, "class-balanced": {"eviction": "balanced"}},
        evicts=True,
    ),
    "alignment": Ablation(
        "Does alignment to the source set help?",
        {
            "none": {"weight_coarse": 0.0, "weight_fine": 0.0},
            "coarse": {"weight_coarse": 1.0, "weight_fine": 0.0},
            "fine": {"weight_coarse": 0.0, "weight_fine": 1.0},
            "coarse and fine": {"weight_coarse": 1.0, "weight_fine": 1.0},
        },
        labels=False,
        aligns=True,
    ),
    "reset": Ablation(
        "Should prompts carry over to the next image?",
        {"every sample": {"reset": "sample"}, "never": {"reset": "never"}},
        labels=False,
    ),
    "policy": Ablation(
        "Does the threshold need normal entropies?",
        {"dynamic": {"policy": "dynamic"}, "quantile": {"policy": "quantile"}},
    ),
}


def find_ablation(name: str) -> Ablation:
    if name not in ABLATIONS:
        raise SettingsError(f"There is no ablation {name!r}; use one of {', '.join(ABLATIONS)}.")
    return ABLATIONS[name]


def variants(name: str, given: Mapping[str, Any], *, shipped_source: bool = False) -> list[Variant]:
    """What to run, as `make_jobs` takes it; a setting that is varied cannot be given as well.

    Args:
        name: Of the ablation.
        given: Settings from the user.
        shipped_source: Whether source statistics come with the package for the model.
    """
    ablation = find_ablation(name)
    varied = {setting for own in ablation.variants.values() for setting in own}
    clash = sorted(varied & {setting for setting, value in given.items() if value is not None})
    if clash:
        raise SettingsError(f"The ablation {name} varies {', '.join(clash)} itself; leave it out.")
    if ablation.aligns and not given.get("source") and not shipped_source:
        raise SettingsError(f"The ablation {name} needs --source, statistics made by `taps stats`.")
    return [(label, METHOD, own) for label, own in ablation.variants.items()]


def cannot_show(name: str, results: Results) -> list[str]:
    """Sentences for each data set on which the ablation is blind, whatever its numbers are."""
    ablation = find_ablation(name)
    said = []
    for dataset in results.datasets:
        runs = [run for label in ablation.variants for run in results.of(dataset, label)]
        if ablation.labels and not any(run.row["answered"] for run in runs):
            said.append(f"{dataset}: no question was asked, so this ablation cannot show anything here.")
        elif ablation.evicts and not any(run.row["buffer_full"] for run in runs):
            most = max(run.row["buffer_fill"] for run in runs)
            said.append(
                f"{dataset}: the buffer never filled ({most} labels at most), nothing was ever evicted, "
                "so this ablation cannot show anything here."
            )
        elif ablation.evicts:
            slack = [
                label
                for label in ablation.variants
                if not any(run.row["buffer_full"] for run in results.of(dataset, label))
            ]
            if slack and name == "buffer":
                said.append(f"{dataset}: the buffer never filled at {', '.join(slack)}; these must be alike.")
    return said


def ablation_tables(name: str, results: Results) -> list[Table]:
    """Accuracies, differences to the first variant, and what it took."""
    first = next(iter(find_ablation(name).variants))
    order = ["zero_shot", *find_ablation(name).variants]
    tables = [score_table(results, baseline=first), difference_table(results, first), detail_table(results)]
    return [_ordered(table, order) for table in tables]


def _ordered(table: Table, order: list[str]) -> Table:
    def place(row: tuple[str, ...]) -> tuple[str, int]:
        name, dataset = (row[1], row[0]) if table.left == 2 else (row[0], "")
        return dataset, order.index(name) if name in order else len(order)

    return replace(table, rows=tuple(sorted(table.rows, key=place)))


def ablation_text(name: str, results: Results) -> str:
    """The report of an ablation, with what it cannot show first."""
    parts = [f"# Ablation: {name}\n\n{find_ablation(name).question}\n"]
    parts += [f"**{sentence}**\n" for sentence in cannot_show(name, results)]
    parts += [markdown(table) for table in ablation_tables(name, results)]
    return "\n".join(parts)


def draw_ablation(name: str, results: Results, path: Path) -> None:
    """Accuracy of each variant with its interval, a picture a data set; the dashed line is zero-shot."""
    pictures = []
    for dataset in results.datasets:
        rows = [
            (_named(runs, label), *interval([100 * result.top1 for result in runs]))
            for label in find_ablation(name).variants
            if (runs := results.of(dataset, label))
        ]
        base = [100 * result.top1 for result in results.of(dataset, "zero_shot")]
        level = float(np.mean(base)) if base else None
        pictures.append(dotplot(rows, x_title="top-1 accuracy, %", title=dataset, level=level))
    write_text(path, standalone(pictures, columns=2))


def _named(runs: Sequence[Result], label: str) -> str:
    """A variant's name and what it really asked."""
    return f"{label} (asked {100 * mean_of(runs, 'rate'):.1f} %)"


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
    find_ray(how.ray, how)
    shipped = has_source(ModelSpec(setup.model, setup.pretrained), setup.prompts)
    wanted = variants(name, setup.values, shipped_source=shipped)
    plan.check_values([METHOD], setup.values)
    jobs, lengths = plan.plan_evaluation(setup, ["zero_shot", *wanted])
    console = Console()
    folder = Path(out)
    outcome = carry_out(console, jobs, lengths, folder, how)
    results = read_results(folder, baseline="zero_shot")
    text = ablation_text(name, results)
    if plots:
        draw_ablation(name, results, folder / f"{name}.svg")
        text += f"\n![{name}]({name}.svg)\n"
    write_text(folder / f"{name}.md", text)
    print(text)
    print(f"{out}/{name}.md")
    tell_unfinished(console, outcome)


if __name__ == "__main__":
    run(app)
