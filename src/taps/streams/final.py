"""The end of a stream: every image is predicted again, by all that was learned since it came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from taps.errors import DataError, ImageError
from taps.streams.loop import Session
from taps.streams.record import Final, read_predictions, read_rows
from taps.streams.row import Row
from taps.streams.sequence import Stream
from taps.types import OUTSIDE, FloatArray


def repredict_all(
    session: Session[Stream], *, look: bool = True, progress: Callable[[int], None] = lambda done: None
) -> bool:
    """Predict every image again and write it down; whether that was done.

    Nothing is done where no answer was learned: predictions would be the same.

    Args:
        session: At the end of its stream.
        look: Whether to look again at images of which too little is kept; where not, and there are such,
            nothing is done.
        progress: Told how many images are done.
    """
    learner = session.learner
    rows = read_rows(session.record.folder)
    kept = session.record.kept()
    missing = [row for row in rows if row.id not in kept and row.answer is None and not row.none]
    if not learner.answered or (missing and not look):
        return False
    probs = dict(zip(kept, learner.method.predict_rows(list(kept.values())) if kept else (), strict=True))
    done = len(rows) - len(missing)
    progress(done)
    for row in missing:
        with suppress(ImageError, DataError):  # it is gone since: its cells stay empty
            probs[row.id] = learner.repredict(row.id, session.stream.image(row.seq)).probs
            done += 1
            progress(done)
    _write(session, {str(row.seq): _final(session, row, probs.get(row.id)) for row in rows})
    return True


def forget_final(session: Session[Stream]) -> None:
    """Empty the cells that were written when the run was shorter, where it is not predicted again."""
    rows = read_predictions(session.record.folder)
    if any(row.get("final") for row in rows):
        _write(session, {row["t"]: Final() for row in rows})


def final_accuracy(rows: Sequence[dict[str, str]], *, answered: bool = False) -> float | None:
    """Share of rows of `predictions.csv` that are right in the end, of images without an answer, if known.

    With `answered` of all images, which is the share of right labels that the run delivers.
    """
    kept = [row for row in rows if answered or row.get("final_answered") == "0"]
    known = [cell == "1" for row in kept if (cell := row.get("final_correct"))]
    return sum(known) / len(known) if known else None


def _write(session: Session[Stream], cells: dict[str, Final]) -> None:
    session.record.set_final(cells)
    for _ in range(2):  # the checkpoint before knows of the new file too: it is used if this one is damaged
        session.record.checkpoint(session.learner, session.running)


def _final(session: Session[Stream], row: Row, probs: FloatArray | None) -> Final:
    if row.none or (probs is None and row.answer is None):
        return Final()
    classes, label = session.learner.classes, session.stream.label(row.seq)
    truth = None if label is None or label == OUTSIDE else label
    if row.answer is not None:
        return Final(row.answer, "1", "" if truth is None else int(row.answer == classes[truth]), 1)
    assert probs is not None
    index = int(probs.argmax())
    return Final(classes[index], f"{probs[index]:.6g}", "" if truth is None else int(index == truth), 0)
