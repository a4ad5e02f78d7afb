"""Stage 1: fine-tune EfficientNet-Lite2 on the union of labelled classes; writes `teacher.pt`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from augment import Mixer, centre_transforms, colour, crop_transforms, erase, sample
from data import CANVAS, SHARES, Images, load_images
from losses import amp, cosine
from teachers import Lite2
from torch import Tensor, nn


class Batches:
    """Draws batches of crops with fixed shares per source."""

    def __init__(self, sources: dict[str, Images], size: int, captions: bool) -> None:
        names = [n for n in SHARES if n in sources and (captions or n != "flickr")]
        total = sum(SHARES[n] for n in names)
        self.sources = [(n, sources[n]) for n in names]
        self.counts = [int(size * SHARES[n] / total) for n in names]
        self.counts[0] += size - sum(self.counts)
        self.labelled = sum(c for (n, _), c in zip(self.sources, self.counts, strict=True) if n != "flickr")

    def prior(self, leaves: int) -> Tensor:
        """How often each class is drawn."""
        p = torch.zeros(leaves, device=self.sources[0][1].label.device)
        for (name, source), count in zip(self.sources, self.counts, strict=True):
            if name != "flickr":
                p += torch.bincount(source.label, minlength=leaves).float() / len(source) * count
        return p / p.sum()

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Canvas pixels (0..1, half precision on the accelerator), sizes, labels, indices in the source."""
        pixels, sizes, labels, rows = [], [], [], []
        for (_, source), count in zip(self.sources, self.counts, strict=True):
            row = torch.randint(len(source), (count,), device=source.label.device)
            pixels.append(source.pixels[row])
            sizes.append(source.size[row])
            labels.append(source.label[row])
            rows.append(row)
        return torch.cat(pixels).float() / 255, torch.cat(sizes), torch.cat(labels), torch.cat(rows)


@torch.inference_mode()
def teacher_accuracy(teacher: Lite2, val: Images, side: int) -> float:
    teacher.eval()
    allowed = val.label.unique()
    hits = 0
    for rows in torch.arange(len(val), device=val.label.device).split(500):
        x = sample(val.pixels[rows].float() / 255, centre_transforms(val.size[rows], CANVAS), side)
        with amp(x.device):
            logits = teacher.fc(teacher.features(x.contiguous(memory_format=torch.channels_last)))
        hits += int((allowed[logits[:, allowed].argmax(1)] == val.label[rows]).sum())
    return 100 * hits / len(val)


def train_teacher(
    args: argparse.Namespace, sources: dict[str, Images], leaves: int, device: torch.device
) -> Lite2:
    teacher = Lite2(leaves).to(device)
    with torch.no_grad():
        teacher.load_published(args.data / "lite2.pt")
    teacher = teacher.to(memory_format=torch.channels_last).train()
    batches = Batches(sources, args.batch, captions=False)
    # Balanced softmax, in part: rare classes must not be drowned by the 200 frequent ones.
    shift = 0.7 * batches.prior(leaves).clamp_min(1e-6).log()
    opt = torch.optim.AdamW(teacher.parameters(), lr=args.lr, weight_decay=0.02, fused=device.type == "cuda")
    start, step, report = time.time(), 0, 0.0
    while (spent := time.time() - start) < args.seconds:
        for group in opt.param_groups:
            group["lr"] = args.lr * cosine(spent / args.seconds, 0.08)
        pixels, size, label, _ = batches.draw()
        x = sample(pixels, crop_transforms(size, CANVAS, 0.3), args.side)
        x = erase(colour(x, 0.3), 0.15)
        mix = Mixer(len(x), len(x), device, share=0.4)
        y = mix.targets(F.one_hot(label, leaves).float() * 0.9 + 0.1 / leaves)
        x = mix.pixels(x).contiguous(memory_format=torch.channels_last)
        with amp(device):
            logits = teacher.fc(teacher.features(x))
        loss = -(y * F.log_softmax(logits.float() + shift, dim=1)).sum(1).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(teacher.parameters(), 2.0)
        opt.step()
        step += 1
        if spent - report > 15 or step in (5, 50):
            report = spent
            print(f"teacher {spent:5.0f}s step {step} loss {loss.item():.3f}", flush=True)
    if "val" in sources:
        score = teacher_accuracy(teacher, sources["val"], args.side)
        print(f"teacher: {step} steps, tiny val {score:.1f}", flush=True)
    return teacher.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="where to write teacher.pt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--limit", type=int, default=0, help="toy runs: images per source")
    parser.add_argument("--workers", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sources = load_images(args.data, device, args.limit, args.workers)
    leaves = json.loads((args.data / "names.json").read_text())["leaves"]
    teacher = train_teacher(args, sources, leaves, device)
    state = {k: v.half() if v.is_floating_point() else v for k, v in teacher.state_dict().items()}
    torch.save(state, args.out)


if __name__ == "__main__":
    main()
