# SPDX-License-Identifier: Apache-2.0
"""Where ranks run: all on this host, or on emulated nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tools.netns import Namespaces, unavailable

from .cases import BenchError, Case


@dataclass(frozen=True)
class Place:
    nodes: int
    local_ranks: int
    spaces: Namespaces | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.local_ranks

    def node_of(self, rank: int) -> int:
        return rank // self.local_ranks

    def prefix(self, rank: int) -> list[str]:
        return self.spaces.prefix(self.node_of(rank)) if self.spaces else []

    def enter(self, rank: int) -> None:
        if self.spaces:
            self.spaces.enter(self.node_of(rank))

    def env(self, rank: int) -> dict[str, str]:
        """Nodes that share this machine share its memory too: HFREDUCE_NODE keeps them apart."""
        if self.spaces is None:
            return {}
        return {"HFREDUCE_NODE": f"node{self.node_of(rank)}", "GLOO_SOCKET_IFNAME": "eth0"}


@contextlib.contextmanager
def place_for(case: Case) -> Iterator[Place]:
    if case.link == "shm":
        yield Place(case.nodes, case.local_ranks)
        return
    why = unavailable()
    if why is not None:
        raise BenchError(why)
    with Namespaces(case.nodes, None if case.link == "veth" else case.link) as spaces:
        yield Place(case.nodes, case.local_ranks, spaces)
