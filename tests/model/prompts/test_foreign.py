"""Public checkpoints: their keys in, the same function out."""

import pickle
import sys
import types

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from taps.errors import PromptsError
from taps.model.clip.tokenizer import EOT_ID, encode
from taps.model.prompts import prompt_tokens
from taps.model.prompts.foreign import import_prompts


def maple_state(tokens=2, depth=3, text=48, vision=64):
    torch.manual_seed(0)
    state = {
        "ctx": torch.randn(tokens, text),
        "proj.weight": torch.randn(vision, text),
        "proj.bias": torch.randn(vision),
    }
    for place in range(depth - 1):
        state[f"compound_prompts_text.{place}"] = torch.randn(tokens, text)
        state[f"compound_prompt_projections.{place}.weight"] = torch.randn(vision, text)
        state[f"compound_prompt_projections.{place}.bias"] = torch.randn(vision)
    return {f"prompt_learner.{name}": value for name, value in state.items()}


def saved(path, state, **around):
    torch.save({"state_dict": state, **around} if around else state, path)
    return path


class ConstantWarmupScheduler(torch.optim.lr_scheduler.LRScheduler):
    """Dassl's way: a schedule that keeps the one that follows it, optimiser and all, in its state."""

    def __init__(self, optimizer, successor):
        self.successor = successor
        super().__init__(optimizer)

    def get_lr(self):
        return [1e-5 for _ in self.base_lrs]


def trained_file(path, state, monkeypatch):
    """A checkpoint as the trainers write it: weights, optimiser, a scheduler with objects in it, a score."""
    for name in ("dassl", "dassl.optim", "dassl.optim.lr_scheduler"):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(ConstantWarmupScheduler, "__module__", module.__name__)
    module.ConstantWarmupScheduler = ConstantWarmupScheduler
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    inner = ConstantWarmupScheduler(optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10))
    scheduler = ConstantWarmupScheduler(optimizer, inner)
    return saved(
        path,
        state,
        epoch=2,
        optimizer=optimizer.state_dict(),
        scheduler=scheduler.state_dict(),
        val_result=np.float64(71.2),
    )


def fixed_vectors(clip, texts, room=12):
    """`token_suffix` of texts as the trainers keep it: the vectors of what follows the context, halved."""
    rows = [[*encode(text), EOT_ID, *[0] * room][:room] for text in texts]
    return clip.token_embedding(torch.tensor(rows)).half()


def test_maple_as_its_trainer_saves_it(tiny, tmp_path, monkeypatch):
    state = maple_state()
    extra = {
        "prompt_learner.token_prefix": torch.randn(3, 1, 48),
        "prompt_learner.token_suffix": fixed_vectors(tiny, ["of a cat.", "of a dog.", "of a fire truck."]),
        "image_encoder.conv1.weight": torch.randn(2),
        "text_encoder.ln_final.bias": torch.randn(2),
        "logit_scale": torch.tensor(1.0),
    }
    path = trained_file(tmp_path / "model.pth.tar-2", {**state, **extra}, monkeypatch)
    prompts = import_prompts(path, "maple", tiny)
    tokens = prompt_tokens("maple", prompts.parameters)
    texts = [state["prompt_learner.ctx"]] + [
        state[f"prompt_learner.compound_prompts_text.{i}"] for i in range(2)
    ]
    couplings = ["proj"] + [f"compound_prompt_projections.{i}" for i in range(2)]
    for depth, (text, name) in enumerate(zip(texts, couplings, strict=True)):
        weight, bias = (state[f"prompt_learner.{name}.{part}"] for part in ("weight", "bias"))
        assert torch.equal(tokens.text[depth], text)
        assert torch.allclose(tokens.vision[depth], F.linear(text, weight, bias), atol=1e-5)
    assert prompts.suffix == "of a {}."
    assert prompts.base_fingerprint == tiny.fingerprint


WORDS = {1: "photo of a {}.", 2: "of a {}.", 3: "a {}.", 4: "{}.", 6: "{}."}


@pytest.mark.parametrize("with_vectors", [True, False])
@pytest.mark.parametrize("tokens", list(WORDS))
def test_maple_keeps_the_words_its_tokens_leave(tiny, tmp_path, tokens, with_vectors):
    """Of "a photo of a" the first words are learned and the others stay; more tokens than words are new."""
    state = maple_state(tokens=tokens)
    if with_vectors:
        texts = [WORDS[tokens].format(name) for name in ("cat", "dog")]
        state["prompt_learner.token_suffix"] = fixed_vectors(tiny, texts)
    prompts = import_prompts(saved(tmp_path / "m", state), "maple", tiny)
    assert prompts.suffix == WORDS[tokens]


def test_maple_trained_from_other_words_is_asked_about(tiny, tmp_path):
    state = maple_state(tokens=2)
    state["prompt_learner.token_suffix"] = fixed_vectors(tiny, ["of one cat.", "of one dog."])
    path = saved(tmp_path / "m", state)
    with pytest.raises(PromptsError, match=r"begin with 'of one', .* 'of a'; .* suffix"):
        import_prompts(path, "maple", tiny)
    assert import_prompts(path, "maple", tiny, suffix="of one {}.").suffix == "of one {}."
    with pytest.raises(PromptsError, match=r"no {}"):
        import_prompts(path, "maple", tiny, suffix="of one")
    state["prompt_learner.token_suffix"] = torch.randn(1, 9, 48).repeat(2, 1, 1)
    with pytest.raises(PromptsError, match="no words of tiny"):
        import_prompts(saved(path, state), "maple", tiny)


def test_coop_in_half_precision(tiny, tmp_path):
    context = torch.randn(4, 48).half()
    path = saved(tmp_path / "m", {"ctx": context, "token_prefix": torch.zeros(2, 1, 48)}, epoch=50)
    prompts = import_prompts(path, "coop", tiny, position="end")
    assert torch.equal(prompts.parameters["context"], context.float())
    assert prompts.suffix == "{}."


def test_coop_is_asked_where_the_class_name_stood(tiny, tmp_path):
    """Its code trains with the name at the end, in the middle or in front, and writes the same file."""
    path = saved(tmp_path / "m", {"ctx": torch.randn(4, 48)})
    with pytest.raises(PromptsError, match=r"does not say where the class name stood; .* 'end'"):
        import_prompts(path, "coop", tiny)
    for position in ("middle", "front", "behind"):
        with pytest.raises(PromptsError, match="at the end"):
            import_prompts(path, "coop", tiny, position=position)


def test_cocoop_net_is_the_same_net(tiny, tmp_path):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(32, 2), nn.ReLU(), nn.Linear(2, 48))
    context = torch.randn(4, 48)
    state = {"ctx": context, "token_suffix": torch.zeros(1)}
    for place, name in ((0, "linear1"), (2, "linear2")):
        state |= {
            f"meta_net.{name}.{part}": getattr(net[place], part).detach() for part in ("weight", "bias")
        }
    prompts = import_prompts(saved(tmp_path / "m", state), "cocoop", tiny)
    feature = F.normalize(torch.randn(32), dim=0)
    expected = context + net(feature).detach()
    assert torch.allclose(prompt_tokens("cocoop", prompts.parameters, feature).text[0], expected, atol=1e-6)


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_what_cannot_be_imported_is_refused(tiny, tmp_path, capsys):
    def refused(state, kind, match):
        with pytest.raises(PromptsError, match=match):
            import_prompts(saved(tmp_path / "m", state), kind, tiny, position="end")

    refused({**maple_state(), "prompt_learner.extra": torch.zeros(1)}, "maple", "extra")
    refused(maple_state(text=512, vision=768), "maple", "shape")
    refused({"ctx": torch.randn(4, 48)}, "maple", "proj.weight")
    refused({"ctx": torch.randn(3, 4, 48)}, "coop", "each class")
    refused({"ctx": torch.full((4, 48), torch.nan)}, "coop", "not finite")
    refused({"ctx": "text"}, "coop", "no state dict")
    refused([1, 2], "coop", "no state dict")
    refused({"ctx": torch.randn(4, 48)}, "proda", "cannot be imported")
    torch.save({"state_dict": {"ctx": torch.zeros(4, 48)}, "scheduler": Evil()}, tmp_path / "evil")
    with pytest.raises(PromptsError, match=r"cannot be read .*print"):
        import_prompts(tmp_path / "evil", "coop", tiny, position="end")
    (tmp_path / "evil").write_bytes(pickle.dumps({"state_dict": Evil()}))
    with pytest.raises(PromptsError, match="cannot be read"):
        import_prompts(tmp_path / "evil", "coop", tiny, position="end")
    assert "executed" not in capsys.readouterr().out
    with pytest.raises(PromptsError, match="cannot be read"):
        import_prompts(tmp_path / "absent", "coop", tiny, position="end")
