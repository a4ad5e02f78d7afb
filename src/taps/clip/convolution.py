"""What image towers of convolutions have in common: they take no prompts, and their norms are folded away."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from taps.errors import PromptsError

BN_EPS = 1e-5


class ConvolutionTower(nn.Module):
    """Images → features, frozen: no prompts go into it, and no block's input is handed out."""

    def features(self, images: Tensor) -> Tensor:
        """Projected features [batch, embed] of images [batch, 3, height, width]."""
        raise NotImplementedError

    def tokens(self, images: Tensor) -> Tensor:
        """There are none: images go in as they are."""
        return images

    def block_inputs(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        raise PromptsError(
            "The image tower is made of convolutions: it has no tokens to align; use a method without."
        )

    def forward(
        self, images: Tensor, prompts: Tensor | None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        return self.features(images), self.block_inputs(images, prompts, layers) if layers else []


def take_norm(state: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """A frozen batch norm is x · scale + shift for each channel; its tensors are taken out of the state."""
    weight, bias, mean, variance = (
        state.pop(f"{name}.{part}").double() for part in ("weight", "bias", "running_mean", "running_var")
    )
    state.pop(f"{name}.num_batches_tracked", None)
    scale = weight / (variance + BN_EPS).sqrt()
    return scale, bias - mean * scale


def norm_names(state: dict[str, Tensor]) -> list[str]:
    """The batch norms of a state."""
    return [key.removesuffix(".running_var") for key in state if key.endswith(".running_var")]


def fold_norm(state: dict[str, Tensor], norm: str, conv: str, name: str) -> None:
    """Put a convolution and the batch norm after it into one convolution, `name`; others stay as they are."""
    scale, shift = take_norm(state, norm)
    kernel = state.pop(f"{conv}.weight").double() * scale[:, None, None, None]
    state[f"{name}.weight"], state[f"{name}.bias"] = kernel.float(), shift.float()
