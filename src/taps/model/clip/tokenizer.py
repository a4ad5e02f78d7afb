"""Texts → token ids: CLIP's byte-pair encoding, or a model's own `tokenizer.json`."""

from __future__ import annotations

import functools
import gzip
import html
import string
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import ftfy
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from taps.errors import WeightsError
from taps.model.clip.config import read_object

SOT = "<|startoftext|>"
EOT = "<|endoftext|>"
# CLIP splits a text into contractions, words, single digits and runs of anything else, then merges bytes.
WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
WORD_END = "</w>"
MERGES = 49152 - 256 - 2
VOCAB_SIZE = 2 * 256 + MERGES + 2
SOT_ID = VOCAB_SIZE - 2
EOT_ID = VOCAB_SIZE - 1


@functools.cache
def _tokenizer() -> Tokenizer:
    packed = (resources.files("taps.model.clip") / "bpe_simple_vocab_16e6.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").split("\n")[1 : MERGES + 1]  # CLIP uses no more of them
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())  # one for each byte, in CLIP's order
    tokens = symbols + [symbol + WORD_END for symbol in symbols] + [a + b for a, b in merges] + [SOT, EOT]
    model = models.BPE(
        vocab={token: id for id, token in enumerate(tokens)},
        merges=merges,
        end_of_word_suffix=WORD_END,
        unk_token=EOT,
        fuse_unk=False,
    )
    tokenizer = Tokenizer(model)
    split = pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, by_bytes])
    return tokenizer


def mended(text: str) -> str:
    """A text mended by ftfy, HTML unescaped twice. Plain ASCII is returned as it is: ftfy takes a while."""
    if text.isascii() and text.isprintable() and "&" not in text:
        return text
    return html.unescape(html.unescape(ftfy.fix_text(text)))


def single_spaces(text: str) -> str:
    """A mended text with single spaces."""
    return " ".join(mended(text).split())


def clean(text: str) -> str:
    """A text as CLIP reads it: mended, single spaces, lower case.

    >>> clean("The cook’s &amp;amp; ﬁre")
    "the cook's & fire"
    """
    return single_spaces(text).lower()


def canonical(text: str) -> str:
    """A text as SigLIP reads it: mended, without punctuation, lower case.

    >>> canonical("A photo of a fire_truck!")
    'a photo of a fire truck'
    """
    text = mended(text).replace("_", " ")
    return " ".join(text.translate(str.maketrans("", "", string.punctuation)).lower().split())


CLEAN = {"lower": clean, "canonical": canonical, "whitespace": single_spaces}


def decode(ids: list[int]) -> list[str]:
    """The words that token ids stand for.

    >>> decode(encode("a photo of"))
    ['a', 'photo', 'of']
    """
    tokens = "".join(_tokenizer().id_to_token(id) or "" for id in ids)
    return tokens.replace(WORD_END, " ").split()


def encode(text: str) -> list[int]:
    """Token ids of a text, without the start and end markers.

    >>> encode("a photo of a cat.")
    [320, 1125, 539, 320, 2368, 269]
    """
    return list(_tokenizer().encode(clean(text), add_special_tokens=False).ids)


@dataclass(frozen=True)
class TextTokenizer:
    """How a model's texts become token ids."""

    encode: Callable[[str], list[int]]  # without markers
    start: tuple[int, ...]  # markers before a text; none, or one
    end: tuple[int, ...]  # markers behind it
    pad: int  # fills a text up where the model sees padding
    size: int = 0  # how many ids there are; 0 where that is unknown

    def after_words(self, text: str) -> list[int]:
        """The ids of a text that follows other words; some tokenizers encode a first word differently."""
        return self.encode(f"a {text}")[len(self.encode("a")) :]


CLIP_TOKENIZER = TextTokenizer(encode, (SOT_ID,), (EOT_ID,), 0, EOT_ID + 1)


def read_tokenizer(file: Path, *, cleaning: str, end_marker: bool) -> TextTokenizer:
    """A Hugging Face `tokenizer.json`; padding, and some markers, are named in `tokenizer_config.json`."""
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise WeightsError(f"{file} is not a readable tokenizer ({error}); fetch it again.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(CLEAN[cleaning](text), add_special_tokens=False).ids)

    inner = encode("a")
    marked = list(tokenizer.encode("a", add_special_tokens=True).ids)
    begin = next(k for k in range(len(marked)) if marked[k : k + len(inner)] == inner)
    start, end = tuple(marked[:begin]), tuple(marked[begin + len(inner) :])
    beside = file.with_name("tokenizer_config.json")
    config = read_object(beside) if beside.is_file() else {}

    def named_id(name: str) -> int | None:
        token = config.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        return None if token is None else tokenizer.token_to_id(token)

    pad, bos, eos = named_id("pad_token"), named_id("bos_token"), named_id("eos_token")
    if pad is None:
        raise WeightsError(
            f"{file} does not say which token fills a text up; put the model's tokenizer_config.json, "
            "which names its pad_token, beside it."
        )
    # Gemma's configuration says whether markers are added, whatever tokenizer.json holds.
    if "add_bos_token" in config and bos is not None:
        start = (bos,) if config["add_bos_token"] else ()
    if "add_eos_token" in config and eos is not None:
        end = (eos,) if config["add_eos_token"] else ()
    size = 1 + max(tokenizer.get_vocab(with_added_tokens=False).values())
    return TextTokenizer(encode, start, end if end_marker else (), pad, size)
