# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the source of Python's standard library, byte by byte.

    torchrun --nproc-per-node 2 examples/train_gpt.py                    over hfreduce
    torchrun --nproc-per-node 2 examples/train_gpt.py --backend gloo     the one-word change
    python examples/train_gpt.py --size tiny                             alone, no group at all

Plain torch and plain DistributedDataParallel: nothing here knows hfreduce but the default of
--backend and the last line of the summary.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sysconfig
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    width: int
    context: int  # bytes a sample sees


SHAPES = {
    "tiny": Shape(layers=2, heads=2, width=64, context=64),  # 0.1 M parameters, for tests
    "small": Shape(layers=6, heads=6, width=384, context=128),  # 10.8 M
    "medium": Shape(layers=8, heads=8, width=448, context=256),  # 19.5 M
    "large": Shape(layers=12, heads=12, width=768, context=512),  # 85.6 M
}


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.project = nn.Linear(shape.width, shape.width)
        self.norm2 = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.byte = nn.Embedding(256, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, 256, bias=False)
        self.head.weight = self.byte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Layers that add to the residual stream start smaller, so that depth does not
                # make it grow.
                deep = name.endswith(("project.weight", "down.weight"))
                std = 0.02 / math.sqrt(2 * shape.layers) if deep else 0.02
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.byte(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

    @torch.inference_mode()
    def continue_text(self, prompt: bytes, count: int, generator: torch.Generator) -> bytes:
        text = list(prompt)
        for _ in range(count):
            window = torch.tensor([text[-self.shape.context :]])
            logits = self(window)[0, -1] / 0.7
            best, where = logits.topk(20)
            pick = torch.multinomial(best.softmax(0), 1, generator=generator)
            text.append(int(where[pick]))
        return bytes(text)


def library_source() -> Tensor:
    """The standard library's modules, in order of their paths, as one row of bytes."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skip = {"site-packages", "dist-packages", "test", "idlelib", "lib2to3"}
    paths = sorted(p for p in root.rglob("*.py") if p.relative_to(root).parts[0] not in skip)
    text = b"".join(path.read_bytes() for path in paths)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def batch_of(data: Tensor, shape: Shape, size: int, key: int) -> tuple[Tensor, Tensor]:
    """Inputs and the bytes that follow them; the same for the same `key`, in every run."""
    generator = torch.Generator().manual_seed(key)
    starts = torch.randint(len(data) - shape.context - 1, (size, 1), generator=generator)
    window = data[starts + torch.arange(shape.context + 1)].long()
    return window[:, :-1], window[:, 1:]


def learning_rate(step: int, steps: int, peak: float) -> float:
    warmup = max(5, min(20, steps // 10))
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


class GradientClock:
    """When the last gradient of a step was ready.

    What backward() takes after that moment it spends waiting for communication that did not fit
    behind the computation.
    """

    def __init__(self, model: nn.Module) -> None:
        self.last = 0.0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, _: Tensor) -> None:
        self.last = time.perf_counter()


class Group:
    """The ranks that train together; of one without torchrun."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.together = "RANK" in os.environ
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        if self.together:
            dist.init_process_group(
                args.backend,
                init_method=args.init_method,
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=args.timeout),
            )

    def mean(self, value: float) -> float:
        if not self.together:
            return value
        total = torch.tensor([value])
        dist.all_reduce(total)
        return total.item() / self.size

    def means(self, values: list[float]) -> list[float]:
        if not self.together:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return [value / self.size for value in total.tolist()]

    def close(self) -> None:
        if self.together:
            dist.destroy_process_group()


def save(path: Path, state: dict[str, Any]) -> None:
    """A reader finds the old checkpoint or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".writing")
    torch.save(state, temporary)
    os.replace(temporary, path)


@dataclass
class Progress:
    """What the steps since the last line took."""

    start: float
    steps: int = 0
    waited: float = 0.0

    def line(self, step: int, steps: int, loss: float, tokens_a_step: int) -> str:
        seconds = time.perf_counter() - self.start
        return (
            f"step {step:>4}/{steps}  loss {loss:.4f}  "
            f"{tokens_a_step * self.steps / seconds:>7,.0f} tokens/s  "
            f"{1000 * seconds / self.steps:>6.0f} ms a step, "
            f"{1000 * self.waited / self.steps:.0f} of them waiting for communication"
        )


def train(args: argparse.Namespace, group: Group) -> dict[str, Any]:
    shape = SHAPES[args.size]
    data = library_source()
    training = data[: len(data) * 95 // 100]
    torch.manual_seed(args.seed)
    model = Gpt(shape)
    parameters = sum(p.numel() for p in model.parameters())
    clock = GradientClock(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1
    )
    first = 0
    if args.resume:
        state = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    trained: nn.Module = DistributedDataParallel(model) if group.together else model
    if group.rank == 0:
        where = f"{group.size} ranks over {args.backend}" if group.together else "one process"
        print(
            f"GPT {args.size}: {parameters / 1e6:.1f} M parameters, {where}, "
            f"{len(data) / 1e6:.1f} MB of Python",
            flush=True,
        )

    losses, seconds, waits = [], [], []
    tokens_a_step = group.size * args.batch * shape.context
    progress = Progress(time.perf_counter())
    began = time.perf_counter()
    for step in range(first, args.steps):
        start = time.perf_counter()
        for parameter_group in optimizer.param_groups:
            parameter_group["lr"] = learning_rate(step, args.steps, args.lr)
        key = (args.seed * 1_000_000 + step) * 4096 + group.rank
        inputs, targets = batch_of(training, shape, args.batch, key)
        loss = F.cross_entropy(trained(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        waits.append(time.perf_counter() - clock.last)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)

        progress.steps += 1
        progress.waited += waits[-1]
        last = step + 1 in (args.steps, args.stop_at)
        if (step + 1) % args.log_every == 0 or last:
            mean = group.mean(losses[-1])
            if group.rank == 0:
                print(progress.line(step + 1, args.steps, mean, tokens_a_step), flush=True)
            # All ranks see the same mean, so all of them stop or none does.
            last = last or group.mean(time.perf_counter() - began) > args.max_seconds
            progress = Progress(time.perf_counter())
        due = args.save_every > 0 and (step + 1) % args.save_every == 0
        if args.checkpoint and group.rank == 0 and (due or last):
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
            }
            save(args.checkpoint, state)
        if last:
            break

    mean_losses = group.means(losses)
    summary = {
        "backend": args.backend if group.together else None,
        "ranks": group.size,
        "parameters": parameters,
        "tokens_a_step": tokens_a_step,
        "first_step": first,
        "losses": mean_losses,
        "seconds": seconds,
        "waits": waits,
    }
    if args.sample and group.rank == 0:
        generator = torch.Generator().manual_seed(args.seed)
        text = model.eval().continue_text(b"def ", args.sample, generator)
        summary["sample"] = text.decode("utf-8", errors="replace")
        print(summary["sample"], flush=True)
    return summary


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SHAPES, default="small")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stop-at", type=int, help="step to end after, ahead of --steps")
    parser.add_argument("--max-seconds", type=float, default=math.inf, help="end after these")
    parser.add_argument("--batch", type=int, default=8, help="samples a rank and step")
    parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="hfreduce")
    parser.add_argument("--init-method", default="env://", help="as init_process_group's")
    parser.add_argument("--timeout", type=float, default=300, help="of an operation, seconds")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, help="file to save to, and to resume from")
    parser.add_argument("--save-every", type=int, default=0, help="steps; 0: at the end only")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument("--sample", type=int, default=200, help="bytes to write at the end")
    parser.add_argument("--summary", type=Path, help="write losses and times here, as JSON")
    args = parser.parse_args()
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint FILE")
    return args


def main() -> None:
    args = arguments()
    group = Group(args)
    if "OMP_NUM_THREADS" not in os.environ:
        # Ranks that share a machine share its cores.
        neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", group.size))
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // neighbours))
    summary = train(args, group)
    if group.together and "hfreduce" in args.backend:
        import hfreduce

        summary["engine_operations"] = hfreduce.counters()["operations"]
    group.close()
    if args.summary and group.rank == 0:
        args.summary.write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
