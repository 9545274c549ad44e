"""Build the parts of PufferLib 3.0.0 that the benchmark needs into `.venv-puffer`: `make bench-puffer`.

PufferLib's own setup requires CUDA and downloads a graphics library. Training on the CPU needs neither, only the loop,
one extension for advantages and one for CartPole. The drawing calls of CartPole and the package for sweeps are replaced
by empty ones; none of that runs during training.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import urllib.request
import venv
from pathlib import Path

VERSION = "3.0.0"
HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / ".venv-puffer"
PYTHON = PLACE / "bin" / "python"
SOURCE = PLACE / f"pufferlib-{VERSION}"
STUBS = PLACE / "stubs"

REQUIRES = ["numpy<2", "gymnasium==0.29.1", "gym==0.23", "pettingzoo==1.24.1", "shimmy[gym-v21]"]
REQUIRES += ["heavyball<2", "psutil", "rich", "rich_argparse", "imageio", "pybind11", "ninja", "setuptools<80", "wheel"]

DRAWING = """
#pragma once
typedef struct { unsigned char r, g, b, a; } Color;
typedef struct { float x, y; } Vector2;
enum { KEY_ESCAPE = 256, KEY_TAB = 258 };
static inline void InitWindow(int width, int height, const char* title) {}
static inline void CloseWindow(void) {}
static inline void SetTargetFPS(int fps) {}
static inline void ToggleFullscreen(void) {}
static inline int IsKeyDown(int key) { return 0; }
static inline int IsKeyPressed(int key) { return 0; }
static inline void BeginDrawing(void) {}
static inline void EndDrawing(void) {}
static inline void ClearBackground(Color color) {}
static inline void DrawLine(int x1, int y1, int x2, int y2, Color color) {}
static inline void DrawLineEx(Vector2 start, Vector2 end, float thickness, Color color) {}
static inline void DrawRectangle(int x, int y, int width, int height, Color color) {}
static inline void DrawText(const char* text, int x, int y, int size, Color color) {}
static inline const char* TextFormat(const char* text, ...) { return text; }
"""

SWEEPING = {"__init__": "", "contrib/__init__": "", "contrib/gp/__init__": ""}
SWEEPING |= {"contrib/gp/kernels": "class Kernel: ...\n", "contrib/gp/models": "class GPRegression: ...\n"}

BUILD_ADVANTAGES = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
extension = CppExtension("pufferlib._C", ["pufferlib/extensions/pufferlib.cpp"], extra_compile_args=["-O3"])
setup(packages=[], ext_modules=[extension], cmdclass={"build_ext": BuildExtension}, script_args=["build_ext", "-i"])
"""


def main() -> None:
    if not PYTHON.exists():
        venv.create(PLACE, with_pip=True)
    pins = (HERE.parent / "constraints.txt").read_text().splitlines()
    torch = next(line for line in pins if line.startswith("torch=="))
    run("-m", "pip", "install", "--quiet", torch, *REQUIRES)
    if not SOURCE.exists():
        fetch_source()
    write(STUBS / "raylib.h", DRAWING)
    for name, text in SWEEPING.items():
        write(STUBS / "pyro" / f"{name}.py", text)
    run("-c", BUILD_ADVANTAGES)
    folder = SOURCE / "pufferlib" / "ocean" / "cartpole"
    suffix = ask("import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
    headers = ask("import sysconfig, numpy; print(sysconfig.get_paths()['include'], numpy.get_include())").split()
    includes = [f"-I{path}" for path in [STUBS, *headers]]
    output = ["-o", str(folder / f"binding{suffix}"), "-lm"]
    command = ["gcc", "-O2", "-fPIC", "-shared", "-w", *includes, str(folder / "binding.c"), *output]
    subprocess.run(command, check=True)
    packages = Path(ask("import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    write(packages / "pufferlib.pth", f"{STUBS}\n{SOURCE}\n")
    run("-c", "import pufferlib.pufferl, pufferlib.ocean.cartpole.cartpole", cwd=PLACE)


def fetch_source() -> None:
    with urllib.request.urlopen("https://pypi.org/simple/pufferlib/", timeout=60) as page:
        link = re.search(rf'href="([^"#]*pufferlib-{re.escape(VERSION)}\.tar\.gz)', page.read().decode())
    if link is None:
        raise SystemExit(f"PyPI has no source archive of pufferlib {VERSION}")
    archive = PLACE / "pufferlib.tar.gz"
    urllib.request.urlretrieve(link[1], archive)
    with tarfile.open(archive) as files:
        files.extractall(PLACE, filter="data")


def run(*arguments: str, cwd: Path = SOURCE) -> None:
    subprocess.run([PYTHON, *arguments], check=True, cwd=cwd if cwd.exists() else PLACE)


def ask(code: str) -> str:
    return subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
