# SPDX-License-Identifier: Apache-2.0
"""Says what this machine offers to the backend, what keeps it from more, and what to do about it.

    python -m hfreduce.doctor          this machine, with two ranks on it
    torchrun ... -m hfreduce.doctor    the machines of a job: which ranks share a node, and why,
                                       and over which paths they talk

Ends with 1 if something does not work, 0 otherwise; a warning is not a failure.
"""

from __future__ import annotations

import difflib
import fcntl
import itertools
import json
import os
import platform
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

VARIABLES = (
    "HFREDUCE_ALGO",
    "HFREDUCE_ARENA_BYTES",
    "HFREDUCE_CACHE_DIR",
    "HFREDUCE_CHUNK_BYTES",
    "HFREDUCE_DEBUG",
    "HFREDUCE_ISA",
    "HFREDUCE_NODE",
    "HFREDUCE_SHM",
    "HFREDUCE_SOCKET_IFNAME",
    "HFREDUCE_STREAMS",
    "HFREDUCE_TIMEOUT_MS",
    "HFREDUCE_WIRE",
    "HFREDUCE_ZONE",
)
START_TIMEOUT = timedelta(seconds=60)
LEAST_DESCRIPTORS = 1024
DESCRIPTORS_A_RANK = 16  # connections to it, and what the engine needs of its own
LEAST_MEMORY = 2 << 30
CHECKED_ELEMENTS = 1 << 18
ROUNDS = 21


@dataclass(frozen=True)
class Facts:
    """What a rank knows of the place it runs in."""

    rank: int
    host: str
    pid: int
    boot: str  # of the running kernel
    user: int
    network: str  # network namespace
    cores: int
    threads: str  # OMP_NUM_THREADS
    descriptors: int
    locked_kb: int  # -1: no limit
    memory: int  # bytes that this process may use
    shm_bytes: int  # /dev/shm
    isa: str
    interfaces: list[str]
    variables: dict[str, str]  # HFREDUCE_...
    versions: str


@dataclass(frozen=True)
class Finding:
    text: str
    cure: str
    is_failure: bool = False

    def __str__(self) -> str:
        return f"{'FAILS' if self.is_failure else 'warning'}: {self.text}\n         {self.cure}"


def gather_facts(rank: int, isa: str) -> Facts:
    import torch

    status = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return Facts(
        rank=rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot=_read("/proc/sys/kernel/random/boot_id"),
        user=os.geteuid(),
        network=_link("/proc/self/ns/net"),
        cores=len(os.sched_getaffinity(0)),
        threads=os.environ.get("OMP_NUM_THREADS", ""),
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        locked_kb=-1 if locked == resource.RLIM_INFINITY else locked // 1024,
        memory=memory_limit(),
        shm_bytes=status.f_frsize * status.f_blocks if status else 0,
        isa=isa,
        interfaces=list(interfaces()),
        variables={k: v for k, v in sorted(os.environ.items()) if k.startswith("HFREDUCE_")},
        versions=f"torch {torch.__version__}, Python {platform.python_version()}",
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def memory_limit() -> int:
    """What the machine has, or less if a container says so."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if (text := _read(path)).isdigit():
            limit = min(limit, int(text))
    return limit


def interfaces() -> Iterator[str]:
    """Names and addresses of the interfaces that are up."""
    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if _read(f"/sys/class/net/{name}/operstate") == "down":
                continue
            try:
                request = struct.pack("256s", name.encode())
                reply = fcntl.ioctl(probe.fileno(), get_address, request)
                yield f"{name} {socket.inet_ntoa(reply[20:24])}"
            except OSError:
                pass  # no IPv4 address
    for line in _read("/proc/net/if_inet6").splitlines():
        digits, *_, name = line.split()
        yield f"{name} {socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))}"


# --- findings -------------------------------------------------------------------------------------


def findings(everyone: Sequence[Facts]) -> list[Finding]:
    """What is worth saying about these ranks, most of it per host."""
    found: dict[str, Finding] = {}
    for facts in everyone:
        on_host = [other for other in everyone if other.boot == facts.boot]
        for finding in (
            *check_variables(facts),
            *check_descriptors(facts, len(everyone)),
            *check_memory(facts),
            *check_isa(facts),
            *check_cores(facts, on_host),
        ):
            found.setdefault(finding.text, finding)
    return list(found.values())


def check_variables(facts: Facts) -> Iterator[Finding]:
    for name in facts.variables:
        if name in VARIABLES:
            continue
        [nearest] = difflib.get_close_matches(name, VARIABLES, 1, 0.0)
        yield Finding(
            f"{facts.host}: {name} is set, but there is no such variable",
            f"did you mean {nearest}? All of them are in docs/options.md",
        )


def check_descriptors(facts: Facts, ranks: int) -> Iterator[Finding]:
    wanted = max(LEAST_DESCRIPTORS, DESCRIPTORS_A_RANK * ranks)
    if facts.descriptors < wanted:
        yield Finding(
            f"{facts.host}: a process may have {facts.descriptors} files and sockets open",
            f"with {ranks} ranks raise it to {wanted} or more: ulimit -n {wanted}",
        )


def check_memory(facts: Facts) -> Iterator[Finding]:
    if facts.memory < LEAST_MEMORY:
        yield Finding(
            f"{facts.host}: there are {facts.memory >> 20} MiB of memory for this process",
            "memory that ranks share counts too: raise the container's limit, or lower "
            "HFREDUCE_ARENA_BYTES",
        )


def check_isa(facts: Facts) -> Iterator[Finding]:
    if facts.isa == "portable" and platform.machine() == "x86_64":
        yield Finding(
            f"{facts.host}: reductions run without SIMD instructions",
            "unset HFREDUCE_ISA"
            if "HFREDUCE_ISA" in facts.variables
            else "the processor, or the virtual machine's model of it, offers no AVX2",
        )


def check_cores(facts: Facts, on_host: Sequence[Facts]) -> Iterator[Finding]:
    ranks = len(on_host)
    if ranks > facts.cores:
        yield Finding(
            f"{facts.host}: {ranks} ranks share {facts.cores} cores",
            "it works, but ranks wait for one another; start fewer, or give them more cores",
        )
    if ranks > 1 and not facts.threads:
        yield Finding(
            f"{facts.host}: torch uses {facts.cores} threads in each of {ranks} ranks",
            f"set OMP_NUM_THREADS={max(1, facts.cores // ranks)}",
        )


def why_apart(a: Facts, b: Facts) -> str:
    """Why two ranks that do not share a node do not."""
    if a.boot != b.boot:
        return "they run on different machines"
    nodes = [facts.variables.get("HFREDUCE_NODE", "") for facts in (a, b)]
    if nodes[0] != nodes[1]:
        return f"HFREDUCE_NODE is {nodes[0]!r} and {nodes[1]!r}"
    if "0" in [facts.variables.get("HFREDUCE_SHM") for facts in (a, b)]:
        return "HFREDUCE_SHM is 0"
    if a.network != b.network:
        return "their network namespaces differ, and memory is handed over a socket of the host's"
    if a.user != b.user:
        return f"they run as different users, {a.user} and {b.user}"
    return "neither could map the other's memory; HFREDUCE_DEBUG=info says what failed"


# --- report ---------------------------------------------------------------------------------------


def report(everyone: Sequence[Facts], places: Sequence[Any]) -> Iterator[str]:
    seen: set[str] = set()
    for facts in everyone:
        if facts.boot in seen:
            continue
        seen.add(facts.boot)
        locked = "no limit" if facts.locked_kb < 0 else f"{facts.locked_kb} KiB"
        yield f"host {facts.host}: {facts.versions}, SIMD {facts.isa}"
        yield (
            f"  cores {facts.cores}, memory {facts.memory >> 20} MiB, files {facts.descriptors}, "
            f"locked memory {locked}, /dev/shm {facts.shm_bytes >> 20} MiB (not used)"
        )
        yield f"  interfaces {', '.join(facts.interfaces)}"
        if facts.variables:
            yield "  " + " ".join(f"{name}={value}" for name, value in facts.variables.items())
    yield ""
    yield f"{'rank':>5} {'node':>5} {'local':>6} {'pid':>8}  {'host':<20} path from rank 0"
    for place in places:
        yield (
            f"{place['rank']:>5} {place['node']:>5} {place['local_rank']:>6} {place['pid']:>8}  "
            f"{place['host']:<20} {place['path']}"
        )
    first_of_node: dict[int, int] = {}
    for place in places:
        first_of_node.setdefault(place["node"], place["rank"])
    leaders = sorted(first_of_node.values())
    for a, b in itertools.pairwise(leaders):
        reason = why_apart(everyone[a], everyone[b])
        yield f"ranks {a} and {b} do not share a node: {reason}"


def try_out(size: int) -> tuple[float, bool]:
    """Seconds of an all-reduce of 1 MiB, and whether it was right."""
    import torch
    import torch.distributed as dist

    times = []
    right = True
    for _ in range(ROUNDS):
        x = torch.full((CHECKED_ELEMENTS,), float(dist.get_rank() + 1))
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        times.append(time.perf_counter() - start)
        right &= bool((x == size * (size + 1) / 2).all())
    return statistics.median(times), right


def exchange(facts: Facts, size: int) -> list[Facts]:
    """Everyone's facts, as text: what comes from elsewhere is parsed, never run."""
    import torch
    import torch.distributed as dist

    mine = torch.frombuffer(bytearray(json.dumps(asdict(facts)).encode()), dtype=torch.uint8)
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([mine.numel()]))
    texts = [torch.empty(int(length), dtype=torch.uint8) for length in lengths]
    dist.all_gather(texts, mine)
    return [Facts(**json.loads(bytes(text.tolist()))) for text in texts]


def examine() -> int:
    import torch.distributed as dist

    import hfreduce
    from hfreduce._adapter import load

    dist.init_process_group("hfreduce", timeout=START_TIMEOUT)
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = exchange(gather_facts(rank, load().isa()), size)
    seconds, right = try_out(size)
    problems = findings(everyone)
    if not right:
        text = f"rank {rank}: an all-reduce gave a wrong result"
        problems.append(Finding(text, "please report this, with the output above", True))
    if rank == 0:
        for line in report(everyone, hfreduce.ranks()):
            print(line)
        print(f"\nall-reduce of 1 MiB over {size} ranks: {seconds * 1e6:.0f} us")
    if rank == 0 or not right:
        print("\n".join(map(str, problems)) or "all is well", flush=True)
    dist.destroy_process_group()
    return 1 if any(problem.is_failure for problem in problems) else 0


def start_ranks(count: int) -> int:
    """Runs this program as so many ranks on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {"OMP_NUM_THREADS": "1", **os.environ}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    command = [sys.executable, "-m", "hfreduce.doctor"]
    ranks = [subprocess.Popen(command, env={**env, "RANK": str(rank)}) for rank in range(count)]
    return max(abs(rank.wait()) for rank in ranks)


def main() -> int:
    from hfreduce.build import BuildError

    try:
        from hfreduce._adapter import load

        load()
    except (BuildError, ImportError, OSError) as error:
        print(Finding(str(error), "nothing else can be looked at before that works", True))
        return 1
    if "RANK" not in os.environ:
        return start_ranks(2)
    try:
        return examine()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        print(Finding(f"{type(error).__name__}: {error}", "see docs/errors.md", True), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
