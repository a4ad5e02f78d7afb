"""Tasks on a Ray cluster: Ray places them where there is room; a lost one starts again elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from taps.cluster.machines import Resources, why_unfit

RETRIES = 3  # of a task whose worker is lost
POLL = 0.25  # seconds to wait for a result
UNFIT = "unfit"  # the result of a task whose machine cannot do it, with its address and why
LOST = "lost"  # that of one whose worker was lost too often, with the last reason
CANCELLED = "cancelled"  # that of one that was cancelled before it began


class Tasks:
    """Calls of one function, given their arguments; it returns what became of a task, and a value.

    A machine that cannot do a task, such as one without the data set, is left out from then on.
    """

    def __init__(
        self, resources: Resources, function: Callable[..., tuple[str, Any]], tasks: Sequence[Sequence[Any]]
    ) -> None:
        self.ray, self._resources, self._tasks = resources.ray, resources, tasks
        self._function = self.ray.remote(function)
        self.running: dict[Any, int] = {}  # by Ray's reference: the indices of those that have not ended
        self.begun = set[int]()  # those that are known to compute
        self._losses = Counter[int]()
        for index in range(len(tasks)):
            self._start(index)

    def ended(self) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Wait for a moment; the tasks that ended, by index, and their results."""
        for reference in self.ray.wait(list(self.running), timeout=POLL)[0]:
            index = self.running.pop(reference)
            result = self._result(index, reference)
            if result is not None:
                yield index, result
            else:
                self._resources.check()
                self._start(index)

    def cancel(self) -> None:
        """Cancel what has not begun."""
        for reference, index in self.running.items():
            if index not in self.begun:
                self.ray.cancel(reference)

    def _start(self, index: int) -> None:
        self.begun.discard(index)
        # Ray's own retries would be used up before it gives up a lost machine.
        task = self._function.options(**self._resources.options(), max_retries=0)
        self.running[task.remote(*self._tasks[index])] = index

    def _result(self, index: int, reference: Any) -> tuple[str, Any] | None:
        """What became of a task; None where it is to start again."""
        exceptions = self.ray.exceptions
        try:
            what, value = self.ray.get(reference)
            unfit = value if what == UNFIT else None
        except exceptions.TaskCancelledError:
            return CANCELLED, None
        except exceptions.RayError as error:
            unfit = why_unfit(error)
            if unfit is None:
                self._losses[index] += 1
                reason = str(error).strip().split("\n")[0]
                return (LOST, reason) if self._losses[index] > RETRIES else None
        if unfit is None:
            return what, value
        self._resources.avoid(*unfit)
        return None
