"""Names for compiled functions: two graphs get the same name only if they would become the same machine code.

A name is a hash of everything that the code depends on: every node of the graph with its numbers, shapes and strides;
torch and Python; the processor; the compiler; the options; the variables that change how torch compiles; and our own
source. What a name cannot say (operators from outside torch, settings that are objects) has no name, and is compiled
each time.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# Operators whose meaning follows from torch and from our source, which are both in the name.
OWN_OPERATORS = ("aten", "prims", "mkldnn", "rl_training")
LOOPS = ("scan",)

# Variables that torch's compiler or the C++ compiler reads, except those that say where files are.
PREFIXES = (
    *("TORCHINDUCTOR_", "TORCH_INDUCTOR_", "TORCH_COMPILE_"),
    *("AOT_INDUCTOR_", "AOTINDUCTOR_", "INDUCTOR_", "ATEN_"),
)
VARIABLES = (
    *("CXX", "CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("TORCHDYNAMO_AUTO_FUNCTIONALIZED_V2", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET"),
)
PLACES = ("TORCHINDUCTOR_CACHE_DIR",)

_PROCESSOR_LINES = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU", "Features")


class NoName(Exception):
    """Something in a graph or in torch's settings cannot be put into a name."""


def graph_key(graph: torch.fx.GraphModule, options: Mapping[str, Any]) -> str | None:
    """The name of `graph` compiled with `options` here, or None if it cannot have one."""
    try:
        facts = [*_graph_lines(graph), repr(sorted(options.items())), *_state_of_torch(), *surroundings()]
    except (NoName, OSError):
        return None
    text = "\n".join(facts)
    # An address says nothing about an object, and stands for another one in the next process.
    return None if " at 0x" in text else hashlib.sha256(text.encode()).hexdigest()


def _graph_lines(graph: torch.fx.GraphModule) -> Iterator[str]:
    """One line per node; the graph of a loop's body follows where it is used."""
    for node in graph.graph.nodes:
        line = (node.op, node.name, _target(node), node.args, node.kwargs, _value(node.meta.get("val")))
        yield " ".join(map(repr, line))
        if node.op != "get_attr":
            continue
        owned = operator.attrgetter(node.target)(graph)
        if isinstance(owned, torch.fx.GraphModule):
            yield from ("{", *_graph_lines(owned), "}")
        elif isinstance(owned, Tensor):
            yield repr((_value(owned), owned.detach().flatten().tolist()))
        else:
            raise NoName


def _target(node: torch.fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload) and target.namespace in OWN_OPERATORS:
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator) and target.name() in LOOPS:
        return str(target.name())
    if target is operator.getitem:
        return "getitem"
    raise NoName


def _value(value: Any) -> Any:
    """What the compiler knows of a node's value."""
    if isinstance(value, Tensor):
        return (value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), value.device)
    return tuple(map(_value, value)) if isinstance(value, (list, tuple)) else value


def _state_of_torch() -> Iterator[str]:
    """What may change within a process."""
    yield repr(
        (
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
            torch.backends.mkldnn.enabled,
        )
    )
    yield repr(sorted((name, value) for name, value in os.environ.items() if _matters(name)))
    yield repr(_changed_settings(sys.modules.get("torch._inductor.config")))


def _changed_settings(config: Any) -> list[tuple[str, Any]]:
    """TorchInductor's settings that the program changed. Their defaults follow from torch and the variables."""
    if config is None:
        return []
    try:
        now = sorted(config.get_config_copy().items())
        return [(key, value) for key, value in now if value != config._config[key].default]
    except (AttributeError, KeyError) as error:  # another version of torch keeps them elsewhere
        raise NoName from error


def _matters(variable: str) -> bool:
    return variable not in PLACES and (variable.startswith(PREFIXES) or variable in VARIABLES)


@functools.cache
def surroundings() -> tuple[str, ...]:
    """Torch, Python, processor, compiler, and the source of this package."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return (
        torch.__version__,
        torch.__config__.show(),
        str(torch.version.git_version),
        sys.version,
        str(sysconfig.get_config_var("SOABI")),
        repr(platform.libc_ver()),
        processor(),
        compiler(),
        hashlib.sha256(sources).hexdigest(),
    )


def processor() -> str:
    """The processor, as far as a compiler that is told to use all of it can see."""
    names = [platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability()]
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return repr(names)
    return repr([*names, *(line for line in first if line.startswith(_PROCESSOR_LINES))])


def compiler_command() -> list[str]:
    """The compiler that torch calls."""
    return shlex.split(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++"))


def compiler() -> str:
    """The compiler: which file it is, and what it says about itself."""
    command = compiler_command()
    path = shutil.which(command[0]) or command[0]
    english = os.environ | {"LC_ALL": "C"}
    said = subprocess.run([*command, "-v"], capture_output=True, text=True, check=False, env=english)
    return "\n".join([*command, os.path.realpath(path), said.stdout, said.stderr])
