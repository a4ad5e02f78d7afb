"""Images of one stream's backlog, or of many streams, looked at together and predicted in their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from torch import Tensor

from taps.adapt.batch import batch_size
from taps.methods.base import BatchedMethod, Method, MethodOutput


def predict_batch(images: Iterable[tuple[Method, Tensor]]) -> list[Callable[[], MethodOutput]]:
    """For each image, given as its method and its views, a function that predicts it.

    Those are to be called once and in order: they are what `Method.predict` would do there. The work that
    does not depend on the order is launched as soon as there are images enough to fill a batch.
    """
    waiting: dict[Hashable, list[tuple[int, BatchedMethod, Tensor]]] = defaultdict(list)
    predict: list[Callable[[], MethodOutput]] = []

    def flush(group: list[tuple[int, BatchedMethod, Tensor]]) -> None:
        places, methods, views = zip(*group, strict=True)
        looked = methods[0].encode_batch(methods, views)
        for place, method, own, ahead in zip(places, methods, views, looked, strict=True):
            predict[place] = lambda method=method, own=own, ahead=ahead: method.predict(own, ahead)  # type: ignore[misc]
        group.clear()

    for place, (method, views) in enumerate(images):
        predict.append(lambda method=method, views=views: method.predict(views))  # type: ignore[misc]
        key = method.batch_key() if isinstance(method, BatchedMethod) else None
        if key is None:
            continue
        assert isinstance(method, BatchedMethod)
        group = waiting[key, views.shape, views.dtype]
        group.append((place, method, views))
        if len(group) == batch_size(len(views), views.device.type):
            flush(group)
    for group in waiting.values():
        if len(group) > 1:  # one alone is predicted as ever
            flush(group)
    return predict
