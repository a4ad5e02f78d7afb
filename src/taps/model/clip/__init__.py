"""CLIP: its towers, tokenizer, weights and configurations.

Read first: `model.py`, then `transformer.py`, `vision.py` (or `convolution.py`) and `layout.py` (the shared
prefix of class texts).
Must not know: prompts as things that are learned; they are tensors here.
"""

from taps.model.clip.config import ClipConfig
from taps.model.clip.layout import TextLayout, WholeTexts
from taps.model.clip.load import load_clip
from taps.model.clip.model import Clip

__all__ = ["Clip", "ClipConfig", "TextLayout", "WholeTexts", "load_clip"]
