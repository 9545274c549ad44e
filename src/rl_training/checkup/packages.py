"""Python, the packages that rl_training requires, and its extras: versions against the ranges of the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date

from rl_training.checkup.finding import Finding, fail, ok, warn
from rl_training.checkup.import_trial import Trial
from rl_training.checkup.requirements import NOT_FOR_USERS, Requirement, satisfies
from rl_training.errors import install_hint
from rl_training.program import pip

# The last month with security fixes of each Python version (PEP 619, 664, 693, 719, 745).
END_OF_LIFE = {
    (3, 10): date(2026, 10, 31),
    (3, 11): date(2027, 10, 31),
    (3, 12): date(2028, 10, 31),
    (3, 13): date(2029, 10, 31),
    (3, 14): date(2030, 10, 31),
}
# The name under which a distribution is imported, where it is not the name of the distribution.
IMPORT_NAMES = {
    "ale-py": ["ale_py"],
    "gymnasium[box2d]": ["Box2D", "pygame"],
    "gymnasium[classic-control]": ["pygame"],
    "gymnasium[mujoco]": ["mujoco"],
    "opencv-python-headless": ["cv2"],
    "pillow": ["PIL.Image"],
    "pyyaml": ["yaml"],
}
Version = Callable[[str], str | None]


def import_names(requirement: Requirement) -> list[str]:
    """What to import to see whether a requirement is met."""
    name = requirement.name.lower()
    if not requirement.extras:
        return IMPORT_NAMES.get(name, [name.replace("-", "_")])
    return [module for extra in requirement.extras for module in IMPORT_NAMES.get(f"{name}[{extra}]", [])]


def by_extra(requirements: Sequence[Requirement]) -> dict[str, list[Requirement]]:
    """The extras for users of the package, each with what it requires."""
    extras: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        if requirement.extra is not None and requirement.extra not in NOT_FOR_USERS:
            extras.setdefault(requirement.extra, []).append(requirement)
    return extras


def modules_to_try(requirements: Sequence[Requirement]) -> list[str]:
    """Every module whose import tells something, torch first."""
    wanted = [r for r in requirements if r.extra is None or r.extra not in NOT_FOR_USERS]
    return list(dict.fromkeys(["torch", *(module for r in wanted for module in import_names(r))]))


def check_python(
    version: tuple[int, int, int], allowed: str, tested: Sequence[tuple[int, int]], today: date
) -> Finding:
    text, minor = ".".join(map(str, version)), version[:2]
    use = f"use Python {_version(tested[-1])}" if tested else "use a newer Python"
    if not satisfies(text, allowed):
        return fail("python", f"{text}, but rl_training needs Python {allowed}", use)
    end = END_OF_LIFE.get(minor)
    if end is not None and today > end:
        return warn("python", f"{text} gets no security fixes since {_month(end)}", use)
    if tested and minor > tested[-1]:
        return warn("python", f"{text} is newer than the versions that rl_training is tested with", use)
    return ok("python", text if end is None else f"{text}, gets security fixes until {_month(end)}")


def _version(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"


def _month(day: date) -> str:
    return f"{day:%B %Y}"


def check_dependencies(
    requirements: Sequence[Requirement] | None, version: Version, trials: Mapping[str, Trial]
) -> Iterator[Finding]:
    """One line if all of them fit; one for each that does not."""
    if requirements is None:
        detail = "rl_training is not installed, only imported, so its requirements are unknown"
        yield warn("dependencies", detail, f"{pip()} install -e . in the checkout")
        return
    needed = [requirement for requirement in requirements if requirement.extra is None]
    problems = [problem for each in needed for problem in _problems(each, version, trials)]
    for name, problem, fix in problems:
        yield fail("dependencies", f"{name} {problem}", fix)
    if not problems:
        versions = ", ".join(f"{each.name} {version(each.name)}" for each in needed)
        yield ok("dependencies", f"{len(needed)} of {len(needed)} in range: {versions}")


def check_extras(
    requirements: Sequence[Requirement] | None, version: Version, trials: Mapping[str, Trial]
) -> Iterator[Finding]:
    """One line for the extras that work or are absent, which is fine; one for each that is broken."""
    extras = by_extra(requirements or [])
    problems = {
        extra: [problem for each in needed for problem in _problems(each, version, trials)]
        for extra, needed in extras.items()
    }
    working, absent = [extra for extra, found in problems.items() if not found], []
    # What a working extra has brought along is no sign that another extra was ever installed.
    shared = {module for extra in working for each in extras[extra] for module in import_names(each)}
    for extra, needed in extras.items():
        if not problems[extra]:
            continue
        own = [each for each in needed if not set(import_names(each)) <= shared]
        if own and not any(_is_installed(each, version, trials) for each in own):
            absent.append(extra)
        else:
            detail = "; ".join(f"{name} {problem}" for name, problem, _ in problems[extra])
            yield warn("extras", f"{extra}: {detail}", install_hint(extra))
    if working:
        yield ok("extras", f"installed: {', '.join(working)}")
    if absent:
        yield ok("extras", f"not installed: {', '.join(absent)}", install_hint(absent[0]) if len(absent) == 1 else "")


def extra_problem(
    extra: str, requirements: Sequence[Requirement] | None, version: Version, trials: Mapping[str, Trial]
) -> str | None:
    """Why an extra cannot be used, or None."""
    needed = by_extra(requirements or []).get(extra, [])
    problems = [f"{name} {problem}" for each in needed for name, problem, _ in _problems(each, version, trials)]
    return "; ".join(problems) or None


def _is_installed(requirement: Requirement, version: Version, trials: Mapping[str, Trial]) -> bool:
    if requirement.extras:  # of a package that is there anyway
        return all(trials[name].error is None for name in import_names(requirement) if name in trials)
    return version(requirement.name) is not None


def _problems(
    requirement: Requirement, version: Version, trials: Mapping[str, Trial]
) -> Iterator[tuple[str, str, str]]:
    """Name, problem and fix if a requirement is not met."""
    name, wanted = requirement.name, f'"{requirement.name}{requirement.range}"'
    found = version(name)
    if found is None:
        yield name, "is not installed", f"{pip()} install {wanted}"
        return
    if not requirement.allows(found):
        yield name, f"{found} is outside {requirement.range}", f"{pip()} install {wanted}"
        return
    for module in import_names(requirement):
        error = trials[module].error if module in trials else None
        if error is not None:
            shown = f"{name}[{','.join(requirement.extras)}]" if requirement.extras else name
            yield shown, f"cannot be imported ({error})", f"{pip()} install --force-reinstall {shown}"
