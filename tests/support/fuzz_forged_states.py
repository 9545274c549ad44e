"""Defects of the fifth look, as fixed cases of the fuzzer: forged states of the newer algorithms, and clusters."""

from __future__ import annotations

from typing import Any

from fuzz_cases import Case
from fuzz_mutations import FillTensor, Mutation, SetValue, Sign
from fuzz_tree import ACKTR, APEX, DQN, NOVEL, PPO, R2D2
from fuzz_values import Raw

LAST = "checkpoints/step-000000000064"
UNFIT = "does not fit this version"
FOREIGN = "that is not known to be yours names"
NAN = {"$float": "nan"}

FORGED: dict[str, Case] = {}


def _resume(name: str, run: str, *mutations: Mutation, words: tuple[str, ...] = (), **facts: Any) -> None:
    arguments = ["resume", f"{run}/{LAST}", "--total-timesteps", "96", "--quiet", *words]
    FORGED[f"G resume, {name}"] = Case(f"G resume, {name}", arguments, (*mutations, Sign(f"{run}/{LAST}")), **facts)


def _state(run: str, *place: Any, value: Any) -> SetValue:
    return SetValue(f"{run}/{LAST}/state.json", place, value)


SEGMENT = "replay/segment-000000000000-000000000016.safetensors"
for number in (-1e6, 2.0**62, 2.0):
    for run in (DQN, R2D2, APEX):
        name = f"{run.rpartition('/')[2]}, actions in replay are {number:g}"
        _resume(name, run, FillTensor(f"{run}/{SEGMENT}", "actions", number), code=5, says="an action is not one of")
for value in (NAN, 0.0, -1.0, {"$float": "inf"}, "x"):
    _resume(f"the largest priority is {value}", DQN, _state(DQN, "loop", "buffer", "max_priority", value=value), code=5)
for number in (float("inf"), float("nan"), -1e6):
    steps = FillTensor(f"{ACKTR}/{LAST}/tensors.safetensors", "learner/parts/optimizer/steps", number)
    _resume(f"acktr, optimizer steps are {number}", ACKTR, steps, code=5)
for key in ("count", "mean", "variance"):
    for value in (None, [], {}, "x", NAN, Raw("1" * 400)):
        scale = _state(NOVEL, "learner", "parts", "novelty", "scale", key, value=value)
        _resume(f"{key} of the scale of novelty is {value}", NOVEL, scale, code=5)
_resume("running returns of novelty are NaN", NOVEL,
        FillTensor(f"{NOVEL}/{LAST}/tensors.safetensors", "learner/parts/novelty/scale/running", float("nan")),
        code=5)  # fmt: skip
for key, value in (("bit_generator", 3), ("uinteger", 10**30), ("has_uint32", []), ("state", None)):
    position = _state(APEX, "loop", "fleet", "streams", "1", "warm_up", key, value=value)
    _resume(f"{key} of a stream of an actor is {value}", APEX, position, code=5)

# A run from elsewhere names a Ray cluster. Nothing is looked for at the address.
for address in (None, "auto", "127.0.0.1:9", "[::1]:9"):
    settings = {"backend": "ray", "address": address}
    named = tuple(SetValue(f"{PPO}/{LAST}/config.json", ("runtime", key), value) for key, value in settings.items())
    _resume(f"a Ray cluster of a stranger, {address}", PPO, *named, code=2, says=FOREIGN)
    _resume(f"a Ray cluster of a stranger, {address}, not used", PPO, *named, code=0,
            words=("--set", "runtime.backend=inline", "--set", "runtime.address=null"))  # fmt: skip
