"""Updates of TQC, TD7, CrossQ and REDQ, and batch renormalization, of other authors, used by record_oracles.py.

Each case is an update of small networks on a small batch, with given noise and given random choices. But for TD7, no
optimizer moves a weight, so all gradients are those of the recorded weights. Weights are lists of [weight, bias], one
for each linear layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

Recorded = tuple[str, dict[str, Any], dict[str, Any]]
OBS, ACTIONS, UNITS, ROWS, GAMMA, ALPHA = 3, 2, 4, 6, 0.9, 0.3


class NoStep(torch.optim.SGD):
    """Keeps the gradients of every step and moves nothing."""

    def __init__(self, parameters: Any, lr: float = 0.0, **options: Any):
        super().__init__(parameters, lr=lr)
        self.gradients: list[Tensor] = []

    def step(self, closure: Any = None) -> None:
        self.gradients = [p.grad.clone() for group in self.param_groups for p in group["params"]]


@contextmanager
def given_noise(*draws: Tensor) -> Iterator[None]:
    """Normal distributions return these draws, in order."""
    remaining = iter(draws)
    reparameterized = mock.patch("torch.distributions.normal._standard_normal", lambda *_, **__: next(remaining))
    with reparameterized, mock.patch("torch.normal", lambda mean, std: mean + std * next(remaining)):
        yield


def some_batch(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    batch = {name: torch.randn(ROWS, OBS, generator=generator) for name in ("obs", "next_obs")}
    batch["actions"] = 2 * torch.rand(ROWS, ACTIONS, generator=generator) - 1
    batch["rewards"] = 3 * torch.randn(ROWS, generator=generator)
    batch["terminated"] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    batch |= {name: torch.randn(ROWS, ACTIONS, generator=generator) for name in ("noise", "next_noise")}
    return batch


def layers_of(network: nn.Module) -> list[list[Tensor]]:
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    return [[layer.weight.detach().clone(), layer.bias.detach().clone()] for layer in linear]


def tqc() -> Iterator[Recorded]:
    """`TQC.train` of sb3-contrib. Its log-probabilities are off by about 1e-4: an epsilon is inside a logarithm."""
    import gymnasium as gym
    from sb3_contrib import TQC

    class Env(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-1.0, 1.0, (OBS,), np.float32)
        action_space = gym.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)

    for seed, dropped, critics in ((31, 1, 2), (32, 2, 3)):
        kwargs = {"net_arch": [UNITS], "n_quantiles": 5, "n_critics": critics, "activation_fn": nn.Tanh}
        kwargs |= {"optimizer_class": NoStep}
        agent = TQC(
            "MlpPolicy", Env(), seed=seed, gamma=GAMMA, tau=0.0, ent_coef=ALPHA, policy_kwargs=kwargs,
            top_quantiles_to_drop_per_net=dropped, buffer_size=10, device="cpu",
        )  # fmt: skip
        target = agent.critic_target
        with torch.no_grad():
            for parameter in target.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        batch = some_batch(seed)
        sample = SimpleNamespace(
            observations=batch["obs"], next_observations=batch["next_obs"], actions=batch["actions"],
            rewards=batch["rewards"][:, None], dones=batch["terminated"][:, None], discounts=None,
        )  # fmt: skip
        agent._logger = SimpleNamespace(record=lambda *arguments, **options: None)
        agent.replay_buffer = SimpleNamespace(sample=mock.Mock(return_value=sample))
        with given_noise(batch["noise"], batch["next_noise"]):
            agent.train(1, ROWS)
        actor = agent.actor
        inputs = dict(batch) | {"gamma": GAMMA, "alpha": ALPHA, "dropped": dropped}
        inputs["actor"] = [*layers_of(actor.latent_pi), *layers_of(actor.mu), *layers_of(actor.log_std)]
        inputs["critics"] = [layers_of(network) for network in agent.critic.q_networks]
        inputs["target_critics"] = [layers_of(network) for network in target.q_networks]
        named = dict(zip((name for name, _ in actor.named_parameters()), actor.optimizer.gradients, strict=True))
        order = ("latent_pi.0", "mu", "log_std")
        outputs = {
            "actor": [[named[f"{name}.weight"], named[f"{name}.bias"]] for name in order],
            "critics": agent.critic.optimizer.gradients,  # weight, bias, layer by layer, critic by critic
        }
        yield "sb3_contrib TQC.train", inputs, outputs


def td7() -> Iterator[Recorded]:
    """Five updates by the authors' Agent.train: all networks, the bounds of the targets, and the priorities."""
    from TD7 import Agent, Hyperparameters

    torch.manual_seed(38)
    small = {"zs_dim": UNITS, "enc_hdim": UNITS, "critic_hdim": UNITS, "actor_hdim": UNITS}
    rates = {"encoder_lr": 1e-2, "critic_lr": 1e-2, "actor_lr": 1e-2}
    settings = Hyperparameters(batch_size=ROWS, buffer_size=10, discount=GAMMA, target_update_rate=2, **small, **rates)
    agent = Agent(OBS, ACTIONS, 1.0, hp=settings)
    names = ("actor", "critic", "encoder", "fixed_encoder", "actor_target", "critic_target", "fixed_encoder_target")
    inputs: dict[str, Any] = {name: layers_of(getattr(agent, name)) for name in ("actor", "critic", "encoder")}
    inputs |= {"gamma": GAMMA, "copy_every": 2, "learning_rate": 1e-2, "batches": []}
    errors = []
    agent.replay_buffer = SimpleNamespace(update_priority=errors.append, reset_max_priority=lambda: None)
    for number in range(5):
        batch = some_batch(39 + number)
        inputs["batches"].append(batch)
        columns = (batch["rewards"][:, None], 1 - batch["terminated"][:, None])
        rows = (batch["obs"], batch["actions"], batch["next_obs"], *columns)
        agent.replay_buffer.sample = mock.Mock(return_value=rows)
        with mock.patch("torch.randn_like", mock.Mock(return_value=batch["noise"])):
            agent.train()
    outputs = {name: layers_of(getattr(agent, name)) for name in names}
    outputs |= {"min": agent.min, "max": agent.max, "min_target": agent.min_target, "max_target": agent.max_target}
    outputs["priorities"] = torch.stack(errors).detach()
    yield "sfujim/TD7 Agent.train at c1c280d", inputs, outputs


class GaussianParameters(nn.Module):
    """Mean and standard deviation, as torchrl's distributions take them."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.network(obs).chunk(2, -1)
        return mean, log_std.clamp(-20, 2).exp()


class Critic(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.network(torch.cat([obs, actions], -1))


def torchrl_parts(actor: nn.Module, critics: list[nn.Module], batch: dict[str, Tensor]) -> tuple[Any, list[Any], Any]:
    """Actor, critics and batch as torchrl takes them."""
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor, TanhNormal

    module = TensorDictModule(GaussianParameters(actor), in_keys=["observation"], out_keys=["loc", "scale"])
    policy = ProbabilisticActor(
        module, in_keys=["loc", "scale"], distribution_class=TanhNormal, return_log_prob=True,
        distribution_kwargs={"tanh_loc": False, "safe_tanh": False},
    )  # fmt: skip
    keys = {"in_keys": ["observation", "action"], "out_keys": ["state_action_value"]}
    values = [TensorDictModule(Critic(critic), **keys) for critic in critics]
    ended = batch["terminated"][:, None] > 0
    next_rows = {"observation": batch["next_obs"], "reward": batch["rewards"][:, None]}
    rows = TensorDict(
        {"observation": batch["obs"], "action": batch["actions"]}
        | {"next": TensorDict(next_rows | {"done": ended, "terminated": ended}, [ROWS])},
        [ROWS],
    )
    return policy, values, rows


def with_batch_norm(inputs: int, outputs: int) -> nn.Sequential:
    def norm(size: int) -> nn.BatchNorm1d:
        return nn.BatchNorm1d(size, eps=1e-3, momentum=0.01)

    network = nn.Sequential(norm(inputs), nn.Linear(inputs, UNITS), nn.Tanh(), norm(UNITS), nn.Linear(UNITS, outputs))
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand_like(tensor))
    return network


def statistics_of(network: nn.Module) -> list[list[Tensor]]:
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm1d)]
    names = ("weight", "bias", "running_mean", "running_var")
    return [[getattr(norm, name).detach().clone() for name in names] for norm in norms]


def crossq() -> Iterator[Recorded]:
    """`CrossQLoss` of torchrl with torch's batch norm, and the modes that the paper gives to each pass."""
    from torchrl.objectives import CrossQLoss

    for seed in (33, 34):
        torch.manual_seed(seed)
        actor = with_batch_norm(OBS, 2 * ACTIONS)
        critics = [with_batch_norm(OBS + ACTIONS, 1) for _ in range(2)]
        batch = some_batch(seed)
        inputs = dict(batch) | {"gamma": GAMMA, "alpha": ALPHA, "actor": layers_of(actor)}
        inputs["critics"] = [layers_of(critic) for critic in critics]
        inputs["actor_norms"] = statistics_of(actor)
        inputs["critic_norms"] = [statistics_of(critic) for critic in critics]
        policy, values, rows = torchrl_parts(actor, critics, batch)
        loss = CrossQLoss(
            policy, values, num_qvalue_nets=2, loss_function="l2", alpha_init=ALPHA, fixed_alpha=True,
            target_entropy=-float(ACTIONS), deactivate_vmap=True,
        )  # fmt: skip
        loss.make_value_estimator(gamma=GAMMA)
        loss.actor_network.eval()
        with given_noise(batch["next_noise"]):
            critic_loss, _ = loss.qvalue_loss(rows)
        critic_slopes = gradients_by_name(critic_loss, loss.qvalue_network_params)
        loss.actor_network.train()
        with given_noise(batch["noise"]):
            actor_loss, _ = loss.actor_loss(rows)
        actor_slopes = gradients_by_name(actor_loss, loss.actor_network_params)
        running = loss.qvalue_network_params.flatten_keys(".")
        outputs = {"critic_loss": critic_loss.detach(), "actor_loss": actor_loss.detach()}
        outputs |= {"critic_gradients": critic_slopes, "actor_gradients": actor_slopes}
        outputs["critic_means"] = {name: value for name, value in running.items() if name.endswith("running_mean")}
        yield "torchrl CrossQLoss", inputs, outputs


def gradients_by_name(loss: Tensor, parameters: Any) -> dict[str, Tensor]:
    named = {name: value for name, value in parameters.flatten_keys(".").items() if value.requires_grad}
    slopes = torch.autograd.grad(loss, list(named.values()), retain_graph=True)
    return dict(zip(named, slopes, strict=True))


def redq() -> Iterator[Recorded]:
    """`REDQLoss` of torchrl, whose mean over critics and rows is ours divided by the number of critics."""
    from torchrl.objectives import REDQLoss

    for seed, chosen in ((35, [0, 2]), (36, [1, 3])):
        torch.manual_seed(seed)
        count = 4
        actor = nn.Sequential(nn.Linear(OBS, UNITS), nn.Tanh(), nn.Linear(UNITS, 2 * ACTIONS))
        critics = [nn.Sequential(nn.Linear(OBS + ACTIONS, UNITS), nn.Tanh(), nn.Linear(UNITS, 1)) for _ in range(count)]
        batch = some_batch(seed)
        policy, values, rows = torchrl_parts(actor, critics, batch)
        loss = REDQLoss(
            policy, values, num_qvalue_nets=count, sub_sample_len=2, loss_function="l2", alpha_init=ALPHA,
            fixed_alpha=True, target_entropy=-float(ACTIONS), deactivate_vmap=True,
        )  # fmt: skip
        loss.make_value_estimator(gamma=GAMMA)
        with torch.no_grad():
            loss.target_qvalue_network_params.apply(lambda tensor: tensor.data.add_(0.3 * torch.randn_like(tensor)))
        inputs = dict(batch) | {"gamma": GAMMA, "alpha": ALPHA, "chosen": chosen, "actor": layers_of(actor)}
        inputs["critics"] = [layers_of(critic) for critic in critics]
        targets = loss.target_qvalue_network_params.flatten_keys(".")
        inputs["target_critics"] = {name: value.data.clone() for name, value in targets.items()}
        order = torch.tensor([*chosen, *(index for index in range(count) if index not in chosen)])
        both = torch.stack([batch["noise"], batch["next_noise"]])
        with mock.patch("torch.randperm", mock.Mock(return_value=order)), given_noise(both):
            found = loss(rows)
        outputs = {name: found[name].detach() for name in ("loss_actor", "loss_qvalue", "target_value")}
        outputs["critic_gradients"] = gradients_by_name(found["loss_qvalue"], loss.qvalue_network_params)
        outputs["actor_gradients"] = gradients_by_name(found["loss_actor"], loss.actor_network_params)
        yield "torchrl REDQLoss", inputs, outputs


def batch_renorm() -> Iterator[Recorded]:
    """Outputs and running means of sb3-contrib's layer, before and after its warm-up.

    It uses the unbiased variance and adds epsilon at other places: with 200 rows, that is half a percent.
    """
    from sb3_contrib.common.torch_layers import BatchRenorm1d

    torch.manual_seed(37)
    layer = BatchRenorm1d(3, warmup_steps=1, momentum=0.1)
    shifts = torch.tensor([[0.0, 2.0, -1.0]]), torch.tensor([[4.0, 2.0, 60.0]]), torch.tensor([[0.5, -30.0, 1.0]])
    batches = [5 * torch.randn(200, 3) * (1 + number) + shift for number, shift in enumerate(shifts)]
    outputs = [layer(batch).detach()[:5] for batch in batches]
    inputs = {"batches": batches, "momentum": 0.1}
    yield "sb3_contrib BatchRenorm1d", inputs, {"outputs": outputs, "running_mean": layer.ra_mean}
