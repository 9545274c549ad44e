"""What `train` and `doctor` are asked to run: a preset, a file, or an algorithm with `--env`."""

from __future__ import annotations

from rl_training.errors import ConfigError
from rl_training.program import call
from rl_training.text import clean_text


def source_of(command: str, config: str | None, config_option: str | None, env: str | None) -> str | dict[str, str]:
    """The preset or file to load, or the settings that `--env` stands for."""
    sources = [source for source in (config, config_option) if source is not None]
    if len(sources) > 1:
        raise ConfigError(f"CONFIG: given twice, pass it once (`{call('list', 'configs')}` shows the presets)")
    if not sources:
        what = "an algorithm such as ppo" if env is not None else "a preset such as ppo/cartpole or a YAML file"
        kind, shows = ("algorithms", "shows them") if env is not None else ("configs", "shows the presets")
        own = "" if env is not None else ", or an algorithm and --env for any environment"
        raise ConfigError(f"CONFIG: missing, pass {what}{own} (`{call('list', kind)}` {shows})")
    source = sources[0]
    if env is None:
        return source
    from rl_training.config.algorithm_table import OF_YOUR_OWN, algorithm_names

    shown, name = clean_text(source, 60), clean_text(env, 60)
    if source in algorithm_names():
        return {"algo": source, "env_id": env, "defaults": "env"}
    if "/" not in source and "." not in source:
        raise ConfigError(
            f"CONFIG: {shown!r} is not an algorithm; pass one of {', '.join(algorithm_names())} together with --env; "
            f"{OF_YOUR_OWN}"
        )
    raise ConfigError(
        f"--env: {shown} has its own environment; use `{call(command, 'ALGORITHM', '--env', name)}` for its own "
        f"settings, or `--set env_id={name}` to keep those of {shown}"
    )
