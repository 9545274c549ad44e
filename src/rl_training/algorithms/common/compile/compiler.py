"""From a graph to a function in C++: TorchInductor writes the file, the C++ compiler makes a library of it.

A compilation takes some seconds, and a user waits for it. So everything is left out that costs more than it gives here,
and what was compiled once is kept (`graph_key.py`, `function_store.py`): the next run that has the same graph loads it,
and does not start the compiler.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rl_training.algorithms.common.compile.function_store import Function, FunctionStore, open_store
from rl_training.algorithms.common.compile.graph_key import compiler_command, graph_key
from rl_training.algorithms.common.compile.products import prepare_lowering

# Beside matrix products, a small network spends its time on two things. One is calls from Python for every buffer and
# kernel: a graph that is all C++ saves a fifth of a step, gives the same bits, and compiles sooner because it is one
# file. The other is tanh: computed with exp it takes a third of the time, and is accurate to 1e-7.
OPTIONS = {
    "compile_threads": 1,  # in this process: a pool of compiler workers would stay alive for the rest of the run
    "cpp_wrapper": True,
    "size_asserts": False,  # other batch sizes use the uncompiled step, and the tensors of the state never change size
    "cpp.use_decompose_tanh": True,
    # The rest makes compiling faster. A header that is compiled beforehand takes longer than it saves in five files.
    "cpp_cache_precompile_headers": False,
    "fx_graph_cache": False,  # whole functions are kept instead
    "benchmark_harness": False,
    "aot_inductor.enable_line_tables": False,
    "aot_inductor.enable_frame_pointer": False,
}
# Vector instructions are written out in the file, so -O1 gives the same bits and the same speed as TorchInductor's -O3,
# in two thirds of the time. There is no option for it, but the last -O counts and the target is behind the first one.
TARGET = "native -O1"


def options() -> dict[str, Any]:
    """TorchInductor's settings for our graphs, as far as this machine has them."""
    is_usual = sys.platform == "linux" and platform.machine() == "x86_64"
    return OPTIONS | ({"cpp.march": TARGET} if is_usual and "TORCHINDUCTOR_CPP_MARCH" not in os.environ else {})


def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Function:
    """`graph` as one function of a list of tensors like `inputs`, which changes those that the graph changes."""
    store, name = open_store(), graph_key(graph, options())
    function = None if name is None else store.get(name)
    return function or _compile(graph, inputs, store, name)


def _compile(graph: torch.fx.GraphModule, inputs: Sequence[Tensor], store: FunctionStore, name: str | None) -> Function:
    with _without_garbage_collection(), _without_warnings(), store.workspace() as folder, torch.no_grad():
        # Imported late: an agent that is loaded only to act does not wait for the compiler.
        import torch._inductor as inductor
        from torch._inductor import config

        prepare_lowering()
        settings = {key: value for key, value in options().items() if _exists(config, key)}
        with config.patch(settings), patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": str(folder)}):
            try:
                return _compile_quickly(graph, inputs, store, name, folder)
            except (ImportError, AttributeError, TypeError):  # another version of torch has other parts
                return torch.no_grad()(_unpacking(inductor.compile(graph, list(inputs))))


def _compile_quickly(
    graph: torch.fx.GraphModule, inputs: Sequence[Tensor], store: FunctionStore, name: str | None, folder: Path
) -> Function:
    """By the parts of `torch._inductor.compile` that a graph without autograd needs."""
    from torch._guards import TracingContext, detect_fake_mode, tracing
    from torch._inductor.compile_fx import _recursive_joint_graph_passes, compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.utils import fresh_cache
    from torch._inductor.virtualized import V
    from torch.fx.experimental.proxy_tensor import make_fx

    written = make_fx(_without_changes(graph), decomposition_table=select_decomp_table(), tracing_mode="fake")(*inputs)
    values = [node.meta["val"] for node in written.graph.find_nodes(op="placeholder")]
    fake = detect_fake_mode(values)
    with fresh_cache(dir=str(folder), delete=False), tracing(TracingContext(fake)), _known_isa():
        with V.set_fake_mode(fake):  # for passes that write a part anew, such as a softmax with a temperature
            written = _recursive_joint_graph_passes(written)
        results = next(iter(written.graph.find_nodes(op="output")))
        results.meta["user_visible_output_idxs"] = range(len(results.args[0]))  # their strides stay
        compiled: Any = compile_fx_inner(written, values, cpp_wrapper=True, is_inference=True)
    libraries = list(folder.rglob("*.main.so"))
    if name is None or compiled.constants or len(libraries) != 1:
        return lambda tensors: compiled(list(tensors))
    return store.keep(name, libraries[0])


def _without_changes(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """`graph` as a function that changes no tensor but its inputs, and each of those once, at its end."""
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize

    def results_and_inputs(*tensors: Tensor) -> tuple[Any, tuple[Tensor, ...]]:
        return graph(*tensors), tensors

    def pure(*tensors: Tensor) -> Any:
        results, after = dispatch_functionalize(results_and_inputs, FunctionalTensorMode())(*tensors)
        for before, now in zip(tensors, after, strict=True):
            if now is not before:
                before.copy_(now)
        return results

    return pure


def _unpacking(function: Callable[..., Any]) -> Function:
    return lambda tensors: function(*tensors)


def _exists(config: Any, setting: str) -> bool:
    try:
        functools.reduce(getattr, setting.split("."), config)
    except AttributeError:
        return False
    return True


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """What torch says about its own code, such as a deprecated call in a lowering, is nothing a user can mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A compilation makes a million objects, and looking for unused ones among them takes a sixth of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _known_isa() -> Iterator[None]:
    """Spare TorchInductor its test programs for vector instructions, which take five seconds.

    They show that the compiler knows the instructions of the processor, and that torch was built for them. One call of
    the compiler without any input, and torch, can say that too.
    """
    from torch._inductor.cpu_vec_isa import VecISA

    if not _compiler_knows_processor():
        yield
        return
    with patch.object(VecISA, "check_build", lambda self, code: True):
        yield


@functools.cache
def _compiler_knows_processor() -> bool:
    from torch._inductor.cpu_vec_isa import supported_vec_isa_list, x86_isa_checker

    has = x86_isa_checker()
    if torch.backends.cpu.get_cpu_capability() != ("AVX512" if "avx512" in has else "AVX2"):
        return False
    flags = [isa.build_arch_flags() for isa in supported_vec_isa_list if all(name in has for name in str(isa).split())]
    command = [*compiler_command(), *" ".join(flags).split(), "-mavx512bf16", "-E", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
