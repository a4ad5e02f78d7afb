"""WordNet 3.0's nouns, read from its plain data files (ImageNet's wnids are its offsets)."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path


class WordNet:
    """Nouns as synsets `nXXXXXXXX` with lemmas, glosses, parents and senses by lemma."""

    def __init__(self, folder: Path) -> None:
        self.lemmas: dict[str, list[str]] = {}
        self.parents: dict[str, list[str]] = {}
        self.gloss: dict[str, str] = {}
        self.lexfile: dict[str, int] = {}
        self._instances: set[str] = set()
        for line in self._lines(folder / "data.noun"):
            self._read_synset(line)
        self.senses: dict[str, list[str]] = {}
        for line in self._lines(folder / "index.noun"):
            fields = line.split()
            count = int(fields[2])
            self.senses[fields[0]] = ["n" + f for f in fields[-count:]]
        # index.noun is lower case throughout; take the case that the synset itself uses.
        cased = {lemma.lower(): lemma for s in reversed(self.lemmas) for lemma in self.lemmas[s]}
        self.senses = {
            cased.get(k, k)
            if k.lower() not in cased
            else k
            if any(k in self.lemmas[s] for s in v)
            else cased[k]: v
            for k, v in self.senses.items()
        }
        self.irregular = dict(line.split()[:2] for line in (folder / "noun.exc").read_text().splitlines())
        self._uses: dict[str, int] = {}
        self._as_noun: Counter[str] = Counter()
        self._otherwise: Counter[str] = Counter()
        for line in (folder / "cntlist.rev").read_text().splitlines():
            key, sense, count = line.split()
            word, _, kind = key.partition("%")
            (self._as_noun if kind[0] == "1" else self._otherwise)[word] += int(count)
            if kind[0] == "1" and sense == "1":
                self._uses[word] = int(count)

    @staticmethod
    def _lines(path: Path) -> list[str]:
        return [x for x in path.read_text(encoding="latin-1").splitlines() if x and not x.startswith("  ")]

    def _read_synset(self, line: str) -> None:
        left, _, gloss = line.partition("|")
        fields = left.split()
        synset = "n" + fields[0]
        words = int(fields[3], 16)
        pointers = fields[4 + 2 * words :]
        up = [pointers[1 + 4 * i : 5 + 4 * i] for i in range(int(pointers[0]))]
        self.lemmas[synset] = fields[4 : 4 + 2 * words : 2]
        self.parents[synset] = ["n" + p[1] for p in up if p[0] in ("@", "@i")]
        if any(p[0] == "@i" for p in up):
            self._instances.add(synset)
        self.gloss[synset] = gloss.split(";")[0].split('"')[0].strip()
        self.lexfile[synset] = int(fields[1])

    def instance(self, synset: str) -> bool:
        return synset in self._instances

    def uses(self, lemma: str, synset: str) -> int:
        """How often the lemma was tagged in its first sense, when that sense is this synset."""
        return self._uses.get(lemma.lower(), 0) if self.senses.get(lemma, [""])[0] == synset else 0

    def seldom_noun(self, word: str) -> bool:
        """Whether text uses the word as a verb, an adjective or an adverb more often than as a noun."""
        return self._otherwise[word] > self._as_noun[word]

    @cache  # noqa: B019 - one object lives as long as the script
    def ancestors(self, synset: str) -> frozenset[str]:
        above: set[str] = set()
        for parent in self.parents.get(synset, []):
            above |= {parent} | self.ancestors(parent)
        return frozenset(above)

    @cache  # noqa: B019
    def depth(self, synset: str) -> int:
        return 1 + min((self.depth(p) for p in self.parents.get(synset, [])), default=-1)
