"""Every place that holds a learner is one for `taps predict`: a store with one stream or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps.errors import SettingsError, StateError
from taps.model.clip import Clip
from taps.serve.records import StreamConfig
from taps.serve.replay import learner_of, predict_command
from taps.serve.service import Service
from taps.serve.store import Store


def beginning(name: str) -> StreamConfig:
    settings = {"rate": 0.5, "acquisition": "margin"}
    return StreamConfig(name, ["ant", "bee", "cat"], "zero_shot+", settings, 0, None, 0.0)


def teach(service: Service, stream: str, pictures: Path, count: int) -> None:
    for path in sorted(pictures.glob("*/*.png"))[:count]:
        outcome = service.send(stream, lambda s, p=path: s.predict(p.read_bytes(), p.name, "test")).result()
        label = path.parent.name
        act = lambda s, id=outcome.row.id, label=label: s.label(id, label, "test", unasked=True)  # noqa: E731
        service.send(stream, act).result()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one["values"] == other["values"]
    return one["tensors"].keys() == other["tensors"].keys() and all(
        np.array_equal(value, other["tensors"][name]) for name, value in one["tensors"].items()
    )


def test_the_learner_of_a_store_is_the_one_at_the_end_of_its_log(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        service.create(beginning("photos"), "test")
        teach(service, "photos", pictures, 12)
        log = service.worker("photos").session.learner_log
        service.send("photos", lambda s: log.snapshot()).result()
        teach(service, "photos", pictures, 14)  # two of them are in the log alone
        state = service.send("photos", lambda s: log.learner().state_dict()).result()
        assert log.snapshots.seqs()[-1] < log.seq
        assert same(learner_of(tmp_path / "store").state_dict(), state)  # while the service runs
    assert same(learner_of(tmp_path / "store", "photos").state_dict(), state)


def test_which_stream_is_said_where_there_are_several(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        for name in ("one", "two"):
            service.create(beginning(name), "test")
        with pytest.raises(StateError, match="No learner of stream 'one' is saved in"):
            learner_of(tmp_path / "store", "one")
        teach(service, "one", pictures, 3)
    assert learner_of(tmp_path / "store", "one").answered == 3
    with pytest.raises(SettingsError, match="holds the streams: one, two; choose one with --stream"):
        learner_of(tmp_path / "store")
    with pytest.raises(SettingsError, match="holds no stream 'three'; it holds: one, two"):
        learner_of(tmp_path / "store", "three")
    assert predict_command(tmp_path, "one").endswith(" --stream one")
