"""Write the averaged weights of a checkpoint as `pocket.safetensors` and `pocket.json`.

Everything is stored in half precision except the token table, whose rows become int8 with one
scale each (`token_embedding.weight.scale`): it is half of the file otherwise.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

TABLE = "token_embedding.weight"


def quantise_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and their half-precision scales; rounding is done against the stored scale."""
    scale = (table.abs().amax(1) / 127).clamp_min(1e-6).half()
    return (table / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def export(checkpoint: Path, out: Path) -> None:
    stored = torch.load(checkpoint, map_location="cpu", weights_only=True)
    state = {k: v.float() for k, v in stored["ema"].items()}
    tensors = {k: v.half().contiguous() for k, v in state.items() if k != TABLE}
    tensors[TABLE], tensors[TABLE + ".scale"] = quantise_rows(state[TABLE])
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "pocket.safetensors")
    (out / "pocket.json").write_text(json.dumps(stored["config"], indent=2) + "\n")
    size = (out / "pocket.safetensors").stat().st_size
    print(f"{len(tensors)} tensors, {size / 1e6:.1f} MB, step {stored['step']}, {stored['spent']:.0f}s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="student.pt of train.py")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    export(args.checkpoint, args.out)


if __name__ == "__main__":
    main()
