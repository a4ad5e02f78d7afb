"""Turn the raw data into what `train.py` reads: packed images, token ids, the tree of names.

Everything that needs no accelerator is done here once. Each output file stands alone and is
skipped when it is already there, so the script can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import re
import zipfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from bpe import Bpe
from PIL import Image
from wordnet import WordNet

SHORT, LONG = 72, 96  # stored size: a little above the 64 px the model sees
NAME_LEN, GLOSS_LEN, CAPTION_LEN, BERT_LEN = 10, 36, 32, 40
# Lexicographer files of WordNet's nouns that name things one may see.
SEEABLE = {3, 4, 5, 6, 8, 11, 13, 14, 15, 17, 18, 19, 20, 25, 27}
TAGGABLE = {5, 6, 13, 17, 18, 20}
ANIMALS, PEOPLE = 5, 18
# What captions mean by a word.
MEANT = {
    "bike": "bicycle",
    "bikes": "bicycle",
    "climber": "mountaineer",
    "climbers": "mountaineer",
    "arms": "arm",
    "people": "person",
    "men": "man",
    "women": "woman",
    "children": "child",
    "kid": "child",
    "kids": "child",
    "guy": "man",
    "guys": "man",
    "lady": "woman",
}
# Colour words whose first noun sense is a person or a thing: adjectives in captions.
COLOURS = {
    "black",
    "white",
    "brown",
    "grey",
    "gray",
    "red",
    "blue",
    "green",
    "orange",
    "yellow",
    "pink",
    "purple",
    "gold",
    "silver",
    "tan",
}
KIND_SENSE = {"bird": "n01503061", "flower": "n11669921", "food": "n07555863", "car": "n02958343"}

TEMPLATES = [
    "a photo of a {}.",
    "a photo of a {}.",
    "a photo of a {}.",
    "a photo of a {}.",
    "a photo of a {}.",
    "{}",
    "a {}.",
    "a photo of the {}.",
    "a picture of a {}.",
    "a photo of one {}.",
    "an image of a {}.",
    "a close-up photo of a {}.",
    "a photo of a small {}.",
    "a photo of a large {}.",
    "a good photo of a {}.",
    "a blurry photo of a {}.",
    "a cropped photo of a {}.",
    "a bright photo of a {}.",
    "the {}.",
]
STYLE_TEMPLATES = ["a sketch of a {}.", "a drawing of a {}.", "a cartoon of a {}.", "a painting of a {}."]


def read_zip(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(n, archive.read(n)) for n in sorted(archive.namelist()) if not n.endswith("/")]


def shrink(data: bytes, quality: int) -> bytes:
    """Short side SHORT, long side cut to LONG, WebP again."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    w, h = image.size
    scale = SHORT / min(w, h)
    if scale < 1:
        image = image.resize((round(w * scale), round(h * scale)), Image.Resampling.BICUBIC)
    w, h = image.size
    left, top = max(0, (w - LONG) // 2), max(0, (h - LONG) // 2)
    image = image.crop((left, top, left + min(w, LONG), top + min(h, LONG)))
    buffer = io.BytesIO()
    image.save(buffer, "webp", quality=quality, method=4)
    return buffer.getvalue()


def pack(out: Path, blobs: list[bytes], labels: list[int]) -> None:
    offsets = np.cumsum([0] + [len(b) for b in blobs])
    data = np.frombuffer(b"".join(blobs), dtype=np.uint8)
    np.savez(out, data=data, offset=offsets, label=np.array(labels, dtype=np.int32))
    print(f"{out.name}: {len(blobs)} images, {out.stat().st_size / 1e6:.1f} MB", flush=True)


def ragged(rows: list[list[int]], width: int) -> np.ndarray:
    """Rows of token ids, cut to `width` and padded with 65535."""
    table = np.full((len(rows), width), 65535, dtype=np.uint16)
    for i, row in enumerate(rows):
        table[i, : min(width, len(row))] = row[:width]
    return table


class Leaves:
    """The classes that images carry as labels: 1,000 ImageNet wnids, then kind/class pairs."""

    def __init__(self, facts: Path, finegrained: Path) -> None:
        wnids = json.loads(facts.read_text())["imagenet"]
        self.wnids = sorted(wnids, key=lambda w: wnids[w]["index"])
        names = {n.rsplit("/", 1)[0] for n in zipfile.ZipFile(finegrained).namelist() if n.count("/") == 2}
        self.fine = sorted(names)
        self.keys = self.wnids + self.fine
        self.names = [wnids[w]["name"] for w in self.wnids] + [f.split("/")[1] for f in self.fine]
        self.index = {k: i for i, k in enumerate(self.keys)}


def fine_parent(wn: WordNet, kind: str, name: str) -> str:
    """The WordNet synset a fine-grained class hangs under: its head noun's, when of the right kind."""
    root = KIND_SENSE[kind]
    words = re.sub(r"[^a-z ]", " ", name.lower()).split()
    if kind != "car":
        for start in range(len(words)):
            for candidate in (" ".join(words[start:]), " ".join(words[start:]).rstrip("s")):
                for sense in wn.senses.get(candidate.replace(" ", "_"), []):
                    if root in wn.ancestors(sense):
                        return sense
    return root


def flickr_tags(wn: WordNet, captions: dict[str, list[str]]) -> dict[str, list[str]]:
    """Synsets named in at least two of an image's captions."""

    def sense_of(word: str) -> str | None:
        word = MEANT.get(word, word)
        if word in COLOURS or wn.seldom_noun(word):
            return None
        for form in (
            word,
            wn.irregular.get(word, ""),
            word[:-1] if word.endswith("s") else "",
            word[:-2] if word.endswith("es") else "",
        ):
            if form in wn.senses and len(form) > 2:
                sense = wn.senses[form][0]
                # The word "person" itself stands in WordNet's file of the topmost nouns.
                return sense if wn.lexfile[sense] in TAGGABLE or form == "person" else None
        return None

    tags = {}
    for image, texts in captions.items():
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update({s for s in map(sense_of, re.findall(r"[a-z]+", text.lower())) if s})
        tags[image] = [s for s, c in counts.items() if c >= 2]
    common = Counter(s for row in tags.values() for s in row)
    return {image: [s for s in row if common[s] >= 15] for image, row in tags.items()}


def build_tree(
    wn: WordNet, leaves: Leaves, tagged: set[str]
) -> tuple[list[str], np.ndarray, list[list[str]]]:
    """Nodes (leaves first), the matrix 'column is row or above row', and each node's names."""
    parents = {f: fine_parent(wn, *f.split("/")) for f in leaves.fine}
    above: dict[str, set[str]] = {}
    for key in leaves.keys + sorted(tagged - set(leaves.keys)):
        start = parents.get(key, key)
        above[key] = wn.ancestors(start) | {start, key}
    cover = Counter(a for key in leaves.keys for a in above[key])
    too_wide = {a for a, c in cover.items() if c > 0.3 * len(leaves.keys)}
    inner = set().union(*above.values()) - set(leaves.keys) - too_wide
    inner = {a for a in inner if wn.depth(a) >= 4 or a in tagged}
    nodes = leaves.keys + sorted(inner)
    position = {n: i for i, n in enumerate(nodes)}
    upward = np.zeros((len(nodes), len(nodes)), dtype=bool)
    for node in nodes:
        for a in above.get(node) or wn.ancestors(node) | {node}:
            if a in position:
                upward[position[node], position[a]] = True
    names = []
    for i, node in enumerate(nodes):
        own = [leaves.names[i]] if i < len(leaves.keys) else []
        own += [lemma.replace("_", " ") for lemma in wn.lemmas.get(node, []) if lemma == lemma.lower()]
        own = own or [wn.lemmas[node][0].replace("_", " ")]
        names.append(list(dict.fromkeys(own))[:4])
    return nodes, upward, names


def enriched(wn: WordNet, name: str, sense: str | None) -> str:
    """The name with the two names above it: places it by kind as well as by use."""
    chain = [name]
    while sense and len(chain) < 3:
        up = wn.parents.get(sense, [])
        sense = up[0] if up else None
        if sense:
            chain.append(wn.lemmas[sense][0].replace("_", " "))
    return ", ".join(chain)


def write_text(out: Path, args: argparse.Namespace, leaves: Leaves, wn: WordNet) -> None:
    from transformers import AutoTokenizer

    clip = Bpe(args.bpe)
    bert = AutoTokenizer.from_pretrained(args.minilm)

    def bert_ids(texts: list[str]) -> np.ndarray:
        return ragged(bert(texts, truncation=True, max_length=BERT_LEN)["input_ids"], BERT_LEN)

    captions: dict[str, list[str]] = defaultdict(list)
    with gzip.open(args.data / "flickr8k-captions.csv.gz", "rt", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            captions[Path(row["image"]).stem].append(row["caption"])
    images = [Path(n).stem for n in sorted(zipfile.ZipFile(args.data / "flickr8k.zip").namelist())]
    tags = flickr_tags(wn, {i: captions[i] for i in images})
    nodes, upward, names = build_tree(wn, leaves, {s for row in tags.values() for s in row})
    position = {n: i for i, n in enumerate(nodes)}
    parents = {f: fine_parent(wn, *f.split("/")) for f in leaves.fine}

    lemmas = [
        (lemma, senses[0])
        for lemma, senses in wn.senses.items()
        if lemma == lemma.lower()
        and wn.lexfile[senses[0]] in SEEABLE
        and lemma.count("_") < 3
        and not wn.instance(senses[0])
    ]
    lemmas.sort()
    glosses = sorted({wn.gloss[s] for _, s in lemmas if len(wn.gloss[s]) > 15})
    random.Random(0).shuffle(glosses)
    glosses = glosses[: args.glosses]
    flat = [captions[i][k % len(captions[i])].replace(" .", ".") for i in images for k in range(5)]
    templates = [t.split("{}") for t in TEMPLATES + STYLE_TEMPLATES]
    tag_rows = np.zeros((len(images), len(nodes)), dtype=bool)
    for i, image in enumerate(images):
        for sense in tags[image]:
            if sense in position:
                tag_rows[i] |= upward[position[sense]]
    weight = [
        1.0 + np.log1p(max((wn.uses(lemma, n) for lemma in wn.lemmas.get(n, [])), default=0)) for n in nodes
    ]
    node_sense = [parents.get(n, n) for n in nodes]
    plain = [n[0] for n in names]
    rich = [
        enriched(wn, ns[0], s) if n == s else f"{ns[0]}, {wn.lemmas[s][0].replace('_', ' ')}"
        for n, s, ns in zip(nodes, node_sense, names, strict=True)
    ]
    person = wn.senses["person"][0]
    kinds = [PEOPLE if s == person else wn.lexfile[s] for s in node_sense]
    lemma_text = [lemma.replace("_", " ") for lemma, _ in lemmas]
    np.savez_compressed(
        out,
        node_names=np.stack([ragged([clip.encode(n) for n in (ns * 4)[:4]], NAME_LEN) for ns in names]),
        node_weight=np.array(weight, dtype=np.float32),
        upward=np.packbits(upward),
        tags=np.packbits(tag_rows),
        living=np.array([[k == kind for k in kinds] for kind in (PEOPLE, ANIMALS)]),
        shape=np.array([*upward.shape, len(images)]),
        n_style=np.array(len(STYLE_TEMPLATES)),
        prefix=ragged([clip.encode(t[0]) for t in templates], 8),
        suffix=ragged([clip.encode(t[1]) for t in templates], 4),
        lemma_names=ragged([clip.encode(t) for t in lemma_text], NAME_LEN),
        glosses=ragged([clip.encode(g) for g in glosses], GLOSS_LEN),
        captions=ragged([clip.encode(c) for c in flat], CAPTION_LEN),
        bert_node=bert_ids(plain),
        bert_node_rich=bert_ids(rich),
        bert_lemma=bert_ids(lemma_text),
        bert_lemma_rich=bert_ids([enriched(wn, t, s) for t, (_, s) in zip(lemma_text, lemmas, strict=True)]),
        bert_gloss=bert_ids(glosses),
        bert_caption=bert_ids(flat),
    )
    meta = {"leaves": len(leaves.keys), "nodes": nodes, "names": names, "rich": rich}
    (out.parent / "names.json").write_text(json.dumps(meta, indent=0))
    print(
        f"{out.name}: {len(nodes)} nodes, {len(lemmas)} lemmas, {len(glosses)} glosses, {len(flat)} captions,"
        f" {int(tag_rows.any(1).sum())} tagged images, {out.stat().st_size / 1e6:.1f} MB",
        flush=True,
    )


def write_images(args: argparse.Namespace, leaves: Leaves) -> None:
    def wnid(name: str) -> int:
        return leaves.index[name.split("/")[0]]

    def fine(name: str) -> int:
        return leaves.index[name.rsplit("/", 1)[0]]

    plan = {
        "in6": ("imagenet-6perclass", wnid, 78),
        "flickr": ("flickr8k", lambda _: -1, 70),
        "fine": ("finegrained-train", fine, None),
        "tiny0": ("tiny-imagenet-train-0", wnid, None),
        "tiny1": ("tiny-imagenet-train-1", wnid, None),
        "val": ("tiny-imagenet-val", wnid, None),
    }
    for short, (name, label, quality) in plan.items():
        out = args.out / f"images-{short}.npz"
        if out.exists():
            continue
        files = read_zip(args.data / f"{name}.zip")
        if short == "val":  # a watch set during training, every fifth image
            files = files[::5]
        blobs = [b if quality is None else shrink(b, quality) for _, b in files]
        pack(out, blobs, [label(n) for n, _ in files])


def write_teachers(args: argparse.Namespace) -> None:
    out = args.out / "lite2.pt"
    if not out.exists():
        state = torch.load(args.lite2, map_location="cpu", weights_only=True)
        torch.save({k: v.half() for k, v in state.items() if v.is_floating_point()}, out)
    out = args.out / "minilm.pt"
    if not out.exists():
        from safetensors.torch import load_file

        packed = {}
        for key, value in load_file(args.minilm / "model.safetensors").items():
            if (
                value.ndim == 2 and value.numel() > 100_000
            ):  # int8 rows: a quarter of the size, same embeddings
                scale = value.abs().amax(1, keepdim=True) / 127
                packed[key] = ((value / scale).round().to(torch.int8), scale.half())
            elif value.is_floating_point():
                packed[key] = (value.half(), None)
        torch.save({"config": json.loads((args.minilm / "config.json").read_text()), "weights": packed}, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the zips and the captions")
    parser.add_argument("--facts", type=Path, required=True, help="imagenet_wnids.json")
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("--bpe", type=Path, required=True, help="bpe_simple_vocab_16e6.txt.gz")
    parser.add_argument("--minilm", type=Path, required=True, help="unpacked all-MiniLM-L6-v2 folder")
    parser.add_argument("--lite2", type=Path, required=True, help="efficientnet-lite2-*.pth")
    parser.add_argument("--glosses", type=int, default=30_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    leaves = Leaves(args.facts, args.data / "finegrained-train.zip")
    write_teachers(args)
    if not (args.out / "text.npz").exists():
        write_text(args.out / "text.npz", args, leaves, WordNet(args.wordnet))
    write_images(args, leaves)


if __name__ == "__main__":
    main()
