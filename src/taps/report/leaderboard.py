"""Methods against each other over data sets: who is first, and who cannot be told from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from taps.errors import DataError, SettingsError
from taps.evaluate.blocks import RICHER
from taps.evaluate.measures import MEASURES, Measure, mean
from taps.evaluate.results import Results, blocks_in, read_results
from taps.report.ranks import LEVEL, Ranking, rank_methods
from taps.report.scores import interval, known_measures, score, score_table, values_of, with_ranks
from taps.report.table import Cell, Table, markdown


@dataclass(frozen=True)
class Leaderboard:
    """What was compared, and how it came out.

    Attributes:
        results: All runs.
        measure: What methods are ordered by.
        baseline: The method that differences are to.
        ranking: Ranks and tests; None where fewer than two methods have every data set.
        table: The measure by method and data set, the best first.
        richer: That of the runs with richer class texts, where there are others too: the two are not mixed.
    """

    results: Results
    measure: Measure
    baseline: str
    ranking: Ranking | None
    table: Table
    richer: Leaderboard | None = None

    @property
    def blocks(self) -> list[Leaderboard]:
        """This one, and that of richer texts where there are both."""
        return [self] if self.richer is None else [self, self.richer]

    def markdown(self) -> str:
        """The tables as text."""
        return "\n".join(markdown(board.table) for board in self.blocks)


def leaderboard(folders: Sequence[Path], measure: str = "top1", baseline: str | None = None) -> Leaderboard:
    """The leaderboard of what is finished in folders of evaluations.

    Args:
        folders: Made by `taps eval` or `taps compare`, with one model.
        measure: What methods are ordered by.
        baseline: The method that differences are to; zero-shot, or else the first, unless given.
    """
    if measure not in MEASURES:
        raise SettingsError(f"Unknown measure {measure!r}: use one of {', '.join(MEASURES)}.")
    there, chosen = blocks_in(folders), MEASURES[measure]
    if len(there) < 2:
        return _of_block(folders, chosen, baseline, next(iter(there), None))
    if baseline is not None and not any(baseline in methods for methods in there.values()):
        raise SettingsError(f"{baseline!r} has no results to compare with.")
    one, richer = (
        _of_block(folders, chosen, baseline if baseline in methods else None, block, named=True)
        for block, methods in there.items()
    )
    return replace(one, richer=richer)


def _of_block(
    folders: Sequence[Path], chosen: Measure, baseline: str | None, block: str | None, *, named: bool = False
) -> Leaderboard:
    """The leaderboard of the runs with one kind of class texts, which its title names where it is wanted."""
    results = read_results(folders, baseline=baseline, block=block)
    if chosen not in known_measures(results):
        there = ", ".join(each.name for each in known_measures(results))
        raise DataError(f"No run has the measure {chosen.name!r}; there are {there}.")
    _check_alike(results)
    against = baseline or results.methods[0]
    ranking = _ranking(results, chosen, against)
    table = with_ranks(score_table(results, chosen, against, linked=True, beside=False), ranking, chosen)
    if named or block == RICHER:
        table = replace(table, title=f"{table.title}; {block}")
    return Leaderboard(results, chosen, against, ranking, table)


def _check_alike(results: Results) -> None:
    """Refuse runs that did not see the same images in the same order."""
    for dataset in results.datasets:
        seen: dict[int, list[str]] = {}
        for method in results.methods_of(dataset):
            for result in results.of(dataset, method):
                if seen.setdefault(result.seed, result.run.keys) != result.run.keys:
                    raise DataError(
                        f"{method} did not see the same images of {dataset} in the same order as the others "
                        f"(seed {result.seed}); run it again into one folder with them."
                    )


def _ranking(results: Results, measure: Measure, control: str) -> Ranking | None:
    """Over the methods that have the measure on every data set."""
    whole = [
        method
        for method in results.methods
        if all(values_of(results.of(dataset, method), measure) for dataset in results.datasets)
    ]
    if len(whole) < 2:
        return None
    blocks = []
    for dataset in results.datasets:
        columns = [values_of(results.of(dataset, method), measure) for method in whole]
        blocks += [(dataset, [measure.sign * value for value in row]) for row in zip(*columns, strict=True)]
    return rank_methods(whole, blocks, control)


def blind(ranking: Ranking) -> str:
    """A sentence where the tests cannot find a difference whatever the numbers are."""
    if ranking.least < LEVEL:
        return ""
    return (
        f"With {_count(range(ranking.sets), 'data set')} and {len(ranking.methods)} methods "
        f"no difference can reach the {100 * LEVEL:.0f} % level (the smallest p there can be is "
        f"{ranking.least:.2g}): the bars say nothing. Take more data sets or fewer methods; "
        "`taps report` compares images on each set."
    )


def rank_table(results: Results, ranking: Ranking, measure: Measure, baseline: str) -> Table:
    """Mean ranks, data sets on which a method is better or worse than the baseline, and its p."""
    rows = []
    for name, rank in zip(ranking.methods, ranking.mean_ranks, strict=True):
        won, lost = _won_and_lost(results, measure, name, baseline)
        p = ranking.against.get(name)
        told = "" if p is None else Cell("< 0.001" if p < 1e-3 else f"{p:.3f}", value=p)
        rows.append((name, Cell(f"{rank:.2f}", value=rank), "" if p is None else f"{won} / {lost}", told))
    columns = ("method", "mean rank", "better / worse", "p")
    note = (
        f"better / worse: data sets on which it is, than {baseline}; p: Wilcoxon's, corrected by Holm's "
        f"procedure for the comparisons with {baseline} alone."
    )
    return Table(f"Ranks by {measure.title}", columns, tuple(rows), (note,))


def _won_and_lost(results: Results, measure: Measure, method: str, baseline: str) -> tuple[int, int]:
    pairs = [
        (score(results.of(dataset, method), measure), score(results.of(dataset, baseline), measure))
        for dataset in results.datasets
    ]
    gains = [
        measure.sign * (mine - theirs) for mine, theirs in pairs if mine is not None and theirs is not None
    ]
    return sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)


def summary(board: Leaderboard) -> str:
    """What was compared, and who is first, in two or three sentences."""
    results = board.results
    seeds = sorted({result.seed for runs in results.results.values() for result in runs})
    text = (
        f"{_count(results.methods, 'method')} on {_count(results.datasets, 'data set')}, "
        f"{_count(seeds, 'order')} each; "
        f"{board.measure.title}: {board.measure.said} {board.measure.better.capitalize()} is better."
    )
    ranking = board.ranking
    if ranking is None:
        return text
    alike = next((last for first, last in ranking.groups if first == 0), 0)
    shown = f" {ranking.methods[0]} has the best mean rank ({ranking.mean_ranks[0]:.2f})"
    if blind(ranking):
        return f"{text}{shown}."
    if alike:
        return f"{text}{shown}; {', '.join(ranking.methods[1 : alike + 1])} cannot be told from it."
    return f"{text}{shown}, and differs from every other."


def _count(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def as_dict(board: Leaderboard) -> dict[str, Any]:
    """Everything on the page as plain values."""
    results = board.results
    scores: dict[str, Any] = {}
    for measure in known_measures(results):
        by_set = scores.setdefault(measure.name, {})
        for (dataset, method), runs in results.results.items():
            values = values_of(runs, measure)
            if values:
                half = interval(values)[1] if measure.pool is mean else None
                by_set.setdefault(dataset, {})[method] = {
                    **{"score": measure.pool(values), "half": half, "values": values},
                    "seeds": [result.seed for result in runs],
                }
    ranking = None if board.ranking is None else asdict(board.ranking)
    if ranking is not None:
        ranking["p"] = [{"methods": pair, "p": p} for pair, p in ranking["p"].items()]
    return {
        **{"measure": board.measure.name, "model": results.model, "baseline": board.baseline},
        **{"datasets": results.datasets, "methods": results.methods, "scores": scores, "ranking": ranking},
        **({} if board.richer is None else {"richer_texts": as_dict(board.richer)}),
    }
