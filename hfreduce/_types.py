# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TypedDict


class RankInfo(TypedDict):
    """One rank of a group, as this rank sees it."""

    rank: int
    global_rank: int
    host: str
    pid: int
    node: int  # index of the node, in order of its lowest rank
    local_rank: int  # index within the node
    path: str  # "self", "shm", "tcp 10.0.0.2 (eth0)"
