"""A learner by scikit-learn's manners: `fit`, `partial_fit`, `predict_proba`; it is not imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.clip import Clip, load_clip
from taps.default import METHOD
from taps.errors import SettingsError
from taps.learner import Learner
from taps.types import FloatArray


class TapsClassifier:
    """An estimator of images: X is a sequence of paths, bytes, Pillow images or arrays; y are class names.

    Predicting leaves no trace in the learner; `partial_fit` is a stream of images that all have an answer.

    Args:
        model: A model's name or a loaded one.
        method: Which system.
        seed: Seed of every random choice.
        settings: Of the method, by name.

    Attributes:
        classes_: Class names; columns of `predict_proba`.
        learner_: The learner; `learner_.save` and everything else of it is at hand.
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
        """Begin anew and learn every image; classes are the names in `y`, sorted, unless given."""
        labels = [str(label) for label in y]
        self.start(classes if classes is not None else sorted(set(labels)))
        return self.partial_fit(X, labels)

    def start(self, classes: Sequence[str]) -> TapsClassifier:
        """A fresh learner of these classes: it predicts before it has seen any label, as CLIP does."""
        clip = load_clip(self.model) if isinstance(self.model, str) else self.model
        self.learner_ = Learner(clip, classes, self.method, seed=self.seed, **dict(self.settings or {}))
        return self

    def partial_fit(
        self,
        X: Iterable[Any],  # noqa: N803
        y: Iterable[str],
        classes: Sequence[str] | None = None,
    ) -> TapsClassifier:
        """Learn more images; the first call of all needs `classes`."""
        if not hasattr(self, "learner_"):
            if classes is None:
                raise SettingsError("The first call of partial_fit needs classes: all names there are.")
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
        """What scikit-learn asks of an estimator before it splits data or searches."""
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
