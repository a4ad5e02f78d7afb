"""Texts → token ids: CLIP's byte-pair encoding, and whatever a model's own `tokenizer.json` holds."""

from __future__ import annotations

import functools
import gzip
import html
import string
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import ftfy
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from taps.clip.config import read_object
from taps.errors import WeightsError

SOT = "<|startoftext|>"
EOT = "<|endoftext|>"
# Contractions, words, single digits, runs of anything else: how CLIP cuts a text before merging bytes.
WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
WORD_END = "</w>"
MERGES = 49152 - 256 - 2
VOCAB_SIZE = 2 * 256 + MERGES + 2
SOT_ID = VOCAB_SIZE - 2
EOT_ID = VOCAB_SIZE - 1


def byte_symbols() -> list[str]:
    """One printable character for each byte, in the order in which CLIP's vocabulary lists them."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + k) for k in range(len(others))]


def read_merges() -> list[tuple[str, str]]:
    """The merges that CLIP was trained with; the file holds more, which are not used."""
    packed = (resources.files("taps.clip") / "bpe_simple_vocab_16e6.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").split("\n")[1 : MERGES + 1]
    return [(left, right) for left, _, right in (line.partition(" ") for line in lines)]


def vocabulary(merges: list[tuple[str, str]]) -> dict[str, int]:
    """Token → id: bytes, bytes that end a word, merged pieces, the two markers."""
    symbols = byte_symbols()
    tokens = symbols + [symbol + WORD_END for symbol in symbols] + [a + b for a, b in merges] + [SOT, EOT]
    return {token: index for index, token in enumerate(tokens)}


@functools.cache
def _tokenizer() -> Tokenizer:
    merges = read_merges()
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary(merges),
            merges=merges,
            end_of_word_suffix=WORD_END,
            unk_token=EOT,
            fuse_unk=False,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer


def decode(ids: list[int]) -> list[str]:
    """The words that token ids stand for.

    >>> decode(encode("a photo of"))
    ['a', 'photo', 'of']
    """
    tokens = "".join(_tokenizer().id_to_token(id) or "" for id in ids)
    return tokens.replace(WORD_END, " ").split()


def clean(text: str) -> str:
    """A text as CLIP reads it: mended by ftfy, HTML unescaped twice, single spaces, lower case.

    >>> clean("The cook’s &amp;amp; ﬁre")
    "the cook's & fire"
    """
    return single_spaces(text).lower()


def encode(text: str) -> list[int]:
    """Token ids of a text, without the start and end markers.

    >>> encode("a photo of a cat.")
    [320, 1125, 539, 320, 2368, 269]
    """
    return list(_tokenizer().encode(clean(text), add_special_tokens=False).ids)


@dataclass(frozen=True)
class TextTokenizer:
    """How a model's texts become token ids.

    Attributes:
        encode: A text's ids, without markers.
        start: The markers before it; none, or one.
        end: Those behind it.
        pad: Fills a text up where the model sees padding.
    """

    encode: Callable[[str], list[int]]
    start: tuple[int, ...]
    end: tuple[int, ...]
    pad: int

    def after_words(self, text: str) -> list[int]:
        """The ids of a text that follows other words; some tokenizers tell a word from the first one."""
        return self.encode(f"a {text}")[len(self.encode("a")) :]


CLIP_TOKENIZER = TextTokenizer(encode, (SOT_ID,), (EOT_ID,), 0)


def canonical(text: str) -> str:
    """A text as SigLIP reads it: cleaned, and without punctuation.

    >>> canonical("A photo of a fire_truck!")
    'a photo of a fire truck'
    """
    text = mended(text).replace("_", " ")
    return " ".join(text.translate(str.maketrans("", "", string.punctuation)).lower().split())


def single_spaces(text: str) -> str:
    """A text mended by ftfy, HTML unescaped twice, single spaces; its letters as they are."""
    return " ".join(mended(text).split())


def mended(text: str) -> str:
    """A text mended by ftfy, HTML unescaped twice; that takes a while, and leaves plain ASCII as it is."""
    if text.isascii() and text.isprintable() and "&" not in text:
        return text
    return html.unescape(html.unescape(ftfy.fix_text(text)))


CLEAN = {"lower": clean, "canonical": canonical, "whitespace": single_spaces}


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
    said = read_object(beside) if beside.is_file() else {}
    pad = _named_id(tokenizer, said, "pad_token")
    if pad is None:
        raise WeightsError(
            f"{file} does not say which token fills a text up; put the model's tokenizer_config.json, "
            "which names its pad_token, beside it."
        )
    # Gemma's tokenizers are told here whether they add markers, whatever the other file holds.
    start = _told(said, "add_bos_token", _named_id(tokenizer, said, "bos_token"), start)
    end = _told(said, "add_eos_token", _named_id(tokenizer, said, "eos_token"), end)
    return TextTokenizer(encode, start, end if end_marker else (), pad)


def _named_id(tokenizer: Tokenizer, said: dict[str, Any], name: str) -> int | None:
    """The id of a token that the configuration names by its text."""
    word = said.get(name)
    word = word.get("content") if isinstance(word, dict) else word
    return None if word is None else tokenizer.token_to_id(word)


def _told(said: dict[str, Any], flag: str, marker: int | None, found: tuple[int, ...]) -> tuple[int, ...]:
    if flag not in said or marker is None:
        return found
    return (marker,) if said[flag] else ()
