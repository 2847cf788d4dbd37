# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this backend.

All derive from `torch.distributed.DistBackendError`, and arrive with type and attributes whichever
way the failure is met: the call itself, `Work.wait`, a future, `loss.backward()` under DDP, a
compiled collective.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.distributed import DistBackendError


class Error(DistBackendError):
    """A failure of the hfreduce backend.

    Attributes that are not known are None.

    rank         the rank at fault, or that noticed, within the group
    global_rank  the same rank in the default group
    host, pid    where that rank runs
    op, seq      the operation, and its number within the group
    ranks        several ranks, where it is more than one
    group        name of the group
    """

    code = "internal error"

    def __init__(self, message: str = "", facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self._message = message
        self.facts: dict[str, str] = dict(facts or {})
        self.rank = self._number("rank")
        self.global_rank = self._number("global_rank")
        self.host = self.facts.get("host")
        self.pid = self._number("pid")
        self.op = self.facts.get("op")
        self.seq = self._number("seq")
        self.group = self.facts.get("group")
        self.ranks = [int(rank) for rank in self.facts.get("ranks", "").replace(",", " ").split()]

    def _number(self, key: str) -> int | None:
        value = self.facts.get(key)
        return int(value) if value is not None and value.lstrip("-").isdigit() else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._message, self.facts)


class PeerError(Error):
    """A process of the group has died, or left."""

    code = "peer lost"


class TimeoutError(Error):
    """A deadline passed; the message says who is missing."""

    code = "timeout"


class MismatchError(Error):
    """The ranks called different operations at the same point."""

    code = "mismatch"


class AbortedError(Error):
    """The group was aborted or shut down, here or by another rank."""

    code = "aborted"


class RefusedError(Error):
    """A handshake failed: wrong group or wrong version."""

    code = "refused"


class ResourceError(Error):
    """Memory, shared memory or descriptors ran out."""

    code = "out of resources"


class InvalidArgumentError(Error, ValueError):
    """The call makes no sense; nothing was done."""

    code = "invalid argument"


class UnsupportedError(Error, TypeError):
    """The call makes sense, but not for this type, operation or place."""

    code = "unsupported"


_BY_CODE: dict[str, type[Error]] = {
    cls.code: cls
    for cls in (
        PeerError,
        TimeoutError,
        MismatchError,
        AbortedError,
        RefusedError,
        ResourceError,
        InvalidArgumentError,
        UnsupportedError,
    )
}


def from_status(code: str, message: str, facts: dict[str, str]) -> Error:
    """The exception for an outcome of the native part."""
    # Tools tell a timeout by the word, whatever backend it comes from.
    head = "hfreduce: a timeout has passed: " if code == TimeoutError.code else "hfreduce: "
    return _BY_CODE.get(code, Error)(head + message, facts)
