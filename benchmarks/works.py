"""The measured workloads, each defined for our library and for a peer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

ENDLESS = 1_000_000_000  # env steps; runs are measured in time windows and then stopped


@dataclass(frozen=True)
class Work:
    """`ours` is a training config. `peer` names a class of Stable-Baselines3, sb3-contrib or SBX with its arguments, a
    program of CleanRL with its command line, or has the arguments of PufferLib's single class or of the loop in
    `jax_peer.py`."""

    title: str
    ours: dict[str, Any]
    peer: dict[str, Any]
    bar: float
    threads: tuple[int, ...] = (1, 2)  # settings of which the peer uses the faster

    @property
    def package(self) -> str:
        """The peer's, if it is not Stable-Baselines3 or sb3-contrib."""
        return str(self.peer.get("package", ""))

    @property
    def takes_its_own_threads(self) -> bool:
        return self.package in ("sbx", "jax")  # JAX ignores the setting


def _peer(name: str, env: str, envs: int, net: list[int], activation: str = "Tanh", **kwargs: Any) -> dict[str, Any]:
    return {"class": name, "env": env, "envs": envs, "net": net, "activation": activation, "kwargs": kwargs}


def _ours(algo: str, env: str, envs: int, net: list[int], activation: str = "tanh", **kwargs: Any) -> dict[str, Any]:
    return {
        "algo": algo,
        "env_id": env,
        "num_envs": envs,
        "total_timesteps": ENDLESS,
        "model": {"hidden_sizes": net, "activation": activation},
        "algo_kwargs": kwargs,
    }


# The exploration rate of most of a run: over an endless run, a schedule would only take random actions.
EXPLORING = {"exploration": 0.05}
PEER_EXPLORING = {"exploration_initial_eps": 0.05, "exploration_final_eps": 0.05}


def _dqn(train_every: int, bar: float) -> Work:
    both = {"batch_size": 64, "learning_starts": 1000, "buffer_size": 100_000}
    ours = both | {"train_frequency": train_every} | EXPLORING
    peer = both | {"train_freq": train_every} | PEER_EXPLORING
    return Work(
        f"DQN CartPole, batch 64, an update per {'step' if train_every == 1 else f'{train_every} steps'}",
        _ours("dqn", "CartPole-v1", 1, [64, 64], "relu", **ours),
        _peer("DQN", "CartPole-v1", 1, [64, 64], "ReLU", gradient_steps=1, **peer),
        bar,
    )


def _continuous(algo: str) -> Work:
    settings = {"batch_size": 256, "learning_starts": 500, "buffer_size": 100_000}
    kwargs = {"gradient_steps": 1} | ({"noise": 0.1} if algo != "sac" else {})
    return Work(
        f"{algo.upper()} Pendulum, 2x256, batch 256, an update per step",
        _ours(algo, "Pendulum-v1", 1, [256, 256], "relu", **settings),
        _peer(algo.upper(), "Pendulum-v1", 1, [256, 256], "ReLU", train_freq=1, **settings, **kwargs),
        1.4,
    )


def _against_sbx(algo: str) -> Work:
    """SBX compiles the updates of SB3 with JAX, which sets its own number of threads."""
    work = replace(_continuous(algo), threads=(2,))
    return replace(work, title=f"{work.title}; peer SBX", peer=work.peer | {"package": "sbx"}, bar=1.3)


def _in_bfloat16(work: Work, bar: float) -> Work:
    """Ours with bfloat16, which the peer does not have."""
    return replace(work, title=f"{work.title}; ours in bfloat16", ours=work.ours | {"precision": "bfloat16"}, bar=bar)


# Same as SB3's Atari wrappers: four frames per step, stacks of four, a lost life ends an episode, no sticky actions.
ATARI = {"atari": {"sticky_actions": 0.0, "noop_max": 30, "frame_skip": 4, "stack": 4, "episodic_life": True}}


def _atari(algo: str, title: str, bar: float, envs: int, ours: dict[str, Any], peer: dict[str, Any]) -> Work:
    config = _ours(algo, "ALE/Breakout-v5", envs, [], reward_clip=1.0, **ours)
    config["model"] = {"encoder": "nature", "hidden_sizes": []}
    return Work(
        title,
        config | {"env_kwargs": ATARI},
        _peer(algo.upper(), "BreakoutNoFrameskip-v4", envs, [], **peer) | {"policy": "CnnPolicy"},
        bar,
    )


PPO_ATARI = _atari(
    "ppo",
    "PPO Breakout, NatureCNN, 8 envs x 128, 4 epochs x 4 minibatches",
    1.6,
    8,
    {"num_steps": 128, "minibatch_size": 256, "update_epochs": 4},
    {"n_steps": 128, "batch_size": 256, "n_epochs": 4},
)
DQN_ATARI = _atari(
    "dqn",
    "DQN Breakout, NatureCNN, batch 32, an update per 4 steps",
    1.5,
    1,
    {"batch_size": 32, "train_frequency": 4, "learning_starts": 200, "buffer_size": 10_000} | EXPLORING,
    {"batch_size": 32, "train_freq": 4, "gradient_steps": 1, "learning_starts": 200, "buffer_size": 10_000}
    | PEER_EXPLORING,
)

# Its settings are those of the row. EnvPool steps its games in threads.
CLEANRL_ATARI = {
    "package": "cleanrl",
    "file": "ppo_atari_envpool.py",
    "arguments": ["--env-id", "Breakout-v5", "--total-timesteps", str(ENDLESS), "--no-cuda"],
    "envs": 8,
    "kwargs": {"num_steps": 128, "num_minibatches": 4, "update_epochs": 4},
}

WORKS: dict[str, Work] = {
    "ppo": Work(
        "PPO CartPole, 8 envs x 128, 4 epochs x 4 minibatches, 2x64",
        _ours("ppo", "CartPole-v1", 8, [64, 64], num_steps=128, minibatch_size=256, update_epochs=4),
        _peer("PPO", "CartPole-v1", 8, [64, 64], n_steps=128, batch_size=256, n_epochs=4),
        5.0,
    ),
    "ppo-jax": Work(
        "PPO CartPole, 8 envs x 128, 4 epochs x 4 minibatches, 2x64, compiled; peer one JAX function",
        _ours("ppo", "CartPole-v1", 8, [64, 64], num_steps=128, minibatch_size=256, update_epochs=4),
        _peer("PPO", "CartPole-v1", 8, [64, 64], n_steps=128, batch_size=256, n_epochs=4) | {"package": "jax"},
        0.8,
        (2,),
    ),
    "ppo-many": Work(
        "PPO CartPole, 1024 envs x 64, 1 epoch, minibatch 8192",
        _ours("ppo", "CartPole-v1", 1024, [64, 64], num_steps=64, minibatch_size=8192, update_epochs=1),
        {
            "package": "pufferlib",
            "envs": 1024,
            "net": [64, 64],
            "kwargs": {"bptt_horizon": 64, "minibatch_size": 8192, "update_epochs": 1},
        },
        0.8,
    ),
    "a2c": Work(
        "A2C CartPole, 8 envs x 5",
        _ours("a2c", "CartPole-v1", 8, [64, 64], num_steps=5),
        _peer("A2C", "CartPole-v1", 8, [64, 64], n_steps=5),
        4.0,
    ),
    "dqn": _dqn(1, 3.5),
    "dqn-4": _dqn(4, 3.0),
    **{algo: _continuous(algo) for algo in ("sac", "td3", "ddpg")},
    **{f"{algo}-sbx": _against_sbx(algo) for algo in ("sac", "td3", "ddpg")},
    **{f"{algo}-sbx-bfloat16": _in_bfloat16(_against_sbx(algo), 1.3) for algo in ("sac", "td3", "ddpg")},
    "recurrent-ppo": Work(
        "RecurrentPPO CartPole, LSTM 64, 8 envs x 128, 4 epochs x 4 minibatches",
        # Gradients of the peer flow back through whole rollouts, so ours do too.
        _ours(
            "recurrent_ppo",
            "CartPole-v1",
            8,
            [],
            num_steps=128,
            minibatch_size=256,
            update_epochs=4,
            sequence_length=128,
        ),
        _peer("RecurrentPPO", "CartPole-v1", 8, [], n_steps=128, batch_size=256, n_epochs=4)
        | {"policy": "MlpLstmPolicy", "lstm_hidden_size": 64},
        5.0,
    ),
    "ppo-halfcheetah": Work(
        "PPO HalfCheetah, 8 envs x 256, 10 epochs x 32 minibatches, 2x64",
        _ours("ppo", "HalfCheetah-v5", 8, [64, 64], num_steps=256, minibatch_size=64, update_epochs=10),
        _peer("PPO", "HalfCheetah-v5", 8, [64, 64], n_steps=256, batch_size=64, n_epochs=10),
        2.5,
    ),
    "ppo-atari": PPO_ATARI,
    "dqn-atari": DQN_ATARI,
    "ppo-atari-cleanrl": replace(
        PPO_ATARI, title=f"{PPO_ATARI.title}; peer CleanRL with EnvPool", peer=CLEANRL_ATARI, bar=1.4
    ),
    "ppo-atari-bfloat16": _in_bfloat16(PPO_ATARI, 2.5),
    "dqn-atari-bfloat16": _in_bfloat16(DQN_ATARI, 2.2),
}


def own_works(names: list[str]) -> list[str]:
    """Drop workloads that differ from an earlier one only in the peer."""
    return [name for i, name in enumerate(names) if all(WORKS[name].ours != WORKS[other].ours for other in names[:i])]
