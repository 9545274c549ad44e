"""An algorithm of your own in one file, without a fork of the library.

The idea: repeat what worked. After each rollout the policy imitates the actions that turned out better than the value
function expected. The library does the rest: environments, rollouts, checkpoints, exact resume, metrics, evaluation.

Run it with: python examples/own_algorithm.py
"""

from __future__ import annotations

from torch import Tensor

from rl_training.algorithms.common.learner import Learner, UpdateResult
from rl_training.algorithms.common.on_policy import policy_batch
from rl_training.algorithms.common.streams import Streams
from rl_training.config.algorithm_table import EVERY_ACTION, Algorithm
from rl_training.config.base import NormalizeAdvantages, NumSteps, OnPolicyConfig
from rl_training.config.train_config import TrainConfig
from rl_training.data.rollout import Rollout
from rl_training.envs.spaces import Spaces
from rl_training.models.mlp_actor_critic import MLPActorCritic


# 1. The settings. A rollout algorithm inherits gamma, learning_rate, entropy_coef and more.
class RepeatConfig(OnPolicyConfig):
    num_steps: NumSteps = 64
    normalize_advantages: NormalizeAdvantages = False


# 2. The loss: a pure function of tensors, easy to test on paper. It returns the loss and named metrics.
def repeat_loss(log_probs: Tensor, values: Tensor, advantages: Tensor, returns: Tensor) -> tuple[Tensor, dict]:
    """L = -mean 1[A > 0] log pi(a|s)  +  1/2 mean (R - V(s))^2.   All inputs [B]."""
    worked = (advantages > 0).float()
    policy_loss = -(worked * log_probs).mean()
    value_loss = 0.5 * (returns - values).square().mean()
    metrics = {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach(), "worked": worked.mean()}
    return policy_loss + value_loss, metrics


# 3. The learner: networks, an optimizer, and one update. How to act is inherited: ask the policy.
class Repeat(Learner[RepeatConfig]):
    def __init__(self, spaces: Spaces, config: TrainConfig, streams: Streams) -> None:
        super().__init__(spaces, config, streams)
        self.model = self.build(lambda: MLPActorCritic(spaces, config.model))
        self.optimizer = self.add_optimizer(self.model, self.config.learning_rate)

    def update(self, rollout: Rollout) -> UpdateResult:
        # Flattens the rollout and computes advantages. Terminated and truncated episodes are handled there.
        batch = policy_batch(rollout, self.model, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        self.set_learning_rates()
        log_probs, _, values = self.model.evaluate_actions(batch.obs, batch.actions)
        loss, metrics = repeat_loss(log_probs, values, batch.advantages, batch.returns)
        metrics["grad_norm"] = self.optimizer.step(loss)
        self.updates += 1
        return UpdateResult(metrics)


# 4. The declaration. After `register(REPEAT)`, `algo: repeat` is a name like any other in this process. The command
#    line knows the name if you install this file with an entry point for the row (docs/own-algorithm.md).
REPEAT = Algorithm(
    "repeat",
    title="Repeat what worked",
    paper="none, it is only an example",
    loop="on-policy",
    actions=EVERY_ACTION,
    class_name="Repeat",
    config=RepeatConfig,
    learner=Repeat,
)


def main(total_timesteps: int = 30_000) -> None:
    from rl_training.api.algorithms import managed_class  # to train with the file, not to write it
    from rl_training.config.algorithm_table import register

    register(REPEAT)
    agent = managed_class("repeat")("CartPole-v1", seed=0, num_envs=8, num_steps=32, learning_rate=3e-3)
    print(f"before: {agent.evaluate(episodes=20).mean_return:.1f}")
    agent.learn(total_timesteps, show=False)
    print(f"after:  {agent.evaluate(episodes=20).mean_return:.1f}")
    print(managed_class("repeat").load(agent.save("repeat-agent")))


if __name__ == "__main__":
    main()
