"""Where the paper's two propositions hold and where they fail: the tables of docs/results/theory.md.

    python recipes/theory/simulate.py --streams 2000 --length 5000 --seed 0 --out theory

writes theory/simulate.json. No model and no images; about half a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from study_balance import measure_datasets, measure_settings
from study_rate import measure_convergence, measure_limits, measure_shapes

from taps.disk import make_folder
from taps.files import write_json

Tables = dict[str, list[dict[str, Any]]]


def simulate(streams: int, length: int, seed: int, rate: float) -> Tables:
    """Every table. Proposition 1 gets a quarter of the streams for each setting and a tenth for each data
    set; Proposition 2 all for the case that is proved and half for each other shape."""

    def drawn(place: int) -> np.random.Generator:
        return np.random.default_rng([seed, place])

    return {
        "balance": measure_settings(drawn(1), max(1, streams // 4), length),
        "datasets": measure_datasets(drawn(2), max(1, streams // 10), rate),
        "convergence": measure_convergence(drawn(4), streams, length, rate),
        "shapes": measure_shapes(drawn(5), max(1, streams // 2), length, rate),
        "limits": measure_limits(drawn(8), 200 * streams, rate),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--length", type=int, default=5000, help="samples of a stream; 200 at least")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = vars(parser.parse_args(arguments))
    out = given.pop("out")
    make_folder(out)
    write_json(out / "simulate.json", {"settings": given, "tables": simulate(**given)})


if __name__ == "__main__":
    main()
