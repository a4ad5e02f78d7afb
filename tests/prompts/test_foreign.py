"""Public checkpoints: their keys in, the same function out."""

import pickle

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from taps.errors import PromptsError
from taps.prompts import prompt_tokens
from taps.prompts.foreign import import_prompts


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


def test_maple_with_the_model_saved_along(tiny, tmp_path):
    state = maple_state()
    extra = {
        "prompt_learner.token_prefix": torch.randn(3, 1, 48),
        "prompt_learner.token_suffix": torch.randn(3, 70, 48),
        "image_encoder.conv1.weight": torch.randn(2),
        "text_encoder.ln_final.bias": torch.randn(2),
        "logit_scale": torch.tensor(1.0),
    }
    path = saved(tmp_path / "model.pth.tar-2", {**state, **extra}, epoch=2, optimizer={"lr": 0.1})
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


def test_coop_in_half_precision(tiny, tmp_path):
    context = torch.randn(4, 48).half()
    path = saved(tmp_path / "m", {"ctx": context, "token_prefix": torch.zeros(2, 1, 48)}, epoch=50)
    prompts = import_prompts(path, "coop", tiny)
    assert torch.equal(prompts.parameters["context"], context.float())


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
            import_prompts(saved(tmp_path / "m", state), kind, tiny)

    refused({**maple_state(), "prompt_learner.extra": torch.zeros(1)}, "maple", "extra")
    refused(maple_state(text=512, vision=768), "maple", "shape")
    refused({"ctx": torch.randn(4, 48)}, "maple", "proj.weight")
    refused({"ctx": torch.randn(3, 4, 48)}, "coop", "each class")
    refused({"ctx": torch.full((4, 48), torch.nan)}, "coop", "not finite")
    refused({"ctx": "text"}, "coop", "no state dict")
    refused([1, 2], "coop", "no state dict")
    refused({"ctx": torch.randn(4, 48)}, "proda", "no import")
    (tmp_path / "evil").write_bytes(pickle.dumps({"state_dict": Evil()}))
    with pytest.raises(PromptsError, match="cannot be read"):
        import_prompts(tmp_path / "evil", "coop", tiny)
    assert "executed" not in capsys.readouterr().out
    with pytest.raises(PromptsError, match="cannot be read"):
        import_prompts(tmp_path / "absent", "coop", tiny)
