"""Token ids of a list of texts: a prefix that all share, and the tokens of their own.

In a causal text tower the tokens that all texts begin with (start marker, learned context, fixed words) have
the same keys and values in every text and are computed once; nothing after an end marker is computed. In a
tower without the causal mask every token sees all others, padding included: texts are run whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from taps.errors import ClassNameError
from taps.model.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer


@dataclass(frozen=True)
class TextLayout:
    """Token ids of K texts as a shared prefix of P tokens and T packed tokens of their own."""

    context: int  # learned tokens at positions 1..context of the prefix; their ids are placeholders
    prefix: Tensor  # ids of the shared prefix [P]
    own: Tensor  # ids of the other tokens, text after text [T]
    positions: Tensor  # position of each own token in its text [T]
    lengths: Tensor  # tokens of each text, the shared ones included [K]
    ends: Tensor  # index of each text's end marker among all P + T tokens, prefix first [K]
    # Which of the P + T tokens stands where in K whole texts [K, P + S]. Positions after an end marker hold
    # the start marker: in a causal tower no earlier token sees them.
    spread: Tensor
    collect: Tensor  # index of each of the P + T tokens in those texts laid end to end [P + T]
    order: Tensor  # the texts, shortest first [K]
    # (tokens, texts): how many texts, in that order, take up to so many tokens, a power of two. A kernel
    # works on so many tokens at once, and one long text should not cost as much as many.
    rooms: tuple[tuple[int, int], ...]

    @property
    def texts(self) -> int:
        return len(self.ends)

    def to(self, device: torch.device | str) -> TextLayout:
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return TextLayout(context=self.context, rooms=self.rooms, **moved)


@dataclass(frozen=True)
class WholeTexts:
    """Token ids of K texts of the model's full length, for a tower in which every token sees all others."""

    context: int  # learned tokens; their ids are placeholders
    first: int  # position of the first of them
    ids: Tensor  # [K, length]
    pooled: Tensor  # position of the token of each text that becomes its feature [K]

    @property
    def texts(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str) -> WholeTexts:
        return WholeTexts(self.context, self.first, self.ids.to(device), self.pooled.to(device))


def whole_texts(
    rows: Sequence[Sequence[int]], *, context: int, tokenizer: TextTokenizer, length: int, last: bool
) -> WholeTexts:
    """Token rows filled up with padding; `last` pools the last position instead of a row's last token."""
    ids = [[*row, *[tokenizer.pad] * (length - len(row))] for row in rows]
    pooled = [length - 1 if last else len(row) - 1 for row in rows]
    return WholeTexts(context, len(tokenizer.start), torch.tensor(ids), torch.tensor(pooled))


def token_rows(
    texts: Sequence[str], *, context: int = 0, limit: int, tokenizer: TextTokenizer = CLIP_TOKENIZER
) -> list[list[int]]:
    """Token ids of each text with markers; `context` placeholders stand right after the start marker."""
    rows = []
    for text in texts:
        ids = tokenizer.after_words(text) if context else tokenizer.encode(text)
        if not ids:
            raise ClassNameError(f"The text {text!r} has no tokens; give it at least one letter or digit.")
        row = [*tokenizer.start, *[tokenizer.pad] * context, *ids, *tokenizer.end]
        if len(row) > limit:
            raise ClassNameError(
                f"The text {text[:60]!r} takes {len(row)} tokens, the model has room for {limit}; shorten it."
            )
        rows.append(row)
    return rows


def make_layout(rows: Sequence[Sequence[int]], *, context: int = 0) -> TextLayout:
    """Split token rows into the prefix they share and the tokens of their own.

    >>> layout = make_layout(token_rows(["a photo of a cat.", "a photo of a dog."], limit=77))
    >>> len(layout.prefix), len(layout.own)
    (5, 6)
    """
    side_by_side = zip(*(row[:-1] for row in rows), strict=False)  # every text keeps its end marker
    shared = len(list(itertools.takewhile(lambda tokens: len(set(tokens)) == 1, side_by_side)))
    lengths = [len(row) - shared for row in rows]
    whole = shared + max(lengths)
    own = [token for row in rows for token in row[shared:]]
    positions = [shared + k for length in lengths for k in range(length)]
    indices = [text * whole + shared + k for text, length in enumerate(lengths) for k in range(length)]
    collect = torch.tensor([*range(shared), *indices])
    spread = torch.zeros(len(rows) * whole, dtype=torch.long)
    spread[collect] = torch.arange(len(collect))
    spread = spread.view(len(rows), whole)
    spread[:, :shared] = torch.arange(shared)
    return TextLayout(
        context=context,
        prefix=torch.tensor(list(rows[0][:shared]), dtype=torch.long),
        own=torch.tensor(own),
        positions=torch.tensor(positions),
        lengths=shared + torch.tensor(lengths),
        ends=shared + torch.tensor(lengths).cumsum(0) - 1,
        spread=spread,
        collect=collect,
        order=torch.tensor(sorted(range(len(rows)), key=lambda text: lengths[text])),
        rooms=_rooms([len(row) for row in rows]),
    )


def _rooms(lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """How many texts fit into 16 tokens, how many more into 32, and so on.

    >>> _rooms([9, 40, 16, 12])
    ((16, 3), (64, 1))
    """
    needed = [max(16, 1 << (length - 1).bit_length()) for length in lengths]
    return tuple((room, needed.count(room)) for room in sorted(set(needed)))
