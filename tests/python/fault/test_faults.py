# SPDX-License-Identifier: Apache-2.0
"""Death, silence and strangers, as a training script meets them. The kills inside an operation are
the C++ tests' (tests/cpp/hfreduce/kills); these are about what only Python has: backward under DDP,
split groups."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Place, run, run_fine
from torch.nn.parallel import DistributedDataParallel

KILLS = int(os.environ.get("HFREDUCE_TEST_KILLS", "10"))
SEED = int(os.environ.get("HFREDUCE_TEST_SEED", str(random.randrange(1 << 30))))
NOTICE_S = 5.0


def raises_peer_error(victim: int, died: Path, work: Any) -> None:
    """`work` is repeated until it fails, which it must within NOTICE_S of the death."""
    import hfreduce

    with pytest.raises(hfreduce.PeerError) as caught:
        while True:
            work()
    assert caught.value.rank == victim, str(caught.value)
    assert time.time() - float(died.read_text()) < NOTICE_S


def die(place: Place) -> None:
    died = place.folder / "died"
    (place.folder / "dying").write_text(str(time.time()))
    (place.folder / "dying").rename(died)
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_backward(place: Place) -> None:
    victim, step = place.arguments["victim"], place.arguments["step"]
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.2)
    steps = 0
    if place.rank == victim:
        # In the middle of backward: some buckets are on their way, others are not.
        def strike(_: torch.Tensor) -> None:
            if steps == step:
                die(place)

        layers[place.arguments["layer"]].weight.register_hook(strike)

    def work() -> None:
        nonlocal steps
        steps += 1
        model(torch.randn(8, 256)).sum().backward()

    raises_peer_error(victim, place.folder / "died", work)
    dist.destroy_process_group()


def test_kill_in_backward_under_ddp() -> None:
    chance = random.Random(SEED)
    for kill in range(KILLS):
        arguments = {
            "victim": chance.randrange(3),
            "step": chance.randrange(1, 6),
            "layer": chance.randrange(6),
        }
        ranks = run(
            killed_in_backward,
            3,
            arguments=arguments,
            env_of_rank=(lambda rank: {"HFREDUCE_NODE": f"n{rank}"}) if kill % 2 else None,
        )
        for rank in ranks:
            if rank.number == arguments["victim"]:
                assert rank.exit_code == -signal.SIGKILL
            else:
                assert rank.fine, f"seed {SEED} kill {kill} {arguments}: {rank.error}"


def killed_in_split(place: Place) -> None:
    victim = place.arguments["victim"]
    if place.rank == victim:
        delay = place.arguments["delay_s"]
        threading.Timer(delay, die, [place]).start()

    def work() -> None:
        group = dist.new_group([0, 1, 2], use_local_synchronization=True)
        dist.all_reduce(torch.ones(10), group=group)
        dist.destroy_process_group(group)
        dist.all_reduce(torch.ones(10))

    import hfreduce

    with pytest.raises(hfreduce.Error):
        while True:
            work()
    # Whether it was in an operation or in the making of a group, whose timeout is half an hour.
    assert time.time() - float((place.folder / "died").read_text()) < NOTICE_S
    raises_peer_error(victim, place.folder / "died", lambda: dist.all_reduce(torch.ones(1)))


def test_kill_while_groups_are_made() -> None:
    chance = random.Random(SEED)
    for kill in range(KILLS):
        arguments = {"victim": chance.randrange(3), "delay_s": 0.05 + chance.random() * 0.3}
        ranks = run(killed_in_split, 3, arguments=arguments, init={"timeout": timedelta(seconds=3)})
        for rank in ranks:
            if rank.number == arguments["victim"]:
                assert rank.exit_code == -signal.SIGKILL
            else:
                assert rank.fine, f"seed {SEED} kill {kill} {arguments}: {rank.error}"


def stopped(place: Place) -> str:
    import hfreduce

    dist.all_reduce(torch.ones(1))
    place.meet("begun")
    if place.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    with pytest.raises(hfreduce.Error) as caught:
        # Whoever was stopped may still find the other's contribution to the first.
        for _ in range(2):
            dist.all_reduce(torch.ones(1))
    if place.rank == 0:
        os.kill(int((place.folder / "pid").read_text()), signal.SIGCONT)
    return str(caught.value)


def stopped_with_pid(place: Place) -> str:
    if place.rank == 1:
        (place.folder / "pid").write_text(str(os.getpid()))
    return stopped(place)


@pytest.mark.parametrize("nodes", [1, 2])
def test_stopped_process_is_named_at_the_timeout(nodes: int) -> None:
    messages = run_fine(
        stopped_with_pid,
        2,
        init={"timeout": timedelta(seconds=2)},
        env_of_rank=(lambda rank: {"HFREDUCE_NODE": f"n{rank}"}) if nodes == 2 else None,
    )
    assert "timed out" in messages[0] and "rank 1" in messages[0]
    assert "does not answer" in messages[0] and "stopped" in messages[0]
    # It wakes up late and hears who gave up on what.
    assert "rank 0" in messages[1] and "gave up" in messages[1]


def slow(place: Place) -> float:
    dist.all_reduce(torch.ones(1))
    if place.rank == 1:
        time.sleep(6)
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_slow_rank_is_not_a_dead_one(nodes: int) -> None:
    values = run_fine(
        slow,
        2,
        env_of_rank=(lambda rank: {"HFREDUCE_NODE": f"n{rank}"}) if nodes == 2 else None,
    )
    assert values == [2.0, 2.0]


def strangers(place: Place) -> float:
    """Everyone who listens is talked to by someone who does not know the key."""
    import subprocess

    listening = subprocess.run(
        ["ss", "-Htlnp"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    own = [line for line in listening if f"pid={os.getpid()}," in line]
    assert own, "this rank listens nowhere"
    for line in own:
        address = line.split()[3]
        host, port = address.rsplit(":", 1)
        if not host.startswith("127."):
            continue
        for words in (
            b"",
            b"GET / HTTP/1.0\r\n\r\n" * 10,
            os.urandom(4096),
            b"HFR1" + b"\x08" * 200,
        ):
            with socket.create_connection((host, int(port)), timeout=5) as stranger:
                stranger.sendall(words)
                stranger.settimeout(2)
                if len(words) >= 64:  # a whole header: refused, and the connection closed
                    try:
                        while stranger.recv(4096):
                            pass
                    except ConnectionResetError:
                        pass
    value = torch.ones(100000)
    dist.all_reduce(value)
    return value[99999].item()


def test_strangers_are_refused_and_disturb_nobody() -> None:
    values = run_fine(
        strangers,
        2,
        env={"HFREDUCE_SOCKET_IFNAME": "=lo"},
        env_of_rank=lambda rank: {"HFREDUCE_NODE": f"n{rank}"},
    )
    assert values == [2.0, 2.0]


def nothing_left(place: Place) -> tuple[int, int, int]:
    """Groups come and go; the process stays as it was."""

    def resources() -> tuple[int, int, int]:
        kibibytes = 0
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                kibibytes = int(line.split()[1])
        return (
            len(os.listdir("/proc/self/fd")),
            len(os.listdir("/proc/self/task")),
            kibibytes,
        )

    def cycle() -> None:
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(20000), group=group)
        dist.destroy_process_group(group)

    for _ in range(20):
        cycle()
    before = resources()
    for _ in range(place.arguments["cycles"]):
        cycle()
    after = resources()
    return tuple(b - a for a, b in zip(before, after, strict=True))  # type: ignore[return-value]


def test_groups_leave_nothing_behind() -> None:
    names_before = set(os.listdir("/dev/shm"))
    for descriptors, threads, kibibytes in run_fine(
        nothing_left, 2, arguments={"cycles": 200}, timeout_s=120
    ):
        assert descriptors <= 0
        assert threads <= 0
        assert kibibytes < 8192
    mine = {name for name in os.listdir("/dev/shm") if "hfreduce" in name.lower()}
    assert mine <= names_before


def small_shm(place: Place) -> float:
    value = torch.ones(4_000_000)
    dist.all_reduce(value)
    assert value[-1].item() == 2.0
    import hfreduce

    return float(hfreduce.counters()["shm_bytes_copied"])


def test_a_full_dev_shm_does_not_matter(tmp_path: Path) -> None:
    """Shared memory needs no room in /dev/shm: with 64 KiB there, it is used all the same."""
    import subprocess

    script = tmp_path / "train.py"
    script.write_text(
        "import sys\n"
        f"sys.path[:0] = [{str(Path(__file__).parents[1])!r}, {str(Path(__file__).parent)!r}]\n"
        "from harness import run_fine\n"
        "from test_faults import small_shm\n"
        "if __name__ == '__main__':\n"
        "    assert all(copied > 1e6 for copied in run_fine(small_shm, 2))\n"
    )
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f"mount -t tmpfs -o size=64k tmpfs /dev/shm && exec {sys.executable} {script}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
