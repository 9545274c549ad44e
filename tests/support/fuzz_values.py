"""Hostile values for files and command lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Raw:
    """Text that goes into JSON or YAML as it is: numbers and nesting that Python would not write."""

    text: str

    def __repr__(self) -> str:
        return f"Raw({shortened(self.text)})"


def shortened(value: Any, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 20]}... ({len(text):,} characters)"


ESCAPES = (
    "\x1b[31mred\x1b[0m",
    "\x9b2Jcleared",
    "\x1b]0;title\x07",
    "a\rb",
    "a\nerror: b\nc\nd",
    "\u202eright to left",
)
LONG_NAME, LONG_TEXT = "n" * 300, "x" * 100_000
LONG_DIGITS = "1" * 20_000 + "x"  # a quadratic pattern needs 11 seconds for it
DEEP_LIST, DEEP_MAPPING = Raw("[" * 5_000 + "]" * 5_000), Raw('{"a":' * 5_000 + "1" + "}" * 5_000)
WIDE_LIST = Raw("[" + "0," * 199_999 + "0]")
NUMBERS = (-1, 0, 1, 2**31, 2**63, -(2**63), 10**12, 10**30, 0.5, 1e308, Raw("1e999"), Raw("-0.0"), Raw("9" * 5_000))
SHAPES = ([2**28], [2**31, 2**31], [8_000, 8_000], [0], [-1], [1] * 40, [2**62, 4], [[3]])
CALENDAR = ("9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "2026-13-45", "1e9")
PATHS = ("../outside/canary", "/dev/zero", "/etc/passwd", "..", "a\0b", "\udcff", LONG_NAME, "a/" * 2_500)
WRONG_TYPES = (None, True, False, [], {}, "", [[]], {"a": 1}, "text", [1, "a", None], {"$int": "0x" + "f" * 5_000})
STATE_MARKS = (
    {"$tensor": "nowhere", "$kind": "torch"}, {"$tensor": ["x"], "$kind": 3}, {"$scalar": ["float64", {}]},
    {"$scalar": ["O8", "x"]}, {"$float": "nan"}, {"$int": "-"}, {"$tuple": DEEP_LIST}, {"$unknown": 1},
)  # fmt: skip
SPACES = (
    {"type": "box", "low": -1.0, "high": 1.0, "shape": [2**28], "dtype": "float32"},
    {"type": "box", "low": 0, "high": 255, "shape": [2**20, 2**20], "dtype": "uint8"},
    {"type": "discrete", "n": 2**62, "start": 0}, {"type": "multi_binary", "n": 10**9},
    {"type": "multi_discrete", "nvec": [10**9] * 3, "start": [0] * 3}, {"type": "tuple", "spaces": []},
)  # fmt: skip

IN_FILES: tuple[Any, ...] = (
    *ESCAPES, LONG_NAME, LONG_TEXT, LONG_DIGITS, DEEP_LIST, DEEP_MAPPING, WIDE_LIST, *NUMBERS, Raw("NaN"), *SHAPES,
    *CALENDAR, *PATHS, *WRONG_TYPES, *STATE_MARKS, *SPACES,
)  # fmt: skip

# For the settings that name code, numbers of the env and rules. Long but honest work is left out.
COUNTS, ENCODER = "fuzz_callbacks:Counts", "fuzz_parts:Encodes"
WRAPPER, SINK = "fuzz_parts:Wraps", "fuzz_parts:Listens"
SETTINGS_OF_HOOKS: dict[str, tuple[Any, ...]] = {
    "callbacks": (
        [], [3], "os:system", ["subprocess:Popen"], ["rl_training:Callback"], ["fuzz_exits:X"], [ESCAPES[0]],
        [LONG_TEXT], [{"callback": COUNTS, "__class__": 1}], [{"callback": 3}], [{}], [COUNTS] * 33,
        [COUNTS] * 2, ["nowhere:X"], ["fuzz_callbacks:Nothing"], {"callback": COUNTS},
    ),
    "log_info": (
        "score", ["score", "missing"], ["a", "a"], [ESCAPES[0]], [LONG_NAME], [f"n{number}" for number in range(40)], 3,
        {"a": 1}, [None],
    ),
    "stop_at_return": (0, -1e9, 1e308, Raw(".nan"), Raw("1e999"), True, [], "x"),
    "patience": (1, 2**63, -1, 0.5, Raw(".inf"), "x"),
    "record_every": (16, 10**12, -1, 0.5, "x", []),
    "eval_every": (16, 1),
    "defaults": ("env", "", 3, [], ESCAPES[0], None),
    "wrappers": (
        WRAPPER, [WRAPPER] * 33, ["os:system"], [SINK], ["fuzz_exits:X"], [3], {}, [{"wrapper": WRAPPER, "nothing": 1}],
        [{"wrapper": ESCAPES[0]}], ["gymnasium.wrappers:FlattenObservation"], [LONG_TEXT], ["nowhere:X"],
        [{"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": -1}],
    ),
    "sinks": (
        "tensorboard", ["tensorboard"] * 2, ["csv"], ["nowhere"], ["os:system"], ["fuzz_exits:X"], [WRAPPER],
        [{"sink": SINK, "self": 1}], [{"sink": "tensorboard", "x": 1}], [{"sink": 3}], [{}], [ESCAPES[0]],
        [{"sink": "wandb", "mode": ESCAPES[0]}], [SINK] * 17, [LONG_TEXT],
    ),
    "env_kwargs": (
        {"action_masks": "off"}, {"action_masks": "info"}, {"action_masks": [ESCAPES[0]]}, {"wrappers": 3},
        {"observation_keys": [LONG_NAME]}, {"observation_keys": 3}, {"image": {"size": 10**9}}, {ESCAPES[0]: 1},
        {"atari": {"stack": 10**9}}, {"wrappers": ["fuzz_exits:X"]}, {"self": 1}, {"render_mode": "human"},
        {"max_episode_steps": -1},
    ),
    "runtime": (
        {"actors": 2}, {"actors": 2, "backend": "inline"}, {"actors": 1, "backend": "process"}, {"actors": 3},
        {"actors": 2**31}, {"actors": -1}, {"mode": "async"}, {"mode": "async", "max_lag": 2**63}, {"max_lag": 0},
        {"actor_timeout": Raw(".nan")}, {"actor_timeout": 1e-9, "actors": 2}, {"backend": ESCAPES[0]}, {"nothing": 1},
        3, [],
    ),
    "model": (
        {"encoder": "fuzz_exits:X"}, {"encoder": "os:system"}, {"encoder": WRAPPER}, {"encoder": ESCAPES[0]},
        {"encoder": ENCODER, "encoder_kwargs": {"width": -1}}, {"encoder": "nowhere:X"}, {"encoder": LONG_TEXT},
        {"encoder": ENCODER, "encoder_kwargs": {"width": 10**12}}, {"encoder": "nature"}, {"encoder": "impala"},
        {"encoder": ENCODER, "encoder_kwargs": {"observation_space": 1}}, {"critic": {"hidden_sizes": [10**9]}},
        {"blocks": "simba", "hidden_sizes": [8, 9]}, {"blocks": "simba", "hidden_sizes": [8]}, {"critic": 3}, 3, [],
    ),
}  # fmt: skip

# What an option of a type may get on the command line. Values that ask for long but honest work are left out.
WORDS = (
    "", " ", "-", "--", "0", "-1", "nan", "null", "[]", "{}", "a=b", "%s%n{0}", "[bold]x[/]", "\N{FULLWIDTH DIGIT ONE}",
    *ESCAPES, *PATHS[:2], "..", "\udcff", LONG_NAME, "a/" * 2_500, LONG_TEXT, LONG_DIGITS, "[" * 5_000,
)  # fmt: skip
BY_TYPE = {
    "integer": ("-1", "0", "1", "1.5", "1e3", "0x10", " 1", "-0", "1_0", str(2**63), str(10**30), "9" * 5_000, "x"),
    "float": ("-1", "0", "0.0001", "1e-300", "1e308", "1e999", "nan", "inf", "-inf", "1_0", "9" * 5_000, "x"),
    "path": (*WORDS[:6], ".", "/dev/null", "/dev/full", "/proc/self/mem", "train.yaml", "../outside", *WORDS[14:]),
    "choice": ("best", "latest", "", "BEST", "\x1b[31m"),
}
OBSERVATIONS = (
    "[0.1, 0, 0, 0]", "[[0.1, 0, 0, 0], [0, 0, 0, 0]]", "[]", "{}", "null", "[NaN, 0, 0, 0]", "[1e999, 0, 0, 0]",
    "[1e39, 0, 0, 0]", '["a", 0, 0, 0]', "[[[[1]]]]", "[" + "0," * 50_000 + "0]", "[" * 5_000, "9" * 5_000, '{"a": 1}',
    '"\\ud800"', "[null, 1, 2, 3]", "[true, 1, 2, 3]", f"[{10**400}, 0, 0, 0]", "\x1b[31m",
)  # fmt: skip
TEXTS = (
    b"", b"\0" * 64, b"\xff\xfe{}", b"{", b"[]", b"null", b"3", b'"text"', b"a: &x [1]\nb: *x\n",
    b"a: !!python/name:os.system\n", b"a: 1\na: 2\n", b"\t- a\n", b"- " * 3_000, b"{a: " * 3_000,
    b"a: " + b"1" * 20_000 + b"x\n", b"x: y\n" * 150_000,
    b"[" * 100_000, b'{"a":' * 100_000, b"\x1b[2J: 1\n", b"%YAML 9.9\n---\n", b'{"a": 1, "a": 2}', b"\xef\xbb\xbf{}",
)  # fmt: skip
