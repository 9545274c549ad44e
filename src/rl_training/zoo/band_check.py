"""Train a preset and compare its learning curve with the stored band, for `rl-training check`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.analysis.curves import read_curve
from rl_training.config.loading import list_presets, load_config, preset_name
from rl_training.errors import ConfigError
from rl_training.zoo.band import Band, Verdict, band_of
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
        """The result in one line."""
        verdict = self.verdict
        place = f"{self.name} seed {self.seed}"
        at = -1 if verdict.left_at is None else verdict.left_at
        step, mean = f"{int(verdict.steps[at]):,}", f"{verdict.means[at]:.1f}"
        edges = f"{verdict.low[at]:.1f} to {verdict.high[at]:.1f}"
        if not verdict.passed:
            return f"{place}: left the band at step {step}: running mean {mean}, band {edges} (run: {self.run_dir})"
        line = f"{place}: inside the band up to step {step}: running mean {mean}, band {edges}"
        return line if self.band.control else line + self._caveat()

    def _caveat(self) -> str:
        """A warning if an untrained agent would pass too."""
        tells = self.band.tells_from
        if tells is None:
            return f"; not conclusive: an untrained agent (about {self.band.untrained:.1f}) would be inside too"
        if self.verdict.steps[-1] < tells:
            return f"; not conclusive: an untrained agent leaves the band only at step {tells:,}"
        return ""

    def summary(self) -> dict[str, Any]:
        facts = {"preset": self.name, "seed": self.seed, "stop": self.stop, "run_dir": str(self.run_dir)}
        return facts | {"tells_from": self.band.tells_from} | self.verdict.summary()


def smallest_fraction(band: Band, total_steps: int) -> float:
    """The smallest fraction of a run that includes its first evaluation, rounded up."""
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
    """Train a preset, or the first fraction of it, and compare its learning curve with the band.

    The run is stopped early rather than given a smaller budget, so that schedules stay the same. It is never longer
    than the band. The default seed is the first one that the band does not contain.
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
            f"at {int(band.steps[0]):,}; pass at least {smallest_fraction(band, preset.total_timesteps):g}"
        )
    run_name = f"check-{name.replace('/', '-')}-seed{seed}"
    config = load_config(preset, {"seed": seed, "run_name": run_name, "output_dir": output_dir})

    from rl_training.runtime.workflows import train

    result = train(config, show=show, callback=lambda progress: fraction >= 1 or progress.env_steps < stop)
    if result.interrupted and result.env_steps < stop:
        raise KeyboardInterrupt
    # The last evaluation may come a little after the stop, at the end of its rollout; it still counts.
    verdict = band.judge(read_curve(result.run_dir))
    if not verdict.steps.size:
        raise ConfigError(f"{name}: no evaluation before step {stop:,}; lower eval_every or raise --budget-fraction")
    return Check(name, seed, stop, result.run_dir, band, verdict)
