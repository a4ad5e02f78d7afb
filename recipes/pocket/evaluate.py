"""Zero-shot top-1 of exported weights, straight from the zips: one centre view, "a photo of a {}."

Reads `pocket.safetensors` and `pocket.json`, so that it measures what is shipped, int8 table and
all. Prints one line per set and writes them as JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from bpe import EOT, SOT, Bpe
from model import Pocket, PocketConfig
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

TEMPLATE = "a photo of a {}."
SETS = {
    "tiny-imagenet-val": [""],
    "caltech101-test": [""],
    "imagenette-val": [""],
    "pacs": ["photo", "art_painting", "cartoon", "sketch"],
}


def load(weights: Path) -> tuple[Pocket, dict]:
    config = json.loads((weights / "pocket.json").read_text())
    tensors = load_file(weights / "pocket.safetensors")
    state = {}
    for key, value in tensors.items():
        if key.endswith(".scale") and key[:-6] in tensors:
            continue
        state[key] = value.float()
        if value.dtype == torch.int8:
            state[key] *= tensors[key + ".scale"].float()[:, None]
    model = Pocket(PocketConfig(**{k: config[k] for k in PocketConfig.__dataclass_fields__})).eval()
    model.load_state_dict(state)
    return model, config


def view(data: bytes, side: int) -> np.ndarray:
    """Short side to `side` (bicubic), then the centre square."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    w, h = image.size
    scale = side / min(w, h)
    w, h = max(side, round(w * scale)), max(side, round(h * scale))
    image = image.resize((w, h), Image.Resampling.BICUBIC)
    left, top = round((w - side) / 2), round((h - side) / 2)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def batches(archive: zipfile.ZipFile, names: list[str], config: dict, size: int = 128) -> Iterator[Tensor]:
    mean, std = (torch.tensor(config[k]).view(1, 3, 1, 1) for k in ("mean", "std"))
    for start in range(0, len(names), size):
        pixels = np.stack([view(archive.read(n), config["image_size"]) for n in names[start : start + size]])
        yield (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - mean) / std


@torch.inference_mode()
def classifier(model: Pocket, bpe: Bpe, names: list[str]) -> Tensor:
    ids = torch.zeros(len(names), model.cfg.context_length, dtype=torch.long)
    for i, name in enumerate(names):
        row = [SOT, *bpe.encode(TEMPLATE.format(name)), EOT]
        ids[i, : len(row)] = torch.tensor(row)
    return F.normalize(model.encode_text(ids[:, : int((ids != 0).sum(1).max())]), dim=1)


@torch.inference_mode()
def evaluate(model: Pocket, config: dict, bpe: Bpe, archive: Path, domain: str, wnids: dict) -> dict:
    with zipfile.ZipFile(archive) as handle:
        files = sorted(n for n in handle.namelist() if n.startswith(domain) and not n.endswith("/"))
        folders = [n.split("/")[-2] for n in files]
        classes = sorted(set(folders))
        names = [wnids.get(c, c).replace("_", " ") for c in classes]
        text = classifier(model, bpe, names)
        label = torch.tensor([classes.index(f) for f in folders])
        guess = torch.cat(
            [(model.encode_image(x) @ text.t()).argmax(1) for x in batches(handle, files, config)]
        )
    hit = (guess == label).float()
    per_class = {n: round(100 * hit[label == i].mean().item(), 1) for i, n in enumerate(names)}
    share = {n: round(100 * (guess == i).float().mean().item(), 1) for i, n in enumerate(names)}
    result = {"images": len(files), "classes": len(classes), "top1": round(100 * hit.mean().item(), 2)}
    if len(classes) <= 10:
        result |= {"per_class": per_class, "predicted_share": share}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the zips")
    parser.add_argument("--facts", type=Path, required=True, help="imagenet_wnids.json")
    parser.add_argument("--bpe", type=Path, required=True, help="bpe_simple_vocab_16e6.txt.gz")
    parser.add_argument(
        "--weights", type=Path, required=True, help="folder of pocket.safetensors and pocket.json"
    )
    parser.add_argument("--out", type=Path, help="where to write the JSON")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    args = parser.parse_args()
    facts = json.loads(args.facts.read_text())
    wnids = {w: v["name"] for w, v in facts["imagenet"].items()}
    model, config = load(args.weights)
    bpe = Bpe(args.bpe)
    results = {}
    for name in args.sets:
        for domain in SETS[name]:
            key = f"{name}/{domain}" if domain else name
            results[key] = evaluate(model, config, bpe, args.data / f"{name}.zip", domain, wnids)
            print(f"{key:24} {results[key]['top1']:6.2f}  ({results[key]['images']} images)", flush=True)
    if args.out:
        args.out.write_text(json.dumps({"template": TEMPLATE, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
