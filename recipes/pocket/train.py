"""Train the pocket CLIP on one accelerator, within a budget of seconds.

Two stages. First EfficientNet-Lite2 is fine-tuned on the union of labelled classes at 128 px (skipped
when `teacher.pt` is under `--out`). Then the CLIP is trained: every crop is seen by the teacher as it
is and by the student twice, once as a photo and once in a drawn style; the teacher's answer is the target for
both. Class names are ranked through the text tower, at the leaves and at random cuts of WordNet,
and the text tower is held to a sentence encoder over tens of thousands of nouns.

Both stages write checkpoints under `--out` and go on from them when started again.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from augment import Mixer, centre_transforms, colour, crop_transforms, erase, mild, sample, stylise
from model import MEAN, STD, Pocket, PocketConfig
from teachers import Lite2, embed_sentences, load_minilm
from torch import Tensor, nn

CANVAS = 96
SOT, EOT, PAD = 49406, 49407, 65535
# Share of each source in a batch of crops. Captioned images come last: they are never mixed.
SHARES = {"tiny": 0.50, "in6": 0.20, "fine": 0.14, "flickr": 0.16}


# ---------------------------------------------------------------- data


def decode(job: tuple[bytes, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Images of one slice of a pack, each in the top-left of a canvas whose rest repeats its border."""
    from PIL import Image

    data, offset = job
    pixels = np.empty((len(offset) - 1, CANVAS, CANVAS, 3), dtype=np.uint8)
    sizes = np.empty((len(offset) - 1, 2), dtype=np.int16)
    for i in range(len(offset) - 1):
        image = np.asarray(Image.open(io.BytesIO(data[offset[i] : offset[i + 1]])).convert("RGB"))
        image = image[:CANVAS, :CANVAS]
        h, w = image.shape[:2]
        pixels[i] = np.pad(image, ((0, CANVAS - h), (0, CANVAS - w), (0, 0)), mode="edge")
        sizes[i] = h, w
    return pixels, sizes


class Images:
    """One source of images, decoded and resident on the device."""

    def __init__(self, paths: list[Path], device: torch.device, limit: int, workers: int) -> None:
        jobs, labels = [], []
        for path in paths:
            with np.load(path) as pack:
                data, offset, label = pack["data"], pack["offset"], pack["label"]
            if limit:
                keep = min(limit, len(label))
                offset, label = offset[: keep + 1], label[:keep]
            for a in range(0, len(label), 512):
                b = min(a + 512, len(label))
                jobs.append((data[offset[a] : offset[b]].tobytes(), offset[a : b + 1] - offset[a]))
            labels.append(label)
        if workers > 1:
            with ProcessPoolExecutor(workers) as pool:
                parts = list(pool.map(decode, jobs))
        else:
            parts = [decode(job) for job in jobs]
        pixels = np.concatenate([p for p, _ in parts])
        self.pixels = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).contiguous()
        self.size = torch.from_numpy(np.concatenate([s for _, s in parts])).to(device)
        self.label = torch.from_numpy(np.concatenate(labels)).long().to(device)

    def __len__(self) -> int:
        return len(self.label)


def load_images(folder: Path, device: torch.device, limit: int, workers: int) -> dict[str, Images]:
    sources = {}
    for name in [*SHARES, "val"]:
        paths = sorted(folder.glob(f"images-{name}*.npz"))
        if paths:
            sources[name] = Images(paths, device, limit, workers)
            print(f"{name}: {len(sources[name])} images", flush=True)
    return sources


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


class Texts:
    """Names, templates, glosses, captions, their sentence embeddings, and the tree of names."""

    def __init__(self, folder: Path, device: torch.device, limit: int) -> None:
        with np.load(folder / "text.npz") as stored:
            z = {k: stored[k] for k in stored.files}
        nodes, _, images = (int(i) for i in z["shape"])
        self.leaves = json.loads((folder / "names.json").read_text())["leaves"]

        def ids(key: str, keep: int = 0) -> Tensor:
            table = torch.from_numpy(z[key].astype(np.int64)).to(device)
            return table[:keep] if keep else table

        def bits(key: str, rows: int) -> Tensor:
            flat = np.unpackbits(z[key])[: rows * nodes].reshape(rows, nodes)
            return torch.from_numpy(flat).to(device)

        self.upward = bits("upward", nodes).bool()
        self.tags = bits("tags", images).float()
        self.weight = z["node_weight"]
        self.node_names = ids("node_names")
        self.prefix, self.suffix = ids("prefix"), ids("suffix")
        self.lemmas, self.glosses = ids("lemma_names", limit), ids("glosses", limit)
        self.captions = ids("captions")
        encoder = load_minilm(folder / "minilm.pt", device)

        def embed(key: str, keep: int = 0) -> Tensor:
            return embed_sentences(encoder, ids(key, keep))

        def centred(x: Tensor) -> Tensor:
            return F.normalize(x - x.mean(0), dim=1)

        lemma = F.normalize(embed("bert_lemma", limit) + embed("bert_lemma_rich", limit), dim=1)
        node = F.normalize(embed("bert_node") + embed("bert_node_rich"), dim=1)
        middle = (lemma.mean(0) + node[: self.leaves].mean(0)) / 2
        self.lemma_vec = F.normalize(lemma - middle, dim=1)
        self.node_vec = F.normalize(node - middle, dim=1)
        self.gloss_vec = centred(embed("bert_gloss", limit))
        caption_keep = limit * 5 if limit else 0
        self.caption_vec = centred(embed("bert_caption", caption_keep))

    def fill(self, names: Tensor, template: Tensor | None = None) -> Tensor:
        """Token ids of names in templates (random ones unless given), start and end tokens set."""
        n, device = len(names), names.device
        if template is None:
            template = torch.randint(len(self.prefix), (n,), device=device)
        sot = torch.full((n, 1), SOT, device=device)
        eot = torch.full((n, 1), EOT, device=device)
        return squeeze(torch.cat([sot, self.prefix[template], names, self.suffix[template], eot], dim=1))

    def nodes(self, which: Tensor) -> Tensor:
        """Names of nodes: the first name mostly, another one now and then."""
        other = torch.randint(4, which.shape, device=which.device)
        first = torch.rand(which.shape, device=which.device) < 0.75
        return self.node_names[which, torch.where(first, torch.zeros_like(other), other)]


def squeeze(ids: Tensor, width: int = 0) -> Tensor:
    """Move padding to the end of each row and make it 0 (below every end token)."""
    order = (ids == PAD).to(torch.int8).argsort(dim=1, stable=True)
    ids = ids.gather(1, order)
    ids = torch.where(ids == PAD, torch.zeros_like(ids), ids)
    return F.pad(ids, (0, width - ids.shape[1])) if width > ids.shape[1] else ids


def sentences(ids: Tensor, width: int) -> Tensor:
    n = len(ids)
    sot = torch.full((n, 1), SOT, device=ids.device)
    eot = torch.full((n, 1), EOT, device=ids.device)
    return squeeze(torch.cat([sot, ids, eot], dim=1), width)


class Cuts:
    """Random ranking tasks over the tree: a few names, none above another.

    Common words are drawn more often than WordNet's technical ones. The tasks of a step share a
    fixed number of inner nodes, so that texts keep one shape.
    """

    def __init__(self, texts: Texts, groups: int, tasks: int, inner: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        up = texts.upward.cpu().numpy()
        related = up | up.T
        support = up[: texts.leaves].sum(0) + 0.02 * texts.tags.sum(0).cpu().numpy()
        weight = texts.weight * (support > 0.3)
        weight[: texts.leaves] *= 0.35
        self.width = 40
        self.columns = np.full((groups, tasks, self.width), -1, dtype=np.int64)
        self.inner = np.empty((groups, inner), dtype=np.int64)
        for g in range(groups):
            used: list[int] = []
            for t in range(tasks):
                size = int(rng.integers(5, 16)) if t % 2 else int(rng.integers(12, self.width + 1))
                chosen = self._antichain(rng, weight, related, size)
                fresh = [c for c in chosen if c >= texts.leaves and c not in used]
                if len(used) + len(fresh) > inner:
                    chosen = [c for c in chosen if c < texts.leaves or c in used]
                    fresh = []
                used += fresh
                place = [c if c < texts.leaves else texts.leaves + used.index(c) for c in chosen]
                self.columns[g, t, : len(place)] = place
            spare = rng.integers(texts.leaves, len(up), inner - len(used))
            self.inner[g] = np.concatenate([used, spare])

    @staticmethod
    def _antichain(rng: np.random.Generator, weight: np.ndarray, related: np.ndarray, size: int) -> list[int]:
        # Gumbel keys order all nodes by a weighted draw; walk down, skipping relatives of the chosen.
        keys = np.log(weight + 1e-9) + rng.gumbel(size=len(weight))
        free = weight > 0
        chosen: list[int] = []
        for node in np.argsort(-keys)[: 6 * size]:
            if free[node]:
                chosen.append(int(node))
                free &= ~related[node]
                if len(chosen) == size:
                    break
        return chosen


# ---------------------------------------------------------------- teacher


def amp(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def cosine(progress: float, warm: float = 0.03) -> float:
    """Falls from 1 to 0 over the budget, after rising over its first `warm` part."""
    if progress < warm:
        return progress / warm
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - warm) / (1 - warm)))) + 1e-3


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
    path = args.out / "teacher.pt"
    teacher = Lite2(leaves).to(device)
    if path.exists():
        teacher.load_state_dict(
            {
                k: v.to(device).float() if v.is_floating_point() else v
                for k, v in torch.load(path, map_location=device, weights_only=True).items()
            }
        )
        return teacher.eval()
    with torch.no_grad():
        teacher.load_published(args.data / "lite2.pt")
    teacher = teacher.to(memory_format=torch.channels_last).train()
    batches = Batches(sources, args.teacher_batch, captions=False)
    # Balanced softmax, in part: rare classes must not be drowned by the 200 frequent ones.
    shift = 0.7 * batches.prior(leaves).clamp_min(1e-6).log()
    opt = torch.optim.AdamW(
        teacher.parameters(), lr=args.teacher_lr, weight_decay=0.02, fused=device.type == "cuda"
    )
    start, step, report = time.time(), 0, 0.0
    while (spent := time.time() - start) < args.teacher_seconds:
        for group in opt.param_groups:
            group["lr"] = args.teacher_lr * cosine(spent / args.teacher_seconds, 0.08)
        pixels, size, label, _ = batches.draw()
        x = sample(pixels, crop_transforms(size, CANVAS, 0.3), args.teacher_side)
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
        score = teacher_accuracy(teacher, sources["val"], args.teacher_side)
        print(f"teacher: {step} steps, tiny val {score:.1f}", flush=True)
    torch.save({k: v.half() if v.is_floating_point() else v for k, v in teacher.state_dict().items()}, path)
    return teacher.eval()


# ---------------------------------------------------------------- student


class Heads(nn.Module):
    """Used in training only: into the sentence encoder's space, and into the teacher's features."""

    def __init__(self, cfg: PocketConfig) -> None:
        super().__init__()
        self.sentence = nn.Linear(cfg.embed_dim, 384, bias=False)
        self.feature = nn.Linear(cfg.vision_width, 1280)
        self.relation_scale = nn.Parameter(torch.tensor(10.0).log())
        self.register_buffer("mean", torch.zeros(1280))
        self.register_buffer("std", torch.ones(1280))
        nn.init.orthogonal_(self.sentence.weight)


def cosine_loss(a: Tensor, b: Tensor) -> Tensor:
    return 1 - F.cosine_similarity(a.float(), b.float(), dim=1).mean()


def cut_loss(logits: Tensor, mass: Tensor, columns: Tensor) -> Tensor:
    """Ranking over cuts of the tree, every name of a cut weighing the same however many images it has.

    `logits` and `mass` are [samples, names]; `columns` is [tasks, names of the task], -1 unused.
    """
    unused = (columns < 0).unsqueeze(0)
    index = columns.clamp_min(0)
    shape = (len(logits), *columns.shape)
    z = logits.index_select(1, index.flatten()).view(shape).masked_fill(unused, -1e4)
    m = mass.index_select(1, index.flatten()).view(shape).masked_fill(unused, 0.0)
    total = m.sum(2, keepdim=True)
    y = torch.where(total > 0.4, m / total.clamp_min(1e-6), torch.zeros_like(m))
    count = y.sum(0, keepdim=True)
    share = y / (count + 4.0)
    present = (count / (count + 4.0)).sum(2).clamp_min(1e-3)
    return -((share * F.log_softmax(z, dim=2)).sum((0, 2)) / present.squeeze(0)).mean()


class Student:
    """Everything one training step needs."""

    def __init__(
        self,
        args: argparse.Namespace,
        sources: dict[str, Images],
        texts: Texts,
        teacher: Lite2,
        device: torch.device,
    ) -> None:
        self.args, self.texts, self.device = args, texts, device
        self.cfg = replace(
            PocketConfig(), vision_width=args.width, vision_layers=args.depth, vision_heads=args.width // 64
        )
        self.model = Pocket(self.cfg, drop=args.drop_path).to(device).train()
        self.heads = Heads(self.cfg).to(device)
        if args.init:
            self.model.load_state_dict(torch.load(args.init, map_location=device, weights_only=True)["ema"])
        self.ema = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.teacher = teacher.eval().requires_grad_(False)
        self.batches = Batches(sources, args.batch, captions=True)
        self.cuts = Cuts(texts, args.cut_groups, 6, 192, args.seed)
        self.trunk, self.text = self.model.visual.trunk, self.model.encode_text
        self.judge = self._judge
        if args.compile:
            self.trunk = torch.compile(self.trunk)
            self.judge = torch.compile(self._judge)
        pairs = [*self.model.named_parameters(), *self.heads.named_parameters()]
        decay = [p for n, p in pairs if p.ndim >= 2 and "embedding" not in n]
        plain = [p for n, p in pairs if p.ndim < 2 or "embedding" in n]
        self.params = decay + plain
        groups = [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.97), fused=device.type == "cuda")
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(STD, device=device).view(1, 3, 1, 1)
        self.upward = texts.upward.float()
        self.all_leaves = torch.arange(texts.leaves, device=device)

    def _judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        feats = self.teacher.features(x)
        return self.teacher.fc(feats), feats

    @torch.no_grad()
    def crops(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Student photo view, styled view, soft labels over leaves, teacher features, caption rows."""
        pixels, size, label, row = self.batches.draw()
        n, k = len(label), self.batches.labelled
        theta = crop_transforms(size, CANVAS, self.args.smallest_crop)
        mix = Mixer(n, k, self.device)
        small = mix.pixels(sample(pixels, theta, self.cfg.image_size))
        large = mix.pixels(sample(pixels, theta, self.args.teacher_side))
        with amp(self.device):
            logits, feats = self.judge(large.contiguous(memory_format=torch.channels_last))
        soft = F.softmax(logits.float() / self.args.temperature, dim=1)
        hard = mix.targets(F.one_hot(label.clamp_min(0), self.texts.leaves).float())
        soft[:k] = (1 - self.args.hard) * soft[:k] + self.args.hard * hard[:k]
        return mild(small), stylise(erase(small, 0.2)), soft, feats.float(), row[k:]

    def loss(self, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        texts, args = self.texts, self.args
        photo, drawn, soft, feats, caption_row = self.crops()
        n, k, leaves = len(photo), self.batches.labelled, texts.leaves
        group = step % len(self.cuts.columns)
        columns = torch.from_numpy(self.cuts.columns[group]).to(self.device)
        inner = torch.from_numpy(self.cuts.inner[group]).to(self.device)
        lemma = torch.randint(len(texts.lemmas), (args.lemmas,), device=self.device)
        gloss = torch.randint(len(texts.glosses), (args.lemmas // 4,), device=self.device)
        which = torch.cat([self.all_leaves, inner])
        names = torch.cat([texts.nodes(which), texts.lemmas[lemma]])
        caption = caption_row * 5 + torch.randint(5, caption_row.shape, device=self.device)
        if len(texts.caption_vec) < len(texts.captions):  # toy runs embed fewer captions
            caption = caption % len(texts.caption_vec)
        long = torch.cat([sentences(texts.glosses[gloss], 38), sentences(texts.captions[caption], 38)])

        with amp(self.device):
            views = torch.cat([photo, drawn])
            cls = self.trunk((views - self.mean) / self.std)
            image = F.normalize((cls @ self.model.visual.proj).float(), dim=1)
            # One template a step for the nodes: names must be told apart by name, not by template.
            template = torch.randint(len(texts.prefix), (len(names),), device=self.device)
            template[: len(which)] = template[0]
            name = F.normalize(self.text(texts.fill(names, template)).float(), dim=1)
            line = F.normalize(self.text(long).float(), dim=1)
            guess = self.heads.feature(cls)
        node, noun = name[: len(which)], name[len(which) :]
        explained, captioned = line[: len(gloss)], line[len(gloss) :]
        scale = self.model.logit_scale.exp().clamp(max=100)
        logits = scale * image @ node.t()

        # Leaves: the teacher's answer for the crop is the target of both views.
        soft2 = torch.cat([soft, soft])
        row_loss = -(soft2 * F.log_softmax(logits[:, :leaves], dim=1)).sum(1)
        leaf = row_loss.mean()
        # Cuts of the tree: captioned images carry the nouns of their captions as well.
        with torch.no_grad():
            mass = soft @ self.upward[:leaves][:, which]
            tags = texts.tags[caption_row][:, which]
            mass[k:] = 0.25 * mass[k:] + 0.75 * tags / tags.sum(1, keepdim=True).clamp_min(1).sqrt()
            mass2 = torch.cat([mass, mass])
        cut = cut_loss(logits, mass2, columns)
        # Sentence space: images at the mean of their classes' (or at their caption's) embedding.
        with torch.no_grad():
            place = F.normalize(soft @ texts.node_vec[:leaves], dim=1)
            place[k:] = F.normalize(place[k:] + 1.5 * texts.caption_vec[caption], dim=1)
            place2 = torch.cat([place, place])
            target = F.normalize((feats - self.heads.mean) / self.heads.std, dim=1)
        into = self.heads.sentence
        conse = cosine_loss(into(image), place2)
        feature = cosine_loss(guess, torch.cat([target, target]))
        said = torch.cat(
            [
                texts.node_vec[which],
                texts.lemma_vec[lemma],
                texts.gloss_vec[gloss],
                texts.caption_vec[caption],
            ]
        )
        text = cosine_loss(into(torch.cat([node, noun, explained, captioned])), said)
        # Nouns without images sit among the classes as their embeddings do.
        with torch.no_grad():
            near = F.softmax(texts.lemma_vec[lemma] @ texts.node_vec[:leaves].t() / 0.06, dim=1)
        relation = self.heads.relation_scale.exp().clamp(max=60) * noun @ node[:leaves].detach().t()
        relation = F.kl_div(F.log_softmax(relation, dim=1), near, reduction="batchmean")
        # Captions: each of the two views must find its own among the batch's, and back.
        contrast = torch.zeros((), device=self.device)
        if len(captioned):
            own = torch.arange(len(captioned), device=self.device)
            for view in (image[k:n], image[n + k :]):
                pair = scale * view @ captioned.t()
                contrast = contrast + (F.cross_entropy(pair, own) + F.cross_entropy(pair.t(), own)) / 4
        parts = {
            "leaf": leaf,
            "cut": cut,
            "feature": feature,
            "conse": conse,
            "text": text,
            "relation": relation,
            "caption": contrast,
        }
        weights = {
            "leaf": 1.0,
            "cut": 0.5,
            "feature": 1.0,
            "conse": 0.7,
            "text": 1.5,
            "relation": 0.3,
            "caption": 0.25,
        }
        return sum((weights[key] * value for key, value in parts.items()), contrast * 0), parts

    @torch.no_grad()
    def measure_features(self, batches: int) -> None:
        feats = torch.cat([self.crops()[3] for _ in range(batches)])
        self.heads.mean.copy_(feats.mean(0))
        self.heads.std.copy_(feats.std(0) + 1e-3)

    def step(self, step: int, progress: float) -> dict[str, Tensor]:
        # Warm-up counts steps, not seconds: compiling takes seconds too, and a full rate at step 10
        # drives the first block's output to ten times its size, from where little is learned.
        rate = self.args.lr * min(1.0, (step + 1) / self.args.warm_steps) * cosine(progress, 0.0)
        for group in self.opt.param_groups:
            group["lr"] = rate
        total, parts = self.loss(step)
        self.opt.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(self.params, 1.0)
        self.opt.step()
        decay = min(self.args.ema, (1 + step) / (10 + step))
        state = self.model.state_dict()
        torch._foreach_lerp_([self.ema[k] for k in state], list(state.values()), 1 - decay)
        return parts

    @torch.inference_mode()
    def accuracy(self, val: Images) -> float:
        """Zero-shot top-1 of the averaged weights over the classes in `val`."""
        model = Pocket(self.cfg).to(self.device).eval()
        model.load_state_dict(self.ema)
        allowed = val.label.unique()
        hits = 0
        with amp(self.device):
            template = torch.zeros(len(allowed), dtype=torch.long, device=self.device)
            names = model.encode_text(self.texts.fill(self.texts.node_names[allowed, 0], template))
            names = F.normalize(names.float(), dim=1)
            for rows in torch.arange(len(val), device=self.device).split(500):
                theta = centre_transforms(val.size[rows], CANVAS)
                x = sample(val.pixels[rows].float() / 255, theta, self.cfg.image_size)
                image = model.encode_image((x - self.mean) / self.std).float()
                hits += int((allowed[(image @ names.t()).argmax(1)] == val.label[rows]).sum())
        return 100 * hits / len(val)

    def save(self, path: Path, spent: float, step: int) -> None:
        torch.save(
            {
                "ema": self.ema,
                "model": self.model.state_dict(),
                "heads": self.heads.state_dict(),
                "opt": self.opt.state_dict(),
                "spent": spent,
                "step": step,
                "config": self.cfg.as_json(),
            },
            path,
        )

    def load(self, path: Path) -> tuple[float, int]:
        stored = torch.load(path, map_location=self.device, weights_only=True)
        self.ema = stored["ema"]
        self.model.load_state_dict(stored["model"])
        self.heads.load_state_dict(stored["heads"])
        self.opt.load_state_dict(stored["opt"])
        return stored["spent"], stored["step"]


def train_student(args: argparse.Namespace, student: Student, val: Images | None) -> None:
    path = args.out / "student.pt"
    before, step = student.load(path) if path.exists() else (0.0, 0)
    if step == 0:
        student.measure_features(8)
    start, report, saved = time.time(), before, before
    budget = args.seconds
    while (spent := before + time.time() - start) < budget:
        parts = student.step(step, spent / budget)
        step += 1
        if step in (1, 3, 10, 50) or spent - report > args.report:
            line = " ".join(f"{k} {v.item():.3f}" for k, v in parts.items())
            scale = student.model.logit_scale.exp().item()
            shown = (
                f" val {student.accuracy(val):.1f}"
                if val is not None and spent - report > args.report
                else ""
            )
            report = spent if step > 50 else report
            print(f"{spent:5.0f}s step {step} {line} scale {scale:.1f}{shown}", flush=True)
        if spent - saved > args.save_every:
            saved = spent
            student.save(path, spent, step)
    student.save(path, spent, step)
    if val is not None:
        print(f"done: {step} steps, {spent:.0f}s, tiny val {student.accuracy(val):.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--teacher-seconds", type=float, default=75)
    parser.add_argument("--teacher-batch", type=int, default=512)
    parser.add_argument("--teacher-lr", type=float, default=6e-4)
    parser.add_argument("--teacher-side", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=420, help="the student's budget")
    parser.add_argument(
        "--batch", type=int, default=1024, help="crops a step; the student sees two views of each"
    )
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=9)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warm-steps", type=int, default=500)
    parser.add_argument("--weight-decay", type=float, default=0.08)
    parser.add_argument("--drop-path", type=float, default=0.05)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--smallest-crop", type=float, default=0.25)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--hard", type=float, default=0.4, help="weight of the true label beside the teacher")
    parser.add_argument("--lemmas", type=int, default=768)
    parser.add_argument("--cut-groups", type=int, default=1500)
    parser.add_argument("--init", type=Path, help="checkpoint whose averaged weights to start from")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--report", type=float, default=30)
    parser.add_argument("--save-every", type=float, default=120)
    parser.add_argument("--limit", type=int, default=0, help="toy runs: images and texts per source")
    parser.add_argument("--workers", type=int, default=16)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.time()
    sources = load_images(args.data, device, args.limit, args.workers)
    texts = Texts(args.data, device, args.limit)
    print(
        f"data ready after {time.time() - began:.0f}s: {texts.leaves} leaves, {len(texts.upward)} nodes",
        flush=True,
    )
    teacher = train_teacher(args, sources, texts.leaves, device)
    print(f"teacher ready after {time.time() - began:.0f}s", flush=True)
    student = Student(args, sources, texts, teacher, device)
    count = {
        k: sum(p.numel() for p in m.parameters()) / 1e6
        for k, m in (("vision", student.model.visual), ("text", student.model.transformer))
    }
    print(f"student ready after {time.time() - began:.0f}s: {count}", flush=True)
    train_student(args, student, sources.get("val"))


if __name__ == "__main__":
    main()
