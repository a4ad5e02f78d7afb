"""Prompts: families, saving and loading."""

from taps.prompts.base import Prompts, check_base, prompt_tokens
from taps.prompts.families import Family, Parameters, PromptTokens, Recipe, family

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
