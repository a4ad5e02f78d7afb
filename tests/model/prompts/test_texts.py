"""Several texts a class: templates, sentences from a file, synonyms; their mean, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from taps import Learner
from taps.errors import ClassNameError, SettingsError, TapsError
from taps.methods.registry import all_methods
from taps.model.clip import Clip
from taps.model.clip.tokenizer import EOT_ID, SOT_ID, encode
from taps.model.prompts import Prompts, classify
from taps.model.prompts.classes import check_classes, class_index
from taps.model.prompts.classify import class_features, placed, prompt_classifier, text_classifier
from taps.model.prompts.coop import Coop
from taps.model.prompts.templates import IMAGENET7, IMAGENET80
from taps.model.prompts.texts import class_texts, read_texts

CLASSES = ("mug | cup", "fire_truck", "hen")
SENTENCES = {
    "Mug": ["a mug has a handle", "tea is drunk from it"],
    "Fire Truck": ["a fire truck is red"],
    "hen": ["a hen has feathers", "hens lay eggs", "a small bird"],
    "not asked for": ["x"],
}


def literal(features: dict[str, np.ndarray], texts: list[list[str]]) -> np.ndarray:
    """open_clip's zero-shot classifier in float64: normalise each text, average, normalise again."""
    rows = []
    for own in texts:
        each = [features[text] / np.linalg.norm(features[text]) for text in own]
        mean = sum(each) / len(each)
        rows.append(mean / np.linalg.norm(mean))
    return np.stack(rows)


def spelled_out() -> list[list[str]]:
    names = (["mug", "cup"], ["fire truck"], ["hen"])
    return [[t.replace("{}", n) for t in IMAGENET80 for n in each] for each in names]


def one_by_one(clip: Clip, texts: list[list[str]]) -> dict[str, np.ndarray]:
    with torch.no_grad():
        return {text: clip.encode_text([text])[0].double().numpy() for own in texts for text in own}


def test_a_class_is_the_mean_of_its_templates_as_in_open_clip(tiny: Clip) -> None:
    texts = spelled_out()
    found = text_classifier(tiny, CLASSES, "imagenet80").text(None).numpy()
    assert np.abs(found - literal(one_by_one(tiny, texts), texts)).max() < 1e-5


def test_the_mean_equals_that_of_transformers_on_the_same_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.parity.test_transformers import REDUCED, features_of, load_saved, their_model

    theirs, texts = their_model(REDUCED), spelled_out()
    assert transformers.CLIPModel is type(theirs)
    rows = {text: [SOT_ID, *encode(text), EOT_ID] for own in texts for text in own}
    with torch.no_grad():
        features = {
            text: features_of(theirs.get_text_features(input_ids=torch.tensor([row])))[0].double().numpy()
            for text, row in rows.items()
        }
    ours = load_saved(theirs, tmp_path / "theirs")
    found = text_classifier(ours, CLASSES, "imagenet80").text(None).numpy()
    assert np.abs(found - literal(features, texts)).max() < 1e-5


def test_sentences_alone_or_beside_templates_or_inside_them() -> None:
    sentences = read_texts(SENTENCES, CLASSES)
    assert class_texts(CLASSES, None, sentences)[2] == SENTENCES["hen"]
    both = class_texts(CLASSES, ["a {}.", "the {}."], sentences)
    assert both[0] == [*SENTENCES["Mug"], "a mug.", "a cup.", "the mug.", "the cup."]
    inside = class_texts(CLASSES, "{}: {text}.", sentences)
    assert inside[1] == ["fire truck: a fire truck is red."]
    assert class_texts(["{}", "{text}"], "a {}.") == [["a {}."], ["a {text}."]]


def test_named_templates_are_those_published() -> None:
    assert len(set(IMAGENET80)) == 80
    assert set(IMAGENET7) < set(IMAGENET80)
    assert len(IMAGENET7) == 7
    assert all(each.count("{}") == 1 for each in IMAGENET80)


def test_synonyms_behind_a_learned_context_are_averaged(tiny: Clip) -> None:
    prompts: Prompts = Coop().initial(tiny)  # before any step it is the template
    classifier = prompt_classifier(tiny, CLASSES, prompts)
    found, _ = class_features(classifier, placed(prompts, classifier))
    assert torch.allclose(found, text_classifier(tiny, CLASSES, "a photo of a {}.").text(None), atol=1e-5)
    assert found.shape[0] == 3


def test_a_synonym_names_its_class_and_no_other() -> None:
    assert class_index(CLASSES, "Cup") == 0
    with pytest.raises(ClassNameError, match=r"'mug \| cup' and 'cup'"):
        check_classes(["mug | cup", "cup"])


@pytest.mark.parametrize(
    "method", ["zero_shot", "tda", "dota", "view_ensemble+", "tent", "ecalp", "class_means"]
)
def test_methods_with_class_texts_take_sentences(
    tiny: Clip, picture: Any, tmp_path: Path, method: str
) -> None:
    file = tmp_path / "texts.json"
    file.write_text(json.dumps(SENTENCES))
    few = {"views": 4} if "views" in all_methods()[method].known else {}
    learner = Learner(tiny, CLASSES, method, texts=file, template="imagenet7", **few)
    other = Learner(tiny, CLASSES, method, **few)
    said = learner.predict_one(picture(1)).probs
    assert not np.allclose(said, other.predict_one(picture(1)).probs)
    learner.save(tmp_path / "saved")
    file.unlink()  # the state holds the sentences
    again = Learner.load(tmp_path / "saved", tiny)
    assert np.array_equal(again.predict_one(picture(2)).probs, learner.predict_one(picture(2)).probs)


def test_a_class_called_like_an_old_field_keeps_its_name(tiny: Clip, tmp_path: Path) -> None:
    learner = Learner(
        tiny, ["expert", "hen"], "zero_shot", texts={"expert": ["who knows"], "hen": ["a bird"]}
    )
    learner.save(tmp_path)
    assert Learner.load(tmp_path, tiny).settings == learner.settings


def test_a_class_added_later_has_the_template(tiny: Clip, picture: Any, tmp_path: Path) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot", texts=SENTENCES)
    learner.add_class("duck")
    mixed = Learner(
        tiny, (*CLASSES, "duck"), "zero_shot", texts={**SENTENCES, "duck": ["a photo of a duck."]}
    )
    said = mixed.predict_one(picture(1)).probs
    assert np.array_equal(learner.predict_one(picture(1)).probs, said)
    learner.save(tmp_path)
    assert np.array_equal(Learner.load(tmp_path, tiny).predict_one(picture(1)).probs, said)


def test_learned_contexts_refuse_sentences_and_say_so(tiny: Clip) -> None:
    for method in ("tpt", "taps+", "source"):
        with pytest.raises(SettingsError, match="takes no texts"):
            Learner(tiny, CLASSES, method, texts=SENTENCES)
    with pytest.raises(SettingsError, match="not both"):
        Learner(tiny, CLASSES, "view_ensemble", texts=SENTENCES, prompts="hand")
    assert Learner(tiny, CLASSES, "tpt", views=2, texts=None).classes == CLASSES


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"mug": ["a"], "hen": ["b"]}', "lacks the class 'fire_truck'"),
        ('{"mug": ["a"], "fire truck": ["b"], "hen": ["c"], "Hen": ["d"]}', "names the class 'Hen' twice"),
        ('{"mug": ["a"], "fire truck": ["b"], "hen": ["c"], "hen": ["d"]}', "names the class 'hen' twice"),
        ('{"mug": ["a"], "fire truck": ["b"], "hen": []}', "no sentences for the class 'hen'"),
        ('{"mug": ["a"], "fire truck": ["b"], "hen": 3}', "no sentences for the class 'hen'"),
        ('{"mug": ["a"], "fire truck": ["b"], "hen": ["c", 4]}', "has 4 for the class 'hen'"),
        ('{"mug": ["a"], "fire truck": ["b"], "hen": [" "]}', "has ' ' for the class 'hen'"),
        ("{}", "is empty"),
        ("", "is not JSON"),
        ("mug, hen", "is not JSON"),
        ('["mug"]', "holds no object"),
        ("3", "holds no object"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "sentences.json"
    file.write_text(content)
    with pytest.raises(ClassNameError, match=r"sentences\.json") as error:
        read_texts(file, CLASSES)
    assert said in str(error.value)
    with pytest.raises(ClassNameError, match="cannot be read"):
        read_texts(tmp_path / "none.json", CLASSES)


@pytest.mark.parametrize("template", ["own", [], ["a {}.", 3], "a {}. | b", "imagenet81"])
def test_a_bad_template_is_one_sentence(tiny: Clip, template: Any) -> None:
    with pytest.raises(TapsError):
        Learner(tiny, CLASSES, "zero_shot", template=template)


def test_features_of_many_texts_are_kept_by_content(
    tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPS_CACHE", str(tmp_path))
    monkeypatch.setattr(tiny, "fingerprint", "a name")  # random weights are not kept
    first = text_classifier(tiny, CLASSES, "imagenet7").text(None)
    (file,) = (tmp_path / "texts").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(classify, "_encode", lambda *given: pytest.fail("encoded twice"))
        assert torch.equal(text_classifier(tiny, CLASSES, "imagenet7").text(None), first)
    text_classifier(tiny, CLASSES[:2], "imagenet7")
    assert len(list((tmp_path / "texts").iterdir())) == 2
    file.write_bytes(file.read_bytes()[:-9])  # a damaged one is made again
    assert torch.equal(text_classifier(tiny, CLASSES, "imagenet7").text(None), first)
    text_classifier(tiny, CLASSES, "a {}.")  # two texts of one class
    text_classifier(tiny, CLASSES[1:], "a {}.")  # quick enough
    assert len(list((tmp_path / "texts").iterdir())) == 3


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAPS_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(tiny, "fingerprint", "a name")
    assert text_classifier(tiny, CLASSES, "imagenet7").text(None).shape[0] == 3


@pytest.mark.parametrize("classes", [{"cat", "dog"}, frozenset({"cat", "dog"}), None, 3])
def test_classes_without_an_order_are_refused(classes: Any) -> None:
    with pytest.raises(ClassNameError, match="list of names"):
        check_classes(classes)


def test_classes_may_come_one_by_one() -> None:
    assert check_classes(name for name in ("cat", "dog")) == ("cat", "dog")  # type: ignore[arg-type]
    assert check_classes(np.array(["cat", "dog"])) == ("cat", "dog")  # type: ignore[arg-type]


@pytest.mark.parametrize("label", [True, False, 1.0, 0.7, np.bool_(True), np.float32(1), torch.tensor(True)])
def test_labels_that_are_no_whole_numbers_are_refused_everywhere_alike(tiny: Clip, label: Any) -> None:
    with pytest.raises(ClassNameError, match="neither"):
        class_index(["cat", "dog"], label)
    learner = Learner(tiny, ["cat", "dog"], views=1)
    id = learner.predict_one(np.zeros((8, 8, 3), np.uint8)).id
    for given in ({"label": label}, {"no": label}):
        with pytest.raises(TapsError):
            learner.learn_one(id, **given)
    with pytest.raises(TapsError):
        learner.learn_one(label, 0)
    assert learner.answered == 0


@pytest.mark.parametrize("name", ["texts", "template"])
def test_texts_of_another_type_are_refused_in_a_sentence(tiny: Clip, name: str) -> None:
    with pytest.raises(TapsError, match="text"):
        Learner(tiny, ["cat", "dog"], **{name: 3})


def test_prompts_that_are_no_prompts_are_refused_in_a_sentence(tiny: Clip) -> None:
    for given in (3, tiny, "x" * 300):
        with pytest.raises(TapsError, match="prompts"):
            Learner(tiny, ["cat", "dog"], "taps", prompts=given)
