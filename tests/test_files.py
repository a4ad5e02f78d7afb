"""Files are whole or not there, no more private than others, and refused when a bit of them has changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from taps import files
from taps.disk import claim
from taps.errors import DamagedError, StateError
from taps.files import (
    AppendFile,
    check_mark,
    json_text,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    write_text,
)

SOURCES = Path(files.__file__).parent


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_tensors_are_as_readable_as_other_files_of_this_user(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        (tmp_path / "plain").write_text("")
        (tmp_path / "tensors.part").touch(0o600)  # left by somebody who was stopped
        write_tensors(tmp_path / "tensors", {"a": torch.arange(3)}, {"what": "numbers"})
    finally:
        os.umask(before)
    assert (tmp_path / "tensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with safe_open(tmp_path / "tensors", framework="pt") as file:
        assert file.get_tensor("a").tolist() == [0, 1, 2]
        assert json.loads(file.metadata()["taps"]) == {"format": 2, "what": "numbers"}


def test_what_was_there_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(tmp_path)
    path = tmp_path / "tensors"
    write_tensors(path, {"a": torch.zeros(1)})
    write_text(tmp_path / "text", "old")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StateError, match=r"tensors cannot be written \(No space"):
        write_tensors(path, {"a": torch.ones(1)})
    with pytest.raises(StateError, match=r"text cannot be written \(No space"):
        write_text(tmp_path / "text", "new")
    assert (tmp_path / "text").read_text() == "old"
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("a").tolist() == [0]


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in files.DTYPES], ids=str)
def test_tensors_of_any_kind_come_back_as_safetensors_reads_them(tmp_path: Path, dtype: torch.dtype) -> None:
    value = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(dtype)
    given = {"b": value, "é": value.T, "one": value[0, 1], "none": value[:0], "byte": torch.ones(1).byte()}
    given["apart"] = value[0, ::2][1:]  # one number counts as contiguous whatever its stride
    write_tensors(tmp_path / "tensors", given)
    read = load_file(tmp_path / "tensors")
    assert read.keys() == given.keys()
    for name, wanted in given.items():
        assert (read[name].dtype, read[name].shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(read[name].double(), wanted.double())


KILLED_WHILE_WRITING = """
import resource, signal, sys, torch
from pathlib import Path
from taps.files import write_tensors
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
write_tensors(Path(sys.argv[1]), {"a": torch.zeros(1 << 20)})
"""


def test_a_kill_in_the_middle_of_a_write_leaves_nothing_behind_the_next_one(tmp_path: Path) -> None:
    claim(tmp_path)
    path = tmp_path / "tensors"
    write_tensors(path, {"a": torch.zeros(2)})
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(path)], timeout=120)
    assert killed.returncode == -signal.SIGXFSZ
    assert read_tensors(path)[0]["a"].tolist() == [0, 0]
    assert {each.name for each in tmp_path.iterdir()} == {".taps", "tensors", "tensors.part"}
    write_tensors(path, {"a": torch.ones(2)})
    assert {each.name for each in tmp_path.iterdir()} == {".taps", "tensors"}


def flips(path: Path) -> Iterator[int]:
    """Every bit of a file, changed alone."""
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        yield bit
    path.write_bytes(whole)


def test_of_all_bits_of_a_json_none_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    write_json(path, {"losses": [0.1, 1e-5], "name": "é", "nested": {"checksum": "0" * 64}})
    for bit in flips(path):
        with pytest.raises(DamagedError):
            pytest.fail(f"bit {bit}: {read_json(path)}")
    assert read_json(path)["losses"] == [0.1, 1e-5]


def test_of_all_bits_of_a_tensor_file_none_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "values.safetensors"
    write_tensors(path, {"a": torch.arange(3.0), "none": torch.zeros(0, 2)}, {"checksum": "0" * 64})
    for bit in flips(path):
        with pytest.raises(DamagedError):
            pytest.fail(f"bit {bit}: {read_tensors(path)}")
    tensors, meta = read_tensors(path)
    assert tensors["a"].tolist() == [0, 1, 2]
    assert tensors["none"].shape == (0, 2)
    assert meta == {"format": 2, "checksum": "0" * 64}


def test_of_all_bits_of_a_growing_file_none_can_change_unnoticed(tmp_path: Path) -> None:
    claim(tmp_path)
    path = tmp_path / "rows.csv"
    rows = AppendFile(path)
    rows.write(b"t,key\n0,cat.png\n")
    mark = rows.mark
    rows.close()
    for _ in flips(path):
        with pytest.raises(DamagedError):
            check_mark(path, mark)
        with pytest.raises(DamagedError):
            AppendFile(path, mark)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedError):
        AppendFile(path, mark)


def test_a_growing_file_goes_on_from_its_mark(tmp_path: Path) -> None:
    claim(tmp_path)
    path = tmp_path / "rows.csv"
    rows = AppendFile(path)
    rows.write(b"one\n")
    mark = rows.mark
    rows.write(b"lost in a kill")
    rows.close()
    again = AppendFile(path, mark)
    again.write(b"two\n")
    again.flush(sync=True)
    check_mark(path, again.mark)
    assert path.read_bytes() == b"one\ntwo\n"
    again.close()
    AppendFile(path).close()  # no mark: nothing of it counts
    assert path.read_bytes() == b""


@pytest.mark.parametrize("value", [{"format": 1, "a": 2}, {"a": 2}])
def test_files_older_than_checksums_are_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    (tmp_path / "old.json").write_text(json.dumps(value))
    with pytest.raises(StateError, match="format 1"):
        read_json(tmp_path / "old.json")
    for name, metadata in (("bare", None), ("old", {"taps": json.dumps(value)})):
        save_file({"a": torch.ones(2)}, tmp_path / name, metadata=metadata)
        with pytest.raises(DamagedError, match="checksum"):
            read_tensors(tmp_path / name)


def test_files_of_a_later_format_and_other_things_are_refused(tmp_path: Path) -> None:
    claim(tmp_path)
    path = tmp_path / "values.json"
    write_json(path, {"format": 3})
    with pytest.raises(StateError, match="format 3"):
        read_json(path)
    write_json(path, [1, 2])  # lists are for others to read
    with pytest.raises(DamagedError, match="no object"):
        read_json(path)
    path.write_bytes(b"")
    for read in (read_json, read_tensors):
        with pytest.raises(DamagedError):
            read(path)


def test_a_full_disk_is_a_sentence_and_leaves_no_half_of_a_file(
    tmp_path: Path, disk_room: Callable[[int], AbstractContextManager[None]]
) -> None:
    with disk_room(1 << 16), pytest.raises(StateError, match=r"tensors cannot be written .*File too large"):
        write_tensors(tmp_path / "tensors", {"a": torch.zeros(1 << 20)})
    assert list(tmp_path.iterdir()) == []
    rows = AppendFile(tmp_path / "rows.csv")
    rows.write(b"first\n")
    with (
        disk_room(1 << 10),
        pytest.raises(StateError, match=r"rows.csv cannot .*\(File too large\)"),
    ):
        rows.write(b"0" * 100_000)
    rows.close()


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_has_null_where_a_number_is_not_finite(value: Any) -> None:
    def finite(each: Any) -> Any:
        if isinstance(each, dict):
            return {name: finite(part) for name, part in each.items()}
        if isinstance(each, list):
            return [finite(part) for part in each]
        return each if not isinstance(each, float) or abs(each) < float("inf") else None

    assert json.loads(json_text(value), parse_constant=no_constant) == finite(value)


def test_every_file_and_line_is_written_by_the_one_writer() -> None:
    """`json.dumps` itself lets NaN and Infinity through, which no other language reads."""
    places = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "json.dump" in path.read_text(encoding="utf-8")
    }
    inside_alone = {
        "streams/options.py",  # read back at once
        "study/evaluate/evaluate.py",
        "checks/states.py",
        "checks/contract.py",
        "model/prompts/classify.py",  # a digest
        "serve/checksums.py",
        "serve/client.py",  # whether a body is JSON
        "serve/doctor.py",
    }
    assert places == {"files.py"} | inside_alone


def test_tensors_with_infinite_numbers_beside_them(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"threshold": float("inf")})
    write_json(tmp_path / "b.json", [float("nan")])
    write_tensors(tmp_path / "c", {"a": torch.arange(3)}, {"threshold": float("inf")})
    for name in ("a.json", "b.json"):
        json.loads((tmp_path / name).read_text(), parse_constant=no_constant)
    assert read_json(tmp_path / "a.json")["threshold"] is None
    assert read_tensors(tmp_path / "c")[1]["threshold"] is None
