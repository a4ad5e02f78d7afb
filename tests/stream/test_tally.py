"""Counts of a stream."""

from taps.stream.tally import Tally


def test_accuracy_on_answers_alone_is_called_that() -> None:
    assert Tally(known=3, correct=1, answered=3).accuracy_of == "accuracy on answered"
    assert Tally(known=9, correct=1, answered=3).accuracy_of == Tally().accuracy_of == "accuracy"
