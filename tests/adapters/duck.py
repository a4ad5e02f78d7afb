"""What of Hugging Face's `datasets` an adapter may rely on, written from its documentation."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from PIL import Image


@dataclass
class DuckImage:
    decode: bool = True


@dataclass
class DuckLabel:
    names: list[str]


class DuckFeatures(dict[str, Any]):
    pass


class DuckDataset:
    """Columns by name, rows by number; an image column gives PIL images, or their bytes where not decoded."""

    def __init__(self, columns: dict[str, list[Any]], features: DuckFeatures) -> None:
        self.columns, self.features = columns, features
        self.column_names = list(columns)

    @classmethod
    def from_dict(cls, columns: dict[str, list[Any]], features: DuckFeatures) -> DuckDataset:
        stored = {
            name: [png(value) for value in values] if isinstance(features[name], DuckImage) else values
            for name, values in columns.items()
        }
        return cls(stored, features)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return [self._value(key, value) for value in self.columns[key]]
        return {name: self._value(name, values[key]) for name, values in self.columns.items()}

    def cast_column(self, name: str, feature: Any) -> DuckDataset:
        return DuckDataset(self.columns, DuckFeatures({**self.features, name: feature}))

    def _value(self, name: str, value: Any) -> Any:
        feature = self.features[name]
        if not isinstance(feature, DuckImage):
            return value
        return Image.open(io.BytesIO(value)) if feature.decode else {"bytes": value, "path": None}


def png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(buffer, format="PNG")
    return buffer.getvalue()
