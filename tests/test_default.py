"""One default for every entrance, and what was begun under an older one."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from taps import Learner
from taps.adapters.classifiers import TapsClassifier
from taps.cli.label import LabelOptions, asking_settings
from taps.clip import Clip
from taps.default import ACQUISITION, BEFORE, METHOD, VIEWS
from taps.methods.registry import method_settings, settings
from taps.serve.client import Client
from taps.serve.learners import fresh
from taps.serve.records import Stream
from taps.serve.schemas import NewStream
from taps.session.options import RunOptions


def default_of(call: object, name: str) -> object:
    return inspect.signature(call).parameters[name].default  # type: ignore[arg-type]


def test_every_entrance_takes_the_same_method() -> None:
    entrances = {
        "Learner": default_of(Learner, "method"),
        "taps run": RunOptions().method,
        "taps label": LabelOptions("photos").method,
        "taps serve": NewStream(name="pets", classes=["cat", "dog"]).method,
        "Client": default_of(Client.create_stream, "method"),
        "scikit-learn": TapsClassifier().method,
    }
    assert set(entrances.values()) == {METHOD}, entrances


def test_every_entrance_takes_the_same_views_and_acquisition(tiny: Clip) -> None:
    chosen = Learner(tiny, ["cat", "dog"]).settings
    given = asking_settings(METHOD, LabelOptions("photos").views, questions=10, images=100)
    labelled = method_settings(METHOD, given)
    started = TapsClassifier(tiny).start(["cat", "dog"]).learner_.settings
    for found in (chosen, labelled, started):
        assert (found.views, getattr(found, "acquisition")) == (VIEWS, ACQUISITION)  # noqa: B009


def test_the_papers_method_is_as_published() -> None:
    published = settings("taps")
    assert (published["views"], published["buffer"], published["rate"]) == (64, 150, 0.05)
    assert "acquisition" not in published


@pytest.mark.parametrize(
    ("given", "acquisition"),
    [({}, BEFORE["acquisition"]), ({"ask_by": "random"}, "random"), ({"acquisition": "margin"}, "margin")],
)
def test_a_stream_of_an_older_version_keeps_its_acquisition(
    tiny: Clip, given: dict[str, str], acquisition: str
) -> None:
    """Version 0.2 stored what was given and nothing else; its default was "density"."""
    values = {"method": METHOD, "classes": ["cat", "dog"], "settings": given, "seed": 0}
    names = {each.name for each in fields(Stream)}
    rest = {"id": 1, "name": "pets", "deadline": None, "hold": 0.0, "created": 0.0}
    stream = Stream(**{name: value for name, value in {**rest, **values}.items() if name in names})
    assert fresh(stream, tiny).settings.acquisition == acquisition  # type: ignore[attr-defined]
