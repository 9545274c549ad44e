"""Crash a run, resume it, and see that nothing was lost: the weights are those of a run that never stopped.

Run it with: python examples/resume.py
"""

from __future__ import annotations

import torch

from rl_training import TrainConfig, load_config, resume, train
from rl_training.runtime.loops import Progress


class PowerCut(Exception):
    """Stands for anything that ends a process: a power cut, the out-of-memory killer, a bug in a callback."""


def make_config(total_timesteps: int) -> TrainConfig:
    # `checkpoint_every` is part of the experiment: at each checkpoint all episodes restart from known seeds, which is
    # what makes an exact resume possible. Two runs are equal only if they have the same value.
    changes = {"total_timesteps": total_timesteps, "checkpoint_every": total_timesteps // 4, "eval_every": 0}
    return load_config("ppo/cartpole", changes)


def main(total_timesteps: int = 8_000) -> None:
    config = make_config(total_timesteps)
    whole = train(config, show=False)
    print(f"the uninterrupted run: {whole.env_steps} steps")

    def crash(progress: Progress) -> None:
        if progress.env_steps >= 0.6 * total_timesteps:
            raise PowerCut

    try:
        train(config, callback=crash, show=False)
    except PowerCut:
        print(f"the other run crashed after {0.6 * total_timesteps:.0f} steps; its last checkpoint is older")

    # The newest run in runs/, from its newest good checkpoint. On the command line: rl-training resume latest
    resumed = resume("latest", show=False)
    print(f"the resumed run: {resumed.env_steps} steps")

    left, right = (result.agent.learner.model.state_dict() for result in (whole, resumed))
    equal = all(torch.equal(left[name], right[name]) for name in left)
    print("all weights are equal, bit for bit" if equal else "the weights differ")


if __name__ == "__main__":
    main()
