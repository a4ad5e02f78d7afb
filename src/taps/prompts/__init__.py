"""Prompts: families, saving and loading."""

from taps.prompts.base import Parameters, Prompts, PromptTokens, check_base, prompt_tokens

__all__ = ["Parameters", "PromptTokens", "Prompts", "check_base", "prompt_tokens"]
