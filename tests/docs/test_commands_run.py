"""Every command in the docs is run with a small budget, in the order of its page, or carries a reason why not."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from cli_helpers import call

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "tests/README.md")),
    ROOT / "examples" / "plugin_package" / "README.md",
    ROOT / "src" / "rl_training" / "assets" / "zoo" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PROGRAMS = ("rl-training", "make", "python", "pip", "docker", "source", "export", "nohup", "pipx", "ssh", "exec")

# Why a command is not run here. Each reason must be used, so that none is left over.
REASONS = {
    r"nohup ": "goes on after its terminal: tests/command_line/test_cli_hangup.py",
    r"make [a-z-]+": "a target of the Makefile, which exists (below); CI and users run it",
    r"(pip|pipx|docker|source|export) ": "installs something, or changes the shell",
    r"python (scripts/\w+|examples/\w+)\.py": "a program: tests/scripts and tests/test_examples.py run them",
    r"rl-training dashboard(?! .*--export)": "serves until Ctrl-C: tests/dashboard and browser/",
    r"rl-training tensorboard(?! .*--no-serve)": "serves until Ctrl-C: tests/analysis",
    r"rl-training zoo clock (?!classic --dry-run|classic --table)": "takes minutes to hours: tests/zoo has tiny boards",
    r"rl-training zoo (run|bands)": "trains for hours: tests/zoo runs it on tiny manifests",
    r"rl-training zoo table \S+ --write": "needs the runs of a benchmark: tests/zoo",
    r"rl-training check ": "trains a whole preset: tests/zoo/test_band_check.py",
    r"rl-training .*_atari": "images make it slow: tests/test_atari_*_trainer_smoke.py train these presets",
    r"rl-training reproduce ": "needs a crash: tests/playback/test_crash_files.py",
    r"rl-training .*(\b|=)(wandb|fetch_reach|envpool|ray)\b": "needs a package that the suite does not have",
    r"rl-training .*halfcheetah": "large networks on MuJoCo: tests/models measures precision",
    r"rl-training train (a3c|apex)": "starts processes: tests/fleet trains with actors",
    r"rl-training .*(reinforce|plugin_package|train repeat)": "needs it installed: tests/test_plugin_package.py",
    r"rl-training .*--trust ": "needs a package with an encoder: tests/test_own_encoder.py",
    r"exec rl-training .*--actors 8": "a script for a cluster: tests/fleet trains with actors",
    r"rl-training .*(ferry:|too-fast|rates\b)": "tests/docs/test_walkthrough.py follows that page to the end",
    r"rl-training doctor": "measures and compiles for seconds: tests/checkup",
    r"rl-training .*(Crossing|CarRacing)-v": "the program on that page runs instead, in test_snippets.py",
}  # fmt: skip
# What makes a command take minutes, or needs what is not here.
SMALLER = [
    (r"LunarLander-v3", "CartPole-v1"),
    (r" --jobs 2\b", ""),
    (r"--seeds 0,1,2\b", "--seeds 0,1"),
    (r"--episodes \d+", "--episodes 1"),
    (r"(r2d2/cartpole_masked\w*)", r"\1 --set learning_starts=100"),
    (r"--actors 4", "--actors 2 --set runtime.backend=inline"),
    (r"docs/benchmarks/results", str(ROOT / "docs" / "benchmarks" / "results")),
]
BUDGET, LONGER = 256, 512
SMALL_RUN = "--total-timesteps {} --set eval_episodes=1 --set eval_every=256 --set log_every=256 --quiet"

MY_PACKAGE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

gym.register("MyEnv-v0", entry_point=CartPoleEnv, max_episode_steps=20)
"""
MY_FILE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class MyEnv(CartPoleEnv):
    pass

{line}
"""


def commands(page: Path) -> list[str]:
    """The indented lines of a page that call a program, without comments; fenced blocks of a shell too."""
    text = re.sub(r"\\\n *", "", page.read_text(encoding="utf-8"))
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [*re.findall(r"^ {4,8}(?:\$ )?(\S.*)$", text, re.MULTILINE), *shell.splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"\s#\s|\s{2,}#", line)[0].split("&&")]
    return [part for part in parts if part.split(" ")[0] in PROGRAMS]


def reason(line: str) -> str | None:
    return next((pattern for pattern in REASONS if re.match(pattern, line)), None)


def prepared(line: str, runs: list[str]) -> list[str]:
    """The words of a command with a small budget, and names of runs that are there."""
    for pattern, instead in SMALLER:
        line = re.sub(pattern, instead, line)
    if re.match(r"rl-training (train|resume)\b", line):
        budget = LONGER if line.startswith("rl-training resume") and "--total-timesteps" in line else BUDGET
        line = re.sub(r" --total-timesteps \S+", "", line)
        is_longer = line.startswith("rl-training train") or budget == LONGER
        line += " " + (SMALL_RUN.format(budget) if line.startswith("rl-training train") else "--quiet")
        line += f" --total-timesteps {budget}" if is_longer and "--total-timesteps" not in line else ""
    for word, name in zip(("NAME", "OTHER"), runs[-2:], strict=False):
        line = re.sub(rf"\b{word}\b", name, line)
    return shlex.split(line)[1:]


PAGES_THAT_RUN = [
    page for page in PAGES if any(line.startswith("rl-training") and not reason(line) for line in commands(page))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user with the files that the pages take for granted."""
    (tmp_path / "my_package.py").write_text(MY_PACKAGE)
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`(gymnasium\.register\(.*?\))`", page)
    (tmp_path / "my_file.py").write_text(MY_FILE.format(line=line))
    (tmp_path / "my_config.yaml").write_text(
        "algo: ppo\nenv_id: CartPole-v1\nnum_envs: 2\nalgo_kwargs: {num_steps: 32}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for module in ("my_package", "my_file"):
        sys.modules.pop(module, None)
    gym.registry.pop("MyEnv-v0", None)


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_run_in_their_order(page: Path, folder: Path) -> None:
    lines = [line for line in commands(page) if reason(line) is None]
    needs_runs = not any(" train " in line for line in lines[:1])
    if needs_runs:
        for gamma in ("0.9", "0.98"):
            assert call("train", "ppo/cartpole", "--set", f"gamma={gamma}", *SMALL_RUN.format(BUDGET).split()).code == 0
    for line in dict.fromkeys(lines):
        runs = [path.name for path in sorted((folder / "runs").glob("*"), key=lambda path: path.stat().st_mtime)]
        words = prepared(line, runs)
        outcome = call(*words)
        allowed = (0, 1) if words[0] == "diff" else (0,)  # 1 says that the runs differ
        assert outcome.code in allowed, f"{line}\n{outcome.err}"


def test_every_command_is_run_or_has_a_reason() -> None:
    every = {line: page for page in PAGES for line in commands(page)}
    assert len(every) >= 100
    others = [line for line in every if not line.startswith("rl-training") and reason(line) is None]
    assert others == [], "a program other than rl-training needs a reason"
    unused = set(REASONS) - {reason(line) for line in every}
    assert unused == set(), "nothing in the docs has this reason any more"


def test_files_and_targets_that_commands_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for line in commands(page):
            for target in re.findall(r"^make ([a-z-]+)", line):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: make {target}"
            for name in re.findall(r"\b(?:scripts|examples)/\w+\.py|configs/\S+\.yaml", line):
                assert (ROOT / name).is_file(), f"{page}: {name}"
