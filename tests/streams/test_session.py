"""One image after another, call by call; learner, record and annotator remember what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from taps.errors import ImageError, QueryError
from taps.streams.annotators import Annotator, Delayed
from taps.streams.loop import Session, follow
from taps.streams.score import RunningScore, StreamStep
from taps.types import OUTSIDE, Answer, PixelArray, Prediction, Query

CLASSES = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")
FIRST_ID = 100
BROKEN = -7


class Clock:
    """Seconds that pass when somebody works."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeLearner:
    """Predicts the classes in turn, in three seconds; learns in five."""

    classes, order = CLASSES, "predict_first"

    def __init__(self, clock: Clock, asks: tuple[int, ...]) -> None:
        self.clock, self.asks, self.seen = clock, asks, FIRST_ID
        self.learned: list[tuple[int, Any]] = []
        self.method = SimpleNamespace(takes_any_answer=True)
        self.clip = SimpleNamespace(device=SimpleNamespace(type="cpu"))
        self.skipped: list[int] = []
        self.question = "class"
        self.pending: tuple[int, ...] = ()

    def view_one(self, pixels: PixelArray, number: int) -> PixelArray:
        return pixels

    def predict_one(self, pixels: PixelArray) -> Prediction:
        self.clock.now += 3
        t, self.seen = int(pixels[0, 0, 0]), self.seen + 1
        probs = np.roll(np.array([0.4, 0.2, 0.15, 0.1, 0.08, 0.05, 0.02], np.float32), t)
        found = Prediction(FIRST_ID + t, t, CLASSES[t], probs, 1.0, 0.5, t in self.asks, 3.0)
        return replace(found, question=self.question)

    def class_index(self, answer: int | str) -> int:
        assert answer is not None
        return CLASSES.index(answer) if isinstance(answer, str) else answer

    def learn_one(self, id: int, answer: Answer) -> None:
        self.clock.now += 5
        plain = answer.label is not None and answer == Answer(answer.label)
        self.learned.append((id, self.class_index(answer.label) if plain else answer))  # type: ignore[arg-type]

    def skip(self, id: int) -> None:
        self.clock.now += 5
        self.skipped.append(id)

    @property
    def answered(self) -> int:
        return len(self.learned)

    def undo(self, id: int) -> str | None:
        held = dict(self.learned)
        if id in self.skipped:
            self.skipped.remove(id)
            return None
        if id not in held:
            raise QueryError("it has left the memory")
        self.learned.remove((id, held[id]))
        return CLASSES[held[id]] if isinstance(held[id], int) else None


class FakeRecord:
    """Remembers what it was told; saves when told to, in seven seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.told: list[tuple[Any, ...]] = []
        self.saved: int | None = None
        self.happened: list[dict[str, Any]] = []

    @property
    def position(self) -> int:
        return self.saved or 0

    def commit(self, t: int, path: str, prediction: Prediction, classes: Sequence[str]) -> None:
        assert classes == CLASSES
        self.told.append(("commit", t, path, prediction.id))

    def event(self, kind: str, **values: Any) -> None:
        self.told.append((kind, values))

    def keep(self, learner: Any, id: int) -> None:
        pass

    def events(self) -> Iterator[dict[str, Any]]:
        return iter(self.happened)

    def row(self, *given: Any, kind: str = "row") -> None:
        t, path, prediction, score, classes, phase = given
        values = {
            "predicted": classes[score.final],
            "label": "" if score.label in (None, OUTSIDE) else classes[score.label],
            "correct": score.correct,
            "top5": score.hit,
            "truth": score.label,
            "phase": phase,
        }
        self.told.append((kind, t, path, prediction.id, values))

    def replace_row(self, *given: Any) -> None:
        self.row(*given, kind="replace_row")

    def checkpoint(self, learner: Any, running: RunningScore) -> None:
        self.clock.now += 7
        self.saved = running.position
        self.told.append(("checkpoint", learner.seen - FIRST_ID, running.position))

    def checkpoint_if_due(self, learner: Any, running: RunningScore) -> None:
        self.told.append(("due?", learner.seen - FIRST_ID, running.position))

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [call for call in self.told if call[0] in kinds]


class FakeStream:
    """Images that hold their own number and take two seconds to decode; some are broken."""

    look = None

    def __init__(self, clock: Clock, labels: list[int | None]) -> None:
        self.clock, self.labels = clock, labels

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, t: int) -> str:
        return f"{t}.png"

    def label(self, t: int) -> int | None:
        return self.labels[t]

    def phase(self, t: int) -> int:
        return t + 7

    def image(self, t: int) -> PixelArray:
        self.clock.now += 2
        if self.labels[t] == BROKEN:
            raise ImageError("not an image")
        return np.full((1, 1, 3), t, np.uint8)


class Person:
    """Says what was prepared for each image; not somebody who would say the same again."""

    def __init__(self, answers: dict[int, int | str]) -> None:
        self.answers = answers
        self.queries: list[Query] = []

    def answer(self, query: Query) -> int | str | None:
        self.queries.append(query)
        return self.answers.get(query.id - FIRST_ID)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("taps.streams.loop.time.perf_counter", clock)
    return clock


def make_session(
    clock: Clock,
    labels: list[int | None],
    asks: tuple[int, ...] = (),
    wrap: Callable[[Annotator], Annotator | None] = lambda truth: truth,
    order: str = "predict_first",
) -> Session:
    learner = FakeLearner(clock, asks)
    learner.order = order
    stream, record = FakeStream(clock, labels), FakeRecord(clock)
    return Session(cast(Any, learner), cast(Any, stream), cast(Any, record), RunningScore(), wrap)


def told(session: Session) -> FakeRecord:
    return cast(FakeRecord, session.record)


def test_one_image_is_told_in_this_order(clock: Clock) -> None:
    session = make_session(clock, [2], asks=(0,))
    seen: list[StreamStep] = []
    assert follow(session, progress=lambda step, running: seen.append(step))
    values = {"predicted": "ant", "label": "cat", "correct": False, "top5": True, "truth": 2, "phase": 7}
    assert told(session).told == [
        ("commit", 0, "0.png", FIRST_ID),
        ("answered", {"id": FIRST_ID, "t": 0, "label": "cat"}),
        ("row", 0, "0.png", FIRST_ID, values),
        ("due?", 1, 1),
        ("checkpoint", 1, 1),
    ]
    (step,) = seen
    assert (step.t, step.path, step.truth, step.answer) == (0, "0.png", "cat", "cat")
    assert step.correct is False
    assert step.prediction is not None
    assert step.prediction.id == FIRST_ID
    assert step.pixels is not None
    assert session.positions == {}


def test_times_are_those_of_decoding_of_the_method_and_of_all(clock: Clock) -> None:
    session = make_session(clock, [0, 1, 6, None], asks=(1, 2), wrap=lambda truth: Person({1: "bee"}))
    follow(session)
    running = session.running
    assert (running.decode_s, running.method_s) == (4 * 2, 4 * 3 + 5)
    assert running.wall_s == 4 * 2 + 4 * 3 + 5 + 2 * 7  # after either question the run is saved
    assert (running.position, running.known, running.correct, running.hits) == (4, 3, 2, 3)
    assert (running.asked, running.answered, running.broken) == (2, 1, 0)


@pytest.mark.parametrize(("label", "correct", "hit"), [(0, True, True), (4, False, True), (5, False, False)])
def test_hits_are_the_five_likeliest(clock: Clock, label: int, correct: bool, hit: bool) -> None:
    session = make_session(clock, [label])
    follow(session)
    (row,) = told(session).of("row")
    assert (row[-1]["correct"], row[-1]["top5"]) == (correct, hit)
    assert (session.running.correct, session.running.hits, session.running.known) == (correct, hit, 1)


def test_where_nobody_knows_the_class_nothing_is_scored(clock: Clock) -> None:
    session = make_session(clock, [None, None], asks=(1,), wrap=lambda truth: Person({1: "cat"}))
    seen: list[StreamStep] = []
    follow(session, progress=lambda step, running: seen.append(step))
    first, second = told(session).of("row")
    unknown = {"label": "", "correct": None, "top5": None, "truth": None}
    assert first[-1] == {"predicted": "ant", **unknown, "phase": 7}
    known = {"label": "cat", "correct": False, "top5": True, "truth": 2}
    assert second[-1] == {"predicted": "bee", **known, "phase": 8}
    assert [(s.truth, s.answer, s.correct) for s in seen] == [(None, None, None), ("cat", "cat", False)]
    assert (session.running.known, session.running.correct) == (1, 0)


def test_where_annotators_are_asked_first_their_answer_is_the_prediction(clock: Clock) -> None:
    person = Person({0: 6, 1: 3})
    session = make_session(clock, [6, 1, 2], (0, 1), lambda truth: person, order="ask_first")
    follow(session)
    rows = [row[-1] for row in told(session).of("row")]
    assert [row["predicted"] for row in rows] == ["gnu", "dog", "cat"]
    assert [row["correct"] for row in rows] == [True, False, True]
    assert [row["top5"] for row in rows] == [True, True, True]
    assert session.running.correct == 2


def test_broken_images_are_told_and_left(clock: Clock) -> None:
    session = make_session(clock, [0, BROKEN, 2, BROKEN])
    seen: list[tuple[StreamStep, RunningScore]] = []
    assert follow(session, progress=lambda *heard: seen.append(heard))
    broken = ("unreadable", {"t": 1, "path": "1.png", "error": "not an image"})
    assert told(session).of("unreadable")[0] == broken
    assert seen[1] == (StreamStep(1, "1.png", error="not an image"), session.running)
    assert (session.running.position, session.running.broken, session.running.known) == (4, 2, 2)
    assert [row[1] for row in told(session).of("row")] == [0, 2]


def test_a_stop_saves_and_a_new_start_goes_on_there(clock: Clock) -> None:
    session = make_session(clock, [0, 1, 2, 3])
    assert not follow(session, stop=lambda: session.running.position == 2)
    assert told(session).of("checkpoint") == [("checkpoint", 2, 2)]
    assert [row[1] for row in told(session).of("row")] == [0, 1]
    assert follow(session)
    assert [row[1] for row in told(session).of("row")] == [0, 1, 2, 3]
    assert told(session).of("checkpoint")[1:] == [("checkpoint", 4, 4)]
    assert follow(session)  # nothing is left: nothing is saved again
    assert len(told(session).of("checkpoint")) == 2


def test_a_run_without_images_is_saved_once(clock: Clock) -> None:
    session = make_session(clock, [])
    assert follow(session)
    assert told(session).told == [("checkpoint", 0, 0)]


def test_a_persons_answers_are_saved_at_once_and_the_truth_need_not_be(clock: Clock) -> None:
    person = make_session(clock, [0, 1, 2, 3], asks=(1, 2), wrap=lambda truth: Person({1: 1}))
    truth = make_session(clock, [0, 1, 2, 3], asks=(1, 2))
    nobody = make_session(clock, [0, 1, 2, 3], asks=(1, 2), wrap=lambda truth: None)
    for session in (person, truth, nobody):
        follow(session)
    assert told(person).of("checkpoint", "due?") == [
        ("due?", 1, 1),
        ("checkpoint", 2, 2),
        ("checkpoint", 3, 3),
        ("due?", 4, 4),
        ("checkpoint", 4, 4),
    ]
    for session in (truth, nobody):
        assert [call[0] for call in told(session).of("checkpoint", "due?")] == ["due?"] * 4 + ["checkpoint"]
    assert nobody.running.asked == 2
    assert nobody.running.answered == 0
    assert nobody.positions == {FIRST_ID + 1: 1, FIRST_ID + 2: 2}


def test_a_question_names_the_image(clock: Clock) -> None:
    person = Person({})
    follow(make_session(clock, [0, 1], asks=(1,), wrap=lambda truth: person))
    (query,) = person.queries
    assert (query.id, query.path, query.prediction.label) == (FIRST_ID + 1, "1.png", "bee")


def test_late_answers_are_learned_when_they_come(clock: Clock) -> None:
    session = make_session(clock, [3, 4, 5, 6, 0], (0, 1), lambda truth: Delayed(truth, 2))
    follow(session)
    learner = cast(FakeLearner, session.learner)
    assert learner.learned == [(FIRST_ID, 3), (FIRST_ID + 1, 4)]
    assert [call[1]["t"] for call in told(session).of("answered")] == [0, 1]
    kinds = [call[0] for call in told(session).told]
    assert kinds.index("answered") > [i for i, kind in enumerate(kinds) if kind == "commit"][1]
    assert session.running.answered == 2


def test_late_answers_of_a_person_are_saved_at_once(clock: Clock) -> None:
    session = make_session(clock, [3, 4, 5, 6], (0,), lambda truth: Delayed(Person({0: 1}), 2))
    follow(session)
    places = [position for _, _, position in told(session).of("checkpoint")]
    assert places[0] == 1  # the question
    assert len(places) == 3  # the answer, the end
    assert session.running.answered == 1


def test_questions_that_waited_are_put_again(clock: Clock) -> None:
    learner, record = FakeLearner(clock, ()), FakeRecord(clock)
    learner.pending = (FIRST_ID + 2, FIRST_ID + 4)
    record.happened = [
        {"event": "unreadable", "t": 0},
        {"event": "predicted", "id": FIRST_ID + 2, "t": 5, "index": 4, "question": "yes_no"},
        {"event": "predicted", "id": FIRST_ID + 4, "t": 3, "index": 1},
    ]
    stream = FakeStream(clock, [0, 1, 2, 3, 4, 6])
    late = Delayed(Person({2: 1}), 4)
    parts = (cast(Any, learner), cast(Any, stream), cast(Any, record), RunningScore())
    session = Session(*parts, lambda truth: late)
    assert session.positions == {FIRST_ID + 2: 5, FIRST_ID + 4: 3}
    put = [(query.id, query.path, query.prediction, query.yes_no) for query in late.waiting.values()]
    assert put == [(FIRST_ID + 2, "5.png", None, 4), (FIRST_ID + 4, "3.png", None, None)]
    at_once = Person({})
    Session(*parts, lambda truth: at_once)
    assert at_once.queries == []  # who answers at once has nothing that waits


def test_the_one_who_knows_is_asked_by_place(clock: Clock) -> None:
    session = make_session(clock, [5, 6], asks=(1,))
    follow(session)
    assert cast(FakeLearner, session.learner).learned == [(FIRST_ID + 1, 6)]


def test_the_five_likeliest_with_ties_in_the_order_of_the_classes() -> None:
    probs = np.array([0.1, 0.2, 0.1, 0.2, 0.2, 0.05, 0.15], np.float32)
    assert Prediction(0, 1, "bee", probs, 0.0, 0.0, False, 0.0).likeliest(5) == [1, 3, 4, 6, 0]
    flat = np.full(40, 1 / 40, np.float32)
    assert Prediction(0, 0, "a", flat, 0.0, 0.0, False, 0.0).likeliest(5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ahead", [1, 3])
def test_images_decoded_ahead_come_in_order_and_broken_ones_in_their_place(clock: Clock, ahead: int) -> None:
    session = make_session(clock, [0, 1, BROKEN, 3, 4])
    session.running.position = 1
    assert follow(session, prefetched=ahead)
    assert [call[1] for call in told(session).of("commit")] == [1, 3, 4]
    assert session.running.broken == 1


@pytest.mark.parametrize("missing", [0, 1])
def test_images_are_decoded_ahead_by_one_thread(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    calls: list[tuple[Any, ...]] = []

    def fetch(places: range, image: Any, **how: Any) -> Iterator[Any]:
        calls.append((places, how))
        for t in places[: len(places) - missing]:
            future: Future[PixelArray] = Future()
            future.set_result(image(t))
            yield future

    monkeypatch.setattr("taps.streams.loop.prefetch", fetch)
    session = make_session(clock, [0, 1, 2])
    with nullcontext() if not missing else pytest.raises(ValueError, match="zip"):
        follow(session, prefetched=4)
    assert calls == [([0, 1, 2], {"threads": 1, "depth": 4})]


def test_ctrl_c_waits_for_the_truth_and_not_for_a_person(clock: Clock) -> None:
    raised: list[bool] = []

    class Interrupted(Person):
        def answer(self, query: Query) -> int | str | None:
            try:
                session.interrupt._handle(2, None)
            except KeyboardInterrupt:
                raised.append(True)
            return super().answer(query)

    session = make_session(clock, [0], asks=(0,), wrap=lambda truth: Interrupted({0: 0}))
    follow(session)
    annotator = Interrupted({0: 0})
    annotator.repeatable = True  # type: ignore[attr-defined]
    session = make_session(clock, [0], asks=(0,), wrap=lambda truth: annotator)
    with pytest.raises(KeyboardInterrupt):
        follow(session)
    assert raised == [True]
    assert session.running.answered == 1  # it was heard, and waited for


def test_an_answer_to_an_image_of_an_earlier_run_has_no_place(clock: Clock) -> None:
    session = make_session(clock, [0])
    assert session.learn(7, "cat") == 2
    assert told(session).told == [("answered", {"id": 7, "t": None, "label": "cat"})]


@pytest.mark.parametrize(
    ("answer", "index", "learned", "told_of"),
    [
        ("cat", 2, 2, {"label": "cat"}),
        (Answer("cat"), 2, 2, {"label": "cat"}),
        (
            Answer(2, annotator="Ada"),
            2,
            Answer(2, annotator="Ada"),
            {"label": "cat", "annotator": "Ada"},
        ),
        (Answer(no=("cat", 1)), None, Answer(no=("cat", 1)), {"no": ["cat", "bee"]}),
        (Answer(none=True), None, Answer(none=True), {"none": True}),
    ],
)
def test_whatever_an_annotator_says_is_learned_and_put_on_record(
    clock: Clock, answer: Any, index: int | None, learned: Any, told_of: dict[str, Any]
) -> None:
    session = make_session(clock, [0])
    session.positions[7] = 4
    assert session.learn(7, answer) == index
    assert cast(FakeLearner, session.learner).learned == [(7, learned)]
    assert told(session).told == [("answered", {"id": 7, "t": 4, **told_of})]
    assert (session.running.answered, session.running.method_s) == (1, 5.0)


def test_an_annotator_who_does_not_know_is_asked_no_more(clock: Clock) -> None:
    session = make_session(clock, [0])
    session.positions[7] = 4
    assert session.learn(7, Answer(unknown=True)) is None
    learner = cast(FakeLearner, session.learner)
    assert (learner.learned, learner.skipped) == ([], [7])
    assert told(session).told == [("skipped", {"id": 7, "t": 4})]
    assert (session.running.answered, session.running.method_s) == (0, 5.0)


class Changing(Person):
    """Answers, and at the next question says what the last answer should have been."""

    def __init__(self, answers: dict[int, Any], instead: dict[int, Any]) -> None:
        super().__init__(answers)
        self.instead = instead

    def corrections(self) -> list[tuple[Query, Any]]:
        last = self.queries[-2:-1]
        return [(query, self.instead[query.id]) for query in last if query.id in self.instead]


@pytest.mark.parametrize(
    ("labels", "before", "after", "known", "correct", "hits"),
    [
        ([None, None], 0, 6, 2, 1, 1),  # image 0: right, then wrong and not among the five
        ([None, None], 6, 0, 2, 2, 2),
        ([None, None], 6, 4, 2, 1, 2),
        ([3, None], 6, 0, 2, 1, 2),  # the folder knows image 0: what a person says does not count
    ],
)
def test_a_corrected_answer_takes_the_place_of_the_first(
    clock: Clock, labels: list[int | None], before: int, after: int, known: int, correct: int, hits: int
) -> None:
    person = Changing({0: before, 1: 1}, {FIRST_ID: after})
    session = make_session(clock, labels, (0, 1), lambda truth: person)
    follow(session)
    assert cast(FakeLearner, session.learner).learned == [(FIRST_ID, after), (FIRST_ID + 1, 1)]
    assert told(session).of("undone", "answered")[1:3] == [
        ("undone", {"id": FIRST_ID, "t": 0, "label": CLASSES[before]}),
        ("answered", {"id": FIRST_ID, "t": 0, "label": CLASSES[after]}),
    ]
    running = session.running
    assert (running.answered, running.known, running.correct, running.hits) == (2, known, correct, hits)
    assert session.positions == {}
    [(_, t, path, id, cells)] = told(session).of("replace_row")
    assert (t, path, id) == told(session).of("row")[0][1:4]
    assert (cells["label"], cells["phase"]) == (CLASSES[after if labels[0] is None else labels[0]], 7)


@pytest.mark.parametrize(
    ("labels", "said", "known", "correct"),
    [
        ([None, None], Answer(no=(0,)), 2, False),  # the first image is taken for class 0
        ([None, None], Answer(no=("bee", "ant")), 2, False),
        ([None, None], Answer(no=(1,)), 1, None),
        ([None, None], Answer(none=True), 1, None),
        ([0, None], Answer(no=(0,)), 2, True),  # the folder knows
    ],
)
def test_who_says_no_says_that_the_prediction_is_wrong(
    clock: Clock, labels: list[int | None], said: Answer, known: int, correct: bool | None
) -> None:
    session = make_session(clock, labels, (0, 1), lambda truth: Person({0: said, 1: 1}))
    follow(session)
    assert (session.running.known, session.running.correct) == (known, 1 + bool(correct))
    assert [call[-1]["correct"] for call in told(session).of("row")] == [correct, True]


@pytest.mark.parametrize(("before", "after"), [(Answer(no=(0,)), 0), (0, Answer(no=(0,)))])
def test_a_no_that_is_corrected_and_a_yes_that_becomes_one(
    clock: Clock, before: int | Answer, after: int | Answer
) -> None:
    person = Changing({0: before, 1: 1}, {FIRST_ID: after})
    session = make_session(clock, [None, None], (0, 1), lambda truth: person)
    follow(session)
    running, right = session.running, after == 0
    assert (running.known, running.correct, running.hits, running.answered) == (2, 1 + right, 1 + right, 2)
    assert told(session).of("replace_row")[0][-1]["correct"] == right


def test_where_annotators_are_asked_first_a_corrected_answer_is_right_too(clock: Clock) -> None:
    person = Changing({0: 6, 1: 1}, {FIRST_ID: 5})
    session = make_session(clock, [None, None], (0, 1), lambda truth: person, order="ask_first")
    follow(session)
    assert (session.running.known, session.running.correct, session.running.hits) == (2, 2, 2)


def test_an_answer_that_comes_after_all_and_one_taken_back(clock: Clock) -> None:
    person = Changing({0: Answer(unknown=True), 1: 1}, {FIRST_ID: 0})
    session = make_session(clock, [None, None], (0, 1), lambda truth: person)
    follow(session)
    assert told(session).of("undone") == [("undone", {"id": FIRST_ID, "t": 0, "label": None})]
    assert (session.running.answered, session.running.known, session.running.correct) == (2, 2, 2)
    person = Changing({0: 0, 1: 1}, {FIRST_ID: Answer(unknown=True)})
    session = make_session(clock, [None, None], (0, 1), lambda truth: person)
    follow(session)
    assert (session.running.answered, session.running.known, session.running.correct) == (1, 1, 1)
    assert cast(FakeLearner, session.learner).learned == [(FIRST_ID + 1, 1)]


def test_an_answer_that_cannot_be_corrected_any_more_is_told(clock: Clock) -> None:
    person = Changing({1: 1}, {FIRST_ID: 3})  # the first question was not answered at all
    session = make_session(clock, [None, None], (0, 1), lambda truth: person)
    follow(session)
    event = {"id": FIRST_ID, "t": 0, "error": "it has left the memory"}
    assert told(session).of("undo_failed") == [("undo_failed", event)]
    assert cast(FakeLearner, session.learner).learned == [(FIRST_ID + 1, 1)]
    assert session.running.answered == 1


def test_a_correction_in_the_middle_leaves_the_others_counted(clock: Clock) -> None:
    person = Changing({0: 0, 1: 6, 2: 2}, {FIRST_ID + 1: 1})
    session = make_session(clock, [None, None, None], (0, 1, 2), lambda truth: person)
    follow(session)
    running = session.running
    assert (running.answered, running.known, running.correct, running.hits) == (3, 3, 3, 3)


def test_where_annotators_are_asked_first_an_answer_taken_back_was_right(clock: Clock) -> None:
    person = Changing({0: 6, 1: 1}, {FIRST_ID: Answer(unknown=True)})
    session = make_session(clock, [None, None], (0, 1), lambda truth: person, order="ask_first")
    follow(session)
    assert (session.running.known, session.running.correct, session.running.hits) == (1, 1, 1)


@pytest.mark.parametrize("takes_any", [True, False])
def test_one_who_knows_says_that_an_image_is_of_no_class_where_that_can_be_learned(
    clock: Clock, takes_any: bool
) -> None:
    session = make_session(clock, [OUTSIDE, 1], asks=(0, 1))
    learner = cast(FakeLearner, session.learner)
    learner.method.takes_any_answer = takes_any
    follow(session)
    none = [(FIRST_ID, Answer(none=True))] if takes_any else []
    assert learner.learned == [*none, (FIRST_ID + 1, 1)]
    assert learner.skipped == ([] if takes_any else [FIRST_ID])
    running = session.running
    assert (running.known, running.correct, running.hits, running.answered) == (1, 1, 1, 1 + takes_any)
    row = told(session).of("row")[0][-1]
    assert (row["label"], row["correct"], row["top5"], row["truth"]) == ("", None, None, OUTSIDE)


@pytest.mark.parametrize(("question", "yes_no"), [("class", None), ("yes_no", 1)])
def test_what_is_asked_is_put_to_the_annotator(clock: Clock, question: str, yes_no: int | None) -> None:
    person = Person({1: 3})
    session = make_session(clock, [None, None], (1,), lambda truth: person)
    cast(FakeLearner, session.learner).question = question
    follow(session)
    (query,) = person.queries
    assert (query.id, query.path, query.prediction.index, query.yes_no) == (
        FIRST_ID + 1,
        "1.png",
        1,
        yes_no,
    )


def test_of_questions_that_nobody_answers_the_last_are_remembered(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taps.streams.loop.PENDING", 2)
    session = make_session(clock, [0, 1, 2, 3], asks=(0, 1, 3), wrap=lambda truth: None)
    follow(session)
    assert session.positions == {FIRST_ID + 1: 1, FIRST_ID + 3: 3}
