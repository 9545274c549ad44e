"""Compiled functions are kept: found again for an equal graph, never for another, and only in a folder of the user."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.common.compile import compiler, function_store
from rl_training.algorithms.common.compile.compiled_step import can_compile
from rl_training.algorithms.common.compile.compiler import compile_graph, options
from rl_training.algorithms.common.compile.function_store import FunctionStore, belongs_to_user_only, open_store
from rl_training.algorithms.common.compile.graph_key import graph_key

INPUTS = [torch.arange(6.0), torch.ones(6)]


def graph_of(factor: float = 2.0, size: int = 6) -> torch.fx.GraphModule:
    def step(x: Tensor, y: Tensor) -> list[Tensor]:
        y.add_(1)
        return [x * factor + y]

    with torch.no_grad():
        return make_fx(step, tracing_mode="fake")(torch.zeros(size), torch.zeros(size))


def no_compiler(*arguments: Any) -> Any:
    raise AssertionError("the compiler was started")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FunctionStore:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return open_store()


@pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
def test_an_equal_graph_is_loaded_and_a_damaged_library_is_compiled_again(
    store: FunctionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(function: Callable[[list[Tensor]], Any]) -> None:
        x, y = INPUTS[0].clone(), INPUTS[1].clone()
        (result,) = function([x, y])
        torch.testing.assert_close(result, 2 * INPUTS[0] + 2)
        torch.testing.assert_close(y, torch.full((6,), 2.0))

    check(compile_graph(graph_of(), INPUTS))
    (library,) = store.folder.glob("*.so")
    assert library.stat().st_mode & 0o077 == 0
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_compile", no_compiler)
        check(compile_graph(graph_of(), INPUTS))
        with pytest.raises(AssertionError, match="compiler was started"):
            compile_graph(graph_of(3.0), INPUTS)
        half = library.read_bytes()[:1000]
        library.unlink()  # the process still uses it
        library.write_bytes(half)
        with pytest.raises(AssertionError, match="compiler was started"):
            compile_graph(graph_of(), INPUTS)


@pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
def test_what_torch_says_about_its_own_code_is_not_shown(store: FunctionStore) -> None:
    def diagonal(x: Tensor) -> list[Tensor]:  # torch 2.13 writes it with a function that torch calls deprecated
        return [x.diagonal() * 2.0]

    square = torch.arange(9.0).reshape(3, 3)
    graph = make_fx(diagonal, tracing_mode="fake")(square)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        (result,) = compile_graph(graph, [square])([square])
    assert [str(each.message) for each in shown if issubclass(each.category, FutureWarning)] == []
    torch.testing.assert_close(result, torch.tensor([0.0, 8.0, 16.0]))


def test_everything_that_changes_the_code_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = graph_key(graph_of(), options())
    assert usual is not None and usual == graph_key(graph_of(), options())
    others = [
        graph_key(graph_of(2.5), options()),
        graph_key(graph_of(size=7), options()),
        graph_key(graph_of(), options() | {"cpp.march": "native -O3"}),
    ]
    monkeypatch.setenv("TORCHINDUCTOR_CPP_MARCH", "x86-64")
    others.append(graph_key(graph_of(), {}))
    monkeypatch.delenv("TORCHINDUCTOR_CPP_MARCH")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        others.append(graph_key(graph_of(), options()))
    finally:
        torch.set_num_threads(threads)
    assert None not in others and len({usual, *others}) == 6


def test_a_graph_with_an_operator_from_elsewhere_has_no_name() -> None:
    graph = graph_of()
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.target = len
    assert graph_key(graph, options()) is None


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write there could plant a library, which runs when it is loaded."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = open_store().folder
    assert folder == tmp_path / "rl_training" / "compiled" and folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o770)
    private = open_store().folder
    assert not private.is_relative_to(tmp_path) and private.stat().st_mode & 0o077 == 0
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert not belongs_to_user_only(folder) and open_store().folder == private
    folder.unlink()
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(function_store.os, "getuid", lambda: os.geteuid() + 1)
    assert not belongs_to_user_only(folder)


def test_the_default_of_torch_in_the_shared_folder_is_not_taken_for_the_users_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_store.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torchinductor_someone"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert open_store().folder == tmp_path / "mine" / "rl_training" / "compiled"


def test_functions_that_were_not_used_for_longest_are_removed(
    store: FunctionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_store, "MOST_FUNCTIONS", 2)
    monkeypatch.setattr(function_store, "load", lambda library: library)
    for number in range(4):
        built = tmp_path / "built.so"
        built.write_bytes(b"code")
        store.keep(str(number), built)
        os.utime(store.folder / f"{number}.so", (number + 1, number + 1))
    assert {path.name for path in store.folder.iterdir()} == {"2.so", "3.so"}


@pytest.mark.parametrize("broken", ["replace", "open_own_file"])
def test_a_full_disk_costs_the_place_in_the_store_and_not_the_run(
    broken: str, store: FunctionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(function_store, "load", lambda library: library)
    built = tmp_path / "built.so"
    built.write_bytes(b"code")
    monkeypatch.setattr(function_store.os if broken == "replace" else function_store, broken, full)
    assert store.keep("name", built) == built and list(store.folder.iterdir()) == []


@pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
def test_nothing_is_built_in_the_store(store: FunctionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home with a quota may have room for nothing."""
    store.folder.rmdir()
    store.folder.write_text("not a folder: every use of it fails, also for root")
    monkeypatch.setattr(compiler, "open_store", lambda: store)
    (result,) = compile_graph(graph_of(), INPUTS)([each.clone() for each in INPUTS])
    torch.testing.assert_close(result, 2 * INPUTS[0] + 2)


def test_without_a_home_functions_serve_this_process_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    private = function_store._folder_of_process()
    with monkeypatch.context() as patch:
        patch.setattr(function_store.Path, "home", homeless)
        assert open_store().folder == private
    monkeypatch.setenv("HOME", "")
    assert open_store().folder == private
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert open_store().folder == private


def test_two_processes_that_keep_one_function_leave_a_whole_one(
    store: FunctionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_store, "load", lambda library: library)
    built = [tmp_path / "first.so", tmp_path / "second.so"]
    for number, path in enumerate(built):
        path.write_bytes(bytes([number]) * 100)
    real = os.replace

    def with_the_other_one_first(source: Any, target: Any) -> None:
        monkeypatch.setattr(function_store.os, "replace", real)
        store.keep("name", built[1])
        real(source, target)

    monkeypatch.setattr(function_store.os, "replace", with_the_other_one_first)
    store.keep("name", built[0])
    assert store.get("name") == store.folder / "name.so"
    assert [path.name for path in store.folder.iterdir()] == ["name.so"]
