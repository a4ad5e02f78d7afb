"""What is learned, one file a family, and class names as texts.

Read first: `maple.py`, the family of the paper; `classifier.py`: model, classes and prompts together.
Must not know: gradients and steps.
"""

from taps.model.prompts.base import Prompts, check_base, prompt_tokens
from taps.model.prompts.families import Family, Parameters, PromptTokens, Recipe, family

__all__ = [
    "Family",
    "Parameters",
    "PromptTokens",
    "Prompts",
    "Recipe",
    "check_base",
    "family",
    "prompt_tokens",
]
