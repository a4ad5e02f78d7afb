"""The vision tower in training: what it is compared with, and one step."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from augment import centre_transforms, erase, sample
from bank import DIETS, Bank
from data import CANVAS, Cuts, Images
from losses import amp, cosine, cosine_loss, cut_loss
from model import MEAN, STD, PocketConfig, Vision
from teachers import FINE_CHANNELS
from torch import Tensor, nn

CAPTIONS = 2  # of each image in textfeatures.npz
WEIGHTS = {
    "leaf": 1.0,  # class names through the text tower
    "linear": 0.5,  # the same classes by a plain linear head
    "cut": 0.5,  # names at cuts of WordNet
    "place": 0.3,  # the image stands at the mean of its names
    "feature": 1.0,  # the teacher's pooled features
    "guide": 1.0,  # the teacher's features place by place
    "caption": 0.15,
}


class TextFeatures:
    """What `text.py` wrote, on the device."""

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
        self.living = torch.from_numpy(z["living"]).to(device).any(0).float()
        self.nodes = torch.from_numpy(z["nodes"]).to(device)  # template, name, node, width
        self.captions = torch.from_numpy(z["captions"]).to(device).float()

    def names(self) -> Tensor:
        """Every node under one template, by its first name or now and then by another."""
        templates, names, count, _ = self.nodes.shape
        device = self.nodes.device
        template = 0 if torch.rand(()) < 0.4 else int(torch.randint(templates, ()))
        other = torch.randint(names, (count,), device=device)
        which = torch.where(torch.rand(count, device=device) < 0.8, torch.zeros_like(other), other)
        return self.nodes[template][which, torch.arange(count, device=device)].float()


class VisionStudent:
    """The tower, its training-time heads, and one step."""

    def __init__(
        self,
        args: argparse.Namespace,
        bank: Bank,
        text: TextFeatures,
        device: torch.device,
    ) -> None:
        self.args, self.bank, self.text, self.device = args, bank, text, device
        self.diet = DIETS[args.stage]
        self.cfg = PocketConfig(
            vision_width=args.width, vision_layers=args.depth, vision_heads=args.width // 64
        )
        self.visual = Vision(self.cfg, args.drop_path).to(device).train()
        scale = torch.tensor(args.scale, device=device).log()
        if args.init:
            stored = torch.load(args.init, weights_only=True, map_location=device)
            weights = {k.removeprefix("visual."): v.float() for k, v in stored["ema"].items()}
            self.visual.load_state_dict(weights)
            scale = stored["log_scale"].float()
        self.heads = nn.ModuleDict(
            {
                "feature": nn.Linear(args.width, 1280),
                "leaf": nn.Linear(args.width, text.leaves),
                "guide": nn.Linear(args.width, FINE_CHANNELS),
            }
        ).to(device)
        self.log_scale = nn.Parameter(scale)
        self.ema = {k: v.detach().clone() for k, v in self.visual.state_dict().items()}
        self.ema_values = list(self.ema.values())
        self.values = list(self.visual.state_dict().values())
        shares = {n: self.diet.shares[n] for n in bank.sources}
        self.draws = {n: int(args.batch * share / sum(shares.values())) for n, share in shares.items()}
        self.captioned = self.draws.get("flickr", 0)
        prior = torch.zeros(text.leaves, device=device)
        for name, source in bank.sources.items():
            if name != "flickr":
                share = self.draws[name] / source.images
                prior += torch.bincount(source.label, minlength=text.leaves) * share
        # The teacher was trained with this part of the prior added; with it, its answer is like the label.
        self.shift = args.balance * (prior / prior.sum()).clamp_min(1e-6).log()
        some = slice(None, None, max(1, len(bank.features) // 8000))
        features, places = bank.features[some].float(), bank.places[some].float()
        self.mean_feature, self.std_feature = features.mean(0), features.std(0) + 1e-3
        shape = (1, FINE_CHANNELS, 1, 1)
        self.mean_place = places.mean((0, 2, 3)).view(shape)
        self.std_place = places.std((0, 2, 3)).view(shape) + 1e-3
        self.cuts = Cuts(text, args.cut_groups, 6, 192, args.seed)  # type: ignore[arg-type]
        self.columns = torch.from_numpy(self.cuts.columns).to(device)
        self.inner = torch.from_numpy(self.cuts.inner).to(device)
        self.leaves = torch.arange(text.leaves, device=device)
        self.upward = text.upward[: text.leaves].float()
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(STD, device=device).view(1, 3, 1, 1)
        self.tapped = torch.compile(self.visual.tapped) if args.compile else self.visual.tapped
        self.prepared = torch.compile(self.prepare) if args.compile else self.prepare
        named = [*self.visual.named_parameters(), *self.heads.named_parameters()]
        decay = [p for n, p in named if p.ndim >= 2 and "embedding" not in n]
        plain = [p for n, p in named if p.ndim < 2 or "embedding" in n] + [self.log_scale]
        self.params = decay + plain
        groups = [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=device.type == "cuda")

    def prepare(
        self,
        photo: Tensor,
        drawn: Tensor,
        logits: Tensor,
        features: Tensor,
        places: Tensor,
        label: Tensor,
        whole: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What was gathered → normalised pixels, soft labels, targets for the features and for the places."""
        args, n = self.args, len(photo)
        styled = torch.rand(n, 1, 1, 1, device=photo.device) < self.diet.styled
        x = torch.where(styled, drawn, photo).float() / 255
        flip = torch.rand(n, 1, 1, 1, device=x.device) < 0.5
        x = erase(torch.where(flip, x.flip(3), x), args.erase)
        # A little of everything that a camera does to a whole picture.
        gain = 1 + 0.12 * torch.randn(n, 3, 1, 1, device=x.device).clamp(-2, 2)
        lift = 0.08 * torch.randn(n, 1, 1, 1, device=x.device).clamp(-2, 2)
        x = ((x * gain + lift).clamp(0, 1) - self.mean) / self.std
        soft = F.softmax((logits.float() + self.shift) / args.temperature, dim=1)
        hard = F.one_hot(label.clamp_min(0), logits.shape[1]).float()
        share = args.hard * (whole & (label >= 0)).float()[:, None]
        soft = soft + share * (hard - soft)
        feature = F.normalize((features.float() - self.mean_feature) / self.std_feature, dim=1)
        place = (places.float() - self.mean_place) / self.std_place
        place = torch.where(flip, place.flip(3), place).flatten(2).transpose(1, 2)
        return x, soft, feature, place

    @torch.no_grad()
    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The prepared batch, which captioned images end it, and whether these show the object alone."""
        bank, slots = self.bank, []
        for name, count in self.draws.items():
            source = bank.sources[name]
            slots.append(source.first + torch.randint(source.slots, (count,), device=self.device))
        slot = torch.cat(slots)
        batch = self.prepared(
            bank.photo[slot], bank.drawn[slot], bank.logits[slot], bank.features[slot], bank.places[slot],
            bank.label[slot], bank.whole[slot],
        )  # fmt: skip
        captioned = slot[len(slot) - self.captioned :]
        alone = bank.alone[captioned]
        if self.captioned:
            captioned = (captioned - bank.sources["flickr"].first) // bank.sources["flickr"].views
        return *batch, captioned, alone

    def loss(self, step: int) -> dict[str, Tensor]:
        text, leaves = self.text, self.text.leaves
        x, soft, feature, place, captioned, alone = self.draw()
        with amp(self.device):
            cls, patches = self.tapped(x, self.args.tap)
            image = F.normalize((cls @ self.visual.proj).float(), dim=1)
            guess, plain = self.heads["feature"](cls), self.heads["leaf"](cls).float()
            seen = self.heads["guide"](patches).float()
        names = text.names()
        group = step % len(self.columns)
        which = torch.cat([self.leaves, self.inner[group]])
        scale = self.log_scale.exp().clamp(max=100)
        logits = scale * image @ names[which].t()
        k = len(x) - len(captioned)
        with torch.no_grad():
            mass = soft @ self.upward[:, which]
            middle = F.normalize(soft @ names[:leaves], dim=1)
            if len(captioned):
                # Who was taken out of the picture has left the beach and the grass behind.
                tags = text.tags[captioned] * torch.where(alone[:, None], text.living, 1.0)
                tags = tags[:, which]
                mass[k:] = 0.25 * mass[k:] + 0.75 * tags / tags.sum(1, keepdim=True).clamp_min(1).sqrt()
        parts = {
            "leaf": -(soft * F.log_softmax(logits[:, :leaves] + self.shift, dim=1)).sum(1).mean(),
            "linear": -(soft * F.log_softmax(plain + self.shift, dim=1)).sum(1).mean(),
            "cut": cut_loss(logits, mass, self.columns[group]),
            "place": cosine_loss(image[:k], middle[:k]),
            "feature": cosine_loss(guess, feature),
            "guide": 1 - F.cosine_similarity(seen, place, dim=2).mean(),
        }
        if len(captioned):
            said = captioned * CAPTIONS + torch.randint(CAPTIONS, captioned.shape, device=self.device)
            pair = scale * image[k:] @ text.captions[said].t()
            own = torch.arange(len(pair), device=self.device)
            parts["caption"] = (F.cross_entropy(pair, own) + F.cross_entropy(pair.t(), own)) / 2
        return parts

    def step(self, step: int, progress: float) -> dict[str, Tensor]:
        # Warm-up counts steps: a warm-up counted in seconds is over before the first step has compiled.
        for group in self.opt.param_groups:
            group["lr"] = self.args.lr * min(1.0, (step + 1) / self.args.warmup) * cosine(progress, 0.0)
        parts = self.loss(step)
        self.opt.zero_grad(set_to_none=True)
        sum(WEIGHTS[key] * value for key, value in parts.items()).backward()  # type: ignore[union-attr]
        nn.utils.clip_grad_norm_(self.params, 1.0)
        self.opt.step()
        decay = min(self.args.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.ema_values, self.values, 1 - decay)
        return parts

    @torch.inference_mode()
    def accuracy(self, images: Images, limit: int = 2000) -> float:
        """Zero-shot top-1 of the averaged weights over the classes that occur."""
        visual = Vision(self.cfg, 0.0).to(self.device).eval()
        visual.load_state_dict(self.ema)
        allowed = images.label.unique()
        names, hits = self.text.nodes[0, 0][allowed].float(), 0
        rows_all = torch.arange(min(limit, len(images)), device=self.device)
        for rows in rows_all.split(500):
            x = sample(images.pixels[rows].float() / 255, centre_transforms(images.size[rows], CANVAS), 64)
            with amp(self.device):
                image = (visual.trunk((x - self.mean) / self.std) @ visual.proj).float()
            hits += int((allowed[(image @ names.t()).argmax(1)] == images.label[rows]).sum())
        return 100 * hits / len(rows_all)

    def save(self, path: Path) -> None:
        """Under another name first, so that a stop in the middle loses nothing."""
        half = {f"visual.{k}": v.half() for k, v in self.ema.items()}
        stored = {"ema": half, "log_scale": self.log_scale.detach().clone(), "config": self.cfg.as_json()}
        torch.save(stored, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
