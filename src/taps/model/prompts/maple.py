"""MaPLe: learned text tokens in the first blocks, each coupled to vision tokens by a linear map."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.errors import PromptsError
from taps.model.clip import Clip, ClipConfig
from taps.model.clip.tokenizer import decode
from taps.model.prompts.base import WORDS, Prompts, prompts_for, word_vectors
from taps.model.prompts.families import Family, Parameters, PromptTokens, Recipe, family, take

TOKENS = 2  # learned ones in each tower
NEAR = 0.02  # how far a word's vector may lie from the model's own, as a share of its length: it was halved


@family("maple")
class Maple(Family):
    # Published with batches of 4: the classes' texts are then encoded as often as the images. Larger ones
    # reach the same accuracy in a fraction of the time.
    recipe = Recipe(epochs=5, batch=16, lr=2.6e-3)
    vision = noise = True

    def initial(self, clip: Clip, generator: torch.Generator, *, depth: int = 3) -> Prompts:
        """Untrained MaPLe prompts: a start for training; to the image tower they are noise until trained.

        The first two words become learned vectors, the other words stay before the class name.
        """
        self.check_model(clip)
        width, vision = clip.config.text_width, clip.config.vision_width
        words = WORDS.split()
        learned, kept = " ".join(words[:TOKENS]), " ".join(words[TOKENS:])
        bound = width**-0.5  # the usual range of a linear layer
        uniform = torch.rand(depth, vision, width + 1, generator=generator) * 2 * bound - bound
        parameters = {
            "context": word_vectors(clip, learned).cpu(),
            "deep": 0.02 * torch.randn(depth - 1, TOKENS, width, generator=generator),
            "coupling.weight": uniform[..., :width].contiguous(),
            "coupling.bias": uniform[..., width].contiguous(),
        }
        return prompts_for(clip, self.name, parameters, f"{kept} {{}}.", init=WORDS)

    def tokens(self, parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
        text = torch.cat([parameters["context"][None], parameters["deep"]])
        vision = text @ parameters["coupling.weight"].mT + parameters["coupling.bias"][:, None]
        return PromptTokens(text=text, vision=vision)

    def shapes(self, config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
        count, depth = len(parameters.get("context", ())), len(parameters.get("deep", ())) + 1
        return {
            "context": (count, config.text_width),
            "deep": (depth - 1, count, config.text_width),
            "coupling.weight": (depth, config.vision_width, config.text_width),
            "coupling.bias": (depth, config.vision_width),
        }

    def read(self, state: dict[str, Tensor], position: str | None) -> Parameters:
        context = take(state, "ctx")
        deep: list[Tensor] = []
        weights, biases = [take(state, "proj.weight")], [take(state, "proj.bias")]
        while f"compound_prompts_text.{len(deep)}" in state:
            place = len(deep)
            deep.append(take(state, f"compound_prompts_text.{place}"))
            weights.append(take(state, f"compound_prompt_projections.{place}.weight"))
            biases.append(take(state, f"compound_prompt_projections.{place}.bias"))
        if any(len({part.shape for part in group}) > 1 for group in ([context, *deep], weights, biases)):
            raise PromptsError(
                "The checkpoint's prompts differ in shape from block to block; it may be damaged."
            )
        return {
            "context": context,
            "deep": torch.stack(deep) if deep else context.new_zeros(0, *context.shape),
            "coupling.weight": torch.stack(weights),
            "coupling.bias": torch.stack(biases),
        }

    def suffix(self, parameters: Parameters, fixed: Tensor | None, clip: Clip) -> str:
        """The rest of "a photo of a" behind the learned tokens, each of which has replaced a word.

        `fixed` are the vectors of the text that followed the context in training [K, tokens, width]; where
        the file has them, they must be of these words.
        """
        kept = WORDS.split()[len(parameters["context"]) :]
        if fixed is not None and (words := shared_words(fixed, clip)) != kept:
            raise PromptsError(
                f"The checkpoint's texts begin with {' '.join(words)!r}, MaPLe's own with "
                f"{' '.join(kept)!r}; say what stood between context and class name by suffix, such as "
                "'of a {}.'."
            )
        return " ".join([*kept, "{}."])


def shared_words(fixed: Tensor, clip: Clip) -> list[str]:
    """The words that all texts begin with, found by their vectors."""
    table = clip.token_embedding.weight.float().cpu()
    if fixed.ndim != 3 or fixed.shape[2] != table.shape[1]:
        raise PromptsError(f"The checkpoint's fixed texts are not {table.shape[1]} wide: another model's.")
    same = (fixed == fixed[:1]).all(dim=2).all(dim=0)
    vectors = fixed[0, : int(same.long().cumprod(0).sum())].float()
    distances, places = torch.cdist(vectors, table).min(dim=1)
    if bool((distances > NEAR * vectors.norm(dim=1)).any()):
        raise PromptsError(
            f"The checkpoint's fixed texts are no words of {clip.config.name}; load the model it was trained "
            "for, or say by suffix what stood between context and class name."
        )
    return decode(places.tolist())
