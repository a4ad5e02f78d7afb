"""Settings refuse what is out of range or of another kind, in a sentence with the field and the value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any

import pytest

import taps
from taps.errors import SettingsError
from taps.methods import Settings, setting
from taps.methods.registry import all_methods, method_settings
from taps.methods.settings import allowed


@dataclass(frozen=True)  # not needed, but allowed
class Base(Settings):
    count: int = setting(3, at_least=1)
    share: float = setting(0.5, above=0, below=1)
    rate: float | None = setting(None, at_least=0)
    kind: str = setting("a", choices=("a", "b"))
    flag: bool = False
    many: str | int = setting("all", at_least=0, choices=("all",), words="all, or a number")
    free: object = None
    made: object = field(default_factory=tuple)


class Narrow(Base):
    count: int = 7
    more: object = field(default_factory=tuple)


@pytest.mark.parametrize(
    ("wrong", "wanted"),
    [
        ({"count": 0}, "The setting count is 0; it must be a whole number of at least 1."),
        ({"count": 2.0}, "The setting count is 2.0; it must be a whole number of at least 1."),
        ({"count": True}, "The setting count is True; it must be a whole number of at least 1."),
        ({"share": 1.0}, "The setting share is 1.0; it must be a number above 0 and below 1."),
        ({"share": "half"}, "The setting share is 'half'; it must be a number above 0 and below 1."),
        ({"share": None}, "The setting share is None; it must be a number above 0 and below 1."),
        ({"rate": float("inf")}, "The setting rate is inf; it must be a number of at least 0, or None."),
        ({"rate": float("nan")}, "The setting rate is nan; it must be a number of at least 0, or None."),
        ({"kind": "c"}, "The setting kind is 'c'; it must be one of a, b."),
        ({"flag": 1}, "The setting flag is 1; it must be True or False."),
        ({"many": -1}, "The setting many is -1; it must be all, or a number."),
        ({"many": "some"}, "The setting many is 'some'; it must be all, or a number."),
    ],
)
@pytest.mark.parametrize("kind", [Base, Narrow])
def test_wrong_values(kind: type[Base], wrong: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SettingsError) as caught:
        kind(**wrong)
    assert str(caught.value) == wanted


@pytest.mark.parametrize("kind", [Base, Narrow])
def test_settings_are_frozen(kind: type[Base]) -> None:
    settings = kind()
    with pytest.raises(FrozenInstanceError):
        settings.count = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del settings.count
    assert settings == kind()
    assert hash(settings) == hash(kind())


def test_right_values() -> None:
    assert Base(count=1, share=0.99, rate=0, kind="b", flag=True, many=0, free={}).many == 0
    assert Narrow().count == 7
    assert (Base().made, Narrow().made, Narrow().more) == ((), (), ())


def test_every_default_is_in_its_own_range_and_every_plain_setting_says_what_it_may_be() -> None:
    for name, method in all_methods().items():
        method.settings()
        for each in fields(method.settings):
            if each.type in ("int", "float", "str", "bool"):
                assert allowed(method.settings, each), (name, each.name)


def test_methods_and_settings_are_at_hand() -> None:
    assert {"taps", "tpt", "tent"} <= set(taps.list_methods())
    assert taps.settings("taps")["buffer"] == 150
    with pytest.raises(SettingsError, match="Unknown method 'tap'"):
        taps.settings("tap")


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("zero_shot+", {"undo": -1}),
        ("tda", {"positive_shots": -1}),
        ("tda", {"negative_shots": 1.5}),
        ("tda", {"positive_weight": -2.0}),
        ("tda", {"negative_weight": float("nan")}),
        ("tda", {"positive_sharpness": -1.0}),
        ("tda", {"unsure_from": -0.1}),
        ("tda", {"unsure_to": float("inf")}),
        ("tda", {"mask_above": 1.0}),
    ],
)
def test_settings_that_once_had_no_range(method: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"The setting {next(iter(wrong))} is"):
        method_settings(method, wrong)
