"""Stage 2: train the text tower alone, to say in CLIP's tokens what a sentence encoder says.

Nouns of WordNet in templates, glosses and captions go in; their (centred) MiniLM embeddings are the
target, and the nearest class names of each noun must be the same as MiniLM's. A class name that no image
was ever seen of then still has its place among the others. Writes `text.pt` (the averaged weights, the
token table in int8 rows) and `textfeatures.npz` (every class name under every template, every caption,
the tree), what `vision.py` trains against.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from data import Texts, sentences
from export import TABLE, quantise_rows
from losses import amp, cosine, cosine_loss
from model import Pocket, PocketConfig
from torch import Tensor, nn

HELD_OUT = 2000  # nouns that are never trained on, to see whether new ones land where they belong
SHARPNESS = 0.05  # temperature of "nearest class names"
CAPTIONS = 2  # of the five of each image, stored for vision.py


class TextStudent:
    def __init__(self, args: argparse.Namespace, texts: Texts, device: torch.device) -> None:
        self.args, self.texts, self.device = args, texts, device
        self.model = Pocket(PocketConfig()).to(device).train()
        del self.model.visual
        named = [(n, p) for n, p in self.model.named_parameters() if n != "logit_scale"]
        decay = [p for n, p in named if p.ndim >= 2 and "embedding" not in n]
        plain = [p for n, p in named if p.ndim < 2 or "embedding" in n]
        self.params = decay + plain
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        self.opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=device.type == "cuda")
        self.ema = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.ema_values = list(self.ema.values())
        self.values = list(self.model.state_dict().values())
        order = torch.randperm(len(texts.lemmas), device=device)
        held = min(HELD_OUT, len(order) // 10)
        self.held_out, self.nouns = order[:held], order[held:]

    def loss(self) -> dict[str, Tensor]:
        texts, batch = self.texts, self.args.batch
        lemma = self.nouns[torch.randint(len(self.nouns), (batch,), device=self.device)]
        node = torch.randint(len(texts.node_names), (batch // 2,), device=self.device)
        gloss = torch.randint(len(texts.glosses), (batch // 4,), device=self.device)
        caption = torch.randint(len(texts.caption_vec), (batch // 4,), device=self.device)
        names = torch.cat([texts.lemmas[lemma], texts.nodes(node)])
        lines = torch.cat([sentences(texts.glosses[gloss], 38), sentences(texts.captions[caption], 38)])
        with amp(self.device):
            short = F.normalize(self.model.encode_text(texts.fill(names)).float(), dim=1)
            long = F.normalize(self.model.encode_text(lines).float(), dim=1)
        target = torch.cat([texts.lemma_vec[lemma], texts.node_vec[node]])
        said = torch.cat([texts.gloss_vec[gloss], texts.caption_vec[caption]])
        with torch.no_grad():
            near = F.softmax(target @ texts.node_vec.t() / SHARPNESS, dim=1)
        guess = F.log_softmax(short @ texts.node_vec.t() / SHARPNESS, dim=1)
        relation = F.kl_div(guess, near, reduction="batchmean")
        return {"name": cosine_loss(short, target), "line": cosine_loss(long, said), "relation": relation}

    def step(self, step: int, progress: float) -> dict[str, Tensor]:
        for group in self.opt.param_groups:
            group["lr"] = self.args.lr * min(1.0, (step + 1) / 300) * cosine(progress, 0.0)
        parts = self.loss()
        self.opt.zero_grad(set_to_none=True)
        (parts["name"] + parts["line"] + 0.3 * parts["relation"]).backward()
        nn.utils.clip_grad_norm_(self.params, 1.0)
        self.opt.step()
        decay = min(self.args.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.ema_values, self.values, 1 - decay)
        return parts

    @torch.inference_mode()
    def unseen(self) -> tuple[float, float]:
        """Held-out nouns: cosine to their targets, and how often the nearest class name is MiniLM's."""
        texts = self.texts
        features = encode(
            self.model, texts.fill(texts.lemmas[self.held_out], torch.zeros_like(self.held_out))
        )
        target = texts.lemma_vec[self.held_out]
        same = (features @ texts.node_vec.t()).argmax(1) == (target @ texts.node_vec.t()).argmax(1)
        return F.cosine_similarity(features, target, dim=1).mean().item(), same.float().mean().item()

    def write(self, folder: Path) -> None:
        """The averaged weights."""
        state = {k: v for k, v in self.ema.items() if k != "logit_scale"}
        table, scale = quantise_rows(state.pop(TABLE).cpu())
        # Two files, so that each stays below what some transfers allow.
        torch.save({"table": table, "scale": scale}, folder / "table.pt")
        torch.save({k: v.half() for k, v in state.items()}, folder / "text.pt")


def load_tower(folder: Path, device: torch.device) -> Pocket:
    """The text tower as it is shipped: half precision, token table in int8 rows."""
    model = Pocket(PocketConfig())
    del model.visual
    state = torch.load(folder / "text.pt", weights_only=True, map_location="cpu")
    token = torch.load(folder / "table.pt", weights_only=True, map_location="cpu")
    state[TABLE] = token["table"].float() * token["scale"].float()[:, None]
    model.load_state_dict({"logit_scale": model.logit_scale.data} | {k: v.float() for k, v in state.items()})
    return model.to(device).eval()


@torch.inference_mode()
def encode(model: Pocket, ids: Tensor) -> Tensor:
    with amp(ids.device):
        parts = [F.normalize(model.encode_text(part).float(), dim=1) for part in ids.split(2048)]
    return torch.cat(parts)


def write_features(model: Pocket, texts: Texts, args: argparse.Namespace) -> None:
    """What the tower says of every name under every template and of every caption, and the tree."""
    templates, count = 1 if args.limit else len(texts.prefix), len(texts.node_names)
    nodes = np.empty((templates, 1 if args.limit else 4, count, 384), dtype=np.float16)
    for t in range(templates):
        for name in range(nodes.shape[1]):
            which = torch.full((count,), t, dtype=torch.long, device=texts.node_names.device)
            features = encode(model, texts.fill(texts.node_names[:, name], which))
            nodes[t, name] = features.half().cpu().numpy()
    captions = texts.captions.view(-1, 5, texts.captions.shape[1])[:, :CAPTIONS].flatten(0, 1)
    said = encode(model, sentences(captions, 38)).half().cpu().numpy()
    with np.load(args.data / "text.npz") as stored:
        keep = {k: stored[k] for k in ("upward", "tags", "living", "shape", "node_weight")}
    # Written under another name first: vision.py may be waiting for the whole file.
    np.savez(args.out / "part.npz", nodes=nodes, captions=said, leaves=texts.leaves, **keep)
    (args.out / "part.npz").rename(args.out / "textfeatures.npz")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for text.pt, table.pt, textfeatures.npz"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument(
        "--batch", type=int, default=1536, help="nouns; half as many class names, a quarter glosses"
    )
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--limit", type=int, default=0, help="toy runs: texts per kind")
    parser.add_argument(
        "--weights", type=Path, help="do not train: textfeatures.npz of this folder's text.pt and table.pt"
    )
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.weights:
        write_features(load_tower(args.weights, device), Texts(args.data, device, args.limit, None), args)
        return
    began = time.time()
    student = TextStudent(args, Texts(args.data, device, args.limit, "minilm.pt"), device)
    print(f"text: sentence embeddings ready after {time.time() - began:.0f}s", flush=True)
    start, step, report = time.time(), 0, 0.0
    while (spent := time.time() - start) < args.seconds:
        parts = student.step(step, spent / args.seconds)
        step += 1
        if step in (1, 10, 100) or spent - report > 15:
            report = spent
            shown = " ".join(f"{k} {v.item():.3f}" for k, v in parts.items())
            print(
                f"text {spent:4.0f}s step {step} {shown} unseen %.3f, same nearest %.2f" % student.unseen(),
                flush=True,
            )
    student.write(args.out)
    write_features(load_tower(args.out, device), student.texts, args)
    print(
        f"text: {step} steps; unseen nouns: cosine %.3f, same nearest name %.2f" % student.unseen(),
        flush=True,
    )


if __name__ == "__main__":
    main()
