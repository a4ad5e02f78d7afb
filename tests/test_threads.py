"""Threads that share a learner: what they did is what one thread could have done."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taps import Learner
from taps.errors import QueryError
from taps.model.clip import Clip
from taps.types import PixelArray
from tests.walks import CLASSES, bits, same_state

THREADS, IMAGES = 4, 12
Picture = Callable[[int], PixelArray]


def together(work: Callable[[int], Any]) -> None:
    """Call `work` in several threads at once, and raise what any of them raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def one(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize(("method", "many"), [("view_ensemble+", False), ("taps", False), ("tda", True)])
def test_images_of_several_threads_are_a_stream_in_some_order(
    tiny: Clip, picture: Picture, method: str, many: bool
) -> None:
    settings: dict[str, Any] = {} if method == "tda" else {"views": 3, "rate": 0.4}
    learner = Learner(tiny, CLASSES, method, **settings)
    said: dict[int, Any] = {}
    shown: dict[int, int] = {}

    def work(thread: int) -> None:
        mine = [100 * thread + number for number in range(IMAGES)]
        for number in (
            [mine[at : at + 3] for at in range(0, IMAGES, 3)] if many else [[each] for each in mine]
        ):
            pictures = [picture(each) for each in number]
            found = learner.predict_many(pictures) if many else [learner.predict_one(pictures[0])]
            for prediction, each in zip(found, number, strict=True):
                said[prediction.id], shown[prediction.id] = bits(prediction), each

    together(work)
    assert sorted(said) == list(range(THREADS * IMAGES))
    alone = Learner(tiny, CLASSES, method, **settings)
    for id in sorted(shown):
        again = bits(alone.predict_one(picture(shown[id])))
        if not many:  # sums of several images are made in another order
            assert again == said[id]
    assert alone.seen == learner.seen
    if not many:
        assert same_state(alone.state_dict(), learner.state_dict())


def test_answers_saves_and_predictions_of_several_threads_leave_a_whole_learner(
    tiny: Clip, picture: Picture, tmp_path: Path
) -> None:
    learner = Learner(tiny, CLASSES, "view_ensemble+", views=3, rate=0.5)

    def work(thread: int) -> None:
        chance = random.Random(thread)
        for number in range(IMAGES):
            prediction = learner.predict_one(picture(100 * thread + number))
            for act in (
                lambda prediction=prediction: learner.learn_one(prediction.id, thread % len(CLASSES)),
                lambda: learner.undo(chance.choice(learner.answered_ids or (0,))),
                lambda: learner.skip(chance.choice(learner.pending or (0,))),
                lambda prediction=prediction: learner.repredict(prediction.id, picture(0)),
                lambda: (learner.summary(), learner.repredict_kept(learner.recent)),
                lambda: learner.wanted_kept(learner.recent),
                lambda: learner.save(tmp_path),
            ):
                try:
                    act()
                except QueryError:  # another thread was faster
                    continue

    together(work)
    assert learner.seen == THREADS * IMAGES
    assert learner.answered == len(learner.answered_ids) == learner.summary()["head_labels"]
    assert not set(learner.pending) & set(learner.recent) | set(learner.pending) & set(learner.answered_ids)
    learner.save(tmp_path)
    assert same_state(Learner.load(tmp_path, clip=tiny).state_dict(), learner.state_dict())
