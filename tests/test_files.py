"""Files are whole or not there, and no more private than others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from taps import files
from taps.files import write_tensors, write_text


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
        assert file.metadata() == {"taps": '{"what": "numbers"}'}


def test_what_was_there_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tensors"
    write_tensors(path, {"a": torch.zeros(1)})
    write_text(tmp_path / "text", "old")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "save_file", full)
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_tensors(path, {"a": torch.ones(1)})
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "text", "new")
    assert (tmp_path / "text").read_text() == "old"
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("a").tolist() == [0]
