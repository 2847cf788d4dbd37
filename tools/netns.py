# SPDX-License-Identifier: Apache-2.0
"""Emulated nodes: network namespaces joined by a virtual switch. Needs root.

    with Namespaces(4, rate="1gbit") as nodes:
        subprocess.run([*nodes.prefix(0), "ip", "addr"])

Every node has one interface, eth0, whose other end is a port of a bridge that lives in a namespace
of its own; the machine's own network is never touched. The namespaces have no names: open
descriptors of this process keep them alive, so they, their interfaces and the bridge vanish when
this process ends, however it ends.

The nodes share files and shared memory. A program that looks for shared memory between ranks must
be told which node it is on (HFREDUCE_NODE).

    python tools/netns.py --nodes 2 --rate 1gbit -- python train.py

runs a command on every node at once, with NETNS_NODE, NETNS_NODES and NETNS_ADDRESS set.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

CLONE_NEWNET = 0x40000000
MAX_NODES = 250


class NetnsError(RuntimeError):
    """A namespace could not be made or configured."""


def unavailable() -> str | None:
    """Why namespaces cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        os.close(_new_namespace())
    except (OSError, NetnsError) as error:
        return f"network namespaces cannot be made here: {error}"
    return None


def _new_namespace() -> int:
    """A descriptor of a fresh network namespace, in which no process is left."""
    holder = subprocess.Popen(
        ["unshare", "--net", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdin and holder.stdout and holder.stderr
    try:
        # An echo means that unshare is over and cat runs in the new namespace.
        holder.stdin.write(b".")
        holder.stdin.flush()
        if holder.stdout.read(1) != b".":
            raise NetnsError(holder.stderr.read().decode().strip() or "unshare failed")
        return os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except BrokenPipeError:
        raise NetnsError(holder.stderr.read().decode().strip() or "unshare failed") from None
    finally:
        holder.communicate()


def enter(path: str) -> None:
    """Moves the calling thread (of a process that has no others yet) to a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"setns: {os.strerror(code)}")


class Namespaces:
    """`count` nodes on one switch. `rate` (tc's syntax, e.g. "1gbit") limits what each may send."""

    def __init__(
        self,
        count: int,
        rate: str | None = None,
        *,
        burst: str = "256kb",
        latency: str = "50ms",
        both_ways: bool = False,
    ) -> None:
        """`both_ways` limits what each node receives as well, as a real cable does."""
        if not 1 <= count <= MAX_NODES:
            raise ValueError(f"1 to {MAX_NODES} nodes, not {count}")
        self.count = count
        self._rate = rate
        self._shape = ["burst", burst, "latency", latency]
        self._both_ways = both_ways
        self._fds: list[int] = []
        self._switch = -1
        self._owner = os.getpid()

    def __enter__(self) -> Namespaces:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the namespaces. The kernel removes each when its last process has gone."""
        for fd in [*self._fds, self._switch]:
            if fd >= 0:
                os.close(fd)
        self._fds, self._switch = [], -1

    def address(self, node: int) -> str:
        self._check(node)
        return f"10.77.0.{node + 1}"

    def address6(self, node: int) -> str:
        self._check(node)
        return f"fd77::{node + 1:x}"

    def prefix(self, node: int) -> list[str]:
        """Words to put before a command so that it runs on `node`."""
        return self._enter_words(self._fds[self._check(node)])

    def popen(self, node: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen([*self.prefix(node), *command], **options)

    def enter(self, node: int) -> None:
        """Moves the calling thread (of a forked process, before it starts others) to `node`."""
        enter(self.path(node))

    def path(self, node: int) -> str:
        """A file that stands for `node`'s namespace as long as this process lives: for enter()."""
        return f"/proc/{self._owner}/fd/{self._fds[self._check(node)]}"

    def set_link(self, node: int, up: bool) -> None:
        """Pulls or plugs the node's cable, at the switch's end: the node's own eth0 stays up."""
        state = "up" if up else "down"
        self._run(self._switch, "ip", "link", "set", f"port{self._check(node)}", state)

    def set_interface(self, node: int, up: bool) -> None:
        """Takes the node's eth0 down or up, inside the node."""
        state = "up" if up else "down"
        self._run(self._fds[self._check(node)], "ip", "link", "set", "eth0", state)

    def set_rate(self, rate: str | None) -> None:
        """Limits every link from now on; None lifts the limit."""
        self._rate = rate
        links = [(fd, "eth0") for fd in self._fds]
        if self._both_ways:
            links += [(self._switch, f"port{node}") for node in range(self.count)]
        for fd, device in links:
            if rate is None:
                subprocess.run(
                    [*self._enter_words(fd), "tc", "qdisc", "del", "dev", device, "root"],
                    check=False,  # there may be none
                    capture_output=True,
                )
            else:
                command = ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate]
                self._run(fd, *command, *self._shape)

    def switch_path(self) -> str:
        """As path(), of the namespace in which the switch's ports lie: port0, port1 ..."""
        return f"/proc/{self._owner}/fd/{self._switch}"

    def _check(self, node: int) -> int:
        if not 0 <= node < self.count:
            raise ValueError(f"no node {node} of {self.count}")
        return node

    def _enter_words(self, fd: int) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._owner}/fd/{fd}", "--"]

    def _run(self, fd: int, *command: str, text: str | None = None) -> None:
        done = subprocess.run(
            [*self._enter_words(fd), *command],
            check=False,
            capture_output=True,
            text=True,
            input=text,
        )
        if done.returncode != 0:
            raise NetnsError(f"{' '.join(command)}: {done.stderr.strip()}")

    def _open(self) -> None:
        self._switch = _new_namespace()
        self._run(
            self._switch, "ip", "-batch", "-", text="link add br0 type bridge\nlink set br0 up\n"
        )
        for node in range(self.count):
            self._fds.append(_new_namespace())
            target = f"/proc/{self._owner}/fd/{self._fds[node]}"
            port = f"port{node}"
            self._run(
                self._switch,
                "ip",
                "-batch",
                "-",
                text=f"link add {port} type veth peer name eth0 netns {target}\n"
                f"link set {port} master br0 up\n",
            )
            self._run(
                self._fds[node],
                "ip",
                "-batch",
                "-",
                text="link set lo up\nlink set eth0 up\n"
                f"addr add {self.address(node)}/24 dev eth0\n"
                f"addr add {self.address6(node)}/64 dev eth0 nodad\n",
            )
        if self._rate is not None:
            self.set_rate(self._rate)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a command on emulated nodes.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", help="limit of what each node may send, e.g. 1gbit")
    parser.add_argument("--both-ways", action="store_true", help="limit what it receives as well")
    parser.add_argument("--node", type=int, help="run the command on this node only")
    parser.add_argument("command", nargs="+", help="after --")
    args = parser.parse_args(arguments)
    why = unavailable()
    if why is not None:
        print(why, file=sys.stderr)
        return 1
    with Namespaces(args.nodes, args.rate, both_ways=args.both_ways) as nodes:
        running = []
        try:
            for node in range(args.nodes) if args.node is None else [args.node]:
                facts = {
                    "NETNS_NODE": str(node),
                    "NETNS_NODES": str(args.nodes),
                    "NETNS_ADDRESS": nodes.address(node),
                    "HFREDUCE_NODE": os.environ.get("HFREDUCE_NODE", f"node{node}"),
                }
                running.append(nodes.popen(node, args.command, env={**os.environ, **facts}))
            codes = [process.wait() for process in running]
        except KeyboardInterrupt:
            return 130
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    return next((code if code > 0 else 1 for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
