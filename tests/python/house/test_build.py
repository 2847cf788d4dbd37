# SPDX-License-Identifier: Apache-2.0
"""The build of the adapter at first use: found, built once, refused with a cure."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hfreduce import _compile, build
from hfreduce._compile import BuildError, Torch

NAME = "torch-2.99.0-test.so"

# A compiler that writes down what it is asked for, and is done when the file `slow` is gone.
COMPILER = """#!/bin/sh
case "$*" in *-fsyntax-only*) exit 0 ;; esac
echo "$$ $*" >> {log}
while [ -e {slow} ]; do sleep 0.05; done
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""

ONE_BUILDER = """
import sys
from pathlib import Path
from hfreduce import build
from hfreduce._compile import Torch
print(build.cached(Torch("2.99.0", "abc", Path(sys.argv[1]), True), sys.argv[2]))
"""


@dataclasses.dataclass(frozen=True)
class Place:
    folder: Path
    cache: Path
    log: Path
    slow: Path
    torch: Torch

    def start(self) -> subprocess.Popen[str]:
        """One rank that wants the adapter."""
        return subprocess.Popen(
            [sys.executable, "-c", ONE_BUILDER, str(self.torch.folder), NAME],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def compilations(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if " -c " in line]

    def wait_for_compiler(self) -> int:
        deadline = time.monotonic() + 60
        while not self.compilations():
            assert time.monotonic() < deadline, "the compiler was not called"
            time.sleep(0.02)
        return int(self.compilations()[0].split()[0])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    torch = Torch("2.99.0", "abc", tmp_path / "torch", cxx11_abi=True)
    found = Place(tmp_path, tmp_path / "cache", tmp_path / "log", tmp_path / "slow", torch)
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(log=found.log, slow=found.slow))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("HFREDUCE_CACHE_DIR", str(found.cache))
    return found


def test_eight_ranks_build_once(place: Place) -> None:
    place.slow.touch()
    ranks = [place.start() for _ in range(8)]
    place.wait_for_compiler()
    time.sleep(0.5)  # lets the others come to the lock; the count below does not depend on it
    place.slow.unlink()
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8, outputs
    assert {out.strip() for out, _ in outputs} == {str(place.cache / NAME)}
    assert len(place.compilations()) == 1
    assert sum("building the adapter for torch 2.99.0" in err for _, err in outputs) == 1
    assert (place.cache / NAME).read_text() == "built\n"
    assert sorted(os.listdir(place.cache)) == [NAME, f"{NAME}.lock"]


def test_a_killed_builder_leaves_no_lock(place: Place) -> None:
    place.slow.touch()
    first = place.start()
    orphan = place.wait_for_compiler()
    second = place.start()
    first.kill()
    first.communicate()
    place.slow.unlink()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert out.strip() == str(place.cache / NAME)
    assert sorted(os.listdir(place.cache)) == [NAME, f"{NAME}.lock"], (
        "the dead one's files are gone"
    )
    with contextlib.suppress(ProcessLookupError):
        os.kill(orphan, signal.SIGKILL)


def test_what_is_there_is_used(place: Place) -> None:
    build.cache_folder()
    (place.cache / NAME).write_text("old")
    assert build.cached(place.torch, NAME) == place.cache / NAME
    assert place.compilations() == []
    build.cached(place.torch, NAME, force=True)
    assert (place.cache / NAME).read_text() == "built\n"


def test_a_failed_compilation_shows_the_compilers_words(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = place.folder / "broken"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *-fsyntax-only*) exit 0 ;; esac\necho Oh no >&2\nexit 3'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(BuildError, match=r"exit code 3(.|\n)*Oh no"):
        build.cached(place.torch, NAME)
    assert os.listdir(place.cache) == [f"{NAME}.lock"]


def test_without_a_compiler(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(place.folder))
    other = build.cache_folder() / "torch-2.98.0-other.so"
    other.touch()
    with pytest.raises(BuildError) as caught:
        build.cached(place.torch, NAME)
    message = str(caught.value)
    assert "no C++ compiler on the PATH" in message
    assert f"torch 2.99.0 ({place.torch.folder})" in message, "the torch that was found"
    assert other.name in message, "the adapters that are there"
    assert "apt-get install g++" in message
    assert "python -m hfreduce.build --package" in message


def test_the_named_compiler_is_missing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(BuildError, match="CXX is 'no-such-compiler'"):
        build.cached(place.torch, NAME)


def test_an_old_compiler(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(BuildError, match="does not compile C\\+\\+20"):
        build.cached(place.torch, NAME)


def test_without_pythons_headers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compile.sysconfig, "get_path", lambda _: str(place.folder))
    with pytest.raises(BuildError, match="Python.h \\(Debian: python3-dev\\)"):
        build.cached(place.torch, NAME)
    assert place.compilations() == []


def test_without_space(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> os.statvfs_result:
        assert folder == place.cache
        return os.statvfs_result((4096, 4096, 10**6, 100, 100, 10**6, 10**6, 10**6, 0, 255))

    monkeypatch.setattr(_compile.os, "statvfs", full)
    with pytest.raises(BuildError, match="has 0 MB free, the build needs 64 MB"):
        build.cached(place.torch, NAME)
    assert place.compilations() == []


def test_the_cache_is_its_users_own(place: Place) -> None:
    place.cache.mkdir(mode=0o755)
    assert build.cache_folder() == place.cache
    assert place.cache.stat().st_mode & 0o777 == 0o700


def test_a_cache_of_another_user_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build.cache_folder()
    monkeypatch.setattr(build.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(BuildError, match="belongs to user .* set HFREDUCE_CACHE_DIR"):
        build.cached(place.torch, NAME)


def test_a_cache_that_others_can_write_is_refused(place: Place) -> None:
    place.cache.mkdir()
    place.cache.chmod(0o777)
    with pytest.raises(BuildError, match="others may write into it"):
        build.cached(place.torch, NAME)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link of another user")
def test_a_link_of_another_user_is_refused(place: Place) -> None:
    (place.folder / "own").mkdir(mode=0o700)
    place.cache.symlink_to(place.folder / "own")
    os.lchown(place.cache, 12345, 12345)
    with pytest.raises(BuildError, match="belongs to user 12345"):
        build.cached(place.torch, NAME)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HFREDUCE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert build.cache_folder() == tmp_path / ".cache/hfreduce"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build.cache_folder() == tmp_path / "xdg/hfreduce"
    monkeypatch.setenv("HFREDUCE_CACHE_DIR", str(tmp_path / "own"))
    assert build.cache_folder() == tmp_path / "own"


def test_a_home_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HFREDUCE_CACHE_DIR", "/proc/hfreduce")
    with pytest.raises(BuildError, match="/proc/hfreduce cannot be used: .* HFREDUCE_CACHE_DIR"):
        build.cache_folder()


def test_the_key_covers_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "src"
    (root / "bindings/torch").mkdir(parents=True)
    (root / "base").mkdir()
    (root / "base/status.h").write_text("// 1\n")
    unit = root / "bindings/torch/module.cc"
    unit.write_text('#include "base/status.h"\n')
    torch = Torch("2.15.0", "abc", tmp_path / "torch", cxx11_abi=True)
    names = {_compile.adapter_name(torch, root)}
    assert names == {_compile.adapter_name(torch, root)}, "the same facts, the same name"
    moved = dataclasses.replace(torch, folder=tmp_path / "elsewhere")
    assert names == {_compile.adapter_name(moved, root)}, "where torch lies does not matter"

    for change in ({"version": "2.15.1"}, {"git_version": "abd"}, {"cxx11_abi": False}):
        names.add(_compile.adapter_name(dataclasses.replace(torch, **change), root))
    (root / "base/status.h").write_text("// 2\n")
    names.add(_compile.adapter_name(torch, root))
    (root / "bindings/torch/more.cc").write_text("")
    names.add(_compile.adapter_name(torch, root))
    with monkeypatch.context() as patch:
        patch.setattr(_compile.platform, "machine", lambda: "aarch64")
        names.add(_compile.adapter_name(torch, root))
    with monkeypatch.context() as patch:
        patch.setattr(_compile.sysconfig, "get_config_var", lambda _: "cpython-399")
        names.add(_compile.adapter_name(torch, root))
    assert len(names) == 8


def test_the_list_says_what_fits(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    torch = Torch.running()
    name = _compile.adapter_name(torch, _compile.include_root())
    assert build.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert f"torch {torch.version}" in out
    for file in (build.cache_folder() / name, build.cache_folder() / "torch-2.98.0-other.so"):
        file.touch()
    assert build.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"fits   {place.cache / name}" in lines
    assert f"other  {place.cache / 'torch-2.98.0-other.so'}" in lines


def test_the_command_reports_failure(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.cache.mkdir()
    place.cache.chmod(0o777)
    assert build.main(["--force"]) == 1
    assert "others may write into it" in capsys.readouterr().err
