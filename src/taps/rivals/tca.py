"""TCA (Wang et al., ICCV 2025): tokens of little attention are merged; class tokens of sure images vote.

A reservoir holds the class tokens behind every block of a few images of each predicted class. They guide
which tokens are kept, and vote for their class. The arithmetic is that of the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import SettingsError
from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, method, setting
from taps.methods.features import EMPTY
from taps.model.clip import Clip
from taps.model.clip.transformer import Block
from taps.model.clip.vision import VisionTower

MERGED = 4  # tokens that doubtful ones are merged into


class TcaSettings(TextSettings):
    """The published share of tokens, and the authors' β for DTD, here for all data sets.

    Attributes:
        drop: Share of the patches that becomes one token, after one, two and three quarters of the blocks;
            twice as many are merged to four.
        shots: Images kept of each predicted class.
        weight: λ, of their votes.
        sharpness: β, how fast a vote fades with distance.
        early: How evenly the blocks count in that distance; the less, the more the last ones.
    """

    drop: float = setting(0.035, at_least=0, below=0.3)
    shots: int = setting(3, at_least=1)
    weight: float = setting(2.0, at_least=0)
    sharpness: float = setting(6.0, at_least=0)
    early: float = setting(1.0, above=0)


@method("tca", TcaSettings)
class Tca(FeatureMethod):
    settings: TcaSettings
    tokens: Tensor  # the present image's class token behind every block [blocks, width]

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: TcaSettings, seed: int) -> None:
        if not isinstance(clip.visual, VisionTower) or clip.visual.pooling != "class" or clip.visual.rotary:
            raise SettingsError(
                f"The method 'tca' merges tokens of a vision transformer with a class token and no rotary "
                f"places, such as ViT-B-16; the image tower of {clip.config.name} is none."
            )
        self.tower = clip.visual
        super().__init__(clip, classes, settings, seed)

    def batch_key(self) -> Hashable:
        return None  # an image is encoded with those before it

    def start(self) -> State:
        config = self.classifier.clip.config
        shape = len(self.text), self.settings.shots
        return {
            "tokens": self.text.new_zeros(*shape, config.vision_layers, config.vision_width),
            "entropies": self.text.new_full(shape, EMPTY),
        }

    def encode(self, views: Tensor, ahead: Tensor | None) -> Tensor:
        clip, blocks = self.classifier.clip, self.tower.transformer.resblocks
        x = self.tower.embed(clip.preprocess(views[:1].to(clip.device)), None)
        condensing, found = {len(blocks) * quarter // 4 for quarter in (1, 2, 3)}, []
        for index, block in enumerate(blocks):
            assert isinstance(block, Block)
            if index and index in condensing and self.settings.drop:
                x = condensed_block(block, x, self.anchor(index - 1, x[0, 0]), self.settings.drop)
            else:
                x, rest = block.whole(x, block.ln_1(x))
                x = x + rest
            found.append(x[0, 0])
        self.tokens = torch.stack(found).to(self.text)
        feature = self.tower.project(self.tower.ln_post(x[:, 0]))
        return F.normalize(feature.to(self.classifier.dtype), dim=-1)

    def anchor(self, index: int, token: Tensor) -> Tensor | None:
        """The mean token of a class that is most like the image's behind a block; None until all have two."""
        counts = (self.state["entropies"] < EMPTY).sum(dim=1)
        if int(counts.min()) < 2:
            return None
        means = self.state["tokens"][:, :, index].sum(dim=1) / counts[:, None]
        return means[F.cosine_similarity(means, token.to(means)[None]).argmax()].to(token)

    def adapt(self, seen: EncodedImage) -> Tensor:
        self.take(int(seen.logits[0].argmax()), seen.entropy)
        depth = torch.linspace(0, 1, len(self.tokens)).to(self.text)
        shares = torch.softmax(depth / self.settings.early, dim=0)
        alike = F.cosine_similarity(self.state["tokens"], self.tokens, dim=-1) @ shares
        votes = torch.exp(self.settings.sharpness * (alike - 1)) * (self.state["entropies"] < EMPTY)
        return seen.logits[0] + self.settings.weight * votes.sum(dim=1)

    def take(self, label: int, entropy: float) -> None:
        """Put the image into its class; where that is full, the least sure and least different one leaves."""
        held, entropies = self.state["tokens"][label], self.state["entropies"][label]
        if float(entropies.max()) >= EMPTY:
            place = int(entropies.argmax())
        else:
            means = F.normalize(torch.cat([held, self.tokens[None]]).mean(dim=1), dim=-1)
            alike = ((means @ means.T).sum(dim=1) - means.square().sum(dim=1)) / (len(means) - 1)
            place = int((torch.cat([entropies, entropies.new_tensor([entropy])]) + alike).argmax())
        if place < len(held):
            held[place], entropies[place] = self.tokens, entropy


def condensed_block(block: Block, x: Tensor, anchor: Tensor | None, drop: float) -> Tensor:
    """A block that also attends to an anchor token, and condenses one image's tokens [1, tokens, width]."""
    seen = x if anchor is None else torch.cat([anchor.expand(1, 1, -1), x], dim=1)
    parts = block.attn.project(block.ln_1(seen)).chunk(3, dim=-1)
    q, k, v = (part.view(*part.shape[:2], block.attn.heads, -1) for part in parts)
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]), dim=-1)
    out = block.attn.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
    first = seen.shape[1] - x.shape[1]
    x = condense((x + out[:, first:])[0], weights[0, :, first, first + 1 :].mean(dim=0), drop)[None]
    return x + block.mlp(block.ln_2(x))  # type: ignore[no-any-return]


def condense(x: Tensor, attention: Tensor, drop: float) -> Tensor:
    """The class token, the tokens most looked at, doubtful ones merged, the rest as one [fewer, width].

    Args:
        x: Tokens, the class token first [tokens, width].
        attention: Of the class token to each of the others [tokens − 1].
        drop: Share that becomes one token.
    """
    left = math.ceil((1 - drop) * len(attention))
    clear = max(0, left - 2 * (len(x) - left))
    order = torch.sort(attention, descending=True, stable=True).indices
    patches, rest = x[1:], order[left:]
    parts = [x[:1], patches[order[:clear]], merge(patches[order[clear:left]])]
    if len(rest):
        parts.append((attention[rest] @ patches[rest])[None])
    return torch.cat(parts)


def merge(tokens: Tensor) -> Tensor:
    """At most four tokens, each a mean of those nearest to a centre; near ones weigh more [few, width].

    Centres are chosen one by one, the farthest from those chosen; the first is the first token.
    """
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    distances = torch.cdist(exact, exact, compute_mode="donot_use_mm_for_euclid_dist")
    centres = [0]
    while len(centres) < min(MERGED, len(tokens)):
        centres.append(int(distances[centres].amin(dim=0).argmax()))
    apart, nearest = distances[centres].min(dim=0)
    weights = torch.where(apart > 0, 1 / apart, 1.0)
    shares = F.one_hot(nearest, len(centres)).to(exact).T * weights
    return (F.normalize(shares, p=1, dim=1) @ exact).to(tokens)
