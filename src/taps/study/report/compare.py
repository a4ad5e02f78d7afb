"""Methods against each other over data sets: a leaderboard as a page, LaTeX, CSV and JSON."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taps.disk import claim
from taps.errors import DataError, SettingsError
from taps.files import write_json, write_text
from taps.registry import nearest
from taps.study.evaluate.evaluate import evaluate, is_evaluation
from taps.study.evaluate.measures import MEASURES, Measure, mean
from taps.study.evaluate.options import Execution
from taps.study.evaluate.plan import Entry
from taps.study.evaluate.pooled import RICHER
from taps.study.evaluate.results import Results, blocks_in, read_results
from taps.study.report import charts, tables
from taps.study.report.document import document, side_by_side
from taps.study.report.pages import write_details
from taps.study.report.table import Table, csv_table, html_table, latex, markdown


@dataclass(frozen=True)
class Leaderboard:
    """What was compared, and how it came out.

    Attributes:
        results: All runs.
        measure: What methods are ordered by.
        baseline: The method that differences are to.
        table: The measure by method and data set, the best first.
        richer: The leaderboard of runs with richer class texts, where there are others too.
    """

    results: Results
    measure: Measure
    baseline: str
    table: Table
    richer: Leaderboard | None = None

    @property
    def blocks(self) -> list[Leaderboard]:
        """This leaderboard, and that of richer texts where there are both."""
        return [self] if self.richer is None else [self, self.richer]

    def markdown(self) -> str:
        """The tables as text."""
        return "\n".join(markdown(board.table) for board in self.blocks)


def compare(
    dataset: str | Sequence[str],
    methods: Sequence[Entry],
    out: str | Path,
    *,
    measure: str = "top1",
    how: Execution = Execution(resume=True),
    **setup: Any,
) -> Leaderboard:
    """Evaluate methods on data sets, and write their leaderboard into the same folder.

    Args:
        dataset: Names or paths.
        methods: By name; or (name in tables, method, settings) for variants of one.
        out: Folder of the evaluation; what is finished in it is not run again.
        measure: What methods are ordered by, a name from `taps.study.evaluate.measures`.
        how: Processes, device, time.
        setup: Other fields of `Setup`: model, seeds, limit, settings, …
    """
    evaluate(dataset, methods, out, how, **setup)
    board = leaderboard([Path(out)], measure)
    write_leaderboard(board, Path(out))
    return board


def leaderboard(folders: Sequence[Path], measure: str = "top1", baseline: str | None = None) -> Leaderboard:
    """The leaderboard of what is finished in folders of evaluations with one model, ordered by a measure.

    Differences are to the baseline: zero-shot, or else the first method, unless given.
    """
    if measure not in MEASURES:
        every = ", ".join(MEASURES)
        raise SettingsError(f"Unknown measure {measure!r}: use one of {every}.{nearest(measure, MEASURES)}")
    blocks, chosen = blocks_in(folders), MEASURES[measure]
    if len(blocks) < 2:
        return _of_block(folders, chosen, baseline, next(iter(blocks), None))
    if baseline is not None and not any(baseline in methods for methods in blocks.values()):
        raise SettingsError(f"{baseline!r} has no results to compare with.")
    one, richer = (
        _of_block(folders, chosen, baseline if baseline in methods else None, block, named=True)
        for block, methods in blocks.items()
    )
    return replace(one, richer=richer)


def _of_block(
    folders: Sequence[Path], chosen: Measure, baseline: str | None, block: str | None, *, named: bool = False
) -> Leaderboard:
    """The leaderboard of the runs with one kind of class texts; `named`: its title says which."""
    results = read_results(folders, baseline=baseline, block=block)
    if chosen not in tables.known_measures(results):
        known = ", ".join(each.name for each in tables.known_measures(results))
        raise DataError(f"No run has the measure {chosen.name!r}; choose from {known}.")
    against = baseline or results.methods[0]
    table = tables.score_table(results, chosen, against, linked=True, beside=False, best_first=True)
    if named or block == RICHER:
        table = replace(table, title=f"{table.title}; {block}")
    return Leaderboard(results, chosen, against, table)


def summary(board: Leaderboard) -> str:
    """What was compared."""
    results = board.results
    return (
        f"{_count(results.methods, 'method')} on {_count(results.datasets, 'data set')}, "
        f"{_count(results.seeds, 'order')} each; "
        f"{board.measure.title}: {board.measure.description} {board.measure.better.capitalize()} is better."
    )


def _count(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def as_dict(board: Leaderboard) -> dict[str, Any]:
    """Everything on the page as plain values."""
    results = board.results
    scores: dict[str, Any] = {}
    for measure in tables.known_measures(results):
        by_set = scores.setdefault(measure.name, {})
        for (dataset, method), runs in results.results.items():
            values = tables.values_of(runs, measure)
            if values:
                half = tables.interval(values)[1] if measure.pool is mean else None
                by_set.setdefault(dataset, {})[method] = {
                    **{"score": measure.pool(values), "half": half, "values": values},
                    "seeds": [result.seed for result in runs],
                }
    return {
        **{"measure": board.measure.name, "model": results.model, "baseline": board.baseline},
        **{"datasets": results.datasets, "methods": results.methods, "scores": scores},
        **({} if board.richer is None else {"richer_texts": as_dict(board.richer)}),
    }


def write_leaderboard(board: Leaderboard, out: Path) -> list[Path]:
    """Write leaderboard.html, .tex, .csv and .json, which are returned, and the pages its cells link to."""
    claim(out, is_evaluation)
    for each in board.blocks:
        write_details(each.results, out)
    paths = {kind: out / f"leaderboard.{kind}" for kind in ("html", "tex", "csv", "json")}
    pages = [line for each in board.blocks for line in _page(each)]
    write_text(paths["html"], document(_title(board), pages))
    needs = f"% {_title(board)}; needs \\usepackage{{booktabs}}, and graphicx for wide tables"
    made = []
    for each in board.blocks:
        measures = [measure for measure in tables.known_measures(each.results) if not measure.of]
        made += [each.table, tables.overview_table(each.results, measures)]
    write_text(paths["tex"], "\n".join([needs, *map(latex, made)]))
    write_text(paths["csv"], "\n".join(csv_table(each.table) for each in board.blocks))
    write_json(paths["json"], as_dict(board))
    return list(paths.values())


def _title(board: Leaderboard) -> str:
    block = board.results.block if board.richer is not None or board.results.block == RICHER else None
    texts = "" if block is None else f", {block}"
    return f"Leaderboard: {board.measure.title} with {board.results.model['name']}{texts}"


def _page(board: Leaderboard) -> list[str]:
    results, measure = board.results, board.measure
    measures = tables.known_measures(results)
    costs = {"ms_p50": "time", "rate": "labels asked", "ece": "calibration error"}
    trade_offs = [
        charts.trade_off(results, MEASURES[name], measure, title=f"{measure.title} against {cost}")
        for name, cost in costs.items()
    ]
    return [
        f"<h1>{html.escape(_title(board))}</h1>",
        f"<p>{html.escape(summary(board))}</p>",
        html_table(board.table, sortable=True),
        *(f"<p class=note>{html.escape(line)}</p>" for line in results.missing()),
        "<h2>What it costs</h2>",
        "<p>Means over data sets. The line joins methods that no cheaper one beats (the Pareto front).</p>",
        side_by_side(trade_offs),
        "<h2>Calibration</h2>",
        "<p>How often predictions of a confidence are right, over all data sets; larger points are more "
        "images. Below the dashed line a method is surer of itself than it should be. The ECE here is that "
        "of all images together.</p>",
        side_by_side(charts.reliability_of_all(results, results.datasets), small=True),
        "<h2>Every measure</h2>",
        html_table(tables.overview_table(results, measures), sortable=True),
        *(_folded(board, each) for each in measures if each != measure),
        "<h2>Settings</h2>",
        html_table(tables.settings_table(results)),
    ]


def _folded(board: Leaderboard, measure: Measure) -> str:
    table = tables.score_table(board.results, measure, board.baseline, linked=True, beside=False)
    heading = html.escape(f"{measure.heading} by data set")
    return f"<details><summary>{heading}</summary>{html_table(table, sortable=True)}</details>"
