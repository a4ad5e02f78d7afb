"""The frozen model: encoders that take prompts as arguments and return features."""

from taps.clip.config import ClipConfig
from taps.clip.layout import TextLayout, WholeTexts
from taps.clip.load import load_clip
from taps.clip.model import Clip

__all__ = ["Clip", "ClipConfig", "TextLayout", "WholeTexts", "load_clip"]
