"""Where a model is computed and in which precision: names, or torch's own objects."""

from __future__ import annotations

import torch

from taps.errors import SettingsError

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def find_device(name: str | torch.device | None) -> torch.device:
    """A device that can be used here; CUDA where there is one, unless another is named."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise SettingsError(
            f"The device {str(name)!r} cannot be used here ({reason}); use cpu, or leave it out."
        ) from None
    return device


def find_dtype(name: str | torch.dtype) -> torch.dtype:
    """A precision by its name.

    >>> find_dtype("bf16")
    torch.bfloat16
    """
    if isinstance(name, torch.dtype) and name.is_floating_point:
        return name
    if name not in DTYPES:
        raise SettingsError(f"The dtype {name!r} is unknown; use fp32, bf16, fp16 or fp64.")
    return DTYPES[str(name)]
