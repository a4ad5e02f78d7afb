"""The learner: streams stopped anywhere, wrong answers, broken images, memory that does not grow."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import taps
import taps.learner.pending
from taps import Learner, load_clip
from taps.data import sign_digits
from taps.errors import ClassNameError, ImageError, QueryError, SettingsError, StateError
from taps.learner.prepared import ViewedImage
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.maple import Maple
from taps.types import PixelArray
from tests.statistics import made_up_stats
from tests.walks import CLASSES, Bits, answer_for, bits, same_state, walk

Picture = Callable[[int], PixelArray]
SMALL: dict[str, Any] = {"views": 6, "fraction": 0.5, "policy": "random", "rate": 0.4, "buffer": 5}
STREAMS: dict[str, tuple[int, dict[str, Any]]] = {
    "episodic": (300, SMALL),
    "continual": (40, {**SMALL, "reset": "never", "lr": 1e-3, "chunk": 2, "guard_window": 10}),
    "every": (25, {**SMALL, "reset": "every:7", "eviction": "random", "policy": "quantile", "warmup": 4}),
    "aligned": (15, {**SMALL, "weight_coarse": 0.1, "weight_fine": 0.1}),
    "aligned_continual": (
        15,
        {**SMALL, "weight_fine": 0.1, "align": "paper", "align_layers": (0, 1), "reset": "never"},
    ),
    "augmix": (14, {**SMALL, "augmix": True}),
    "text_only": (45, {**SMALL, "prompts": "coop", "policy": "dynamic", "tau0": 1.2, "warmup": 20}),
    "text_only_continual": (25, {**SMALL, "prompts": "coop", "reset": "never", "lr": 1e-3}),
}


def make(clip: Clip, prompts: Prompts, name: str, **more: Any) -> Learner:
    chosen = {"prompts": prompts, **STREAMS[name][1], **more}
    if chosen.get("weight_coarse") or chosen.get("weight_fine"):
        chosen["source"] = made_up_stats(clip, prompts, CLASSES)
    return Learner(clip, CLASSES, "taps", seed=5, **chosen)


Recorded = tuple[list[Bits], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def unbroken(tiny: Clip, maple_prompts: Prompts, picture: Picture) -> Callable[[str], Recorded]:
    """Each stream run once without a stop: what was said, and the state before each image."""
    recorded: dict[str, Recorded] = {}

    def run(name: str) -> Recorded:
        if name not in recorded:
            learner = make(tiny, maple_prompts, name)
            said: list[Bits] = []
            states = [learner.state_dict()]
            for until in range(1, STREAMS[name][0] + 1):
                said += walk(learner, picture, until)
                states.append(learner.state_dict())
            recorded[name] = said, states
        return recorded[name]

    return run


@pytest.mark.parametrize("name", list(STREAMS))
@settings(max_examples=4)
@given(data=st.data())
def test_a_stream_stopped_anywhere_goes_on_to_the_same_bits(
    tiny: Clip,
    picture: Picture,
    tmp_path: Path,
    unbroken: Callable[[str], Recorded],
    name: str,
    data: st.DataObject,
    maple_prompts: Prompts,
) -> None:
    """Saved to disk at any image and loaded, it says the same and comes to the same state some images later.

    The state at every image of the unbroken stream is known, so that a few images prove the rest.
    """
    said, states = unbroken(name)
    stop = data.draw(st.just(0) | st.integers(0, len(said) - 1), label="stop")
    until = min(len(said), stop + 8)
    stopped = make(tiny, maple_prompts, name)
    stopped.load_state_dict(states[stop])
    assert same_state(stopped.state_dict(), states[stop])
    stopped.save(tmp_path / "saved")
    resumed = Learner.load(tmp_path / "saved", clip=tiny)
    assert walk(resumed, picture, until) == said[stop:until]
    assert same_state(resumed.state_dict(), states[until])


def test_the_streams_above_are_worth_stopping(unbroken: Callable[[str], Recorded]) -> None:
    """They ask, leave questions open, evict, and learn."""
    for name in STREAMS:
        said, states = unbroken(name)
        asked = sum(each[-1] for each in said)
        assert 3 < asked < len(said), name
        assert any(state["values"]["pending"] for state in states), name
        held = [state["values"]["state"]["buffer"]["ids"] for state in states]
        assert held[-1] != held[len(held) // 2], name
    said, states = unbroken("episodic")
    assert len(said) == 300
    assert states[-1]["values"]["state"]["buffer"]["ever_full"]


def test_a_seed_gives_the_same_stream_and_another_another(
    tiny: Clip, maple_prompts: Prompts, picture: Picture
) -> None:
    runs = [
        walk(Learner(tiny, CLASSES, "taps", seed=seed, prompts=maple_prompts, **SMALL), picture, 12)
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_views_are_drawn_anew_at_every_place_of_the_stream(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, "taps", prompts="coop", views=6, fraction=0.5)
    again = [learner.predict_one(picture(0)).entropy for _ in range(4)]
    assert len(set(again)) == 4  # one image, the same prompts: only the views differ


def asked_learner(tiny: Clip, picture: Picture, **more: Any) -> Learner:
    """Three images seen, all asked about; the first one answered."""
    learner = Learner(tiny, CLASSES, "taps", prompts="coop", views=4, policy="fixed", tau0=0.0, **more)
    for number in range(3):
        assert learner.predict_one(picture(number)).ask
    learner.learn_one(0, "ship")
    return learner


@pytest.mark.parametrize(
    ("id", "label", "error", "said"),
    [
        (3, "cat", QueryError, "Unknown sample 3"),
        (-1, "cat", QueryError, "Unknown sample -1"),
        ("1", "cat", QueryError, "Unknown sample '1'"),
        (None, "cat", QueryError, "Unknown sample None"),
        (1.0, "cat", QueryError, "Unknown sample 1.0"),
        (True, "cat", QueryError, "Unknown sample True"),
        ([1], "cat", QueryError, "Unknown sample"),
        (1, "dragon", ClassNameError, r"'dragon' is not one of the 4 classes.*add_class\('dragon'\)"),
        (1, 4, ClassNameError, "from 0 to 3"),
        (1, -1, ClassNameError, "from 0 to 3"),
        (1, 1.5, ClassNameError, "from 0 to 3"),
        (1, None, ClassNameError, "from 0 to 3"),
        (1, True, ClassNameError, "from 0 to 3"),
    ],
)
def test_wrong_answers_are_refused_and_change_nothing(
    tiny: Clip, picture: Picture, id: Any, label: Any, error: type[Exception], said: str
) -> None:
    learner = asked_learner(tiny, picture)
    before = learner.state_dict()
    with pytest.raises(error, match=said):
        learner.learn_one(id, label)
    assert same_state(learner.state_dict(), before)


def test_the_same_answer_twice_changes_nothing(tiny: Clip, picture: Picture) -> None:
    learner = asked_learner(tiny, picture)
    before = learner.state_dict()
    learner.learn_one(0, "ship")
    assert same_state(learner.state_dict(), before)


@pytest.mark.parametrize("names", [[], 3, None, [3], ()])
def test_adding_no_class_is_refused(tiny: Clip, names: Any) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot")
    with pytest.raises(ClassNameError, match="names no class to add"):
        learner.add_class(names)
    assert learner.classes == tuple(CLASSES)


def test_classes_may_be_an_id2label_mapping(tiny: Clip) -> None:
    assert Learner(tiny, {1: "dog", 0: "cat"}, "zero_shot").classes == ("cat", "dog")
    assert Learner(tiny, {"0": "cat", "1": "dog"}, "zero_shot").classes == ("cat", "dog")  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ({0: "dog"}, "at least two"),
        ({1: "dog", 2: "cat"}, "keys are not 0 to 1"),
        ({"dog": 0, "cat": 1}, "keys are not 0 to 1"),
        (["cat", None], "Class 1 is None"),
        (["cat", 3], "Class 1 is 3"),
    ],
)
def test_what_is_no_list_of_names_is_refused(tiny: Clip, classes: Any, said: str) -> None:
    with pytest.raises(ClassNameError, match=said):
        Learner(tiny, classes, "zero_shot")


@pytest.mark.parametrize(("template", "said"), [("a {} of {}.", "has 2"), ("a photo.", "has no")])
def test_a_template_has_one_place_for_the_name(tiny: Clip, template: str, said: str) -> None:
    with pytest.raises(ClassNameError, match=said):
        Learner(tiny, CLASSES, "zero_shot", template=template)


@pytest.mark.parametrize(("name", "value"), [("rate", "0.1"), ("views", True), ("rate", 0)])
def test_settings_of_the_wrong_kind_are_refused(tiny: Clip, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"The setting {name} is {value!r}"):
        Learner(tiny, CLASSES, "taps", prompts="coop", **{name: value})


QUIET: dict[str, Any] = {"policy": "fixed", "tau0": 99.0, "views": 4}


@pytest.mark.parametrize(
    "settings_", [{"method": "zero_shot"}, {**QUIET, "recent": 0}, {**QUIET, "recent": 2, "prompts": "coop"}]
)
def test_an_image_nobody_asked_about_takes_no_answer_where_it_was_not_kept(
    tiny: Clip, picture: Picture, settings_: dict[str, Any]
) -> None:
    learner = Learner(tiny, CLASSES, **{"method": "taps", **settings_})
    for number in range(3):
        assert not learner.predict_one(picture(number)).ask
    before = learner.state_dict()
    with pytest.raises(QueryError, match="was not asked about"):
        learner.learn_one(0, "cat")
    assert same_state(learner.state_dict(), before)


def test_a_label_nobody_asked_for_is_corrected_and_taken_back_like_any_other(
    tiny: Clip, picture: Picture
) -> None:
    learner, silent = (Learner(tiny, CLASSES, "view_ensemble+", explore=0, **QUIET) for _ in range(2))
    for each in (learner, silent):
        for number in range(4):
            each.predict_one(picture(number))
    learner.learn_one(1, "ship")
    learner.learn_one(1, "cat")
    assert (learner.answered, learner.desk.unasked, learner.desk.corrected) == (1, 1, 1)
    assert learner.undo(1) == "cat"
    assert (learner.answered, learner.desk.unasked, learner.pending) == (0, 0, ())
    assert set(learner.recent) == set(silent.recent)  # no question was opened by taking it back
    ends = [each.predict_one(picture(4)).probs.tobytes() for each in (learner, silent)]
    assert ends[0] == ends[1]


@settings(max_examples=6)
@given(stop=st.integers(0, 11), recent=st.integers(0, 5), data=st.data())
def test_images_kept_for_a_label_are_the_last_ones_and_outlive_a_stop(
    tiny: Clip, picture: Picture, tmp_path: Path, stop: int, recent: int, data: st.DataObject
) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", policy="random", rate=0.3, recent=recent)
    quiet = [number for number in range(stop) if not learner.predict_one(picture(number)).ask]
    kept = tuple(quiet[len(quiet) - min(recent, len(quiet)) :])
    assert learner.recent == kept
    learner.save(tmp_path)
    resumed = Learner.load(tmp_path, clip=tiny)
    assert same_state(resumed.state_dict(), learner.state_dict())
    for id in data.draw(st.permutations(kept), label="labelled"):
        for each in (learner, resumed):
            each.learn_one(id, answer_for(id))
    assert bits(resumed.predict_one(picture(50))) == bits(learner.predict_one(picture(50)))
    assert same_state(resumed.state_dict(), learner.state_dict())


def test_a_resumed_learner_still_knows_what_was_answered(
    tiny: Clip, picture: Picture, tmp_path: Path
) -> None:
    asked_learner(tiny, picture).save(tmp_path)
    resumed = Learner.load(tmp_path, clip=tiny)
    assert resumed.pending == (1, 2)
    resumed.learn_one(0, "ship")  # said before: it changes nothing
    assert resumed.answered == 1
    resumed.learn_one(2, "cat")
    assert resumed.pending == (1,)


@pytest.mark.parametrize("label", ["ship", "SHIP", 2, np.int64(2), torch.tensor(2)])
def test_answers_by_name_or_any_whole_number(
    tiny: Clip, picture: Picture, label: Any, tmp_path: Path
) -> None:
    learner, other = asked_learner(tiny, picture), asked_learner(tiny, picture)
    learner.learn_one(1, label)
    other.learn_one(np.int64(1), 2)  # type: ignore[arg-type]
    assert same_state(learner.state_dict(), other.state_dict())
    other.save(tmp_path)  # numpy's numbers would not fit into JSON
    assert same_state(Learner.load(tmp_path, clip=tiny).state_dict(), learner.state_dict())


def test_a_name_two_classes_share_is_answered_by_index(tiny: Clip) -> None:
    learner = Learner(tiny, ["missile", "cat", "missile"], method="zero_shot", allow_duplicates=True)
    assert learner.class_index("cat") == 1
    assert learner.class_index(2) == 2
    with pytest.raises(ClassNameError, match="answer by index"):
        learner.class_index("missile")


def test_two_spellings_of_a_name_are_refused_all_the_same(tiny: Clip) -> None:
    with pytest.raises(ClassNameError, match="'hot_dog' and 'Hot dog' are the same"):
        Learner(tiny, ["hot_dog", "cat", "Hot dog"], method="zero_shot", allow_duplicates=True)


def test_underscores_and_spaces_are_the_same_in_answers(tiny: Clip) -> None:
    learner = Learner(tiny, CLASSES, method="zero_shot")
    assert learner.class_index("hot_dog") == learner.class_index("Hot Dog") == 1


BROKEN: dict[str, Any] = {
    "nan": np.full((8, 8, 3), math.nan),
    "infinite": np.full((8, 8, 3), math.inf),
    "empty": np.zeros((0, 4, 3), np.uint8),
    "bytes": b"\xff\xd8\xff\xe0 this is no photograph",
    "nothing": b"",
    "absent": "/nowhere/at/all.png",
    "object": object(),
}


@pytest.mark.parametrize("method", ["view_ensemble+", "zero_shot+", "tda", "taps"])
def test_an_image_encoded_before_its_turn_is_predicted_to_the_same_bits(
    tiny: Clip, picture: Picture, method: str
) -> None:
    given: dict[str, Any] = {"views": 4, "fraction": 0.5} if method in ("view_ensemble+", "taps") else {}
    plain, ahead = (Learner(tiny, CLASSES, method, seed=3, **given) for _ in range(2))
    known = [ahead.encode_one(ahead.view_one(picture(n), n)) for n in range(6)]  # answers come later
    for n, each in enumerate(known):
        assert isinstance(each, ViewedImage) == (method == "taps")  # which needs more of an image
        said = plain.predict_one(picture(n))
        assert bits(ahead.predict_one(each)) == bits(said)
        for learner in (plain, ahead):
            if said.ask:
                learner.learn_one(said.id, n % 3)
    assert same_state(plain.state_dict(), ahead.state_dict())


@pytest.mark.parametrize("reset", ["sample", "never"])
def test_broken_images_leave_no_trace(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, reset: str
) -> None:
    learner = Learner(tiny, CLASSES, "taps", seed=5, prompts=maple_prompts, reset=reset, **SMALL)
    untroubled = Learner(tiny, CLASSES, "taps", seed=5, prompts=maple_prompts, reset=reset, **SMALL)
    for number, broken in enumerate(BROKEN.values()):
        before = learner.state_dict()
        with pytest.raises(ImageError):
            learner.predict_one(broken)
        assert same_state(learner.state_dict(), before)
        assert walk(learner, picture, number + 1) == walk(untroubled, picture, number + 1)


@pytest.mark.parametrize("value", [0, 255, 128])
@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 50, 3), (40, 40, 3)])
def test_black_white_and_one_pixel_images_are_predicted(
    tiny: Clip, maple_prompts: Prompts, value: int, shape: tuple[int, ...]
) -> None:
    learner = Learner(tiny, CLASSES, "taps", prompts=maple_prompts, **SMALL)
    prediction = learner.predict_one(np.full(shape, value, np.uint8))
    assert np.isfinite(prediction.probs).all()
    assert prediction.probs.sum() == pytest.approx(1, abs=1e-5)
    assert 0 <= prediction.entropy <= math.log(len(CLASSES)) + 1e-5
    assert prediction.label == CLASSES[prediction.index]


def tensors_alive() -> tuple[int, int]:
    """How many tensors there are, and their bytes; storages shared by several are counted once."""
    gc.collect()
    # By type: asking some of these objects for their class makes them warn.
    found: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in found}
    return len(found), sum(storages.values())


@pytest.mark.parametrize("reset", ["sample", "never"])
def test_memory_does_not_grow_with_the_stream(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, reset: str
) -> None:
    learner = Learner(
        tiny, CLASSES, "taps", prompts=maple_prompts, reset=reset, buffer=4, views=4, policy="fixed", tau0=0.0
    )

    def go(images: int) -> tuple[int, int]:
        for _ in range(images):
            prediction = learner.predict_one(picture(learner.seen % 9))
            learner.learn_one(prediction.id, answer_for(prediction.id))
        return tensors_alive()

    early, late = go(12), go(40)
    assert len(learner.method.snapshot().values["buffer"]["ids"]) == 4
    assert late[0] <= early[0]
    assert late[1] <= early[1]


@pytest.mark.parametrize("augmix", [True, False])
def test_questions_nobody_answers_do_not_pile_up(
    tiny: Clip, picture: Picture, monkeypatch: pytest.MonkeyPatch, augmix: bool
) -> None:
    monkeypatch.setattr(taps.learner.pending, "PENDING", 5)
    learner = Learner(tiny, CLASSES, "taps", prompts="coop", views=8, policy="fixed", tau0=0.0, augmix=augmix)
    for number in range(8):
        assert learner.predict_one(picture(number)).ask
    early = tensors_alive()
    for number in range(8):
        learner.predict_one(picture(number))
    late = tensors_alive()
    assert late[0] <= early[0]
    assert late[1] <= early[1]
    assert learner.pending == tuple(range(11, 16))
    with pytest.raises(QueryError, match="waits no longer"):
        learner.learn_one(3, "cat")
    learner.learn_one(15, "cat")
    # One view of bytes and one feature are all that waits with a question: not the other views.
    kept = {name: value for name, value in learner.state_dict()["tensors"].items() if "pending.11." in name}
    assert {name.split(".")[-1]: value.dtype for name, value in kept.items()} == {
        "pixels": torch.uint8,
        "feature": torch.float32,
    }
    item = learner.desk.queries.pending[11]
    for value in (item.pixels, item.feature):
        assert value is not None
        assert value.untyped_storage().nbytes() == value.numel() * value.element_size()


def test_prompts_go_back_every_k_images(tiny: Clip, maple_prompts: Prompts, picture: Picture) -> None:
    """`every:3` is `never`, begun anew at images 0, 3, 6; views depend on the place in the stream alone."""
    quiet: dict[str, Any] = {"views": 6, "policy": "fixed", "tau0": 99.0, "lr": 1e-3, "guard": False}

    def run(reset: str, images: list[int]) -> list[bytes]:
        learner = Learner(tiny, CLASSES, "taps", prompts=maple_prompts, reset=reset, **quiet)
        learner.desk.seen = images[0]  # same views as those of the stream it is compared with
        return [learner.predict_one(picture(number)).probs.tobytes() for number in images]

    every = run("every:3", list(range(8)))
    parts = [run("never", images) for images in ([0, 1, 2], [3, 4, 5], [6, 7])]
    assert every == [each for part in parts for each in part]
    never = run("never", list(range(8)))
    assert every[:3] == never[:3]
    assert every[3:] != never[3:]
    assert run("every:1", list(range(8))) == run("sample", list(range(8)))


def test_the_default_rate_of_learning_is_lower_where_prompts_carry_over(tiny: Clip) -> None:
    made = {r: Learner(tiny, CLASSES, "taps", prompts="coop", reset=r) for r in ("sample", "never")}
    rates = {reset: learner.method.step_settings.lr for reset, learner in made.items()}  # type: ignore[attr-defined]
    assert rates == {"sample": 4e-3, "never": 5e-5}


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["cat"], "at least two"),
        ([], "at least two"),
        ("cat", "give a list"),
        (["cat", "Cat"], "are the same"),
        (["fire_truck", "fire truck"], "are the same"),
        (["cat", " "], "empty"),
        (["cat", "_"], "no tokens"),
        (["cat", "dog " * 90], "room for 77"),
    ],
)
def test_class_lists_that_cannot_be_are_refused(tiny: Clip, classes: Any, said: str) -> None:
    with pytest.raises(ClassNameError, match=said):
        Learner(tiny, classes, "taps", prompts="coop")


def test_braces_in_class_names_and_templates_are_letters(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, ["{}", "{0} cat", "dog"], method="zero_shot", template="a {} {x}.")
    assert learner.predict_one(picture(0)).label in learner.classes
    with pytest.raises(ClassNameError, match=r"has no \{\}"):
        Learner(tiny, CLASSES, method="zero_shot", template="a photo")


@pytest.mark.parametrize(
    "wrong",
    [
        {"views": 0},
        {"views": "many"},
        {"fraction": 0.0},
        {"fraction": math.nan},
        {"lr": -1.0},
        {"lr": math.inf},
        {"reset": "sometimes"},
        {"reset": "every:0"},
        {"reset": "every:²"},
        {"reset": 3},
        {"buffer": -1},
        {"order": "later"},
        {"policy": "whim"},
        {"eviction": "whim"},
        {"rate": 2.0},
        {"budget": "large"},
        {"colour": "red"},
        {"seed": -1},
        {"seed": 0.5},
        {"weight_ce": "much"},
        {"align": "freely"},
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(tiny: Clip, wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Learner(tiny, CLASSES, "taps", **{"prompts": "coop", **wrong})


def test_a_state_is_refused_where_it_does_not_belong(
    tiny: Clip, maple_prompts: Prompts, picture: Picture
) -> None:
    """Cached gradients belong to their prompts and to the weights of the loss."""
    learner = Learner(tiny, CLASSES, "taps", prompts=maple_prompts, **SMALL)
    walk(learner, picture, 8)
    state = learner.state_dict()
    moved = {name: value + 1e-3 for name, value in maple_prompts.parameters.items()}
    other_prompts = Prompts("maple", moved, maple_prompts.suffix, maple_prompts.base, tiny.fingerprint)
    others = [
        Learner(tiny, CLASSES, method="zero_shot"),
        Learner(tiny, ["cat", "dog"], "taps", prompts=maple_prompts, **SMALL),
        Learner(tiny, CLASSES, "taps", prompts="coop", **SMALL),
        Learner(tiny, CLASSES, "taps", prompts=other_prompts, **SMALL),
        Learner(tiny, CLASSES, "taps", prompts=maple_prompts, **SMALL, reset="never"),
        Learner(tiny, CLASSES, "taps", prompts=maple_prompts, **SMALL, weight_ce=2.0),
        Learner(tiny, CLASSES, "taps", prompts=maple_prompts, **{**SMALL, "buffer": 9}),
        Learner(tiny, CLASSES, "taps", prompts=maple_prompts, **{**SMALL, "policy": "quantile"}),
    ]
    for other in others:
        if other.method_name != "zero_shot":
            walk(other, picture, 3)
        before = other.state_dict()
        with pytest.raises(StateError):
            other.load_state_dict(state)
        assert same_state(other.state_dict(), before)


def test_a_state_dict_does_not_change_under_its_owner(tiny: Clip, picture: Picture) -> None:
    learner = asked_learner(tiny, picture, reset="never")
    state, again = learner.state_dict(), learner.state_dict()
    for number in range(3):
        prediction = learner.predict_one(picture(number))
        learner.learn_one(prediction.id, "cat")
    assert same_state(state, again)
    assert not same_state(state, learner.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_predict_and_resume(picture: Picture, tmp_path: Path, dtype: torch.dtype) -> None:
    from taps import load_clip

    clip = load_clip("tiny", device="cpu", dtype=dtype)
    for name, prompts in (("a", "coop"), ("b", "maple")):
        learner = Learner(clip, CLASSES, "taps", prompts=prompts, **SMALL)
        walk(learner, picture, 6)
        learner.save(tmp_path / name)
        resumed = Learner.load(tmp_path / name)
        assert resumed.clip.dtype == dtype
        assert walk(resumed, picture, 10) == walk(learner, picture, 10)


def test_zero_shot_context_predicts_as_zero_shot_before_any_update(tiny: Clip, picture: Picture) -> None:
    """The text context starts as "a photo of a": with a rate of 0 nothing is learned and nothing differs."""
    plain = Learner(tiny, CLASSES, method="zero_shot")
    hand = Learner(tiny, CLASSES, "taps", prompts="hand", views=4, lr=0.0)
    for number in range(3):
        one, other = plain.predict_one(picture(number)), hand.predict_one(picture(number))
        assert np.allclose(one.probs, other.probs, atol=1e-5)


def test_predictions_are_plain_values(tiny: Clip, picture: Picture) -> None:
    prediction = Learner(tiny, CLASSES, "taps", prompts="coop", views=4).predict_one(picture(0))
    kinds = {name: type(getattr(prediction, name)) for name in ("id", "index", "entropy", "threshold", "ask")}
    assert kinds == {"id": int, "index": int, "entropy": float, "threshold": float, "ask": bool}
    assert prediction.probs.dtype == np.float32
    assert bits(prediction)[0] == 0


def waiting_with_views(clip: Clip, prompts: Prompts) -> Learner:
    """Every image is asked about, and all of its views are kept until the answer comes."""
    return make(clip, prompts, "aligned_continual", policy="fixed", tau0=0.0)


def test_views_that_wait_for_an_answer_are_bounded(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = waiting_with_views(tiny, maple_prompts)
    one = learner.settings.views * 3 * tiny.config.image_size**2
    monkeypatch.setattr(taps.learner.pending, "PENDING_BYTES", 3 * one)
    for number in range(5):
        learner.predict_one(picture(number))
    assert learner.pending == (2, 3, 4)
    for id in learner.pending:
        learner.learn_one(id, 0)
    monkeypatch.setattr(taps.learner.pending, "PENDING_BYTES", one - 1)
    learner.predict_one(picture(5))
    assert learner.pending == (5,)  # one question can always wait
    learner.learn_one(5, 0)
    with pytest.raises(QueryError):
        learner.undo(5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_views_wait_in_host_memory(picture: Picture) -> None:
    clip = load_clip("tiny", device="cuda")
    learner = waiting_with_views(clip, Maple().initial(clip, torch.Generator().manual_seed(11)))
    for number in range(3):
        learner.predict_one(picture(number))
    twin = copy.deepcopy(learner)
    for each in (learner, twin):
        assert {item.views.device.type for item in each.desk.queries.pending.values()} == {"cpu"}  # type: ignore[union-attr]
        for id in each.pending:
            each.learn_one(id, id % 3)
    assert learner.predict_one(picture(9)).probs.tolist() == twin.predict_one(picture(9)).probs.tolist()


@pytest.mark.parametrize(
    ("tau0", "said"), [(-1.0, "100.0% of the 100 images"), (1e7, "0.0% of the 100 images")]
)
def test_a_rate_that_was_missed_by_more_than_half_is_spoken_of(
    tiny: Clip, picture: Picture, tau0: float, said: str
) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", policy="fixed", tau0=tau0, explore=0)
    paced = Learner(tiny, CLASSES, "zero_shot+", policy="paced")
    for _ in range(99):
        learner.predict_one(picture(0))
        paced.predict_one(picture(0))
    assert not any("asked about" in note for note in learner.summary()["notes"])  # too few to tell
    learner.predict_one(picture(0))
    paced.predict_one(picture(0))
    assert any(said in note and "not 5.0%" in note for note in learner.summary()["notes"])
    assert not any("asked about" in note for note in paced.summary()["notes"])


def test_no_rate_is_called_missed_that_was_kept(tiny: Clip, picture: Picture) -> None:
    """Too early to tell; nobody knows, so half is asked again; yes or no, a part of a question each.

    With half of the images to ask about and yes or no alone, all of them are asked about.
    """
    classes = [f"class {number}" for number in range(30)]
    yes_or_no = [{"rate": rate, "questions": "yes_no"} for rate in (0.05, 0.5)]
    for asking in ({"rate": 0.01}, {"rate": 0.05}, *yes_or_no):
        learner = Learner(tiny, classes, "zero_shot+", **asking)  # type: ignore[arg-type]
        for number in range(120):
            said = learner.predict_one(picture(number % 7))
            if said.ask:
                learner.skip(said.id)
        assert learner.summary()["notes"] == [], asking


def test_tab_completion_offers_what_a_person_calls(tiny: Clip) -> None:
    offered = dir(Learner(tiny, CLASSES, "taps", views=2))
    assert {"predict_one", "learn_one", "undo", "skip", "add_class", "save", "classes", "asked"} <= set(
        offered
    )
    assert not [name for name in offered if name.startswith("_") or name == "queries"]
    assert set(dir(taps)) == {*taps.__all__, "__version__"}


@pytest.mark.parametrize("kind", ["episodic", "continual", "view_ensemble+"])
def test_reset_and_clone_begin_anew(tiny: Clip, maple_prompts: Prompts, picture: Picture, kind: str) -> None:
    """Whatever was learned, what follows has the bits of a stream that begins."""
    if kind in STREAMS:
        learner = make(tiny, maple_prompts, kind)
    else:
        learner = Learner(tiny, CLASSES, kind, seed=5, views=3, rate=0.5)
    began, settings_ = learner.state_dict(), learner.settings
    said = walk(learner, picture, 6)
    for fresh in (learner.clone(), learner):
        fresh.reset()
        assert (fresh.seen, fresh.asked, fresh.answered, fresh.pending, fresh.recent) == (0, 0, 0, (), ())
        assert same_state(fresh.state_dict(), began)
        assert walk(fresh, picture, 6) == said
        assert (fresh.settings, fresh.clip) == (settings_, learner.clip)


def test_a_clone_shares_nothing_but_the_model(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, views=2, rate=1.0)
    clone = learner.clone()
    before = clone.state_dict()
    walk(learner, picture, 3)
    learner.add_class("owl")
    assert same_state(clone.state_dict(), before)
    assert learner.clone().classes == learner.classes != clone.classes


def test_saved_as_pretrained_it_is_loaded_from_there(tiny: Clip, picture: Picture, tmp_path: Path) -> None:
    class Own(Learner):
        pass

    learner = Own(tiny, CLASSES, views=2, rate=1.0)
    walk(learner, picture, 3)
    learner.save_pretrained(tmp_path / "saved")
    loaded = Own.from_pretrained(tmp_path / "saved", tiny)
    assert type(loaded) is type(copy.deepcopy(learner)) is type(learner.clone()) is Own
    assert same_state(loaded.state_dict(), learner.state_dict())


def test_nothing_is_offered_that_a_person_should_not_call(tiny: Clip) -> None:
    offered = {name for name in dir(Learner) if not name.startswith("_")}
    methods = {name for name in offered if callable(getattr(Learner, name))}
    assert methods == {
        *("predict_one", "predict_many", "learn_one", "repredict", "repredict_kept", "skip", "undo"),
        *("ask", "wanted_kept"),  # of images that are there already, as `taps label` has them
        *("expect", "view_one", "encode_one"),  # of images whose turn has not come
        *("add_class", "class_index", "summary", "state_dict", "load_state_dict", "reset", "clone"),
        *("save", "load", "save_pretrained", "from_pretrained"),
    }


@pytest.mark.parametrize("seed", [-1, 10**30, True, 1.5, math.nan, math.inf, "x", None])
def test_seeds_that_are_no_whole_numbers_in_range_are_refused(tiny: Clip, seed: Any) -> None:
    with pytest.raises(SettingsError, match="seed"):
        Learner(tiny, CLASSES, seed=seed)


@pytest.mark.parametrize("setting", ["views", "rate", "undo", "budget", "tau0"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 1e308, 10**30])
def test_a_setting_out_of_any_range_is_a_sentence_that_names_it(
    tiny: Clip, setting: str, value: float
) -> None:
    if (setting, value) == ("tau0", -1):
        return  # a threshold may be anything that is finite
    with pytest.raises(SettingsError, match=setting):
        Learner(tiny, CLASSES, **{setting: value})


def test_a_model_is_loaded_by_its_name(tiny: Clip) -> None:
    assert Learner("tiny", CLASSES).clip.fingerprint == tiny.fingerprint
    with pytest.raises(SettingsError, match="7"):
        Learner(7, CLASSES)  # type: ignore[arg-type]


def test_what_is_printed_is_for_people(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, rate=1.0, views=1)
    prediction = learner.predict_one(picture(0))
    assert prediction.label in repr(prediction)
    images = sign_digits().take(range(20))
    assert "20 images" in repr(images)
    assert max(len(repr(each)) for each in (prediction, learner, images)) < 100
