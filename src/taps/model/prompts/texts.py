"""The texts of a class: its name in templates, sentences of its own, or both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.errors import ClassNameError
from taps.model.clip.tokenizer import encode
from taps.model.prompts.templates import DEFAULT, NAMED
from taps.plain_names import folded_name, readable, synonyms

Template = str | Sequence[str] | None
Texts = Mapping[str, Sequence[str]] | str | Path | None
SENTENCE = "{text}"  # the place of a sentence in a template


def list_templates(template: Template) -> tuple[str, ...]:
    """Templates by name, as one text in which "|" stands between them, or as a list.

    >>> list_templates("a photo of a {}. | a sketch of a {}."), len(list_templates("imagenet80"))
    (('a photo of a {}.', 'a sketch of a {}.'), 80)
    """
    if template is None:
        return ()
    if template == "own":
        raise ClassNameError("The template 'own' is that of a named data set; a learner is given a sentence.")
    parts = [template] if isinstance(template, str) else list(template)
    found: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise ClassNameError(f"The template {part!r} is not a text; give a sentence such as {DEFAULT!r}.")
        found += NAMED[part] if part in NAMED else [each.strip() for each in part.split("|")]
    if not found:
        raise ClassNameError(f"The list of templates is empty; give one such as {DEFAULT!r}.")
    for each in found:
        if each.count("{}") != 1:
            raise ClassNameError(
                f"The template {each!r} has {each.count('{}') or 'no'} {{}}; write one, where the class name "
                f"goes. Or give a name: {', '.join(NAMED)}."
            )
    return tuple(found)


def class_texts(
    classes: Sequence[str], template: Template = None, texts: Mapping[str, Sequence[str]] | None = None
) -> list[list[str]]:
    """The texts of each class, at least one.

    Args:
        classes: Class names; "mug | cup" has two synonyms, each of which is put into every template.
        template: One or several; None for "a photo of a {}.", or for the sentences alone. A template with
            {text} is filled with each sentence of the class.
        texts: Sentences of each class, from `read_texts`.

    >>> class_texts(["mug | cup", "fire_truck"], "a {}.")
    [['a mug.', 'a cup.'], ['a fire truck.']]
    >>> class_texts(["hen"], "a {} that has {text}.", {"hen": ["a beak", "two legs"]})
    [['a hen that has a beak.', 'a hen that has two legs.']]
    """
    templates = list_templates(template) or (() if texts else (DEFAULT,))
    own = [each for each in templates if SENTENCE in each] if texts else []
    plain = [each for each in templates if each not in own]
    found = []
    for name in classes:
        names, sentences = [readable(each) for each in synonyms(name)], list(texts[name]) if texts else []
        if not all(encode(each) for each in names):
            raise ClassNameError(f"The class name {name!r} has no tokens; give it a letter or digit.")
        made = [_filled(each, one, text) for each in own for one in names for text in sentences]
        found.append((made or sentences) + [_filled(each, one) for each in plain for one in names])
    return found


def _filled(template: str, name: str, sentence: str = SENTENCE) -> str:
    """The template with name and sentence in it; their own braces are letters."""
    return name.join(part.replace(SENTENCE, sentence) for part in template.split("{}"))


def read_texts(texts: Texts, classes: Sequence[str]) -> dict[str, list[str]] | None:
    """The sentences of each class.

    Args:
        texts: A mapping, or a JSON file with one: class name → list of sentences. "Fire_Truck" is the same
            as "fire truck". Names of other classes are ignored.
        classes: Each must be in it; one with synonyms by its whole name or its first synonym.
    """
    if texts is None:
        return None
    if not isinstance(texts, str | Path | Mapping):
        raise ClassNameError(
            f"The texts are {repr(texts)[:60]}; give a mapping of class names to sentences, or a JSON file "
            "of one."
        )
    place = f"The texts file {texts}" if isinstance(texts, str | Path) else "The mapping of texts"
    pairs = _pairs(Path(texts), place) if isinstance(texts, str | Path) else list(texts.items())
    known: dict[str, Any] = {}
    for name, sentences in pairs:
        key = folded_name(str(name))
        if key in known:
            raise ClassNameError(f"{place} names the class {name!r} twice; keep one.")
        known[key] = sentences
    return {name: _sentences(known, name, place) for name in classes}


def _pairs(path: Path, place: str) -> list[tuple[str, Any]]:
    """The members of a JSON object, those of equal names too."""
    try:
        found = json.loads(path.read_text("utf-8-sig"), object_pairs_hook=list)
    except OSError as error:
        raise ClassNameError(f"{place} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise ClassNameError(f"{place} is not JSON ({error}); write class names and lists.") from error
    if not isinstance(found, list) or not all(isinstance(each, tuple) for each in found):
        raise ClassNameError(f"{place} holds no object; write {{class name: [sentences]}}.")
    if not found:
        raise ClassNameError(f"{place} is empty; write {{class name: [sentences]}}.")
    return found


def _sentences(known: Mapping[str, Any], name: str, place: str) -> list[str]:
    keys = [folded_name(each) for each in (name, synonyms(name)[0])]
    found = next((known[key] for key in keys if key in known), None)
    if found is None:
        raise ClassNameError(f"{place} lacks the class {name!r}; add its sentences.")
    sentences = [found] if isinstance(found, str) else found
    if not isinstance(sentences, list | tuple) or not sentences:
        raise ClassNameError(f"{place} has no sentences for the class {name!r}; give it a list of them.")
    for each in sentences:
        if not isinstance(each, str) or not encode(each):
            raise ClassNameError(f"{place} has {each!r} for the class {name!r}; sentences are texts.")
    return list(sentences)
