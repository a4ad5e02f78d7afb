"""Names that people give: their spellings, their looks, characters that nobody sees."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from taps.errors import ClassNameError

UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of control and format characters, halves of pairs, and separators of lines."""
JOINERS = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")  # Persian, Hindi and emoji need them
# Letters drawn as Latin ones; capitals apart, for в does not look like b.
LATIN = str.maketrans(
    "аеорсухіјѕԁһԛԝӏονρ" + "АВЕКМНОРСТУХІЈЅԚԜ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwlovp" + "ABEKMHOPCTYXIJSQW" + "ABEZHIKMNOPTYX",
)


def plain_name(name: str) -> str:
    """A name that somebody sent, in Unicode's composed form; one with characters nobody sees is refused.

    >>> plain_name("Cafe\u0301"), plain_name("می\u200cخواهم") == "می\u200cخواهم"
    ('Café', True)
    """
    if unseen := {*JOINERS.sub("", name)} - {*seen_letters(name)}:
        code = f"U+{ord(min(unseen)):04X}"
        raise ClassNameError(f"The name {name!r} has the character {code}, which nobody sees; leave it out.")
    return unicodedata.normalize("NFC", name)


def seen_letters(name: str) -> str:
    """A name without the characters nobody sees."""
    return "".join(letter for letter in name if unicodedata.category(letter) not in UNSEEN)


def refuse_alike(names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Refuse names that look the same as another one of them, or as one that is known."""
    seen = {look: name for name in known for look in map(_look, synonyms(name))}
    for name in names:
        for look in map(_look, synonyms(name)):
            if seen.get(look, name) != name:
                raise ClassNameError(f"The class name {name!r} looks the same as {seen[look]!r}; keep one.")
            seen[look] = name


def _look(name: str) -> str:
    """What two names have in common that look the same."""
    letters = unicodedata.normalize("NFKC", name).translate(LATIN)
    return " ".join(folded_name(seen_letters(letters).replace("\ufe0f", "")).split())


def readable(name: str) -> str:
    """
    >>> readable("fire_truck")
    'fire truck'
    """
    return name.replace("_", " ")


def folded_name(name: str) -> str:
    """The form in which two spellings of one class are equal."""
    return readable(name).casefold()


def synonyms(name: str) -> tuple[str, ...]:
    """The names of a class, separated by "|".

    >>> synonyms("mug | cup"), synonyms("fire truck")
    (('mug', 'cup'), ('fire truck',))
    """
    return tuple(each.strip() for each in name.split("|"))
