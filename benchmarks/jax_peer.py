"""A worker that trains PPO on CartPole with one function of JAX per update: env, acting, GAE and all gradient steps.

It is the fastest form that the algorithm has without a new language: nothing returns to Python within an update. The
work is that of our row: the same networks, epochs, minibatches, optimizer and clipping; CartPole-v1 with its limit of
500 steps, and values of true final observations where the limit cut an episode.

    python benchmarks/jax_peer.py learn         train for 500,000 steps and print the mean length of episodes
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from windows import Windows

LIMIT = 500
GRAVITY, POLE_MASS, TOTAL_MASS, HALF_LENGTH, FORCE, SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
GAMMA, LAMBDA, CLIP, VALUE_COEF, MAX_NORM, LEARNING_RATE = 0.99, 0.95, 0.2, 0.5, 0.5, 3e-4


class Run(NamedTuple):
    """All that an update changes."""

    parameters: Any
    moments: Any
    state: jax.Array  # of the envs [4, N]
    elapsed: jax.Array
    key: jax.Array


class Rows(NamedTuple):
    """What a step leaves, and what the update computes from it."""

    obs: jax.Array
    actions: jax.Array
    log_probs: jax.Array
    values: jax.Array
    rewards: jax.Array
    terminated: jax.Array
    ends: jax.Array
    next_values: jax.Array
    lengths: jax.Array


def layers(key: jax.Array, sizes: list[int], output_gain: float) -> list[tuple[jax.Array, jax.Array]]:
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [2**0.5] * (len(sizes) - 2) + [output_gain]
    return [
        (jax.nn.initializers.orthogonal(gain)(each, (fan_in, fan_out)), jnp.zeros(fan_out))
        for each, gain, fan_in, fan_out in zip(keys, gains, sizes, sizes[1:], strict=False)
    ]


def forward(network: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for weight, bias in network[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = network[-1]
    return x @ weight + bias


def physics(state: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The next state and whether the pole has fallen."""
    _, speed, angle, spin = state
    push = jnp.where(actions == 1, FORCE, -FORCE)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    shared = (push + POLE_MASS * HALF_LENGTH * spin**2 * sine) / TOTAL_MASS
    spin_rate = (GRAVITY * sine - cosine * shared) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS))
    speed_rate = shared - POLE_MASS * HALF_LENGTH * spin_rate * cosine / TOTAL_MASS
    state = state + SECONDS * jnp.stack([speed, speed_rate, spin, spin_rate])
    return state, (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)


def step(parameters: Any, carry: tuple[jax.Array, ...], key: jax.Array) -> tuple[tuple[jax.Array, ...], Rows]:
    """One step of every env."""
    state, elapsed = carry
    acting, starting = jax.random.split(key)
    obs = state.T
    logits, values = forward(parameters["actor"], obs), forward(parameters["critic"], obs)[:, 0]
    actions = jax.random.categorical(acting, logits)
    log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], 1)[:, 0]
    state, terminated = physics(state, actions)
    elapsed = elapsed + 1
    done = terminated | (elapsed >= LIMIT)
    next_values = forward(parameters["critic"], state.T)[:, 0]  # of the true successor
    starts = jax.random.uniform(starting, state.shape, minval=-0.05, maxval=0.05)
    rows = Rows(obs, actions, log_probs, values, jnp.ones_like(values), terminated, done, next_values, elapsed)
    return (jnp.where(done, starts, state), jnp.where(done, 0, elapsed)), rows


def advantages_of(rows: Rows) -> jax.Array:
    """GAE."""
    discounts = GAMMA * (1 - rows.terminated)
    deltas = rows.rewards + discounts * rows.next_values - rows.values
    traces = discounts * LAMBDA * (1 - rows.ends)

    def backward(running: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, trace = pair
        running = delta + trace * running
        return running, running

    return jax.lax.scan(backward, jnp.zeros_like(deltas[0]), (deltas, traces), reverse=True)[1]


def loss_of(parameters: Any, rows: Rows, advantages: jax.Array, returns: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(forward(parameters["actor"], rows.obs))
    log_probs = jnp.take_along_axis(logits, rows.actions[:, None], 1)[:, 0]
    ratio = jnp.exp(log_probs - rows.log_probs)
    advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    policy_loss = -jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages).mean()
    values = forward(parameters["critic"], rows.obs)[:, 0]
    return policy_loss + VALUE_COEF * 0.5 * jnp.square(values - returns).mean()


@partial(jax.jit, static_argnums=(1, 2, 3, 4), donate_argnums=0)
def update(run: Run, num_steps: int, minibatch_size: int, epochs: int, optimizer: Any) -> tuple[Run, jax.Array]:
    """Collect a rollout and learn from it. Returns the mean length of the episodes that ended in it, or 0."""
    key, acting, shuffling = jax.random.split(run.key, 3)
    keys = jax.random.split(acting, num_steps)
    (state, elapsed), rows = jax.lax.scan(partial(step, run.parameters), (run.state, run.elapsed), keys)
    advantages = advantages_of(rows)
    returns = advantages + rows.values
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (rows, advantages, returns))
    size = advantages.size

    def learn(carry: tuple[Any, Any], indices: jax.Array) -> tuple[tuple[Any, Any], None]:
        parameters, moments = carry
        gradients = jax.grad(loss_of)(parameters, *jax.tree.map(lambda x: x[indices], flat))
        changes, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(parameters, changes), moments), None

    orders = [jax.random.permutation(each, size) for each in jax.random.split(shuffling, epochs)]
    indices = jnp.concatenate(orders).reshape(-1, minibatch_size)
    (parameters, moments), _ = jax.lax.scan(learn, (run.parameters, run.moments), indices)
    length = (rows.lengths * rows.ends).sum() / jnp.maximum(rows.ends.sum(), 1)
    return Run(parameters, moments, state, elapsed, key), length


def start(envs: int, net: list[int], seed: int) -> tuple[Run, Any]:
    actor, critic, first, key = jax.random.split(jax.random.key(seed), 4)
    parameters = {"actor": layers(actor, [4, *net, 2], 0.01), "critic": layers(critic, [4, *net, 1], 1.0)}
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(LEARNING_RATE, eps=1e-5))
    state = jax.random.uniform(first, (4, envs), minval=-0.05, maxval=0.05)
    return Run(parameters, optimizer.init(parameters), state, jnp.zeros(envs, jnp.int32), key), optimizer


def learn() -> None:
    """Show that it learns the task."""
    for seed in range(3):
        run, optimizer = start(8, [64, 64], seed)
        lengths = []
        for _ in range(500_000 // 1024):
            run, length = update(run, 128, 256, 4, optimizer)
            lengths.append(float(length))
        ended = [length for length in lengths[-100:] if length]
        print(f"seed {seed}: mean length of the episodes of the last 100 updates: {sum(ended) / len(ended):.0f}")


def main() -> None:
    if sys.argv[1:] == ["learn"]:
        learn()
        return
    work, warm_up = json.loads(sys.argv[1]), float(sys.argv[2])
    kwargs, envs = work["kwargs"], work["envs"]
    run, optimizer = start(envs, work["net"], 0)
    env_steps, windows = 0, None
    while True:
        run, length = update(run, kwargs["n_steps"], kwargs["batch_size"], kwargs["n_epochs"], optimizer)
        length.block_until_ready()  # ours reads its metrics after every update, too
        env_steps += envs * kwargs["n_steps"]
        windows = windows or Windows(warm_up)
        if not windows.between_rounds(env_steps):
            return


if __name__ == "__main__":
    main()
