"""Names of other libraries: each gets the answer that fits the algorithm, and none is accepted as an alias."""

from __future__ import annotations

import pytest

from rl_training.config.algorithm_table import algorithm_names
from rl_training.config.loading import load_config
from rl_training.config.messages import sections
from rl_training.config.names_elsewhere import COUNTERPARTS, HOW_TO_WRITE, INSTEAD
from rl_training.config.train_config import TrainConfig
from rl_training.errors import ConfigError


def refusal(algo: str, name: str, value: object = 1) -> str:
    """What the command line prints for `--set name=value`."""
    with pytest.raises(ConfigError) as refused:
        load_config({"algo": algo, "env_id": "CartPole-v1"}, {name: value})
    message = str(refused.value)
    assert "\n" not in message and f"{name}: unknown key" in message, message
    return message


# What a user of SB3 or its zoo types, with the algorithm she has in mind: 27 names.
TYPED = [
    ("ppo", "n_steps", "algo_kwargs.num_steps?"),
    ("dqn", "n_steps", "algo_kwargs.n_step?"),
    ("ppo", "batch_size", "algo_kwargs.minibatch_size? (the number of steps in one minibatch)"),
    ("ppo", "n_epochs", "algo_kwargs.update_epochs?"),
    ("ppo", "ent_coef", "algo_kwargs.entropy_coef?"),
    ("sac", "ent_coef", "algo_kwargs.temperature?"),
    ("ppo", "vf_coef", "algo_kwargs.value_coef?"),
    ("ppo", "clip_range_vf", "algo_kwargs.value_clip_range?"),
    ("ppo", "normalize_advantage", "algo_kwargs.normalize_advantages?"),
    ("ppo", "policy_kwargs", "model? (model.hidden_sizes: [64, 64], model.activation: relu)"),
    ("ppo", "net_arch", "model.hidden_sizes?"),
    ("ppo", "activation_fn", "model.activation?"),
    ("ppo", "lr", "algo_kwargs.learning_rate?"),
    ("sac", "lr", "algo_kwargs.actor_learning_rate and algo_kwargs.critic_learning_rate?"),
    ("sac", "learning_rate", "algo_kwargs.actor_learning_rate and algo_kwargs.critic_learning_rate?"),
    ("dqn", "train_freq", "algo_kwargs.train_frequency?"),
    ("dqn", "target_update_interval", "algo_kwargs.target_update_every?"),
    ("dqn", "exploration_fraction", "algo_kwargs.exploration? ({start: 1.0, end: 0.05, over: 0.1})"),
    ("dqn", "exploration_final_eps", "algo_kwargs.exploration? ({start: 1.0, end: 0.05, over: 0.1})"),
    ("sac", "target_update_interval", "algo_kwargs.tau?"),
    ("td3", "action_noise", "algo_kwargs.exploration_noise?"),
    ("td3", "target_policy_noise", "algo_kwargs.target_noise?"),
    ("ppo", "n_envs", "num_envs?"),
    ("ppo", "n_timesteps", "total_timesteps?"),
    ("ppo", "save_freq", "checkpoint_every? (in env steps, over all environments)"),
    ("ppo", "eval_freq", "eval_every? (in env steps, over all environments)"),
    ("ppo", "tensorboard_log", "tensorboard?"),
    ("ppo", "normalize", "model.normalize_observations and algo_kwargs.normalize_rewards?"),
    ("dqn", "normalize", "model.normalize_observations?"),
    ("trpo", "target_kl", "algo_kwargs.max_kl?"),
    ("a2c", "use_rms_prop", "algo_kwargs.optimizer?"),
    ("ppo", "features_extractor_class", "model.encoder?"),
    ("ppo", "features_extractor_kwargs", "model.encoder_kwargs?"),
    ("ppo", "env_wrapper", "wrappers?"),
]  # fmt: skip


@pytest.mark.parametrize(("algo", "name", "ours"), TYPED, ids=[f"{algo}-{name}" for algo, name, _ in TYPED])
def test_a_name_of_another_library_gets_ours(algo: str, name: str, ours: str) -> None:
    assert refusal(algo, name).endswith(f", did you mean {ours}")


@pytest.mark.parametrize(
    ("algo", "name", "words"),
    [
        ("ppo", "frame_stack", "env_kwargs.atari.stack"),
        ("td3", "use_sde", "have state_dependent_noise"),
        ("ppo", "verbose", "--quiet"),
        ("ppo", "observation_keys", "env_kwargs.observation_keys"),
        ("dqn", "action_masks", "env_kwargs.action_masks"),
        ("ppo", "image", "env_kwargs.image"),
        ("ppo", "progress_bar", "on by default"),
        ("ppo", "monitor_wrapper", "not needed"),
        ("sac", "use_sde_at_warmup", "learning_starts=0"),
        ("ppo", "policy", "model.encoder"),
        ("sac", "action_noise", "ddpg, td3, d4pg and naf have exploration_noise"),
        ("dqn", "optimize_memory_usage", "stores each image once"),
        ("ppo", "buffer_size", " or dqn or "),  # ours, but of other algorithms
        ("ppo", "hidden_size", "did you mean model.hidden_sizes?"),
        ("ppo", "hindsight", "iqn or rainbow or ddpg"),
        ("recurrent_ppo", "hidden_size", "did you mean algo_kwargs.memory_size?"),
        ("impala", "batch_size", "did you mean algo_kwargs.num_minibatches?"),
    ],
)
def test_a_name_without_a_counterpart_says_what_there_is_instead(algo: str, name: str, words: str) -> None:
    assert words in refusal(algo, name)


def test_a_name_in_the_wrong_section_is_still_ours() -> None:
    assert refusal("ppo", "model.gamma").endswith("did you mean algo_kwargs.gamma?")


def test_every_answer_exists_and_no_name_is_ours_everywhere() -> None:
    """A counterpart is a setting of at least one algorithm; a name that each algorithm has would never be asked for."""
    has = {
        algo: {name for model in sections(TrainConfig, algo).values() for name in model.model_fields}
        for algo in algorithm_names()
    }
    for name, alternatives in COUNTERPARTS.items():
        for alternative in alternatives:
            assert any(set(alternative.split(" and ")) <= names for names in has.values()), (name, alternative)
        assert not all(name in names for names in has.values()), name
    assert not [name for name in INSTEAD if any(name in names for names in has.values())]
    assert set(HOW_TO_WRITE) <= set(COUNTERPARTS) | set().union(*has.values())
