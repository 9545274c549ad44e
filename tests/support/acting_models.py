"""Small models with changed weights, and checks that acting equals their torch outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from on_policy_helpers import SPACES, model_config
from rl_training.algorithms.common.optimizer import Optimizer
from rl_training.envs.spaces import Spaces
from rl_training.models.encoders.encoder import VectorEncoder
from rl_training.models.layers.blocks import ACTIVATIONS
from rl_training.models.layers.exploration_head import StateNoiseHead
from rl_training.models.mlp_acer import MLPACERModel
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.models.mlp_c51 import MLPC51Network
from rl_training.models.mlp_continuous import MLPDeterministicActorCritic, MLPSquashedGaussianActorCritic
from rl_training.models.mlp_crossq import MLPCrossQModel
from rl_training.models.mlp_d4pg import MLPD4PGModel
from rl_training.models.mlp_iqn import MLPIQNNetwork
from rl_training.models.mlp_mpo import MLPMPOModel
from rl_training.models.mlp_naf import MLPNAFModel
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.models.mlp_q import MLPQNetwork
from rl_training.models.mlp_quantiles import MLPQuantileNetwork
from rl_training.models.mlp_rainbow import MLPRainbowNetwork
from rl_training.models.mlp_redq import MLPREDQModel
from rl_training.models.mlp_td7 import MLPTD7Model
from rl_training.models.mlp_tqc import MLPTQCModel
from rl_training.models.policy import PolicyModel
from rl_training.models.recurrent.lstm_actor_critic import LSTMActorCritic
from rl_training.models.recurrent.recurrent_q import RecurrentQNetwork

OBS = np.random.default_rng(0).normal(2.0, 3.0, (40, 3)).astype(np.float32)
ROWS = torch.from_numpy(OBS)
IMAGES = np.random.default_rng(1).integers(0, 256, (6, 2, 36, 36), dtype=np.uint8)
PIXELS = Spaces(gym.spaces.Box(0, 255, (2, 36, 36), np.uint8), gym.spaces.Discrete(4))
BOX_PIXELS = Spaces(PIXELS.observation_space, SPACES["box"].action_space)
DISCRETE, BOX = SPACES["discrete"], SPACES["box"]
SUPPORT = torch.linspace(-2.0, 5.0, 7)
TAUS = torch.tensor([0.1, 0.4, 0.8])
DETERMINISTIC = (MLPDeterministicActorCritic, MLPD4PGModel, MLPNAFModel, MLPTD7Model)

Build = Callable[..., Any]
MODELS: dict[str, Build] = {
    "actor_critic_discrete": lambda config: MLPActorCritic(DISCRETE, config),
    "actor_critic_multi_discrete": lambda config: MLPActorCritic(SPACES["multi_discrete"], config),
    "actor_critic_multi_binary": lambda config: MLPActorCritic(SPACES["multi_binary"], config),
    "actor_critic_box": lambda config: MLPActorCritic(BOX, config),
    "acer": lambda config: MLPACERModel(DISCRETE, config),
    "ppg_multi_discrete": lambda config: MLPPPGModel(SPACES["multi_discrete"], config),
    "ppg_box": lambda config: MLPPPGModel(BOX, config),
    "lstm_discrete": lambda config: LSTMActorCritic(DISCRETE, config, memory_size=5),
    "lstm_shared_box": lambda config: LSTMActorCritic(BOX, config, memory_size=5, memory_layers=2, shared_memory=True),
    "gru_multi_discrete": lambda config: LSTMActorCritic(SPACES["multi_discrete"], config, cell="gru", memory_size=5),
    "q_network": lambda config: MLPQNetwork(DISCRETE, config),
    "q_network_dueling": lambda config: MLPQNetwork(DISCRETE, config, dueling=True),
    "c51": lambda config: MLPC51Network(DISCRETE, config, support=SUPPORT.clone()),
    "c51_dueling": lambda config: MLPC51Network(DISCRETE, config, support=SUPPORT.clone(), dueling=True),
    "quantiles": lambda config: MLPQuantileNetwork(DISCRETE, config, num_quantiles=5),
    "quantiles_dueling": lambda config: MLPQuantileNetwork(DISCRETE, config, num_quantiles=5, dueling=True),
    "iqn": lambda config: MLPIQNNetwork(DISCRETE, config, acting_taus=TAUS.clone()),
    "iqn_dueling": lambda config: MLPIQNNetwork(DISCRETE, config, acting_taus=TAUS.clone(), dueling=True),
    "rainbow": lambda config: MLPRainbowNetwork(DISCRETE, config, support=SUPPORT.clone()),
    "rainbow_plain": lambda config: MLPRainbowNetwork(DISCRETE, config, support=SUPPORT.clone(), dueling=False),
    "recurrent_q": lambda config: RecurrentQNetwork(DISCRETE, config, memory_size=5),
    "recurrent_q_gru": lambda config: RecurrentQNetwork(DISCRETE, config, cell="gru", memory_layers=2, dueling=False),
    "naf": lambda config: MLPNAFModel(BOX, config),
    "mpo": lambda config: MLPMPOModel(BOX, config),
    "deterministic": lambda config: MLPDeterministicActorCritic(BOX, config, num_critics=2),
    "d4pg": lambda config: MLPD4PGModel(BOX, config, support=SUPPORT.clone()),
    "squashed_gaussian": lambda config: MLPSquashedGaussianActorCritic(BOX, config),
    "tqc": lambda config: MLPTQCModel(BOX, config, num_critics=2, num_quantiles=3),
    "td7": lambda config: MLPTD7Model(BOX, config, embedding_size=6).requires_grad_(True),
    "crossq": lambda config: MLPCrossQModel(BOX, config),
    "redq": lambda config: MLPREDQModel(BOX, config, num_critics=3),
    "droq": lambda config: MLPREDQModel(
        BOX, config.model_copy(update={"layer_norm": True}), num_critics=2, dropout=0.5
    ),
    **{
        f"actor_critic_{activation}": lambda config, activation=activation: MLPActorCritic(
            DISCRETE, config.model_copy(update={"activation": activation})
        )
        for activation in ACTIVATIONS
    },
    "layer_norm_ppg": lambda config: MLPPPGModel(BOX, config.model_copy(update={"layer_norm": True})),
    "layer_norm_lstm": lambda config: LSTMActorCritic(
        DISCRETE, config.model_copy(update={"layer_norm": True}), memory_size=5
    ),
    "layer_norm_c51_dueling": lambda config: MLPC51Network(
        DISCRETE, config.model_copy(update={"layer_norm": True}), support=SUPPORT.clone(), dueling=True
    ),
    "simba_ppg": lambda config: MLPPPGModel(DISCRETE, config.model_copy(update={"blocks": "simba"})),
    "simba_naf": lambda config: MLPNAFModel(BOX, config.model_copy(update={"blocks": "simba"})),
    "simba_q_network": lambda config: MLPQNetwork(DISCRETE, config.model_copy(update={"blocks": "simba"})),
    "simba_squashed_gaussian": lambda config: MLPSquashedGaussianActorCritic(
        BOX, config.model_copy(update={"blocks": "simba", "activation": "elu"})
    ),
    "state_noise_actor_critic": lambda config: MLPActorCritic(BOX, config, state_noise=-1.0),
    "state_noise_squashed_gaussian": lambda config: MLPSquashedGaussianActorCritic(BOX, config, state_noise=-1.0),
    "images_actor_critic": lambda config: MLPActorCritic(PIXELS, config),
    "images_actor_critic_separate": lambda config: MLPActorCritic(PIXELS, config, share_encoder=False),
    "images_acer": lambda config: MLPACERModel(PIXELS, config),
    "images_state_noise_actor_critic": lambda config: MLPActorCritic(BOX_PIXELS, config, state_noise=-1.0),
    "images_ppg": lambda config: MLPPPGModel(PIXELS, config),
    "images_squashed_gaussian": lambda config: MLPSquashedGaussianActorCritic(BOX_PIXELS, config),
    "images_deterministic": lambda config: MLPDeterministicActorCritic(BOX_PIXELS, config, num_critics=1),
    "images_d4pg": lambda config: MLPD4PGModel(BOX_PIXELS, config, support=SUPPORT.clone()),
    "images_naf": lambda config: MLPNAFModel(BOX_PIXELS, config),
    "images_mpo": lambda config: MLPMPOModel(BOX_PIXELS, config),
    "images_tqc": lambda config: MLPTQCModel(BOX_PIXELS, config, num_critics=2, num_quantiles=3),
    "images_td7": lambda config: MLPTD7Model(BOX_PIXELS, config, embedding_size=6).requires_grad_(True),
    "images_crossq": lambda config: MLPCrossQModel(BOX_PIXELS, config),
    "images_redq": lambda config: MLPREDQModel(BOX_PIXELS, config, num_critics=2),
    "images_lstm": lambda config: LSTMActorCritic(PIXELS, config, memory_size=5),
    "images_recurrent_q": lambda config: RecurrentQNetwork(PIXELS, config, memory_size=5),
    "images_q_network_dueling": lambda config: MLPQNetwork(PIXELS, config, dueling=True),
    "images_quantiles_dueling": lambda config: MLPQuantileNetwork(PIXELS, config, num_quantiles=5, dueling=True),
    "images_iqn": lambda config: MLPIQNNetwork(PIXELS, config, acting_taus=TAUS.clone()),
    "images_rainbow": lambda config: MLPRainbowNetwork(PIXELS, config, support=SUPPORT.clone()),
    "images_c51_dueling": lambda config: MLPC51Network(PIXELS, config, support=SUPPORT.clone(), dueling=True),
}


def build(name: str, seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    images = name.startswith("images")
    model = MODELS[name](model_config(encoder_size=8 if images else None, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            # Move away from the initial near-zero heads and biases; otherwise a missing bias would have no effect.
            parameter.add_((0.02 if images else 0.3) * torch.randn_like(parameter))
    return model


def obs_of(model: Any) -> np.ndarray:
    return IMAGES if sees_images(model) else OBS


def sees_images(model: Any) -> bool:
    return not isinstance(getattr(model, "encoder", VectorEncoder(1)), VectorEncoder)


def outputs_of(model: Any) -> Tensor:
    """The torch outputs that decide the action."""
    rows = torch.from_numpy(obs_of(model))
    if isinstance(model, PolicyModel):
        return model.policy(rows)
    if isinstance(model, (MLPQNetwork, MLPC51Network, MLPQuantileNetwork, MLPIQNNetwork, MLPRainbowNetwork)):
        return model.q_values(rows)
    if isinstance(model, RecurrentQNetwork):
        return model.q_values(rows)
    if isinstance(model, DETERMINISTIC):
        return model.actor(rows)
    return torch.cat(model.actor(rows), -1)


def torch_outputs(model: Any) -> np.ndarray:
    with torch.no_grad():
        return outputs_of(model).numpy()


def assert_acts_as_torch_says(model: Any) -> None:
    obs, expected = obs_of(model), torch_outputs(model)
    before = obs.copy()
    if isinstance(model, PolicyModel):
        _assert_policy(model, obs, expected)
    elif isinstance(model, (MLPC51Network, MLPRainbowNetwork)):
        assert_close(model.q_values_numpy(obs), expected)
        np.testing.assert_array_equal(model.greedy_actions(obs), expected.argmax(1))
    elif isinstance(model, RecurrentQNetwork):
        _assert_recurrent_q(model, obs, expected)
    elif isinstance(model, (MLPQNetwork, MLPQuantileNetwork, MLPIQNNetwork)):
        found = model.advantage_numpy(obs)
        if model.state_value is None:
            assert_close(found, expected)
        # The state value is the same for all actions, and acting does not compute it.
        assert_close(found - found.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True))
        np.testing.assert_array_equal(model.greedy_actions(obs), expected.argmax(1))
    else:
        _assert_continuous(model, obs, expected)
    np.testing.assert_array_equal(obs, before)


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _assert_policy(model: PolicyModel, obs: np.ndarray, expected: np.ndarray) -> None:
    assert_close(model.act(obs)[0], model.distribution.mode(expected))
    if isinstance(model, MLPActorCritic) and isinstance(model.actor[-1], StateNoiseHead):
        _assert_explores(model, model.actor, obs, expected)
    actions, extras = model.act(obs, np.random.default_rng(1))
    expected_actions, expected_log_probs = model.distribution.sample(expected, np.random.default_rng(1))
    assert_close(actions, expected_actions)
    assert_close(extras["log_probs"], expected_log_probs)
    with torch.no_grad():
        values = model.value(torch.from_numpy(obs)).numpy()
    assert_close(model.value_numpy(obs), values)
    if "values" in extras:
        assert_close(extras["values"], values)
    if not isinstance(model, LSTMActorCritic):
        assert_close(model.policy_numpy(obs), expected)
        return
    memory = np.random.default_rng(2).normal(size=(len(obs), *model.memory_shape)).astype(np.float32)
    extras = model.act(obs, memory=memory)[1]
    with torch.no_grad():
        remembered = torch.from_numpy(memory)
        assert_close(extras["values"], model.value(torch.from_numpy(obs), remembered))
        assert_close(extras["memory"], model._step(model._input(torch.from_numpy(obs)), remembered)[2])


def _assert_recurrent_q(model: RecurrentQNetwork, obs: np.ndarray, expected: np.ndarray) -> None:
    found, after = model.act_values(obs)
    if model.state_value is None:
        assert_close(found, expected)
    assert_close(found - found.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True))
    rows = torch.from_numpy(obs)
    empty = torch.from_numpy(model.initial_memory(len(obs)))
    assert_close(after, model.remembered(rows[None], empty))
    memory = np.random.default_rng(2).normal(size=(len(obs), *model.memory_shape)).astype(np.float32)
    found, after = model.act_values(obs, memory)
    with torch.no_grad():
        q = model.q_values(rows, torch.from_numpy(memory)).numpy()
    assert_close(found - found.mean(1, keepdims=True), q - q.mean(1, keepdims=True))
    assert_close(after, model.remembered(rows[None], torch.from_numpy(memory)))
    starts = np.arange(len(obs)) % 2 == 0
    mixed = model.act_values(obs, memory, starts)[1]
    assert_close(mixed[starts], model.act_values(obs[starts])[1])
    assert_close(mixed[~starts], after[~starts])


def _assert_continuous(model: Any, obs: np.ndarray, expected: np.ndarray) -> None:
    if isinstance(model, DETERMINISTIC):
        assert_close(model.act(obs), expected)
        if isinstance(model, MLPNAFModel):
            actions, factors = model.act_with_factor(obs)
            assert_close(actions, expected)
            with torch.no_grad():
                assert_close(factors, model._factor(model._outputs(torch.from_numpy(obs))[1]))
        return
    mean, log_std = np.split(expected, 2, 1)
    noise = np.random.default_rng(1).standard_normal(mean.shape, dtype=np.float32)
    found = model.act(obs, np.random.default_rng(1))
    if isinstance(model, MLPMPOModel):
        assert_close(model.act(obs), mean)
        np.testing.assert_allclose(found, np.clip(mean + np.exp(log_std) * noise, -1.0, 1.0), atol=1e-4)
        return
    assert_close(model.act(obs), np.tanh(mean))
    if isinstance(model.policy_network[-1], StateNoiseHead):
        _assert_explores(model, model.policy_network, obs, expected)
    assert_close(found, np.tanh(mean + np.exp(log_std) * noise))
    with torch.no_grad():
        assert_close(found, model.sample(torch.from_numpy(obs), torch.from_numpy(noise))[0])


def _assert_explores(model: Any, network: Any, obs: np.ndarray, expected: np.ndarray) -> None:
    """Noise of a given matrix, and its log-probability, equal the torch form of both."""
    matrices = np.random.default_rng(3).standard_normal((len(obs), *model.noise_shape), dtype=np.float32)
    found, extras = model.explore(obs, matrices)
    mean, log_std = (torch.from_numpy(part) for part in np.split(expected, 2, 1))
    with torch.no_grad():
        features = network[:-1](model._input(torch.from_numpy(obs)))
        noise = torch.einsum("bf,bfa->ba", features, torch.from_numpy(matrices) * network[-1].log_std.exp())
    if isinstance(model, MLPActorCritic):
        assert_close(found, mean + noise)
        assert_close(extras["log_probs"], torch.distributions.Normal(mean, log_std.exp()).log_prob(mean + noise).sum(1))
    else:
        assert_close(found, torch.tanh(mean + noise))


def learn_a_little(model: Any, optimizer: Optimizer) -> None:
    # A larger step could saturate a softmax or tanh after a wide encoder.
    optimizer.set_learning_rate(0.002 if sees_images(model) else 0.05)
    # The loss contains every parameter, so that every parameter has a gradient.
    optimizer.step(outputs_of(model).square().mean() + sum(p.square().sum() for p in model.parameters()) * 0.01)
