"""Defects that an attack on the library found, each as a fixed case of the fuzzer. The first word is the finding.

The findings that need a live process, a signal or the Python API have drills and tests of their own.
"""

from __future__ import annotations

from typing import Any

from fuzz_cases import Case
from fuzz_choices import GOALS, MASKS
from fuzz_forged_states import FORGED
from fuzz_mutations import (
    MOVED,
    AddKeys,
    Become,
    FillTensors,
    Hold,
    Mutation,
    Rename,
    SetContent,
    SetValue,
    Sign,
    header_of,
)
from fuzz_tree import (
    BAND,
    CONFIG,
    CRASH_FILE,
    DQN,
    MANIFEST,
    OWN,
    PPO,
    PRESET,
    REPLAY_CONFIG,
    RESULTS,
    SECRET,
    ZOO_RUNS,
)
from fuzz_values import CALENDAR, ESCAPES, LONG_DIGITS, LONG_NAME, Raw, shortened

NEWEST = f"{PPO}/checkpoints/step-000000000064"
ZOO_RUN = f"{ZOO_RUNS}/calm-seed0"
OF_ZOO = f"{ZOO_RUN}/checkpoints/step-000000000064"
LINKS = ("link to a file outside", "hard link to a file outside", "dangling link")
ODD = {"text": "text", "list": [], "1e999": Raw("1e999"), "400 digits": Raw("1" * 400)}
UNSCORED = Become(f"{ZOO_RUN}/score.json", "missing")

TRAIN = ["train", CONFIG, "--quiet"]
RESUME_PPO, RESUME_DQN = (["resume", run, "--total-timesteps", "96", "--quiet"] for run in (PPO, DQN))
LIST = ["list", "runs"]
INSPECT, PREDICT = ["inspect", NEWEST], ["predict", NEWEST, "--obs", "[0, 0, 0, 0]"]
TABLE = ["zoo", "table", MANIFEST, "--seeds", "3", "--output-dir", ZOO_RUNS]
DRY_RUN = ["zoo", "run", *TABLE[2:], "--dry-run", "--budget-fraction", "0.5"]
CHECK = ["check", PRESET, "--band", BAND, "--quiet"]

DEFECTS: dict[str, Case] = dict(FORGED)


def _add(name: str, arguments: list[str], *mutations: Mutation, **facts: Any) -> None:
    assert name not in DEFECTS, name
    DEFECTS[name] = Case(name, arguments, mutations, **facts)


def _forged(file: str, *place: Any, value: Any, checkpoint: str = NEWEST) -> tuple[Mutation, Mutation]:
    return SetValue(f"{checkpoint}/{file}", place, value), Sign(checkpoint)


def _with_env(env: str) -> tuple[Mutation, Mutation]:
    return _forged("config.json", "env_id", value=f"fuzz_envs:{env}-v0", checkpoint=OF_ZOO)


# A: loses data.
for kind in LINKS:
    for file in ("lock", "metrics.jsonl", "metrics.csv.tmp", "config.yaml", "run.json"):
        _add(f"A3 resume, {file} is a {kind}", RESUME_PPO, Become(f"{PPO}/{file}", kind))
    _add(f"A3 play, .play.partial.gif is a {kind}", ["play", PPO], Become(f"{PPO}/.play.partial.gif", kind))
for folder in ("checkpoints", "replay"):
    _add(f"A3 resume, {folder} is a link", RESUME_DQN, Become(f"{DQN}/{folder}", MOVED))
for env in ("DamagesRunFile", "RemovesRunFile", "MovesRun", "RemovesRun", "Wanders"):
    _add(f"A4 train, {env}", TRAIN, SetValue(CONFIG, ("env_id",), f"fuzz_envs:{env}-v0"))
_add("A5 resume of a run in use", RESUME_PPO, Hold(f"{PPO}/lock"), must_fail=True, keeps=(PPO,))

# B: breaks a promise about time and memory.
HUGE_BOX = {"type": "box", "low": -1.0, "high": 1.0, "shape": [2**28], "dtype": "float32"}
FLOAT8 = {"dtype": "F8_E4M3", "shape": [32], "data_offsets": [0, 32]}
EMPTY, POINTER = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, {"$tensor": "extra", "$kind": "torch"}
EXTRA = {f"extra/t{number}": EMPTY for number in range(19_000)}
MANY_TENSORS = (
    SetContent(f"{NEWEST}/tensors.safetensors", header_of(EXTRA)),
    SetValue(f"{NEWEST}/state.json", ("learner",), {name: POINTER | {"$tensor": name} for name in EXTRA}),
)
ONE_FLOAT8 = (
    SetContent(f"{NEWEST}/tensors.safetensors", header_of({"extra": FLOAT8}) + bytes(32)),
    SetValue(f"{NEWEST}/state.json", ("learner",), POINTER),
)
for command in (INSPECT, PREDICT):
    _add(f"B1 {command[0]}, Box of 2^28", command, *_forged("state.json", "spaces", "observation", value=HUGE_BOX))
    _add(f"B2 {command[0]}, F8 dtype", command, *ONE_FLOAT8, Sign(NEWEST))
    _add(f"B2 {command[0]}, 19,000 empty tensors", command, *MANY_TENSORS, Sign(NEWEST))
    _add(f"B2 {command[0]}, model is 3", command, *_forged("config.json", "model", value=3))
for name, sizes in {"8000 x 8000": [8_000, 8_000], "2^31": [2**31], "100,000 layers": [64] * 100_000}.items():
    _add(f"B2 predict, layers {name}", PREDICT, *_forged("config.json", "model", "hidden_sizes", value=sizes))
many_keys = AddKeys(f"{NEWEST}/manifest.json", ("fingerprint",), 200_000, "x")
_add("B2 inspect, 200,000 keys in the fingerprint", INSPECT, many_keys, Sign(NEWEST))
for digits in ("1" * 8_000 + "x", LONG_DIGITS):
    name = f"{len(digits)} characters"
    text = f"algo: ppo\nseed: {digits}\n".encode()
    _add(f"B3 train, a YAML number of {name}", TRAIN, SetContent(CONFIG, text), must_fail=True)
    _add(f"B3 train --set, a number of {name}", [*TRAIN, "--set", f"seed={digits}"], must_fail=True)
    _add(f"B3 zoo table, a number of {name}", TABLE, SetContent(f"{ZOO_RUN}/config.yaml", text), UNSCORED)
KEYS = b"".join(b"key%d: 1\n" % number for number in range(70_000))
for name, text in {
    "equal keys": b"key: 1\n" * 128_000,
    "keys": KEYS,
    "list": b"seed: [" + b"1," * 450_000 + b"1]",
}.items():
    _add(f"B3 train, 900 KB of YAML, {name}", TRAIN, SetContent(CONFIG, text), must_fail=True)

# C: wrong exit code, or a crash.
for env in ("fuzz_exits:Gone-v0", "fuzz_envs:ExitsInConstructor-v0", "fuzz_envs:ExitsInStep-v0"):
    forged = _forged("config.json", "env_id", value=env, checkpoint=OF_ZOO)
    # A failure in a step is known by the env's index and seed, the others by the env's id.
    failed: dict[str, Any] = {"code": 3, "says": "SystemExit: 0" if "Step" in env else env}
    _add(f"C1 train, {env}", TRAIN, SetValue(CONFIG, ("env_id",), env), **failed)
    _add(f"C1 eval, {env}", ["eval", OF_ZOO], *forged, **failed)
    _add(f"C1 play, {env}", ["play", OF_ZOO], *forged, **failed)
    _add(f"C1 resume, {env}", ["resume", OF_ZOO, *RESUME_PPO[2:]], *forged, **failed)
    _add(f"C1 reproduce, {env}", ["reproduce", CRASH_FILE], SetValue(CRASH_FILE, ("env_id",), env), **failed)
for threads in (100_000, 10**9):
    forged = _forged("config.json", "threads", value=threads)
    _add(f"C2 train, {threads} threads", [*TRAIN, "--set", f"threads={threads}"], must_fail=True)
    _add(f"C2 resume, {threads} threads", ["resume", NEWEST, *RESUME_PPO[2:]], *forged)
for command in (LIST, ["eval", "latest"], ["eval", "dqn"], ["inspect", "best"], ["resume", "latest"]):
    _add(f"C3 {' '.join(command)}, a run that cannot be read", command, Become(PPO, "unreadable"))
for moment in CALENDAR[:2]:
    _add(f"C3 list runs, created {moment}", LIST, SetValue(f"{PPO}/run.json", ("created",), moment))
for words in ("inspect", "eval", "resume", "train", "check", "reproduce", "zoo list", "list settings"):
    _add(f"C4 {words}, a name of 300 letters", [*words.split(), LONG_NAME], must_fail=True)
for name, command in {"--results": TABLE, "--band": ["check", PRESET], "--output-dir": TRAIN}.items():
    _add(f"C4 {name} of 300 letters", [*command, name, LONG_NAME], must_fail=True)
_add("C4 list runs --output-dir of 300 letters", [*LIST, "--output-dir", LONG_NAME])
_add("C4 play --gif of 300 letters", ["play", PPO, "--gif", f"{LONG_NAME}.gif"], must_fail=True)
_add("C4 usage, an argument of 100,000 letters", ["list", "x" * 100_000], must_fail=True)
_add("C4 eval, 1e12 episodes", ["eval", PPO, "--episodes", str(10**12)], must_fail=True)
_add("C4 play, 1e12 episodes", ["play", PPO, "--gif", "new.gif", "--episodes", str(10**12)], must_fail=True)
for fps in ("0.0001", "1e-300"):
    _add(f"C4 play, {fps} frames per second", ["play", PPO, "--gif", "new.gif", "--fps", fps])
for command in (LIST, INSPECT, [*INSPECT, "--json"], TRAIN, PREDICT, TABLE, ["eval", PPO], ["--help"], ["--version"]):
    for stdout in ("closed", "full", "pipe nobody reads"):
        _add(f"C4 {' '.join(command[:3])}, stdout {stdout}", command, stdout=stdout)
_add("C4 train, env.close raises", TRAIN, SetValue(CONFIG, ("env_id",), "fuzz_envs:RaisesInClose-v0"))
for env in ("RaisesInClose", "NoRender"):
    _add(f"C4 eval, {env}", ["eval", OF_ZOO], *_with_env(env))
    _add(f"C4 play, {env}", ["play", OF_ZOO], *_with_env(env))
_add("C4 predict, stdin is not UTF-8", ["predict", PPO], stdin=b"\xff\xfe[", must_fail=True)
_add("C4 resume, lock is a pipe", RESUME_PPO, Become(f"{PPO}/lock", "pipe"))
RUNNING = SetValue(f"{PPO}/run.json", ("status",), "running")
_add("C4 list runs, lock is a pipe", LIST, RUNNING, Become(f"{PPO}/lock", "pipe"))
for command, file, key, kinds in (
    (RESUME_PPO, f"{PPO}/run.json", ("wall_seconds",), ("text", "list", "1e999")),
    (RESUME_PPO, f"{PPO}/run.json", ("env_steps",), ("1e999",)),
    (TABLE, f"{ZOO_RUN}/run.json", ("env_steps",), ("text", "list", "1e999")),
    (DRY_RUN, f"{ZOO_RUN}/run.json", ("env_steps",), ("text", "list", "1e999")),
    (TABLE, f"{ZOO_RUN}/score.json", ("wall_seconds",), ("400 digits",)),
    (TABLE, f"{ZOO_RUN}/score.json", ("env_steps",), ("400 digits", "1e999")),
    (TABLE, f"{ZOO_RUN}/metrics.jsonl", (1, "env_steps"), ("400 digits",)),
    (TABLE, f"{ZOO_RUN}/metrics.jsonl", (1, "eval_mean_return"), ("400 digits",)),
    ([*TABLE, "--results", RESULTS], f"{RESULTS}/calm.json", ("seeds", "0", "env_steps"), ("1e999",)),
    (CHECK, BAND, ("steps",), ("400 digits",)),
    (CHECK, BAND, ("low",), ("400 digits",)),
    (CHECK, BAND, ("untrained",), ("text", "list", "400 digits")),
    (CHECK, BAND, ("tells_from",), ("text", "list", "400 digits")),
):
    for kind in kinds:
        # A finished run is known by its score: the other files matter without it.
        others = (UNSCORED,) if file.startswith(ZOO_RUN) and "score" not in file else ()
        others = (Become(ZOO_RUN, "missing"),) if file.startswith(RESULTS) else others
        what = f"{key[-1]} of {file.rpartition('/')[2]} is {kind}"
        _add(f"C4 {' '.join(command[:2])}, {what}", command, SetValue(file, key, ODD[kind]), *others)

# D: quiet.
for name, text in {"ESC": ESCAPES[0], "C1": ESCAPES[1]}.items():
    for key in ("algorithm", "env", "created"):
        _add(f"D1 list runs, {name} in {key}", LIST, SetValue(f"{PPO}/run.json", (key,), text))
    _add(f"D1 list runs, {name} in a directory name", LIST, Rename(PPO, text))
    for key in ("library_version", "algorithm", "created"):
        _add(f"D1 inspect, {name} in {key}", INSPECT, *_forged("manifest.json", key, value=text))
    for file, *place in (
        ("manifest.json", "fingerprint", "torch"),
        ("config.json", "env_id"),
        ("config.json", "model", text),
    ):
        _add(f"D1 inspect, {name} in {place[0]} of {file}", INSPECT, *_forged(file, *place, value=text))
    one_tensor = SetContent(f"{NEWEST}/tensors.safetensors", header_of({text: EMPTY}))
    _add(f"D1 inspect, {name} in a tensor name", INSPECT, one_tensor,
         *_forged("state.json", "learner", value=POINTER | {"$tensor": text}))  # fmt: skip
    for key in ("reason", "env_id"):
        _add(f"D1 reproduce, {name} in {key}", ["reproduce", CRASH_FILE], SetValue(CRASH_FILE, (key,), text))
    _add(
        f"D1 zoo list, {name} in the source", ["zoo", "list", MANIFEST], SetValue(MANIFEST, ("rows", 0, "source"), text)
    )
    _add(f"D1 zoo table, {name} in the title", TABLE, SetValue(MANIFEST, ("title",), text))
for kind in ("pipe", "link to a device", "sparse file of 1 TB"):
    _add(f"D2 zoo table, metrics.jsonl is a {kind}", TABLE, Become(f"{ZOO_RUN}/metrics.jsonl", kind))
for number in (float("nan"), float("inf")):
    weights = (FillTensors(f"{NEWEST}/tensors.safetensors", number), Sign(NEWEST))
    for command in (PREDICT, ["eval", NEWEST], ["play", NEWEST]):
        _add(f"D5 {command[0]}, weights are {number}", command, *weights, must_fail=True)
_add("D5 predict, infinite observation", ["predict", PPO, "--obs", "[1e999, 0, 0, 0]"], must_fail=True)
_add("D5 eval, observations are NaN", ["eval", OF_ZOO], *_with_env("SeesNaN"), must_fail=True)
_add("D6 train, more envs than steps", [*TRAIN, "--set", "num_envs=100"], must_fail=True)

# Of callbacks, infos and pictures, which came later.
OFF = "so it is off from now on and the run continues without it"
for name, facts in {
    "Raises": {"code": 0, "says": "callback Raises: on_round failed at step 16"},
    "RaisesWithoutText": {"code": 0, "says": f"{OFF}: WithoutText"},
    "Panics": {"code": 0, "says": f"{OFF}: RustPanic: index out of bounds"},
    "Exits": {"code": 0, "says": f"{OFF}: SystemExit: 0"},
    "ExitsAtTheStart": {"code": 2, "says": "callback ExitsAtTheStart: on_start failed"},
    "ExitsAtTheEnd": {"code": 0, "says": f"{OFF}: SystemExit: 0"},
    "ExitsInItsState": {"code": 0, "says": f"{OFF}: SystemExit: 0"},
    "ExitsWhenMade": {"code": 2, "says": "it cannot be created: SystemExit: 0"},
    "HasAnEndlessState": {"code": 0, "says": OFF},
    "AnswersOddly": {"code": 0, "says": OFF},
    "Writes": {"code": 0},
    "LogsOddly": {"code": 0, "says": OFF},
    "LinksVideos": {"code": 0, "says": OFF},
    "RemovesRun": {"code": 5},
    "Wanders": {"code": 0},
    "ClosesStreams": {"code": 0},
    "LeavesAProcess": {"code": 0},
}.items():
    _add(f"E train, callback {name}", TRAIN, SetValue(CONFIG, ("callbacks",), [f"fuzz_callbacks:{name}"]),
         SetValue(CONFIG, ("eval_every",), 32), **facts)  # fmt: skip
EXITS_WHEN_RESTORED = _forged("config.json", "callbacks", value=["fuzz_callbacks:ExitsWhenRestored"])
OF_COUNTS = SetValue(f"{NEWEST}/state.json", ("callbacks", "states"), {"ExitsWhenRestored": {"rounds": 1}})
_add("E resume, a callback exits when it is restored", ["resume", NEWEST, *RESUME_PPO[2:]], OF_COUNTS,
     *EXITS_WHEN_RESTORED, code=2, says="load_state_dict failed")  # fmt: skip
for env in ("RaisesWithoutText", "PanicsInStep", "PanicsInConstructor", "ReturnsFour", "RewardsWithText",
            "RewardsTooMuch", "ReportsAList", "ReportsOurNames"):  # fmt: skip
    for backend in ("sync", "async"):
        setting = SetValue(CONFIG, ("vector_backend",), backend)
        _add(f"E train, {env}, {backend}", TRAIN, SetValue(CONFIG, ("env_id",), f"fuzz_envs:{env}-v0"), setting, code=3)
    for command in ("eval", "play"):
        _add(f"E {command}, {env}", [command, OF_ZOO], *_with_env(env), code=3)
    _add(f"E check-env, {env}", ["check-env", f"fuzz_envs:{env}-v0"], code=3)
for env in ("ReportsNothing", "ReportsOddly", "ReportsEscapes", "PanicsInClose"):
    for backend in ("sync", "async"):
        settings = {"env_id": f"fuzz_envs:{env}-v0", "vector_backend": backend, "log_info": ["score", "missing"]}
        _add(f"E train, {env}, {backend}", TRAIN, *(SetValue(CONFIG, (key,), value) for key, value in settings.items()),
             code=0)  # fmt: skip
    _add(f"E eval, {env}", ["eval", OF_ZOO], *_with_env(env), code=0)
for env in ("DrawsNothing", "DrawsObjects", "DrawsALine"):
    for option in ("--gif", "--mp4"):
        _add(f"E play {option}, {env}", ["play", OF_ZOO, option, f"new.{option[2:]}"], *_with_env(env), code=3)
    _add(f"E train, record_every, {env}", TRAIN, SetValue(CONFIG, ("env_id",), f"fuzz_envs:{env}-v0"),
         SetValue(CONFIG, ("record_every",), 16), code=3)  # fmt: skip
for kind in (*LINKS, "pipe", "directory", "sparse file of 1 TB"):
    for file in ("findings.jsonl", "videos", "videos/step-000000000032.gif"):
        _add(f"E resume, {file} is a {kind}", RESUME_PPO, Become(f"{PPO}/{file}", kind))
    _add(f"E diagnose, findings.jsonl is a {kind}", ["diagnose", PPO], Become(f"{PPO}/findings.jsonl", kind))
forged_findings = b'{"rule": "\x1b[31m", "env_steps": 1e999}\n' * 10_000
_add("E diagnose, forged findings", ["diagnose", PPO], SetContent(f"{PPO}/findings.jsonl", forged_findings), code=0)
_add("E resume, forged findings", RESUME_PPO, SetContent(f"{PPO}/findings.jsonl", forged_findings), code=0)

# Of encoders, wrappers, sinks, masks, goals and actors.
OWN_NEWEST = f"{OWN}/checkpoints/step-000000000064"
OF_OWN = {"eval": [], "play": [], "predict": ["--obs", "[0, 0, 0, 0]"], "resume": RESUME_PPO[2:]}
for command, words in OF_OWN.items():
    ours = [command, OWN_NEWEST, *words]
    _add(f"F {command}, an encoder that is not trusted", ours, code=5, says="which is not trusted")
    _add(f"F {command}, an encoder that is trusted", [*ours, "--trust", "fuzz_parts"], code=0)
    _add(f"F {command}, the module of the encoder exits", [*ours, "--trust", "fuzz_exits"],
         *_forged("config.json", "model", "encoder", value="fuzz_exits:X", checkpoint=OWN_NEWEST),
         code=2 if command == "resume" else 5)  # fmt: skip
    _add(f"F {command}, the module of the encoder exits, not trusted", ours,
         *_forged("config.json", "model", "encoder", value="fuzz_exits:X", checkpoint=OWN_NEWEST), code=5)  # fmt: skip
for module in (LONG_NAME, ESCAPES[0], "a:b", "..", ""):
    predict = ["predict", OWN_NEWEST, *OF_OWN["predict"], "--trust", module]
    _add(f"F predict, trust {shortened(module, 30)}", predict, code=2)
for name, code in {
    "ExitsAsEncoder": 2, "PanicsAsEncoder": 2, "RaisesAsEncoder": 2, "ExitsInForward": 2, "RaisesInForward": 2,
    "FailsInTraining": 2, "EncodesNaN": 4, "SaysAHugeSize": 2, "HidesItsSize": 2,
}.items():  # fmt: skip
    for config in (CONFIG, REPLAY_CONFIG)[: 2 if name == "FailsInTraining" else 1]:
        _add(f"F train {config}, encoder {name}", ["train", config, "--quiet"],
             SetValue(config, ("model", "encoder"), f"fuzz_parts:{name}"), code=code)  # fmt: skip
for name, code in {
    "ExitsAsWrapper": 3, "PanicsAsWrapper": 3, "RaisesAsWrapper": 3, "ExitsInWrapperStep": 3, "LosesItsSpaces": 3,
    "GivesAHugeSpace": 3, "ForgetsTheInfo": 3, "RaisesInWrapperClose": 0,
}.items():  # fmt: skip
    for backend in ("sync", "async"):
        _add(f"F train, wrapper {name}, {backend}", TRAIN, SetValue(CONFIG, ("wrappers",), [f"fuzz_parts:{name}"]),
             SetValue(CONFIG, ("vector_backend",), backend), code=code)  # fmt: skip
    _add(f"F eval, wrapper {name}", ["eval", OF_ZOO],
         *_forged("config.json", "wrappers", value=[f"fuzz_parts:{name}"], checkpoint=OF_ZOO),
         code=None if name == "LosesItsSpaces" else code)  # fmt: skip
for value in (["fuzz_exits:X"], ["os:system"], ["fuzz_parts:Listens"]):
    _add(f"F train, wrappers {value}", TRAIN, SetValue(CONFIG, ("wrappers",), value), code=3)
    _add(f"F train, sinks {value}", TRAIN, SetValue(CONFIG, ("sinks",), [value[0].replace("Listens", "Wraps")]), code=2)
for name, code in {
    "ExitsAsSink": 2, "RaisesInOpen": 0, "ExitsInOpen": 0, "ExitsInWrite": 0, "PanicsInFlush": 0,
    "RaisesInSinkClose": 0, "NamesAnEscape": 0, "ChangesItsLine": 0,
}.items():  # fmt: skip
    _add(f"F train, sink {name}", TRAIN, SetValue(CONFIG, ("sinks",), [f"fuzz_parts:{name}"]), code=code)
FOREIGN_SINK = _forged("config.json", "sinks", value=["fuzz_exits:X"])
_add("F resume, the sink of a stranger", ["resume", NEWEST, *RESUME_PPO[2:]], *FOREIGN_SINK, code=0,
     says="nothing is sent there")  # fmt: skip
_add("F resume, a sink of the own run, without the secret", ["resume", OWN, *RESUME_PPO[2:], "--trust", "fuzz_parts"],
     Become(SECRET, "missing"), code=0, says="nothing is sent there")  # fmt: skip
for name in MASKS:
    code = 0 if name in ("Masks", "InfoMask") else 3
    for config in (CONFIG, REPLAY_CONFIG)[: 2 if name == "ForbidsAll" else 1]:
        _add(f"F train {config}, {name}", ["train", config, "--quiet"],
             SetValue(config, ("env_id",), f"fuzz_choices:{name}-v0"), code=code)  # fmt: skip
    _add(f"F check-env, {name}", ["check-env", f"fuzz_choices:{name}-v0"], code=code)
_add("F train, masks of infos that begin late", TRAIN, SetValue(CONFIG, ("env_id",), "fuzz_choices:InfoMask-v0"),
     SetValue(CONFIG, ("env_kwargs",), {"action_masks": "info"}), code=3, says="info has no 'action_mask'")  # fmt: skip
for name in GOALS:
    goal = SetValue(REPLAY_CONFIG, ("env_id",), f"fuzz_choices:{name}-v0")
    _add(f"F train, {name}", ["train", REPLAY_CONFIG, "--quiet"], goal,
         SetValue(REPLAY_CONFIG, ("algo_kwargs", "hindsight"), 0.8), code=0 if name == "Goals" else 3)  # fmt: skip
for value, code in (({"actors": 2}, 0), ({"actors": 3}, 2), ({"actors": 2**31}, 2), ({"backend": ESCAPES[0]}, 2)):
    _add(f"F train, runtime {shortened(value)}", TRAIN, SetValue(CONFIG, ("runtime",), value), code=code)
for env in ("ExitsInStep", "PanicsInConstructor", "RaisesInStep"):
    _add(f"F train, actors, {env}", TRAIN, SetValue(CONFIG, ("env_id",), f"fuzz_envs:{env}-v0"),
         SetValue(CONFIG, ("runtime",), {"actors": 2}), code=3)  # fmt: skip

# Found by random cases.
NO_ALGORITHM = SetContent(PRESET, b'{"canary": "not a preset"}')
for command in (["zoo", "list", MANIFEST], ["train", PRESET], ["check", PRESET, "--band", BAND]):
    _add(f"{' '.join(command[:2])}, a preset without an algorithm", command, NO_ALGORITHM, must_fail=True)
_add("train, the algorithm is a list", [*TRAIN, "--set", "algo=dqn"], SetValue(CONFIG, ("algo",), []), must_fail=True)
MALFORMED = {"dtype": "F32", "shape": [3], "data_offsets": [0, 4]}
SEGMENT = f"{DQN}/replay/segment-000000000000-000000000016.safetensors"
OF_DQN = f"{DQN}/checkpoints/step-000000000064"
for file, checkpoint in ((f"{NEWEST}/tensors.safetensors", NEWEST), (SEGMENT, OF_DQN)):
    for name, header in {"a shape that does not fit": {"extra": MALFORMED}, "a list as its header": []}.items():
        _add(f"inspect, {file.rpartition('/')[2]} has {name}", ["inspect", checkpoint],
             SetContent(file, header_of(header) + bytes(4)), Sign(checkpoint), must_fail=True)  # fmt: skip
UNWRITTEN = ["zoo", "table", MANIFEST, "--output-dir", ZOO_RUNS, "--seeds", "3", "--write", "..", "--long"]
_add("zoo table, reports above and no room on stdout", UNWRITTEN, stdout="full", must_fail=True)
for env in ("x" * 20_000, f"nowhere_{LONG_NAME}:Any-v0", f"{LONG_NAME}-v0", f"ALE/{LONG_NAME}-v5"):
    name = f"an env id of {len(env)} characters, {shortened(env, 12)}"
    _add(f"train, {name}", TRAIN, SetValue(CONFIG, ("env_id",), env), must_fail=True)
    _add(f"reproduce, {name}", ["reproduce", CRASH_FILE], SetValue(CRASH_FILE, ("env_id",), env), must_fail=True)
BROKEN_TEST = (
    SetValue(CONFIG, ("env_id",), "fuzz_envs:RaisesInTest-v0"),
    SetValue(CONFIG, ("eval_env_kwargs",), {"test": True}),
)
_add("train, the last evaluation fails", TRAIN, *BROKEN_TEST, code=3, says="warning: the run is trained and saved, but")
