"""Token ids against Hugging Face's tokenizer, and against byte-pair encoding written out here."""

from __future__ import annotations

import gzip
import html
import itertools
import json
import random
import unicodedata
from importlib import resources
from pathlib import Path

import ftfy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from taps.data.facts import imagenet_names
from taps.errors import WeightsError
from taps.model.clip.tokenizer import EOT_ID, SOT_ID, TextTokenizer, clean, encode, mended, read_tokenizer

# Latin, Greek, Cyrillic, Hebrew, Arabic, Thai, Chinese, Japanese, Hangul, Devanagari, digits of many scripts,
# marks that combine, emoji with joiners, spaces of many widths, control characters.
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCXYZ0123456789.,;:!?'\"-_/()[]{}#%&*+=<>|\\^~`@$",
    "éèüßøåçñİıſǅ",
    "αβγΔΩς",
    "жыйЁЩ",
    "אבגש",
    "ابةپ٣٤",
    "กขฃ๑๒",
    "北京大学猫",
    "ねこネコー",
    "고양이",
    "कुत्ताि१२",
    "\u0301\u0308\u20dd",
    "🐱👩\u200d🔬🇩🇪❤\ufe0f",
    " \t\n\u00a0\u2003\u3000\u200b\u2028\x1c\x00\x7f",
    "²½Ⅷ①",
]


def vocabulary_files(directory: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """vocab.json and merges.txt as they are published, made from the merges alone."""
    packed = (resources.files("taps.model.clip") / "bpe_simple_vocab_16e6.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()[1:48895]
    merges = [(line.split(" ")[0], line.split(" ")[1]) for line in lines]
    letters = byte_letters()
    order = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order += [byte for byte in range(256) if byte not in order]
    single = [letters[byte] for byte in order]
    tokens = [*single, *[letter + "</w>" for letter in single], *["".join(pair) for pair in merges]]
    vocabulary = {token: index for index, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    return vocabulary, merges


def byte_letters() -> dict[int, str]:
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)}


def strings(count: int) -> list[str]:
    """Names people use, and strings nobody would, the same ones every time."""
    names = list(imagenet_names().values())
    rng = random.Random(0)
    made = [rng.choice(names) for _ in range(count // 4)]
    made += [f"a photo of a {rng.choice(names).title()}, a type of THING's." for _ in range(count // 4)]
    while len(made) < count:
        chosen = rng.sample(ALPHABETS, rng.randint(1, 4))
        made.append("".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randint(1, 40))))
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int], list[tuple[str, str]]]:
    directory = tmp_path_factory.mktemp("vocabulary")
    return directory, *vocabulary_files(directory)


def test_ids_equal_hugging_face_on_a_thousand_strings(
    files: tuple[Path, dict[str, int], list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    directory = files[0]
    theirs = transformers.CLIPTokenizer.from_pretrained(str(directory))
    texts = strings(1000)
    assert sum(not text.isascii() for text in texts) > 200
    expected = theirs([clean(text) for text in texts])["input_ids"]  # it leaves cleaning to its user
    assert [[SOT_ID, *encode(text), EOT_ID] for text in texts] == expected
    assert (theirs.bos_token_id, theirs.eos_token_id) == (SOT_ID, EOT_ID)


def pieces(text: str) -> list[str]:
    """A text cut as CLIP cuts it: contractions, runs of letters, single numbers, runs of anything else."""
    text = unicodedata.normalize("NFC", clean(text))
    found, place = [], 0
    while place < len(text):
        rest = text[place:]
        short = next(
            (each for each in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d") if rest.startswith(each)), ""
        )
        kind = kind_of(rest[0])
        if short:
            piece = short
        elif kind in ("number", "space"):
            piece = rest[0]
        else:
            length = 1
            while length < len(rest) and kind_of(rest[length]) == kind:
                length += 1
            piece = rest[:length]
        if kind != "space":
            found.append(piece)
        place += len(piece)
    return found


def kind_of(character: str) -> str:
    category = unicodedata.category(character)
    if category[0] in "LN":
        return {"L": "letter", "N": "number"}[category[0]]
    return "space" if category[0] == "Z" or character in "\t\n\v\f\r\x85" else "other"


def merge_bytes(piece: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    letters = byte_letters()
    symbols = [letters[byte] for byte in piece.encode()]
    symbols[-1] += "</w>"
    while len(symbols) > 1:
        pairs = list(itertools.pairwise(symbols))
        best = min(pairs, key=lambda pair: ranks.get(pair, 1 << 30))
        if best not in ranks:
            break
        merged: list[str] = []
        for symbol in symbols:
            if merged and (merged[-1], symbol) == best:
                merged[-1] += symbol
            else:
                merged.append(symbol)
        symbols = merged
    return symbols


@given(text=st.text(alphabet="".join(ALPHABETS[:13]) + "🐱 '  ", max_size=30))
def test_ids_equal_byte_pair_encoding_written_out(
    files: tuple[Path, dict[str, int], list[tuple[str, str]]], text: str
) -> None:
    _, vocabulary, pairs = files
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    expected = [vocabulary[symbol] for piece in pieces(text) for symbol in merge_bytes(piece, ranks)]
    assert encode(text) == expected


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("the cook’s “best” ‘cut’", "the cook's \"best\" 'cut'"),
        ("salt &amp; pepper", "salt & pepper"),
        ("salt &amp;amp; pepper", "salt & pepper"),
        ("&lt;b&gt;&quot;cat&quot;&lt;/b&gt;", '<b>"cat"</b>'),
        ("ﬁre truck, ﬂat oﬃce", "fire truck, flat office"),
        ("ｆｉｒｅ　ｔｒｕｃｋ！", "fire truck!"),
        ("fire\x00\x08 tru\x7fck", "fire truck"),
        ("\x1b[31mfire truck\x1b[0m", "fire truck"),
        ("caf\u0065\u0301", "cafe\u0301".replace("e\u0301", "é")),
        ("voilÃ\xa0 le cafÃ©", "voilà le café"),
        ("fire\u2003 \t\n truck ", "fire truck"),
        ("ΟΔΟΣ", "οδος"),
        ("FIRE Truck", "fire truck"),
    ],
)
def test_texts_are_cleaned_as_clip_cleans_them(written: str, meant: str) -> None:
    """Quotes straightened, entities unescaped twice, ligatures and full width undone, controls left out."""
    assert clean(written) == meant
    assert encode(written) == encode(meant)


@given(st.text(st.characters(max_codepoint=255)))
def test_texts_that_need_no_mending_are_those_ftfy_leaves_alone(text: str) -> None:
    assert mended(text) == html.unescape(html.unescape(ftfy.fix_text(text)))


def test_markers_inside_a_text_are_only_letters() -> None:
    """A class name cannot smuggle an end marker into the middle of a text."""
    assert EOT_ID not in encode("a <|endoftext|> b")
    assert SOT_ID not in encode("<|startoftext|>")


def spaced_tokenizer(folder: Path, first: str, **told: object) -> TextTokenizer:
    """Words with their space before them, as SentencePiece has it; with or without one before the first."""
    words = ["<pad>", "<eos>", "<bos>", "▁a", "▁photo", "▁cat", "a", "cat", "▁", "p"]
    tokenizer = Tokenizer(models.Unigram([(word, -float(len(words) - k)) for k, word in enumerate(words)], 9))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=first)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "<pad>", "eos_token": {"content": "<eos>"}, "bos_token": "<bos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **told}))
    return read_tokenizer(folder / "tokenizer.json", cleaning="canonical", end_marker=True)


@pytest.mark.parametrize("first", ["always", "never"])
def test_a_name_behind_a_context_is_not_the_first_word(tmp_path: Path, first: str) -> None:
    """Gemma's words have no space before the first of a text, so a name alone is another token."""
    tokenizer = spaced_tokenizer(tmp_path, first)
    sentence = tokenizer.encode("a photo a cat")
    assert tokenizer.encode("a photo a") + tokenizer.after_words("cat") == sentence
    assert (tokenizer.encode("cat") == tokenizer.after_words("cat")) == (first == "always")


def test_the_configuration_says_which_markers_are_added(tmp_path: Path) -> None:
    plain = spaced_tokenizer(tmp_path, "never")
    assert (plain.start, plain.end, plain.pad) == ((), (), 0)
    told = spaced_tokenizer(tmp_path, "never", add_bos_token=False, add_eos_token=True)
    assert (told.start, told.end) == ((), (1,))
    told = spaced_tokenizer(tmp_path, "never", add_bos_token=True, add_eos_token=False)
    assert (told.start, told.end) == ((2,), ())
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(WeightsError, match=r"tokenizer_config\.json cannot be read as JSON"):
        read_tokenizer(tmp_path / "tokenizer.json", cleaning="canonical", end_marker=True)
