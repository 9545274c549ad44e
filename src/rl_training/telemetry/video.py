"""Video files: small GIFs, and MP4s. Only this module imports the libraries of the `video` extra."""

from __future__ import annotations

import contextlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.errors import ConfigError, install_hint
from rl_training.storage.durable_files import make_directory, release_temporary, remove_leftovers, temporary_sibling
from rl_training.storage.real_files import open_own_file

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_GIF_PICTURES = 300
MOST_GIF_BYTES = 5_000_000
LONGEST_SIDE = 480
# Viewers treat delays below 2/100 s as an error and show the GIF at a tenth of its speed.
MOST_GIF_RATE = 34.0
# A slower GIF is a slide show: a longer recording is played faster instead.
LEAST_GIF_RATE = 10.0
LAST_PICTURE_SECONDS = 1.0
COLOR_SAMPLES = 16
COLOR_LEVELS = 31


class Writer(ABC):
    """Takes pictures of equal size, [height, width, 3] uint8, and knows whether they differ."""

    def __init__(self, path: Path, fps: float):
        self.path, self.fps = path, fps
        self.pictures = 0
        self.speed = 1.0
        self.moves = False
        self._first: np.ndarray | None = None

    def add(self, picture: np.ndarray) -> None:
        if self._first is None:
            self._first = picture.copy()
        elif not self.moves:
            self.moves = not np.array_equal(picture, self._first)
        self._add(picture)

    @abstractmethod
    def _add(self, picture: np.ndarray) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Complete the file."""

    @abstractmethod
    def abandon(self) -> None:
        """Release all resources; the file is discarded."""


@contextlib.contextmanager
def open_writer(path: Path, fps: float) -> Iterator[Writer]:
    """A writer for the suffix of `path`; the file gets its name only if the block ends without an error."""
    kinds: dict[str, type[Writer]] = {".gif": GifWriter, ".mp4": Mp4Writer}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"{path}: only .gif and .mp4 can be written, use one of these suffixes")
    path = path.absolute()  # an environment may change the working directory
    temporary = temporary_sibling(path)
    try:
        make_directory(path.parent)
        remove_leftovers(path.parent, path.name)
        # A path that cannot be written fails before anything is played. The encoders then open this new file, whose
        # name no one could foresee, so they follow no link.
        open_own_file(temporary, "xb").close()
        writer = kind(temporary, fps)
        try:
            yield writer
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        release_temporary(temporary)


class GifWriter(Writer):
    """Keeps every n-th picture; n doubles as the recording grows, so memory and file stay small."""

    def __init__(self, path: Path, fps: float):
        super().__init__(path, fps)
        _import_pillow()
        self._stride = math.ceil(fps / MOST_GIF_RATE)
        self._seen = 0
        self._kept: list[Image] = []
        self._last: np.ndarray | None = None

    def _add(self, picture: np.ndarray) -> None:
        self._last = picture
        if self._seen % self._stride == 0:
            self._kept.append(_shrunk(picture))
            if len(self._kept) > MOST_GIF_PICTURES:
                self._kept = self._kept[::2]
                self._stride *= 2
        self._seen += 1

    def finish(self) -> None:
        assert self._last is not None, "no picture was added"
        pictures = self._kept
        if (self._seen - 1) % self._stride:
            # The end of an episode is the most interesting part.
            pictures = [*pictures, _shrunk(self._last)]
        seconds = min(self._stride / self.fps, max(1 / LEAST_GIF_RATE, 1 / self.fps))
        self.speed = self._stride / self.fps / seconds
        milliseconds = [max(2, round(seconds * 100)) * 10] * len(pictures)
        milliseconds[-1] = round(LAST_PICTURE_SECONDS * 1000)
        while True:
            _save_gif(pictures, milliseconds, self.path)
            with _import_pillow().open(self.path) as gif:
                self.pictures = gif.n_frames  # equal neighbors are merged
            size, side = self.path.stat().st_size, max(pictures[0].size)
            if size <= MOST_GIF_BYTES or side <= 64:
                return
            smaller = max(64, int(side * 0.9 * math.sqrt(MOST_GIF_BYTES / size)))
            pictures = [_fitted(picture, smaller) for picture in pictures]

    def abandon(self) -> None:
        self._kept.clear()


class Mp4Writer(Writer):
    """Passes every picture to ffmpeg as it comes."""

    def __init__(self, path: Path, fps: float):
        super().__init__(path, fps)
        try:
            import imageio_ffmpeg
        except ImportError:
            raise ConfigError(
                f"mp4: imageio-ffmpeg is not installed; {install_hint('video')} or write a .gif"
            ) from None
        self._ffmpeg = imageio_ffmpeg
        self._process: Any = None

    def _add(self, picture: np.ndarray) -> None:
        # Video players expect color at half the resolution, which needs even sides.
        height, width = (side // 2 * 2 for side in picture.shape[:2])
        if self._process is None:
            self._process = self._ffmpeg.write_frames(
                str(self.path),
                (width, height),
                fps=self.fps,
                quality=7,
                macro_block_size=2,
                ffmpeg_log_level="error",
                output_params=["-f", "mp4"],  # the temporary name does not say it
            )
            self._process.send(None)
        self._process.send(np.ascontiguousarray(picture[:height, :width]))
        self.pictures += 1

    def finish(self) -> None:
        self.abandon()
        if not self.path.stat().st_size:
            raise OSError("ffmpeg wrote nothing")

    def abandon(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def require_gif() -> None:
    """ConfigError if GIFs cannot be written here."""
    _import_pillow()


def _import_pillow() -> Any:
    try:
        import PIL.Image
    except ImportError:
        raise ConfigError(f"gif: pillow is not installed; {install_hint('video')}") from None
    return PIL.Image


def _shrunk(picture: np.ndarray) -> Image:
    return _fitted(_import_pillow().fromarray(picture), LONGEST_SIDE)


def _fitted(picture: Image, longest_side: int) -> Image:
    scale = longest_side / max(picture.size)
    if scale >= 1:
        return picture
    width, height = (max(1, round(side * scale)) for side in picture.size)
    return picture.resize((width, height), _import_pillow().Resampling.LANCZOS)


def _save_gif(pictures: list[Image], milliseconds: list[int], path: Path) -> None:
    """All pictures share one palette: with one each, still areas would flicker and could not be left out."""
    image = _import_pillow()
    # Antialiasing makes many near-whites, and a white background would become one of them.
    levels = [round(round(value * COLOR_LEVELS / 255) * 255 / COLOR_LEVELS) for value in range(256)] * 3
    pictures = [picture.point(levels) for picture in pictures]
    step = max(1, len(pictures) // COLOR_SAMPLES)
    samples = pictures[::step]
    width, height = pictures[0].size
    stacked = image.new("RGB", (width, height * len(samples)))
    for row, sample in enumerate(samples):
        stacked.paste(sample, (0, row * height))
    palette = stacked.quantize(256, method=image.Quantize.MEDIANCUT, dither=image.Dither.NONE)
    indexed = [picture.quantize(palette=palette, dither=image.Dither.NONE) for picture in pictures]
    indexed[0].save(
        path, format="GIF", save_all=True, append_images=indexed[1:], duration=milliseconds, loop=0, optimize=False
    )
