"""One default for every entrance, and what was begun under an older one."""

from __future__ import annotations

import inspect

from taps import Learner
from taps.cli.label import LabelOptions, asking_settings
from taps.default import ACQUISITION, METHOD, VIEWS
from taps.methods.registry import method_settings, settings
from taps.model.clip import Clip
from taps.serve.client import Client
from taps.serve.schemas import NewStream
from taps.streams.options import RunOptions


def default_of(call: object, name: str) -> object:
    return inspect.signature(call).parameters[name].default  # type: ignore[arg-type]


def test_every_entrance_takes_the_same_method() -> None:
    entrances = {
        "Learner": default_of(Learner, "method"),
        "taps run": RunOptions().method,
        "taps label": LabelOptions("photos").method,
        "taps serve": NewStream(name="pets", classes=["cat", "dog"]).method,
        "Client": default_of(Client.create_stream, "method"),
    }
    assert set(entrances.values()) == {METHOD}, entrances


def test_every_entrance_takes_the_same_views_and_acquisition(tiny: Clip) -> None:
    chosen = Learner(tiny, ["cat", "dog"]).settings
    given = asking_settings(METHOD, LabelOptions("photos").views, questions=10, images=100)
    labelled = method_settings(METHOD, given)
    for found in (chosen, labelled):
        assert (found.views, getattr(found, "acquisition")) == (VIEWS, ACQUISITION)  # noqa: B009


def test_the_papers_method_is_as_published() -> None:
    published = settings("taps")
    assert (published["views"], published["buffer"], published["rate"]) == (64, 150, 0.05)
    assert "acquisition" not in published
