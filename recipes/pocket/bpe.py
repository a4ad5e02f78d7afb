"""CLIP's byte-pair encoding, as the recipe needs it: text in, list of token ids out.

The vocabulary file is `bpe_simple_vocab_16e6.txt.gz`, which the `open_clip_torch` wheel carries.
"""

from __future__ import annotations

import gzip
import html
import itertools
from functools import lru_cache
from pathlib import Path

import regex

SOT, EOT = 49406, 49407
_WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+", regex.IGNORECASE)


def _byte_symbols() -> list[str]:
    """A printable symbol for each byte: itself where printable, else a letter above 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in symbols:
            symbols[b] = chr(256 + len(symbols) - len(printable))
    return [symbols[b] for b in range(256)]


class Bpe:
    """Encodes text as CLIP does; no start, end or padding tokens are added."""

    def __init__(self, vocab_gz: Path) -> None:
        with gzip.open(vocab_gz, "rt", encoding="utf-8") as handle:
            lines = handle.read().split("\n")
        merges = [tuple(line.split()) for line in lines[1 : 49152 - 256 - 2 + 1]]
        self.symbols = _byte_symbols()
        # The vocabulary's first 256 entries follow the printable-first order, not the byte order.
        order = [*range(33, 127), *range(161, 173), *range(174, 256)]
        order += [b for b in range(256) if b not in set(order)]
        base = [self.symbols[b] for b in order]
        entries = base + [s + "</w>" for s in base] + ["".join(m) for m in merges]
        self.ids = {entry: i for i, entry in enumerate(entries)}
        self.rank = {merge: i for i, merge in enumerate(merges)}
        self._word = lru_cache(maxsize=200_000)(self._encode_word)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        parts = [self.symbols[b] for b in word.encode("utf-8")]
        parts[-1] += "</w>"
        while len(parts) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in itertools.pairwise(parts)]
            best = min(ranks)
            if best == len(self.rank):
                break
            pair = (parts[ranks.index(best)], parts[ranks.index(best) + 1])
            merged: list[str] = []
            i = 0
            while i < len(parts):
                if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
                    merged.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    merged.append(parts[i])
                    i += 1
            parts = merged
        return tuple(self.ids[p] for p in parts)

    def encode(self, text: str) -> list[int]:
        text = " ".join(html.unescape(text).lower().split())
        return [i for word in _WORDS.findall(text) for i in self._word(word)]
