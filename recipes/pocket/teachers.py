"""The two teachers: EfficientNet-Lite2 for images, MiniLM for sentences.

Lite2 is rebuilt here block by block from the shapes in its state dict, so no model zoo is needed.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# kernel, stride, expansion, output channels, repeats (EfficientNet-Lite, width 1.1, depth 1.2)
STAGES = [
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 3),
    (5, 2, 6, 48, 3),
    (3, 2, 6, 88, 4),
    (5, 1, 6, 120, 4),
    (5, 2, 6, 208, 5),
    (3, 1, 6, 352, 1),
]
# Blocks up to the end of the stage whose grid at 128 px is the pocket tower's grid of patches, 8 × 8.
FINE_BLOCKS = sum(repeats for *_, repeats in STAGES[:5])
FINE_CHANNELS = STAGES[4][3]


class SameConv(nn.Conv2d):
    """Convolution with TensorFlow's padding: the odd pixel goes right and below."""

    def forward(self, x: Tensor) -> Tensor:
        k, s = self.kernel_size[0], self.stride[0]
        h, w = x.shape[-2:]
        ph, pw = max(0, (-(-h // s) - 1) * s + k - h), max(0, (-(-w // s) - 1) * s + k - w)
        if ph == pw and ph % 2 == 0:
            return F.conv2d(x, self.weight, None, s, ph // 2, 1, self.groups)
        x = F.pad(x, (pw // 2, pw - pw // 2, ph // 2, ph - ph // 2))
        return F.conv2d(x, self.weight, None, s, 0, 1, self.groups)


def conv_bn(cin: int, cout: int, k: int, s: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        SameConv(cin, cout, k, s, groups=groups, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
    ]


class MBConv(nn.Module):
    def __init__(self, cin: int, cout: int, k: int, s: int, expand: int) -> None:
        super().__init__()
        mid = cin * expand
        layers: list[nn.Module] = [*conv_bn(cin, mid, 1), nn.ReLU6()] if expand > 1 else []
        layers += [*conv_bn(mid, mid, k, s, mid), nn.ReLU6(), *conv_bn(mid, cout, 1)]
        self.body = nn.Sequential(*layers)
        self.skip = s == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skip else self.body(x)


class Lite2(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        cin = 32
        for k, s, expand, cout, repeats in STAGES:
            for i in range(repeats):
                blocks.append(MBConv(cin, cout, k, s if i == 0 else 1, expand))
                cin = cout
        self.stem = nn.Sequential(*conv_bn(3, 32, 3, 2), nn.ReLU6())
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(*conv_bn(cin, 1280, 1), nn.ReLU6())
        self.fc = nn.Linear(1280, classes)

    def features(self, x: Tensor) -> Tensor:
        """Pixels in 0..1 to the 1,280 pooled features."""
        return self.places_and_features(x)[1]

    def places_and_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What it sees in each place (120 channels, a 16th of the side), and the pooled features."""
        x = self.stem((x - 127 / 255) * (255 / 128))
        places = self.blocks[:FINE_BLOCKS](x)
        return places, self.head(self.blocks[FINE_BLOCKS:](places)).mean((2, 3))

    def load_published(self, path: Path) -> None:
        """Fill in the published weights: same tensors in the same order, other names.

        Classes beyond the 1,000 start at the mean classifier, so they neither win nor lose at once.
        """
        given = torch.load(path, map_location="cpu", weights_only=True)
        given = {k: v.float() for k, v in given.items() if "num_batches" not in k}
        own = {k: v for k, v in self.state_dict().items() if "num_batches" not in k}
        extra = len(self.fc.bias) - 1000
        given["_fc.weight"] = torch.cat([given["_fc.weight"], given["_fc.weight"].mean(0).expand(extra, -1)])
        given["_fc.bias"] = torch.cat([given["_fc.bias"], given["_fc.bias"].min().expand(extra)])
        for (a, x), (b, y) in zip(own.items(), given.items(), strict=True):
            assert x.shape == y.shape, (a, b)
            x.copy_(y)


def load_minilm(path: Path, device: torch.device) -> nn.Module:
    from transformers import BertConfig, BertModel

    stored = torch.load(path, map_location="cpu", weights_only=True)
    config = {k: v for k, v in stored["config"].items() if k not in ("architectures", "transformers_version")}
    model = BertModel(BertConfig(**config), add_pooling_layer=False)
    state = {
        k: q.float() if scale is None else q.float() * scale.float()
        for k, (q, scale) in stored["weights"].items()
    }
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert all("position_ids" in m or "token_type_ids" in m for m in missing), missing
    return model.to(device).eval()


@torch.inference_mode()
def embed_sentences(model: nn.Module, ids: Tensor, batch: int = 2048) -> Tensor:
    """Mean-pooled unit embeddings of padded token ids (65535 pads)."""
    length = (ids != 65535).sum(1)
    order = length.argsort()
    out = torch.empty(len(ids), 384, device=ids.device)
    amp = torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.is_cuda)
    for rows in order.split(batch):
        part = ids[rows][:, : int(length[rows].max())]
        mask = part != 65535
        with amp:
            hidden = model(input_ids=part * mask, attention_mask=mask.long()).last_hidden_state.float()
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        out[rows] = F.normalize(pooled, dim=1)
    return out
