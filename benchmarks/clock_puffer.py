"""A worker of `rl-training zoo clock`: PufferLib with the settings of its own .ini file, on its own environment in C.

    .venv-puffer/bin/python benchmarks/clock_puffer.py --probe      # print the versions

`make bench-puffer` makes the environment. The setting `env` in a board names an environment of its ocean; the policy is
scored on the environment of the board, whose observations and actions must be the same. Processors have no CUDA, hence
`device`; everything else is as in the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from rl_training.zoo.clock.stopwatch import Stopwatch, play_episodes

SHOWN = ("torch", "numpy", "gymnasium", "heavyball")


def main() -> None:
    if "--probe" in sys.argv:
        import heavyball
        import pufferlib
        import pufferlib.ocean.cartpole.cartpole

        assert heavyball and pufferlib.ocean
        print(json.dumps({"pufferlib": str(pufferlib.__version__), **{name: version(name) for name in SHOWN}}))
        return
    watch = Stopwatch.open()
    name = f"puffer_{watch.request['settings']['env']}"

    import torch
    from pufferlib import pufferl

    if watch.request["threads"] is not None:
        torch.set_num_threads(watch.request["threads"])
    seed = watch.request["seed"]
    torch.manual_seed(seed)
    sys.argv = ["puffer", "--train.device", "cpu", "--train.seed", str(seed), "--vec.seed", str(seed)]
    pufferl.PuffeRL.print_dashboard = lambda *arguments, **named: None  # displays are off on every side
    settings = pufferl.load_config(name)
    envs = pufferl.load_env(name, settings)
    policy = pufferl.load_policy(settings, envs)
    watch.plays_with(player(policy, watch.request["env"]))
    training = {**settings["train"], "env": name}
    trainer = pufferl.PuffeRL(training, envs, policy)
    while trainer.global_step < training["total_timesteps"]:
        trainer.evaluate()  # its word for a rollout
        trainer.train()
        if not watch.look(trainer.global_step):
            return
    watch.finish(trainer.global_step)


def player(policy: Any, env: str) -> Callable[[Sequence[int]], list[float]]:
    """Plays the most probable action; a recurrent policy begins each episode with an empty memory."""
    import gymnasium
    import numpy as np
    import torch

    def play(seeds: Sequence[int]) -> list[float]:
        returns = []
        for seed in seeds:
            state: dict[str, Any] = {"lstm_h": None, "lstm_c": None}

            def act(observations: list[Any], state: dict[str, Any] = state) -> Any:
                with torch.no_grad():
                    logits, _ = policy.forward_eval(torch.tensor(np.stack(observations)), state)
                return logits.argmax(dim=-1).numpy()

            returns += play_episodes(lambda: gymnasium.make(env), act, [seed])
        return returns

    return play


if __name__ == "__main__":
    main()
