"""Join the towers of `text.py` and `vision.py` into `pocket.safetensors` and `pocket.json`.

Everything is stored in half precision except the token table, whose rows become int8 with one
scale each (`token_embedding.weight.scale`): it is half of the file otherwise.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

TABLE = "token_embedding.weight"


def quantise_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and their half-precision scales; rounding is done against the stored scale."""
    scale = (table.abs().amax(1) / 127).clamp_min(1e-6).half()
    return (table / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def export(text: Path, vision: Path, out: Path) -> None:
    stored = torch.load(vision, map_location="cpu", weights_only=True)
    table = torch.load(text / "table.pt", map_location="cpu", weights_only=True)
    tensors = dict(torch.load(text / "text.pt", map_location="cpu", weights_only=True))
    tensors |= stored["ema"]
    tensors["logit_scale"] = stored["log_scale"].float().clamp(max=math.log(100)).half()
    tensors |= {TABLE: table["table"], TABLE + ".scale": table["scale"]}
    out.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()}, out / "pocket.safetensors")
    (out / "pocket.json").write_text(json.dumps(stored["config"], indent=2) + "\n")
    size = (out / "pocket.safetensors").stat().st_size
    print(f"{len(tensors)} tensors, {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="folder that text.py wrote")
    parser.add_argument("--vision", type=Path, required=True, help="file that vision.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    export(args.text, args.vision, args.out)


if __name__ == "__main__":
    main()
