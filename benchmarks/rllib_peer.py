"""A run of RLlib's IMPALA or APPO, in an environment of its own (`make rllib`); prints one JSON line.

    .venv-rllib/bin/python benchmarks/rllib_peer.py example impala CartPole-v1 0 60 475

The words are settings, algorithm, env, seed, seconds, and the return at which the run ends. The settings `example` are
those of RLlib's `cartpole_impala.py` and `cartpole_appo.py` (ray 2.60), which have 4 and 5 env runners with 16 envs
each, and networks of two layers of 256 that policy and value share. `ours` are the same but for our networks, 4
env runners, and as many envs in each as our actors have. Acrobot has no example; it gets the same settings. The clock
starts when all processes of RLlib have started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

# Workers with the priority of other programs: Ray's default is the lowest but four, and ours run without it too.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.connectors.env_to_module.mean_std_filter import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

OUR_ENVS = {"CartPole-v1": 2, "Acrobot-v1": 4}  # per actor
LOGICAL_CPUS = 8  # Ray counts a CPU per process; how many cores there are is up to the machine


def config_of(settings: str, algo: str, env: str, seed: int) -> Any:
    if algo == "impala":
        config: Any = IMPALAConfig().env_runners(
            num_env_runners=4,
            num_envs_per_env_runner=16,
            env_to_module_connector=lambda env, spaces, device: MeanStdFilter(),
        )
        config = config.learners(num_learners=1).training(
            train_batch_size_per_learner=500,
            grad_clip=40.0,
            grad_clip_by="global_norm",
            lr=0.0005,
            vf_loss_coeff=0.05,
            entropy_coeff=0.0,
        )
    else:
        config = APPOConfig().env_runners(num_env_runners=5, num_envs_per_env_runner=16)
        config = config.training(circular_buffer_iterations_per_batch=2, vf_loss_coeff=0.05, entropy_coeff=0.0)
    config = config.environment(env).debugging(seed=seed)
    # What comes back after each call of `train`, as often as it can; 5 s is its default.
    config = config.reporting(min_time_s_per_iteration=1)
    if settings == "ours":
        config = config.env_runners(num_env_runners=4, num_envs_per_env_runner=OUR_ENVS[env])
        return config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
    return config.rl_module(model_config=DefaultModelConfig(vf_share_layers=True))


def main() -> None:
    settings, algo, env = sys.argv[1:4]
    seed, seconds, goal = int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6])
    ray.init(num_cpus=LOGICAL_CPUS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    learner = config_of(settings, algo, env, seed).build_algo()
    started, solved, steps, last = time.perf_counter(), None, 0, None
    while solved is None and time.perf_counter() - started < seconds:
        runners = learner.train()["env_runners"]
        elapsed, last = time.perf_counter() - started, runners.get("episode_return_mean")
        steps = int(runners.get("num_env_steps_sampled_lifetime", steps))
        if last is not None and last >= goal:
            solved = elapsed
    elapsed = time.perf_counter() - started
    line = {"steps": steps, "seconds": elapsed, "solved": solved, "last": last, "ray": ray.__version__}
    print(json.dumps(line), flush=True)
    learner.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
