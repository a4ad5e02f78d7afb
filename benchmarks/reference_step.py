"""The published way of computing a step, timed beside ours: `taps bench step` as a script.

    python benchmarks/reference_step.py --model ViT-B-32 --classes 100 --buffer 150 --views 16

The way itself is `taps.bench.reference_step.ReferenceStep`.
"""

from __future__ import annotations

import typer

from taps.cli.bench import step

if __name__ == "__main__":
    typer.run(step)
