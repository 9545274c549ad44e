"""`check`: does a preset, on this machine and with this code, still learn as its band says?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.loading import list_presets, load_config, preset_name
from rl_training.errors import ConfigError
from rl_training.zoo.band import Band, Verdict, band_of
from rl_training.zoo.curves import read_curve
from rl_training.zoo.runs import share_of


@dataclass(frozen=True)
class Check:
    name: str
    seed: int
    stop: int
    run_dir: Path
    band: Band
    verdict: Verdict

    def sentence(self) -> str:
        """One line, whichever way it went."""
        verdict = self.verdict
        place = f"{self.name} seed {self.seed}"
        at = -1 if verdict.left_at is None else verdict.left_at
        step, mean = f"{int(verdict.steps[at]):,}", f"{verdict.means[at]:.1f}"
        edges = f"{verdict.low[at]:.1f} to {verdict.high[at]:.1f}"
        if not verdict.passed:
            return (
                f"{place}: left its band at step {step}: mean return so far {mean}, band {edges} (run: {self.run_dir})"
            )
        line = f"{place}: inside its band up to step {step}: mean return so far {mean}, band {edges}"
        return line if self.band.control else line + self._doubt()

    def _doubt(self) -> str:
        """Where an agent that learned nothing would have passed too."""
        tells = self.band.tells_from
        if tells is None:
            return f"; an agent that learns nothing (about {self.band.untrained:.1f}) would be inside too"
        if self.verdict.steps[-1] < tells:
            return f"; too early to tell, an agent that learns nothing is outside only from step {tells:,}"
        return ""

    def summary(self) -> dict[str, Any]:
        facts = {"preset": self.name, "seed": self.seed, "stop": self.stop, "run_dir": str(self.run_dir)}
        return facts | {"tells_from": self.band.tells_from} | self.verdict.summary()


def least_share(band: Band, total_steps: int) -> float:
    """Of a run, that has its first evaluation in it: rounded up, so that it is enough."""
    return math.ceil(float(band.steps[0]) / total_steps * 1e4) / 1e4


def check_preset(
    source: str,
    *,
    seed: int | None = None,
    fraction: float = 1.0,
    output_dir: str = "runs",
    band_file: Path | None = None,
    show: bool | None = None,
) -> Check:
    """Train the preset, or its beginning, and hold its curve against the band.

    A run that is cut off, not shortened: schedules that depend on the whole budget stay what they were. Where the band
    is of a beginning only, so is the run. Without a seed it is the first that the band was not made from.
    """
    preset = load_config(source)
    name = preset_name(source)
    name = name if name in list_presets() else Path(name).name
    band = band_of(name, preset, band_file)
    seed = band.seeds if seed is None else seed
    fraction = min(fraction, band.share(preset.total_timesteps))
    stop = share_of(preset.total_timesteps, fraction)
    if stop < band.steps[0]:
        raise ConfigError(
            f"--budget-fraction {fraction:g}: stops at step {stop:,}, before the first evaluation of {name} "
            f"at {int(band.steps[0]):,}; give at least {least_share(band, preset.total_timesteps):g}"
        )
    run_name = f"check-{name.replace('/', '-')}-seed{seed}"
    config = load_config(preset, {"seed": seed, "run_name": run_name, "output_dir": output_dir})

    from rl_training.runtime.workflows import train

    result = train(config, show=show, callback=lambda progress: fraction >= 1 or progress.env_steps < stop)
    if result.interrupted and result.env_steps < stop:
        raise KeyboardInterrupt
    # An evaluation is due at the first rollout that passes a multiple: a little behind the stop it still belongs to it.
    verdict = band.judge(read_curve(result.run_dir))
    if not verdict.steps.size:
        raise ConfigError(
            f"{name}: was not evaluated before step {stop:,}; set eval_every, or a larger --budget-fraction"
        )
    return Check(name, seed, stop, result.run_dir, band, verdict)
