"""Settings by the names that other libraries use: Stable-Baselines3 and its zoo, sb3-contrib, CleanRL, RLlib.

An alias is never accepted: two names for one setting would make two configs out of one. The error names ours.
"""

from __future__ import annotations

from collections.abc import Collection

_LEARNING_RATES = ("learning_rate", "actor_learning_rate and critic_learning_rate")
_EXPLORATION = ("exploration",)
_NOISE = ("exploration_noise",)

# Name -> our settings, of which the first that the algorithm has is suggested. "a and b" are two settings.
COUNTERPARTS: dict[str, tuple[str, ...]] = {
    # run
    "env": ("env_id",),
    "env_wrapper": ("wrappers",),
    "n_envs": ("num_envs",),
    "num_envs_per_worker": ("num_envs",),
    "n_timesteps": ("total_timesteps",),
    "num_timesteps": ("total_timesteps",),
    "timesteps": ("total_timesteps",),
    "save_freq": ("checkpoint_every",),
    "checkpoint_freq": ("checkpoint_every",),
    "eval_freq": ("eval_every",),
    "evaluation_interval": ("eval_every",),
    "n_eval_episodes": ("eval_episodes",),
    "log_interval": ("log_every",),
    "log_freq": ("log_every",),
    "tensorboard_log": ("tensorboard",),
    "wandb": ("sinks",),
    "track": ("sinks",),
    "log_dir": ("output_dir",),
    "log_folder": ("output_dir",),
    "exp_name": ("run_name",),
    "tb_log_name": ("run_name",),
    "num_threads": ("threads",),
    # network
    "policy_kwargs": ("model",),
    "net_arch": ("hidden_sizes",),
    "fcnet_hiddens": ("hidden_sizes",),
    "activation_fn": ("activation",),
    "fcnet_activation": ("activation",),
    "features_extractor_class": ("encoder",),
    "features_extractor_kwargs": ("encoder_kwargs",),
    "custom_model": ("encoder",),
    "custom_model_config": ("encoder_kwargs",),
    "features_dim": ("encoder_size",),
    "ortho_init": ("initialization",),
    "log_std_init": ("initial_log_std",),
    "use_sde": ("state_dependent_noise",),
    "sde_sample_freq": ("noise_interval",),
    "normalize": ("normalize_observations and normalize_rewards", "normalize_observations"),
    "norm_obs": ("normalize_observations",),
    "norm_reward": ("normalize_rewards", "reward_scale"),
    "clip_obs": ("observation_clip",),
    "clip_reward": ("reward_clip",),
    "lstm_hidden_size": ("memory_size",),
    "hidden_size": ("memory_size", "hidden_sizes"),
    "n_lstm_layers": ("memory_layers",),
    "num_layers": ("memory_layers",),
    "shared_lstm": ("shared_memory",),
    # optimizer
    "lr": _LEARNING_RATES,
    "lr_schedule": _LEARNING_RATES,
    "anneal_lr": _LEARNING_RATES,
    "learning_rate": ("actor_learning_rate and critic_learning_rate",),
    "policy_lr": ("actor_learning_rate",),
    "actor_lr": ("actor_learning_rate",),
    "q_lr": ("critic_learning_rate",),
    "qf_learning_rate": ("critic_learning_rate",),
    "critic_lr": ("critic_learning_rate",),
    "grad_clip": ("max_grad_norm",),
    "gradient_clip": ("max_grad_norm",),
    "use_rms_prop": ("optimizer",),
    "optimizer_class": ("optimizer",),
    "rms_prop_eps": ("optimizer_epsilon",),
    "discount": ("gamma",),
    # goals
    "n_sampled_goal": ("hindsight",),
    "goal_selection_strategy": ("hindsight",),
    # on-policy
    "n_steps": ("num_steps", "n_step"),
    "rollout_fragment_length": ("num_steps",),
    "n_epochs": ("update_epochs",),
    "num_epochs": ("update_epochs",),
    "num_sgd_iter": ("update_epochs",),
    "n_critic_updates": ("update_epochs",),
    "batch_size": ("minibatch_size", "num_minibatches"),
    "nminibatches": ("minibatch_size", "num_minibatches"),
    "num_minibatches": ("minibatch_size",),
    "ent_coef": ("entropy_coef", "temperature"),
    "entropy_coeff": ("entropy_coef", "temperature"),
    "alpha": ("temperature", "priority_exponent"),
    "autotune": ("temperature",),
    "vf_coef": ("value_coef",),
    "vf_loss_coeff": ("value_coef",),
    "clip_coef": ("clip_range",),
    "clip_param": ("clip_range",),
    "clip_range_vf": ("value_clip_range",),
    "clip_vloss": ("value_clip_range",),
    "normalize_advantage": ("normalize_advantages",),
    "norm_adv": ("normalize_advantages",),
    "target_kl": ("max_kl",),
    "cg_max_steps": ("conjugate_gradient_steps",),
    "cg_damping": ("damping",),
    "line_search_shrinking_factor": ("line_search_decay",),
    "line_search_max_iter": ("line_search_steps",),
    # replay
    "buffer_capacity": ("buffer_size",),
    "memory_capacity": ("buffer_size",),
    "train_freq": ("train_frequency",),
    "policy_frequency": ("policy_delay",),
    "target_update_interval": ("target_update_every", "tau"),
    "target_network_frequency": ("target_update_every",),
    "target_network_update_freq": ("target_update_every",),
    "polyak": ("tau",),
    "exploration_fraction": _EXPLORATION,
    "exploration_initial_eps": _EXPLORATION,
    "exploration_final_eps": _EXPLORATION,
    "epsilon": _EXPLORATION,
    "action_noise": _NOISE,
    "noise_std": _NOISE,
    "target_policy_noise": ("target_noise",),
    "policy_noise": ("target_noise",),
    "noise_clip": ("target_noise_clip",),
    "prioritized_replay": ("prioritized",),
    "replay_buffer_class": ("hindsight and prioritized",),
    "prioritized_replay_alpha": ("priority_exponent",),
    "prioritized_replay_beta0": ("importance_exponent",),
    "prioritized_replay_eps": ("priority_epsilon",),
    "double_q": ("double",),
    "n_atoms": ("num_atoms",),
    "v_min": ("support_low",),
    "vmin": ("support_low",),
    "v_max": ("support_high",),
    "vmax": ("support_high",),
}

# By their name or ours: added to the suggestion where the name alone does not say how to write the value.
HOW_TO_WRITE = {
    "minibatch_size": "the number of steps in one minibatch",
    "exploration_fraction": "{start: 1.0, end: 0.05, over: 0.1}",
    "exploration_initial_eps": "{start: 1.0, end: 0.05, over: 0.1}",
    "exploration_final_eps": "{start: 1.0, end: 0.05, over: 0.1}",
    "anneal_lr": "{start: 3e-4, end: 0}",
    "lr_schedule": "{start: 3e-4, end: 0}",
    "policy_kwargs": "model.hidden_sizes: [64, 64], model.activation: relu",
    "save_freq": "in env steps, over all environments",
    "eval_freq": "in env steps, over all environments",
    "log_interval": "in env steps, over all environments",
}

# Names without a counterpart: why there is none, and what there is instead.
INSTEAD = {
    "policy": "the network follows from the spaces; model.encoder and model.hidden_sizes change it",
    "verbose": "the command line has --quiet, and learn() has show=False",
    "progress_bar": "it is on by default; the command line has --quiet, and learn() has show=False",
    "monitor_wrapper": "not needed: returns and lengths are always those of the environment itself",
    "frame_stack": "set env_kwargs.atari.stack for Atari, or env_kwargs.image.stack for other images",
    "observation_keys": "it is an option of the environment, env_kwargs.observation_keys",
    "action_masks": "it is an option of the environment, env_kwargs.action_masks",
    "image": "it is an option of the environment, env_kwargs.image",
    "atari": "it is an option of the environment, env_kwargs.atari",
    "mask_velocity": "it is an option of the environment, env_kwargs.mask_velocity",
    "share_features_extractor": "actor and critic share the encoder in every algorithm but trpo",
    "normalize_images": "images are always scaled to 1; an encoder of your own gets them as uint8",
    "vec_env_wrapper": "pass your own gymnasium VectorEnv as env (Python)",
    "use_sde": "this algorithm explores in its own way; ppo, a2c, sac and tqc have state_dependent_noise",
    "sde_sample_freq": "this algorithm explores in its own way; ppo, a2c, sac and tqc have noise_interval",
    "use_sde_at_warmup": "warm-up actions are uniform; set learning_starts=0 to explore by noise from the first step",
    "optimize_memory_usage": "not needed: the replay buffer always stores each image once",
    "stats_window_size": "return statistics always cover the last 100 episodes",
    "n_critics": "the number of critics belongs to the algorithm: two for sac and td3, one for the others",
    "action_noise": "this algorithm explores with its own policy; ddpg, td3, d4pg and naf have exploration_noise",
}

_VECTOR = "pass num_envs=8; the setting vector_backend chooses how environments are stepped"
# Names that programs import from Stable-Baselines3: what there is here.
IMPORTS = {
    "EvalCallback": "set eval_every and eval_episodes; every run keeps its best agent",
    "CheckpointCallback": "set checkpoint_every; checkpoints are on by default",
    "BaseCallback": "use rl_training.Callback",
    "VecNormalize": "set normalize_observations and normalize_rewards",
    "DummyVecEnv": _VECTOR,
    "SubprocVecEnv": _VECTOR,
    "make_vec_env": _VECTOR,
    "Monitor": "it is not needed: returns and lengths are always those of the environment itself",
    "evaluate_policy": "call agent.evaluate(episodes=10)",
}
POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy")


def answer(name: str, settings: Collection[str]) -> tuple[list[str], str] | None:
    """Our settings for a name from elsewhere and a remark, or None. `settings` are those of the algorithm.

    >>> answer("n_steps", {"num_steps", "gamma"})
    (['num_steps'], '')
    >>> answer("verbose", set())
    ([], 'the command line has --quiet, and learn() has show=False')
    """
    name = name.lower().replace("-", "_")
    for alternative in COUNTERPARTS.get(name, ()):
        ours = alternative.split(" and ")
        if all(setting in settings for setting in ours):
            return ours, HOW_TO_WRITE.get(name, HOW_TO_WRITE.get(ours[0], ""))
    return ([], INSTEAD[name]) if name in INSTEAD else None
