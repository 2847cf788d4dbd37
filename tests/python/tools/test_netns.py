# SPDX-License-Identifier: Apache-2.0
"""The emulated nodes that benchmarks, the demo and the fault tests stand on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tools import netns

pytestmark = pytest.mark.skipif(
    netns.unavailable() is not None, reason=str(netns.unavailable() or "")
)

LISTEN = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], 7000), family=family)
print("ready", flush=True)
connection, _ = listener.accept()
total = 0
while chunk := connection.recv(1 << 20):
    total += len(chunk)
connection.sendall(str(total).encode())
"""

SEND = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000), timeout=10)
start = time.monotonic()
left = int(sys.argv[2])
while left > 0:
    left -= connection.send(bytes(min(left, 1 << 20)))
connection.shutdown(socket.SHUT_WR)
print(connection.recv(100).decode(), time.monotonic() - start)
"""


def transfer(nodes: netns.Namespaces, address: str, size: int) -> tuple[int, float]:
    """Sends `size` bytes from node 0 to `address` on node 1: bytes that arrived, seconds."""
    listener = nodes.popen(1, [sys.executable, "-c", LISTEN, address], stdout=subprocess.PIPE)
    assert listener.stdout is not None
    try:
        assert listener.stdout.readline() == b"ready\n"
        sender = subprocess.run(
            [*nodes.prefix(0), sys.executable, "-c", SEND, address, str(size)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        listener.kill()
        listener.communicate()
    received, seconds = sender.stdout.split()
    return int(received), float(seconds)


@pytest.mark.parametrize("family", ["address", "address6"])
def test_nodes_reach_each_other(family: str) -> None:
    with netns.Namespaces(2) as nodes:
        received, _ = transfer(nodes, getattr(nodes, family)(1), 1 << 20)
    assert received == 1 << 20


def test_rate_is_a_limit() -> None:
    with netns.Namespaces(2, rate="80mbit") as nodes:
        received, seconds = transfer(nodes, nodes.address(1), 4 << 20)
    assert received == 4 << 20
    # 10 MB/s, and the bucket's 256 KiB are free: it cannot be faster, whatever the machine.
    assert seconds >= (4 - 0.5) * (1 << 20) / 10e6


def test_link_can_be_pulled_and_plugged() -> None:
    with netns.Namespaces(2) as nodes:
        nodes.set_link(1, up=False)
        command = [*nodes.prefix(0), "ip", "-o", "link", "show", "eth0"]
        with pytest.raises(subprocess.CalledProcessError):
            transfer(nodes, nodes.address(1), 1)
        assert b"state UP" in subprocess.run(command, check=True, capture_output=True).stdout
        nodes.set_link(1, up=True)
        assert transfer(nodes, nodes.address(1), 1)[0] == 1


def test_enter_moves_a_forked_process() -> None:
    with netns.Namespaces(2) as nodes:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                nodes.enter(1)
                socket.create_server((nodes.address(1), 0)).close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_bad_node_is_refused() -> None:
    with netns.Namespaces(2) as nodes, pytest.raises(ValueError, match="no node 2 of 2"):
        nodes.prefix(2)
    with pytest.raises(ValueError, match="nodes, not 0"):
        netns.Namespaces(0)


def test_nothing_is_left_after_a_kill() -> None:
    script = "import time\nfrom tools.netns import Namespaces\n"
    script += "nodes = Namespaces(3).__enter__()\n"
    script += "import os\nprint(os.readlink(f'/proc/self/fd/{nodes._fds[0]}'), flush=True)\n"
    script += "time.sleep(60)\n"
    owner = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    name = owner.stdout.readline().decode().strip()
    assert name.startswith("net:[")
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + 10
    while name in all_namespaces():
        assert time.monotonic() < deadline, "a namespace outlived its owner"
        time.sleep(0.05)


def all_namespaces() -> set[str]:
    """The network namespaces that a process is in or holds open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        for link in [process / "ns/net", *_files(process / "fd")]:
            try:
                target = os.readlink(link)
            except OSError:
                continue  # the process ended meanwhile
            if target.startswith("net:["):
                found.add(target)
    return found


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def test_command_line_runs_on_every_node() -> None:
    command = [sys.executable, str(ROOT / "tools/netns.py"), "--nodes", "2", "--", "sh", "-c"]
    done = subprocess.run(
        [*command, 'echo "$NETNS_NODE $NETNS_NODES $NETNS_ADDRESS"; exit 3'],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert sorted(done.stdout.splitlines()) == ["0 2 10.77.0.1", "1 2 10.77.0.2"]
    assert done.returncode == 3
