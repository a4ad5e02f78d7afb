"""Train the vision tower against a locked text tower, within a budget of seconds.

`train.py` gives a text tower whose class names already stand where their meanings are, and a fine-tuned
teacher. Here both stay as they are. The teacher answers once for a few fixed crops of every image; then the
tower sees those crops again and again, recoloured, drawn, mixed and erased, and learns the teacher's answer
and the label, at the leaves and at random cuts of WordNet. `--prepare` writes the text features (once, on any
machine); without it, trains.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from augment import Mixer, centre_transforms, crop_transforms, erase, mild, sample, stylise
from model import MEAN, STD, Pocket, PocketConfig, Vision
from teachers import Lite2
from torch import Tensor, nn
from train import CANVAS, SHARES, Cuts, Images, amp, cosine, cosine_loss, cut_loss, load_images

TEMPLATES = (("a photo of a", "."), ("", ""), ("a drawing of a", "."), ("a picture of the", "."))
CAPTIONS = 2  # of the five of each image


def prepare(args: argparse.Namespace) -> None:
    """Text features of every node under each template, and of captions; the tree of names."""
    import sys

    sys.path.insert(0, str(Path(__file__).parent))
    from bpe import Bpe
    from evaluate import load

    model, _ = load(args.text_tower)
    bpe = Bpe(args.bpe)
    names = json.loads((args.data / "names.json").read_text())

    def encode(texts: list[str]) -> Tensor:
        out = []
        for start in range(0, len(texts), 256):
            rows = [[49406, *bpe.encode(text)[:70], 49407] for text in texts[start : start + 256]]
            ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
            for i, row in enumerate(rows):
                ids[i, : len(row)] = torch.tensor(row)
            with torch.no_grad():
                out.append(F.normalize(model.encode_text(ids).float(), dim=1))
        return torch.cat(out)

    nodes = torch.stack([encode([f"{a} {n[0]}{b}".strip() for n in names["names"]]) for a, b in TEMPLATES])
    with np.load(args.data / "text.npz") as stored:
        keep = {k: stored[k] for k in ("upward", "tags", "shape", "node_weight")}
        captions = stored["captions"].astype(np.int64)
    captions = captions.reshape(-1, 5, captions.shape[1])[:, :CAPTIONS].reshape(-1, captions.shape[1])
    features = []
    for start in range(0, len(captions), 256):
        rows = [[49406, *row[row != 65535].tolist(), 49407] for row in captions[start : start + 256]]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        with torch.no_grad():
            features.append(F.normalize(model.encode_text(ids).float(), dim=1))
    caption = (
        (torch.cat(features) * 127 / torch.cat(features).abs().amax(1, keepdim=True)).round().to(torch.int8)
    )
    np.savez(args.out, nodes=nodes.half().numpy(), captions=caption.numpy(), leaves=names["leaves"], **keep)
    print(f"{args.out}: {tuple(nodes.shape)} nodes, {len(caption)} captions")


class TextFeatures:
    """What `prepare` wrote, on the device."""

    def __init__(self, path: Path, device: torch.device) -> None:
        with np.load(path) as stored:
            z = {k: stored[k] for k in stored.files}
        nodes, _, images = (int(i) for i in z["shape"])
        self.leaves = int(z["leaves"])
        self.weight = z["node_weight"]

        def bits(key: str, rows: int) -> Tensor:
            return torch.from_numpy(np.unpackbits(z[key])[: rows * nodes].reshape(rows, nodes)).to(device)

        self.upward = bits("upward", nodes).bool()
        self.tags = bits("tags", images).float()
        self.nodes = torch.from_numpy(z["nodes"]).to(device).float()
        self.captions = F.normalize(torch.from_numpy(z["captions"]).to(device).float(), dim=1)


class Bank:
    """One source's fixed crops and what the teacher says of each."""

    def __init__(self, source: Images, teacher: Lite2, crops: int, smallest: float, side: int) -> None:
        device = source.label.device
        self.source, self.crops = source, crops
        theta, logits, features = [], [], []
        for rows in torch.arange(len(source), device=device).repeat_interleave(crops).split(2048):
            t = crop_transforms(source.size[rows], CANVAS, smallest)
            x = sample(source.pixels[rows].float() / 255, t, side)
            with torch.no_grad(), amp(device):
                f = teacher.features(x.contiguous(memory_format=torch.channels_last))
                logits.append(teacher.fc(f).half())
            theta.append(t)
            features.append(f.half())
        self.theta, self.logits, self.features = torch.cat(theta), torch.cat(logits), torch.cat(features)


class VisionStudent:
    """The tower, its training-time heads, and one step."""

    def __init__(
        self, args: argparse.Namespace, banks: dict[str, Bank], text: TextFeatures, device: torch.device
    ):
        self.args, self.text, self.device = args, text, device
        self.cfg = PocketConfig(
            vision_width=args.width, vision_layers=args.depth, vision_heads=args.width // 64
        )
        self.visual = Vision(self.cfg, args.drop_path).to(device).train()
        self.heads = nn.ModuleDict(
            {"feature": nn.Linear(args.width, 1280), "leaf": nn.Linear(args.width, text.leaves)}
        ).to(device)
        self.log_scale = nn.Parameter(torch.tensor(args.scale, device=device).log())
        self.ema = {k: v.detach().clone() for k, v in self.visual.state_dict().items()}
        names = [n for n in SHARES if n in banks]
        total = sum(SHARES[n] for n in names)
        self.banks = [(n, banks[n], int(args.batch * SHARES[n] / total)) for n in names]
        self.labelled = sum(c for n, _, c in self.banks if n != "flickr")
        prior = torch.zeros(text.leaves, device=device)
        for name, bank, count in self.banks:
            if name != "flickr":
                prior += torch.bincount(bank.source.label, minlength=text.leaves) / len(bank.source) * count
        self.shift = args.balance * (prior / prior.sum()).clamp_min(1e-6).log()
        feats = torch.cat([b.features[:: max(1, len(b.features) // 4000)].float() for _, b, _ in self.banks])
        self.mean_feature, self.std_feature = feats.mean(0), feats.std(0) + 1e-3
        self.cuts = Cuts(text, args.cut_groups, 6, 192, args.seed)  # type: ignore[arg-type]
        self.columns = torch.from_numpy(self.cuts.columns).to(device)
        self.inner = torch.from_numpy(self.cuts.inner).to(device)
        self.upward = text.upward.float()
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(STD, device=device).view(1, 3, 1, 1)
        self.trunk = torch.compile(self.visual.trunk) if args.compile else self.visual.trunk
        named = [*self.visual.named_parameters(), *self.heads.named_parameters()]
        decay = [p for n, p in named if p.ndim >= 2 and "embedding" not in n]
        plain = [p for n, p in named if p.ndim < 2 or "embedding" in n] + [self.log_scale]
        self.params = decay + plain
        groups = [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=device.type == "cuda")

    @torch.no_grad()
    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Student views, soft labels over leaves, teacher features, rows of captioned images."""
        args, leaves = self.args, self.text.leaves
        pixels, theta, label, logits, features, rows = [], [], [], [], [], []
        for _, bank, count in self.banks:
            row = torch.randint(len(bank.source), (count,), device=self.device)
            slot = row * bank.crops + torch.randint(bank.crops, (count,), device=self.device)
            pixels.append(bank.source.pixels[row])
            theta.append(bank.theta[slot])
            label.append(bank.source.label[row])
            logits.append(bank.logits[slot])
            features.append(bank.features[slot])
            rows.append(row)
        x = sample(torch.cat(pixels).float() / 255, torch.cat(theta), self.cfg.image_size)
        k, n = self.labelled, len(x)
        # The teacher was trained with part of the prior added; with it, its answer is like the label.
        soft = F.softmax((torch.cat(logits).float() + self.shift) / args.temperature, dim=1)
        hard = F.one_hot(torch.cat(label)[:k], leaves).float()
        soft[:k] = (1 - args.hard) * soft[:k] + args.hard * hard
        mix = Mixer(n, k, self.device, share=args.mix)
        x, soft = mix.pixels(x), mix.targets(soft)
        order, count = torch.randperm(n, device=self.device), int(args.styled * n)
        view = torch.empty_like(x)
        view[order[:count]] = stylise(erase(x[order[:count]], 0.15))
        view[order[count:]] = mild(x[order[count:]])
        target = F.normalize((torch.cat(features).float() - self.mean_feature) / self.std_feature, dim=1)
        return view, soft, mix.targets(target), rows[-1] if n > k else rows[0][:0]

    def loss(self, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        text = self.text
        view, soft, target, caption_row = self.draw()
        k, leaves = self.labelled, text.leaves
        with amp(self.device):
            cls = self.trunk((view - self.mean) / self.std)
            image = F.normalize((cls @ self.visual.proj).float(), dim=1)
            guess, plain = self.heads["feature"](cls), self.heads["leaf"](cls).float()
        template = int(torch.randint(len(TEMPLATES) + 2, (1,)))  # the plain photo template most often
        nodes = text.nodes[template if template < len(TEMPLATES) else 0]
        group = step % len(self.columns)
        which = torch.cat([torch.arange(leaves, device=self.device), self.inner[group]])
        scale = self.log_scale.exp().clamp(max=100)
        logits = scale * image @ nodes[which].t()
        shifted = logits[:, :leaves] + self.shift
        leaf = -(soft * F.log_softmax(shifted, dim=1)).sum(1).mean()
        linear = -(soft * F.log_softmax(plain + self.shift, dim=1)).sum(1).mean()
        with torch.no_grad():
            mass = soft @ self.upward[:leaves][:, which]
            if len(caption_row):
                tags = text.tags[caption_row][:, which]
                mass[k:] = 0.25 * mass[k:] + 0.75 * tags / tags.sum(1, keepdim=True).clamp_min(1).sqrt()
        cut = cut_loss(logits, mass, self.columns[group])
        feature = cosine_loss(guess, target)
        contrast = torch.zeros((), device=self.device)
        if len(caption_row):
            which_caption = caption_row * CAPTIONS + torch.randint(
                CAPTIONS, caption_row.shape, device=self.device
            )
            pair = scale * image[k:] @ text.captions[which_caption].t()
            own = torch.arange(len(pair), device=self.device)
            contrast = (F.cross_entropy(pair, own) + F.cross_entropy(pair.t(), own)) / 2
        parts = {"leaf": leaf, "linear": linear, "cut": cut, "feature": feature, "caption": contrast}
        weights = {"leaf": 1.0, "linear": 0.5, "cut": 0.5, "feature": 1.0, "caption": 0.15}
        return sum((weights[key] * value for key, value in parts.items()), contrast * 0), parts

    def step(self, step: int, progress: float) -> dict[str, Tensor]:
        for group in self.opt.param_groups:
            group["lr"] = self.args.lr * min(1.0, (step + 1) / self.args.warmup) * cosine(progress, 0.0)
        total, parts = self.loss(step)
        self.opt.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(self.params, 1.0)
        self.opt.step()
        decay = min(self.args.ema, (1 + step) / (10 + step))
        state = self.visual.state_dict()
        torch._foreach_lerp_([self.ema[k] for k in state], list(state.values()), 1 - decay)
        return parts

    @torch.inference_mode()
    def accuracy(self, images: Images, limit: int = 2000) -> float:
        """Zero-shot top-1 of the averaged weights over the classes that occur."""
        visual = Vision(self.cfg, 0.0).to(self.device).eval()
        visual.load_state_dict(self.ema)
        allowed = images.label.unique()
        names, hits = self.text.nodes[0][allowed], 0
        rows_all = torch.arange(min(limit, len(images)), device=self.device)
        for rows in rows_all.split(500):
            x = sample(images.pixels[rows].float() / 255, centre_transforms(images.size[rows], CANVAS), 64)
            with amp(self.device):
                image = (visual.trunk((x - self.mean) / self.std) @ visual.proj).float()
            hits += int((allowed[(image @ names.t()).argmax(1)] == images.label[rows]).sum())
        return 100 * hits / len(rows_all)

    def save(self, path: Path) -> None:
        half = {f"visual.{k}": v.half() for k, v in self.ema.items()}
        stored = {"ema": half, "log_scale": self.log_scale.detach().clone(), "config": self.cfg.as_json()}
        buffer = io.BytesIO()
        torch.save(stored, buffer)
        path.write_bytes(buffer.getvalue())


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.time()
    sources = load_images(args.data, device, args.limit, args.workers)
    text = TextFeatures(args.data / "textfeatures.npz", device)
    teacher = Lite2(text.leaves).to(device)
    stored = torch.load(args.data / "teacher.pt", weights_only=True, map_location=device)
    teacher.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in stored.items()})
    teacher = teacher.to(memory_format=torch.channels_last).eval().requires_grad_(False)
    print(f"data ready after {time.time() - began:.0f}s", flush=True)
    banks = {
        name: Bank(source, teacher, args.crops, args.smallest_crop, args.teacher_side)
        for name, source in sources.items()
        if name != "val"
    }
    print(f"teacher asked after {time.time() - began:.0f}s", flush=True)
    student = VisionStudent(args, banks, text, device)
    size = sum(p.numel() for p in student.visual.parameters()) / 1e6
    print(f"vision tower of {size:.1f} M parameters after {time.time() - began:.0f}s", flush=True)
    student.loss(0)[0].backward()  # compiles before the clock starts: a warm-up cut short ruins the run
    print(f"first step compiled after {time.time() - began:.0f}s", flush=True)
    step, start, report = 0, time.time(), 0.0
    budget = args.seconds if not args.until else args.until - (time.time() - began)
    while (spent := time.time() - start) < budget:
        parts = student.step(step, spent / budget)
        step += 1
        if step in (1, 3, 10, 50, 200) or spent - report > args.report:
            report = spent
            shown = " ".join(f"{k} {v.item():.3f}" for k, v in parts.items())
            scores = " ".join(
                f"{n} {student.accuracy(s):.1f}" for n, s in sources.items() if n in ("val", "tiny")
            )
            print(
                f"{spent:5.0f}s step {step} {shown} scale {student.log_scale.exp().item():.1f} {scores}",
                flush=True,
            )
            student.save(args.out)
    student.save(args.out)
    if "val" in sources:
        print(
            f"done: {step} steps, {spent:.0f}s, tiny val {student.accuracy(sources['val'], 10**6):.1f}",
            flush=True,
        )


def join(args: argparse.Namespace) -> None:
    """The text tower of `train.py` and the vision tower trained here, as one checkpoint for `export.py`."""
    from evaluate import load

    model, _ = load(args.text_tower)
    stored = torch.load(args.join, map_location="cpu", weights_only=True)
    state = {k: v.float() for k, v in model.state_dict().items() if not k.startswith("visual.")}
    state |= {k: v.float() for k, v in stored["ema"].items()}
    state["logit_scale"] = stored["log_scale"].float().clamp(max=math.log(100))
    cfg = stored["config"]
    whole = Pocket(PocketConfig(**{k: cfg[k] for k in PocketConfig.__dataclass_fields__}))
    whole.load_state_dict(state)
    torch.save({"ema": whole.state_dict(), "config": cfg, "step": 0, "spent": 0.0}, args.out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="what prepare.py wrote, textfeatures.npz, teacher.pt"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prepare", action="store_true", help="write the text features to --out")
    parser.add_argument("--join", type=Path, help="vision weights to join with --text-tower into --out")
    parser.add_argument("--text-tower", type=Path, help="folder exported from train.py's checkpoint")
    parser.add_argument("--bpe", type=Path, help="bpe_simple_vocab_16e6.txt.gz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument(
        "--until", type=float, default=0, help="stop so many seconds after the start, preparation included"
    )
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=9)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=500, help="steps until the full rate")
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--drop-path", type=float, default=0.05)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--balance", type=float, default=0.7)
    parser.add_argument("--crops", type=int, default=8)
    parser.add_argument("--smallest-crop", type=float, default=0.3)
    parser.add_argument("--teacher-side", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--hard", type=float, default=0.4)
    parser.add_argument("--mix", type=float, default=0.35)
    parser.add_argument("--styled", type=float, default=0.4)
    parser.add_argument("--cut-groups", type=int, default=1500)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--report", type=float, default=30)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--workers", type=int, default=16)
    args = parser.parse_args()
    if args.prepare:
        prepare(args)
    elif args.join:
        join(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
