"""A worker that trains with PufferLib: its C CartPole and PPO loop, with the same networks as ours."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from itertools import pairwise
from typing import Any

import pufferlib.vector
import torch
from pufferlib.ocean.cartpole.cartpole import Cartpole
from pufferlib.pufferl import PuffeRL
from windows import Windows

# All settings that its loop requires. Rates and coefficients are ours; they do not affect the speed.
DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "torch_deterministic": True,
    "cpu_offload": False,
    "device": "cpu",
    "optimizer": "adam",
    "anneal_lr": True,
    "precision": "float32",
    "total_timesteps": 10**9,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "vf_coef": 0.5,
    "vf_clip_coef": 0.2,
    "max_grad_norm": 0.5,
    "ent_coef": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_eps": 1e-5,
    "checkpoint_interval": 10**9,
    "batch_size": "auto",
    "max_minibatch_size": 32768,
    "compile": False,
    "compile_mode": "default",
    "compile_fullgraph": True,
    "vtrace_rho_clip": 1.0,
    "vtrace_c_clip": 1.0,
    "prio_alpha": 0.8,
    "prio_beta0": 0.2,
    "use_rnn": False,
    "env": "cartpole",
}


class Policy(torch.nn.Module):
    """Two separate networks, like ours."""

    def __init__(self, sizes: list[int]):
        super().__init__()
        self.actor, self.critic = _layers([4, *sizes, 2]), _layers([4, *sizes, 1])

    def forward(self, observations: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(observations), self.critic(observations)

    forward_eval = forward


def _layers(sizes: list[int]) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def main() -> None:
    work, warm_up, threads = json.loads(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    PuffeRL.print_dashboard = lambda *args, **kwargs: None  # our display is off too
    with tempfile.TemporaryDirectory() as folder:
        envs = pufferlib.vector.make(Cartpole, env_kwargs={"num_envs": work["envs"]})
        trainer = PuffeRL(DEFAULTS | work["kwargs"] | {"data_dir": folder}, envs, Policy(work["net"]))
        windows: Windows | None = None
        while True:
            trainer.evaluate()
            trainer.train()
            windows = windows or Windows(warm_up)
            if not windows.between_rounds(trainer.global_step):
                os._exit(0)  # its monitor thread would keep the process alive


if __name__ == "__main__":
    main()
