"""A learner with the interface of scikit-learn, river or modAL; none of them is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.clip import Clip, load_clip
from taps.default import METHOD
from taps.errors import SettingsError
from taps.learner import Learner
from taps.types import FloatArray, Prediction


class TapsClassifier:
    """A scikit-learn estimator: X is a sequence of paths, bytes, Pillow images or arrays; y are class names.

    Predicting does not change the learner; `partial_fit` is a stream of images that all have an answer.

    Args:
        model: A model's name or a loaded one.
        method: Name of the method.
        seed: Seed of every random choice.
        settings: Of the method, by name.

    Attributes:
        classes_: Class names; columns of `predict_proba`.
        learner_: The learner.
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    def __init__(
        self,
        model: str | Clip = "pocket",
        method: str = METHOD,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.method, self.seed, self.settings = model, method, seed, settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with, for `sklearn.base.clone` and searches."""
        return {name: getattr(self, name) for name in ("model", "method", "seed", "settings")}

    def set_params(self, **params: Any) -> TapsClassifier:
        """Change arguments; a fitted learner stays until `fit`."""
        for name, value in params.items():
            if name not in self.get_params():
                raise SettingsError(f"Unknown parameter {name!r}; use {', '.join(self.get_params())}.")
            setattr(self, name, value)
        return self

    def fit(self, X: Iterable[Any], y: Iterable[str], classes: Sequence[str] | None = None) -> TapsClassifier:  # noqa: N803
        """Start a new learner and learn every image; classes are the names in `y`, sorted, unless given."""
        labels = [str(label) for label in y]
        self.start(classes if classes is not None else sorted(set(labels)))
        return self.partial_fit(X, labels)

    def start(self, classes: Sequence[str]) -> TapsClassifier:
        """Make a new learner of these classes; it predicts zero-shot before it has seen a label."""
        clip = load_clip(self.model) if isinstance(self.model, str) else self.model
        self.learner_ = Learner(clip, classes, self.method, seed=self.seed, **dict(self.settings or {}))
        return self

    def partial_fit(
        self,
        X: Iterable[Any],  # noqa: N803
        y: Iterable[str],
        classes: Sequence[str] | None = None,
    ) -> TapsClassifier:
        """Learn more images; the first call needs `classes`."""
        if not hasattr(self, "learner_"):
            if classes is None:
                raise SettingsError("The first call of partial_fit needs classes: the names of all.")
            self.start(classes)
        for image, label in zip(X, y, strict=True):
            self.learner_.learn_one(self.learner_.predict_one(image).id, str(label))
        return self

    @property
    def classes_(self) -> NDArray[np.str_]:
        return np.array(self._fitted().classes)

    def predict_proba(self, X: Iterable[Any]) -> FloatArray:  # noqa: N803
        """Probabilities [images, classes]; nothing is learned and nothing counted."""
        learner = self._fitted()
        rows = [said.probs for said in learner.predict_many(list(X), update=False)]
        return np.stack(rows) if rows else np.zeros((0, len(learner.classes)), np.float32)

    def predict(self, X: Iterable[Any]) -> NDArray[np.str_]:  # noqa: N803
        """The likeliest class of each, by name."""
        labels: NDArray[np.str_] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    def score(self, X: Iterable[Any], y: Iterable[str]) -> float:  # noqa: N803
        """Accuracy."""
        return float(np.mean(self.predict(X) == np.array([str(label) for label in y])))

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"TapsClassifier({params})"

    def __sklearn_tags__(self) -> Any:
        """Scikit-learn reads these before it splits data or searches."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def _fitted(self) -> Learner:
        if not hasattr(self, "learner_"):
            raise SettingsError("The classifier has no classes yet; call fit, partial_fit or start first.")
        return self.learner_


class PoolLearner:
    """Pool-based active learning with the interface of modAL's `ActiveLearner`.

    Args:
        estimator: A classifier that has its classes (`TapsClassifier().start([...])`).
    """

    def __init__(self, estimator: TapsClassifier) -> None:
        self.estimator = estimator
        self.predict = estimator.predict
        self.predict_proba = estimator.predict_proba
        self.score = estimator.score

    def query(self, X: Sequence[Any], n_instances: int = 1) -> tuple[NDArray[np.intp], list[Any]]:  # noqa: N803
        """The images of a pool with the highest entropy, the highest first: their indices and themselves."""
        probs = self.estimator.predict_proba(X)
        entropy = -(probs * np.log(np.clip(probs, 1e-12, None))).sum(axis=1)
        best = np.argsort(-entropy, kind="stable")[:n_instances]
        return best, [X[index] for index in best]

    def teach(self, X: Iterable[Any], y: Iterable[str]) -> None:  # noqa: N803
        """Learn the labels of images."""
        self.estimator.partial_fit(X, y)


class RiverClassifier:
    """A river classifier whose x is an image. An image that is predicted and then learned is seen once.

    Attributes:
        ask: Whether the learner would ask for the label of the last image.
    """

    _supervised = _multiclass = True  # what river asks of its classifiers

    def __init__(self, learner: Learner) -> None:
        if "river.base" in sys.modules:  # river's metrics and evaluations take instances of its classifiers
            sys.modules["river.base"].Classifier.register(RiverClassifier)
        self.learner = learner
        self._last: tuple[Any, Prediction] | None = None

    def clone(self) -> RiverClassifier:
        """A new one with the same settings, which has learned nothing."""
        return RiverClassifier(self.learner.clone())

    @property
    def ask(self) -> bool:
        return self._last is not None and self._last[1].ask

    def predict_proba_one(self, x: Any) -> dict[str, float]:
        """Probability of each class, by name."""
        return dict(zip(self.learner.classes, self._see(x).probs.tolist(), strict=True))

    def predict_one(self, x: Any) -> str:
        """The likeliest class."""
        return self._see(x).label

    def learn_one(self, x: Any, y: str) -> None:
        """Learn the label of an image."""
        self.learner.learn_one(self._see(x).id, y)
        self._last = None

    def _see(self, x: Any) -> Prediction:
        if self._last is None or self._last[0] is not x:
            self._last = (x, self.learner.predict_one(x))
        return self._last[1]
