"""Counts of a stream."""

from taps.streams.score import RunningScore


def test_accuracy_on_answers_alone_is_called_that() -> None:
    assert RunningScore(known=3, correct=1, answered=3).accuracy_of == "accuracy on answered"
    assert (
        RunningScore(known=9, correct=1, answered=3).accuracy_of == RunningScore().accuracy_of == "accuracy"
    )
