# SPDX-License-Identifier: Apache-2.0
"""The ways in which torch's own suite meets a backend.

The suite decides at import, from the variable BACKEND, which of its tests apply: most of its gates
are decorators that compare the name with "gloo", "nccl" or "mpi". A backend that the suite has
never heard of is therefore run in two ways:

by name        the gates are opened with a name that the suite knows, then the tests run with
               BACKEND set to our name, on groups made by init_process_group(backend="hfreduce");
by masquerade  our constructor is registered under the known name; only profiler ranges are looked
               for under our own.
"""

from __future__ import annotations

from dataclasses import dataclass

OURS = "hfreduce"


@dataclass(frozen=True)
class View:
    name: str  # of the view, on the command line and in the report
    gate: str  # BACKEND while the suite is imported
    backend: str  # BACKEND while its tests run
    ours: bool  # whether our engine stands behind `backend`
    title: str  # in the report


VIEWS = {
    view.name: view
    for view in (
        View("gloo", "gloo", "gloo", False, "Gloo itself"),
        View("name", "gloo", OURS, True, 'by name: `backend="hfreduce"`'),
        View("as-gloo", "gloo", "gloo", True, "registered as `gloo`"),
        View("name-alltoall", "mpi", OURS, True, "by name, all-to-all tests gated to MPI"),
        View("as-mpi", "mpi", "mpi", True, "registered as `mpi`, all-to-all tests gated to MPI"),
    )
}

# The tests that may fail in a view, each with the reason and with words that must stand in its
# failure.
ALLOWED = {
    (view, "test_ddp_logging_data_cpu"): (
        "DDP's logging data calls the backend of every plug-in `custom`",
        "custom",
    )
    for view in ("name", "as-gloo")
}
