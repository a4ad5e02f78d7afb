"""A folder for each class: names that every file system takes, and never two classes in one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

LONGEST = 120  # characters
BYTES = 200  # of a name: file systems take 255, and " (2)" is added to some
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE)


class ClassFolders:
    """Folders of classes: the classes' names where these can be a folder's, else names like them.

    Args:
        reserved: Names that no class may have, as something else has them.

    Attributes:
        names: Folder of each class so far.

    >>> folders = ClassFolders(["not-sure"])
    >>> [folders[name] for name in ("cat", "a/b", "a_b", "Cat", "not-sure", "cat")]
    ['cat', 'a_b', 'a_b (2)', 'Cat (2)', 'not-sure (2)', 'cat']
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.names: dict[str, str] = {}
        self._taken = {_alike(name) for name in reserved}

    def __getitem__(self, label: str) -> str:
        if label not in self.names:
            plain = name = folder_name(label)
            number = 1
            while _alike(name) in self._taken:
                number += 1
                name = f"{plain} ({number})"
            self.put(label, name)
        return self.names[label]

    def put(self, label: str, name: str) -> None:
        """Note the folder that a class has already."""
        self.names[label] = name
        self._taken.add(_alike(name))


def _alike(name: str) -> str:
    """The same for names that some file system takes for one."""
    return unicodedata.normalize("NFKC", name).casefold()


def folder_name(label: str) -> str:
    """A name without characters that lead elsewhere or that file systems refuse.

    >>> folder_name("golden retriever"), folder_name("../../etc"), folder_name("con"), folder_name("..")
    ('golden retriever', '_.._etc', '_con', '_')
    """
    plain = re.sub(r'[\x00-\x1f\x7f-\x9f<>:"/\\|?*]', "_", label).strip(" ")
    plain = shortened(re.sub(r"^\.+", "", plain)[:LONGEST]).rstrip(". ")
    return f"_{plain}" if _RESERVED.fullmatch(plain) else plain or "_"


def shortened(name: str) -> str:
    """The end of a name is cut off where file systems refuse its length."""
    return (
        name.encode("utf-8", "surrogateescape")[:BYTES].decode("utf-8", "ignore") if len(name) > 50 else name
    )
