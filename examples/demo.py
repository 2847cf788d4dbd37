# SPDX-License-Identifier: Apache-2.0
"""Two nodes of two ranks train a language model over hfreduce, then once more over Gloo.

`./run demo` calls this. The nodes are network namespaces when we may make them (root), joined by a
virtual switch, so that what passes between them passes through the kernel's network; otherwise
they are plain processes that HFREDUCE_NODE tells apart. Both runs start from the same weights and
see the same data, so their losses must agree: the exit code is 1 when a step's differ by more than
LOSS_BOUND, and also when our engine's counter says that it did nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tools.netns import Namespaces, unavailable

# Two runs that add the same gradients in another order part slowly: rounding differs in the last
# bit of a float (6e-8 relative) at the first step and grows as training amplifies it.
LOSS_BOUND = 2e-3
WARM_UP = 3  # steps that no speed is taken from: first touches of memory, connections, caches

OURS, PEER = "hfreduce", "gloo"


@dataclass(frozen=True)
class Node:
    """Where a node's ranks are started: words before the command, and variables."""

    name: str
    prefix: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def emulated_nodes(count: int, namespaces: bool) -> Iterator[list[Node]]:
    names = [f"node{index}" for index in range(count)]
    if not namespaces:
        # Every rank on the loopback interface; hfreduce treats ranks of different nodes as remote.
        yield [
            Node(name, env={"HFREDUCE_NODE": name, "GLOO_SOCKET_IFNAME": "lo"}) for name in names
        ]
        return
    with Namespaces(count) as spaces:
        # Shared memory reaches across network namespaces; HFREDUCE_NODE keeps the nodes apart.
        yield [
            Node(
                name,
                prefix=spaces.prefix(index),
                env={"HFREDUCE_NODE": name, "GLOO_SOCKET_IFNAME": "eth0"},
            )
            for index, name in enumerate(names)
        ]


class Terminal:
    """Plain lines in a log; one line that is rewritten, and bold figures, on a terminal."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def heading(self, text: str) -> None:
        print(f"\n\033[1m{text}\033[0m" if self._live else f"\n{text}", flush=True)

    def progress(self, text: str) -> None:
        if self._live:
            print(f"\r\033[K  {text}", end="", flush=True)
        else:
            print(f"  {text}", flush=True)

    def progress_ends(self) -> None:
        if self._live:
            print(flush=True)


def train(
    backend: str,
    nodes: list[Node],
    args: argparse.Namespace,
    limits: list[str],
    folder: Path,
    terminal: Terminal,
) -> dict[str, Any]:
    """Runs every rank to its end and returns rank 0's summary."""
    world = len(nodes) * args.ranks
    summary = folder / f"{backend}.json"
    command = [sys.executable, str(HERE / "train_gpt.py"), "--backend", backend]
    command += ["--size", args.size, "--steps", str(args.steps), "--batch", str(args.batch)]
    command += ["--seed", str(args.seed), "--log-every", str(max(1, args.steps // 20))]
    command += ["--init-method", f"file://{folder}/{backend}.rendezvous"]
    command += ["--summary", str(summary), "--timeout", "120"]
    command += limits
    command += ["--sample", "0" if args.quick or backend != OURS else "280"]
    ranks: list[subprocess.Popen[str]] = []
    logs = [folder / f"{backend}.rank{rank}.log" for rank in range(world)]
    try:
        for rank in range(world):
            node = nodes[rank // args.ranks]
            env = {
                **os.environ,
                **node.env,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(rank % args.ranks),
                # Every emulated node shares this machine's cores.
                "LOCAL_WORLD_SIZE": str(world),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(
                    [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
            }
            out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            with logs[rank].open("w") as log:
                ranks.append(
                    subprocess.Popen(
                        node.prefix + command, env=env, stdout=out, stderr=log, text=True
                    )
                )
        for line in ranks[0].stdout or ():
            if line.startswith("step "):
                terminal.progress(line.rstrip())
        terminal.progress_ends()
        codes = [process.wait(timeout=180) for process in ranks]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(codes):
        rank = next(rank for rank, code in enumerate(codes) if code)
        tail = "\n".join(logs[rank].read_text().splitlines()[-25:])
        sys.exit(f"\nrank {rank} of the run over {backend} ended with code {codes[rank]}:\n{tail}")
    result: dict[str, Any] = json.loads(summary.read_text())
    return result


def step_ms(run: dict[str, Any]) -> float:
    return 1000 * statistics.median(run["seconds"][WARM_UP:])


def report(runs: dict[str, dict[str, Any]], terminal: Terminal) -> None:
    terminal.heading(f"{'':14}{'tokens/s':>10}{'ms a step':>12}{'ms waiting':>12}{'last loss':>12}")
    for backend, run in runs.items():
        waiting = 1000 * statistics.median(run["waits"][WARM_UP:])
        tokens = 1000 * run["tokens_a_step"] / step_ms(run)
        print(
            f"  {backend:<12}{tokens:>10,.0f}{step_ms(run):>12.0f}{waiting:>12.0f}"
            f"{run['losses'][-1]:>12.4f}"
        )
    ours, peer = runs[OURS], runs[PEER]
    print(
        f"\nhfreduce trains at {step_ms(peer) / step_ms(ours):.2f} x the speed of Gloo "
        "(medians over the steps; 'waiting' is communication that computation did not hide)."
    )


def shortcomings(runs: dict[str, dict[str, Any]]) -> list[str]:
    """What makes the demo fail, in words; empty when all is well."""
    found = []
    ours, peer = runs[OURS], runs[PEER]
    if len(ours["losses"]) != len(peer["losses"]):
        found.append(f"{len(ours['losses'])} steps over hfreduce, {len(peer['losses'])} over Gloo")
    for step, (mine, theirs) in enumerate(zip(ours["losses"], peer["losses"], strict=False), 1):
        if not abs(mine - theirs) <= LOSS_BOUND:  # so that NaN fails too
            found.append(f"step {step}: loss {mine:.6f} over hfreduce, {theirs:.6f} over Gloo")
            break
    if ours.get("engine_operations", 0) == 0:
        found.append("hfreduce's engine finished no operation: another backend did the work")
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=95, help="limit of the first run")
    parser.add_argument("--size", default="small", help="see train_gpt.py")
    parser.add_argument("--batch", type=int, default=1, help="samples a rank and step")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="a node")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-namespaces", action="store_true", help="plain processes, as non-root")
    parser.add_argument("--quick", action="store_true", help="a few steps of a tiny model")
    args = parser.parse_args()
    if args.quick:
        args.size, args.steps = "tiny", 12
    if args.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}")
    return args


def main() -> int:
    args = arguments()
    terminal = Terminal()
    namespaces = not args.no_namespaces and unavailable() is None
    kind = "network namespaces" if namespaces else "groups of processes (HFREDUCE_NODE)"
    print(
        f"A GPT ({args.size}) learns Python from the standard library's sources on {args.nodes} "
        f"nodes of {args.ranks} ranks.\nThe nodes are {kind} on this machine of "
        f"{os.cpu_count()} cores; up to {args.steps} steps, in at most {args.seconds:.0f} s."
    )
    start = time.monotonic()
    runs = {}
    with (
        tempfile.TemporaryDirectory(prefix="hfreduce-demo-") as folder,
        emulated_nodes(args.nodes, namespaces) as nodes,
    ):
        for backend in (OURS, PEER):
            terminal.heading(f'init_process_group(backend="{backend}")')
            limits = ["--max-seconds", str(args.seconds)]
            if OURS in runs:
                limits = ["--stop-at", str(len(runs[OURS]["losses"]))]
            runs[backend] = train(backend, nodes, args, limits, Path(folder), terminal)
    report(runs, terminal)
    if "sample" in runs[OURS]:
        terminal.heading("After so little training it writes:")
        print("\n".join(f"  | {line}" for line in runs[OURS]["sample"].splitlines()))
    failed = shortcomings(runs)
    for line in failed:
        print(f"FAILED: {line}", file=sys.stderr)
    if not failed:
        worst = max(
            abs(mine - theirs)
            for mine, theirs in zip(runs[OURS]["losses"], runs[PEER]["losses"], strict=True)
        )
        print(
            f"\nThe losses of all {len(runs[OURS]['losses'])} steps agree to {worst:.1e} "
            f"(bound {LOSS_BOUND:g}); hfreduce's engine finished "
            f"{runs[OURS]['engine_operations']:,} operations on rank 0."
        )
    print(f"{time.monotonic() - start:.0f} s in all.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
