"""What the stages read: images on the device, names with sentence embeddings, cuts of WordNet."""

from __future__ import annotations

import io
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from teachers import embed_sentences, load_minilm
from torch import Tensor

CANVAS = 96
SOT, EOT, PAD = 49406, 49407, 65535
# Share of each source in a batch of crops. Captioned images come last: they are never mixed.
SHARES = {"tiny": 0.54, "in6": 0.18, "fine": 0.14, "flickr": 0.14}


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


class Texts:
    """Names, templates, glosses, captions, their sentence embeddings, and the tree of names."""

    def __init__(self, folder: Path, device: torch.device, limit: int, encoder_file: str | None) -> None:
        """Without the sentence encoder's file there are token ids alone."""
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
        if encoder_file is None:
            return
        encoder = load_minilm(folder / encoder_file, device)

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


def living_named(folder: Path, device: torch.device) -> Tensor:
    """Whether the captions of each captioned image name people, and whether animals: two columns."""
    with np.load(folder / "text.npz") as z:
        nodes, _, images = (int(i) for i in z["shape"])
        tags = np.unpackbits(z["tags"])[: images * nodes].reshape(images, nodes)
        return torch.from_numpy((tags @ z["living"].T > 0).astype(np.float32)).to(device)


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
