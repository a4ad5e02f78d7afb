"""CLIP and prompts the slow, literal way: one text, one image, one head at a time; nothing of the package."""

import math

import torch

SOT, EOT = 49406, 49407
NAMES = ("cat", "dog", "fire truck")
NAME_TOKENS = {"cat": [2368], "dog": [1929], "fire truck": [1769, 4629]}
OF_A, FULL_STOP = [539, 320], [269]
BEFORE = {"{}.": [], "of a {}.": OF_A}


def norm(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def unit(x):
    return x / x.pow(2).sum(-1, keepdim=True).sqrt()


def block(weights, prefix, x, heads, causal):
    """One pre-norm block on one sequence [tokens, width]."""
    w = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    y = norm(x, w["ln_1.weight"], w["ln_1.bias"])
    projected = y @ w["attn.in_proj_weight"].T + w["attn.in_proj_bias"]
    q, k, v = projected.split(x.shape[1], dim=1)
    outs = []
    for head in range(heads):
        size = x.shape[1] // heads
        part = slice(head * size, (head + 1) * size)
        scores = q[:, part] @ k[:, part].T / math.sqrt(size)
        if causal:
            for row in range(len(x)):
                scores = scores.clone()
                scores[row, row + 1 :] = -math.inf
        outs.append(torch.softmax(scores, dim=1) @ v[:, part])
    x = x + torch.cat(outs, dim=1) @ w["attn.out_proj.weight"].T + w["attn.out_proj.bias"]
    y = norm(x, w["ln_2.weight"], w["ln_2.bias"]) @ w["mlp.c_fc.weight"].T + w["mlp.c_fc.bias"]
    y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
    return x + y @ w["mlp.c_proj.weight"].T + w["mlp.c_proj.bias"]


def text_feature(weights, name, context, suffix, heads=3, layers=4):
    """Normalised feature of one class; `context` is a list of [tokens, width], one per prompted block."""
    count = len(context[0])
    ids = [SOT, *[0] * count, *BEFORE[suffix], *NAME_TOKENS[name], *FULL_STOP, EOT]
    x = weights["token_embedding.weight"][ids]
    x = torch.cat([x[:1], context[0], x[1 + count :]]) + weights["positional_embedding"][: len(ids)]
    for layer in range(layers):
        if 0 < layer < len(context):
            x = torch.cat([x[:1], context[layer], x[1 + count :]])
        x = block(weights, f"transformer.resblocks.{layer}.", x, heads, causal=True)
    last = norm(x[-1], weights["ln_final.weight"], weights["ln_final.bias"])
    return unit(last @ weights["text_projection"])


def image_feature(weights, pixels, vision, heads=2, layers=4, patch=8):
    """Normalised feature of one image, and the inputs of all blocks; `vision` as `context`, or None."""
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], dtype=torch.float64)
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711], dtype=torch.float64)
    image = (pixels.double() / 255 - mean[:, None, None]) / std[:, None, None]
    tokens = [weights["visual.class_embedding"]]
    for top in range(0, image.shape[1], patch):
        for left in range(0, image.shape[2], patch):
            square = image[:, top : top + patch, left : left + patch]
            tokens.append((weights["visual.conv1.weight"] * square).sum(dim=(1, 2, 3)))
    x = torch.stack(tokens) + weights["visual.positional_embedding"]
    if vision is not None:
        x = torch.cat([x, vision[0]])
    x = norm(x, weights["visual.ln_pre.weight"], weights["visual.ln_pre.bias"])
    inputs = []
    for layer in range(layers):
        if vision is not None and 0 < layer < len(vision):
            x = torch.cat([x[: -len(vision[layer])], vision[layer]])
        inputs.append(x)
        x = block(weights, f"visual.transformer.resblocks.{layer}.", x, heads, causal=False)
    first = norm(x[0], weights["visual.ln_post.weight"], weights["visual.ln_post.bias"])
    return unit(first @ weights["visual.proj"]), inputs


def logits_of(weights, features, texts):
    scale = weights["logit_scale"].exp()
    return torch.stack([torch.stack([scale * (f * t).sum() for t in texts]) for f in features])


def softmax_rows(logits):
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


def entropy(probs):
    return -(probs * probs.log()).sum(-1)


def confident(logits, kept):
    order = sorted(range(len(logits)), key=lambda i: float(entropy(softmax_rows(logits)[i])))
    return order[:kept]


def mean_prediction_entropy(logits):
    return entropy(softmax_rows(logits).mean(0))


def adamw_step(value, gradient, lr, decay=0.01, eps=1e-8):
    """The first step from fresh state: the moments' corrections cancel."""
    return value - lr * decay * value - lr * gradient / (gradient.abs() + eps)


def maple_tokens(parameters):
    """Text and vision tokens of each prompted block."""
    text = [parameters["context"], *parameters["deep"]]
    vision = [
        t @ w.T + b
        for t, w, b in zip(text, parameters["coupling.weight"], parameters["coupling.bias"], strict=True)
    ]
    return text, vision


def cocoop_context(parameters, feature):
    hidden = (parameters["net.down.weight"] @ feature + parameters["net.down.bias"]).clamp(min=0)
    return parameters["context"] + parameters["net.up.weight"] @ hidden + parameters["net.up.bias"]


def alignment(inputs, means, variances, own=0):
    """PromptAlign's form: 100/3 · Σ over blocks of half the mean absolute differences of both moments.

    The last `own` tokens are the prompts themselves, the same in every image: they differ from nothing.
    """
    total = 0.0
    for layer, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        stack = torch.stack([image[layer] for image in inputs])
        mu = stack.sum(0) / len(stack)
        var = ((stack - mu) ** 2).sum(0) / len(stack)
        counts = torch.ones(len(mean), 1, dtype=mean.dtype)
        counts[len(mean) - own :] = 0
        total = total + 0.5 * ((mu - mean) * counts).abs().mean()
        total = total + 0.5 * ((var - variance) * counts).abs().mean()
    return 100 / 3 * total


def coarse_views(*count: int, seed: int = 3) -> torch.Tensor:
    """Views of blocks of 8 pixels."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 256, (*count, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return coarse.repeat_interleave(8, dim=-2).repeat_interleave(8, dim=-1)
