"""Methods against each other over data sets: a leaderboard as a page, LaTeX, CSV and JSON."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.evaluate.blocks import RICHER
from taps.evaluate.evaluate import evaluate
from taps.evaluate.measures import MEASURES, Measure
from taps.evaluate.options import Execution, Setup
from taps.evaluate.plan import Entry, plan_evaluation
from taps.files import write_json, write_text
from taps.report.charts import reliability_of_all, trade_off
from taps.report.details import write_looks
from taps.report.document import charts, document
from taps.report.leaderboard import Leaderboard, as_dict, blind, leaderboard, rank_table, summary
from taps.report.published import published_means
from taps.report.ranks import LEVEL
from taps.report.rows import dotplot
from taps.report.scores import known_measures, overview_table, score_table
from taps.report.table import Table, csv_table, html_table, latex
from taps.report.tables import corruption_table, settings_table

NAME = "leaderboard"
PUBLISHED = "Published, of other models"
TEST = (
    "Points: mean rank over the orders of all data sets, 1 is best. A bar on the right joins methods of "
    f"which no two differ at the {100 * LEVEL:.0f} % level: Wilcoxon's signed-rank test over data sets for "
    "each pair (orders of a set are averaged, for they share its images), all pairs corrected by Holm's "
    "procedure, as recommended in place of the Nemenyi test by Benavoli, Corani and Mangili (JMLR 17, 2016)."
)


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
        measure: What methods are ordered by, a name from `taps.evaluate.measures`.
        how: How the runs are carried out.
        setup: Anything else that `Setup` has: model, seeds, limit, settings, …
    """
    names = (dataset,) if isinstance(dataset, str) else tuple(dataset)
    jobs, lengths = plan_evaluation(Setup(names, **setup), methods)
    evaluate(jobs, Path(out), how, lengths=lengths)
    board = leaderboard([Path(out)], measure)
    write_leaderboard(board, Path(out))
    return board


def write_leaderboard(board: Leaderboard, out: Path, *, published: bool = False) -> list[Path]:
    """Write leaderboard.html, .tex, .csv and .json, and the pages its cells link to.

    Args:
        board: The leaderboard.
        out: Where to.
        published: Whether means of the field, of other models, stand below on the page and in LaTeX.

    Returns:
        The files written, without those pages.
    """
    for each in board.blocks:
        write_looks(each.results, out)
    paths = {kind: out / f"{NAME}.{kind}" for kind in ("html", "tex", "csv", "json")}
    means = published_means() if published else []
    pages = [line for each in board.blocks for line in _page(each)]
    pages += [f"<h2>{PUBLISHED}</h2>", *map(html_table, means)] if means else []
    write_text(paths["html"], document(_title(board), pages))
    needs = f"% {_title(board)}; needs \\usepackage{{booktabs}}, and graphicx for wide tables"
    tables = [table for each in board.blocks for table in (each.table, _overview(each)) if table.rows]
    write_text(paths["tex"], "\n".join([needs, *map(latex, [*tables, *means])]))
    write_text(paths["csv"], "\n".join(csv_table(each.table) for each in board.blocks))
    write_json(paths["json"], as_dict(board))
    return list(paths.values())


def _overview(board: Leaderboard) -> Table:
    measures = [each for each in known_measures(board.results) if not each.of]
    return overview_table(board.results, measures)


def _title(board: Leaderboard) -> str:
    block = board.results.block if board.richer is not None or board.results.block == RICHER else None
    texts = "" if block is None else f", {block}"
    return f"Leaderboard: {board.measure.title} with {board.results.model['name']}{texts}"


def _page(board: Leaderboard) -> list[str]:
    results, measure = board.results, board.measure
    measures = known_measures(results)
    costs = [
        trade_off(results, MEASURES["ms_p50"], measure, title=f"{measure.title} against time"),
        trade_off(results, MEASURES["rate"], measure, title=f"{measure.title} against labels asked"),
        trade_off(results, MEASURES["ece"], measure, title=f"{measure.title} against calibration error"),
    ]
    return [
        f"<h1>{html.escape(_title(board))}</h1>",
        f"<p>{html.escape(summary(board))}</p>",
        html_table(board.table, sortable=True),
        *(f"<p class=note>{html.escape(line)}</p>" for line in results.missing()),
        *_ranks(board),
        "<h2>What it costs</h2>",
        "<p>Means over data sets. The line joins methods that no cheaper one beats (the Pareto front).</p>",
        charts(picture for picture in costs if picture),
        "<h2>Calibration</h2>",
        "<p>How often predictions of a confidence are right, over all data sets; larger points are more "
        "images. Below the dashed line a method is surer of itself than it should be. The ECE here is that "
        "of all images together.</p>",
        charts(reliability_of_all(results, results.datasets), small=True),
        "<h2>Every measure</h2>",
        html_table(overview_table(results, measures), sortable=True),
        html_table(corrupted) if (corrupted := corruption_table(results)).rows else "",
        *(_folded(board, each) for each in measures if each != measure),
        "<h2>Settings</h2>",
        html_table(settings_table(results)),
    ]


def _folded(board: Leaderboard, measure: Measure) -> str:
    table = score_table(board.results, measure, board.baseline, linked=True, beside=False)
    heading = html.escape(f"{measure.heading} by data set")
    return f"<details><summary>{heading}</summary>{html_table(table, sortable=True)}</details>"


def _ranks(board: Leaderboard) -> list[str]:
    ranking = board.ranking
    if ranking is None:
        return []
    rows = [(name, rank, None) for name, rank in zip(ranking.methods, ranking.mean_ranks, strict=True)]
    picture = dotplot(rows, x_title="mean rank", title="Mean ranks, and who differs", groups=ranking.groups)
    table = html_table(rank_table(board.results, ranking, board.measure, board.baseline))
    left = sorted({*board.results.methods} - {*ranking.methods})
    return [
        "<h2>Ranks</h2>",
        f"<p>{html.escape(TEST)}</p>",
        f"<p class=warning>{html.escape(blind(ranking))}</p>" if blind(ranking) else "",
        f"<p class=note>Not ranked, because a data set is missing: {html.escape(', '.join(left))}.</p>"
        if left
        else "",
        charts([picture, f"<div>{table}</div>"]),
    ]
