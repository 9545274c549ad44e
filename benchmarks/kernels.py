"""Compare a gradient step on images with the time of its convolutions and matrix products alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import torch
from parts import Clock, run_for, set_up
from torch import Tensor, nn
from workers import cores
from works import WORKS

from rl_training.config.loading import load_config
from rl_training.models.cnn.nature import NatureCNN
from rl_training.runtime.auto_settings import limited_threads

WORK = "ppo-atari"


def kernels(names: list[str], seconds: float) -> list[str]:
    """Time every layer on a minibatch of the PPO workload, and the full step in its loop."""
    config = load_config(WORKS[WORK].ours, {"compile": "on"})
    rows, threads = config.algo_kwargs.minibatch_size, cores()
    lines = ["## Cost of a gradient step on images", ""]
    lines += [f"NatureCNN on {rows} images, {threads} threads: milliseconds (GFLOP/s) of each product on its own.", ""]
    lines += ["| layer | forward | weight gradient | input gradient |", "| --- | --- | --- | --- |"]
    total = 0.0
    with limited_threads(threads):
        for title, calls, flops in _layers(rows):
            measured = [_seconds(call) for call in calls]
            total += sum(measured)
            cells = [f"{1000 * each:.1f} ({flops / each / 1e9:.0f})" for each in measured]
            lines.append(f"| {title} | {' | '.join([*cells, ''][:3])} |")
        side = 2048
        square = torch.randn(side, side)
        best = _seconds(lambda: square @ square)
        lines.append(
            f"| for comparison: {side} x {side} matrices | {1000 * best:.1f} ({2 * side**3 / best / 1e9:.0f}) | | |"
        )
    with set_up(config) as loop:
        clock = Clock()
        clock.watch(loop.learner, "update", "learning")
        env_steps, elapsed = run_for(loop, seconds, clock=clock)
    rollout = config.num_envs * config.algo_kwargs.num_steps
    steps_per_round = rollout * config.algo_kwargs.update_epochs // rows
    round_seconds = elapsed * rollout / env_steps
    learning = clock.seconds["learning"] / elapsed * round_seconds
    lines += [
        "",
        f"The products take {1000 * total:.0f} ms together, a gradient step in training "
        f"{1000 * learning / steps_per_round:.0f} ms.",
    ]
    lines += [f"A round of {rollout} env steps takes {round_seconds:.1f} s: {learning:.1f} s for {steps_per_round}"]
    lines += [f"gradient steps ({total * steps_per_round:.1f} s of products), the rest for envs and acting."]
    return lines


def _layers(rows: int) -> list[tuple[str, list[Callable[[], object]], float]]:
    """Name, calls (forward, weight gradient, input gradient) and floating-point operations per call."""
    network = NatureCNN()
    layers: list[tuple[str, list[Callable[[], object]], float]] = []
    x = torch.rand(rows, *network.input_shape).contiguous(memory_format=torch.channels_last)
    for layer in network.convolutions:
        if not isinstance(layer, nn.Conv2d):
            continue
        y = layer(x).detach()
        per_output = layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1]
        calls = [_forward(layer, x), _backward(layer, x, y, "weights")]
        if layers:  # the gradient with respect to pixels is not needed
            calls.append(_backward(layer, x, y, "inputs"))
        title = f"{layer.in_channels} to {layer.out_channels} channels, {layer.kernel_size[0]} x {layer.kernel_size[1]}"
        layers.append((title, calls, 2.0 * y.numel() * per_output))
        x = y.relu()
    flat, size = x.flatten(1), network.output_size
    weight, y = torch.rand(size, flat.shape[1]), torch.rand(rows, size)
    products = [lambda: flat @ weight.T, lambda: y.T @ flat, lambda: y @ weight]
    layers.append((f"hidden, {flat.shape[1]} to {size}", list(products), 2.0 * rows * weight.numel()))
    return layers


def _forward(layer: nn.Conv2d, x: Tensor) -> Callable[[], object]:
    weight = layer.weight.detach().contiguous(memory_format=torch.channels_last)
    return lambda: torch.conv2d(x, weight, stride=layer.stride)


def _backward(layer: nn.Conv2d, x: Tensor, y: Tensor, by: str) -> Callable[[], object]:
    weight = layer.weight.detach().contiguous(memory_format=torch.channels_last)
    output_mask = [by == "inputs", by == "weights", False]
    rest = (list(layer.stride), [0, 0], [1, 1], False, [0, 0], 1, output_mask)
    return lambda: torch.ops.aten.convolution_backward(y, x, weight, None, *rest)


def _seconds(call: Callable[[], object], repeats: int = 12) -> float:
    """Median of single calls, after two warm-up calls."""
    moments = []
    for _ in range(repeats + 2):
        moments.append(time.perf_counter())
        call()
    moments.append(time.perf_counter())
    return sorted(after - before for before, after in pairwise(moments[2:]))[repeats // 2]
