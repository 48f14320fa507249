"""`SummaryWriter`: writes the numbers of a training run for TensorBoard."""

from __future__ import annotations

import socket
import time
import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from gt import _absent
from gt.utils.tensorboard import summary
from gt.utils.tensorboard.events import FileWriter, content, integer

__all__ = ["SummaryWriter"]

__getattr__ = _absent.getter(__name__)


class SummaryWriter:
    """Writes scalars, histograms, images, texts and hyperparameters to a folder that TensorBoard shows.

    Args:
        log_dir: The folder; `runs/DATE_HOST` and the comment if not given.
        comment: The end of the folder's name, if it is not given.
        purge_step: The step from which on earlier values of a resumed run count no more.
        max_queue: The number of values that may wait before they are written.
        flush_secs: The time in seconds that they may wait.
        filename_suffix: The end of the files' names.

    Example:
        >>> with gt.utils.tensorboard.SummaryWriter("logs") as writer:
        ...     for step in range(3):
        ...         writer.add_scalar("loss", 1 / (step + 1), step)
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = Path("runs") / f"{now}_{socket.gethostname()}{comment}"
        self.log_dir = str(log_dir)
        self.purge_step, self.max_queue, self.flush_secs = purge_step, max_queue, flush_secs
        self.filename_suffix = filename_suffix
        # Writers by folder: this one, and one for each line of `add_scalars`.
        self.all_writers: dict[str, FileWriter] = {}
        self._get_file_writer()

    def _writer(self, folder: str) -> FileWriter:
        if folder not in self.all_writers:
            self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
        return self.all_writers[folder]

    def _get_file_writer(self) -> FileWriter:
        new = self.log_dir not in self.all_writers
        writer = self._writer(self.log_dir)
        if new and self.purge_step is not None:
            # A session log with the status START, from which on TensorBoard drops what was there.
            writer.add_event(content(7, integer(1, 1)), self.purge_step)
        return writer

    @property
    def file_writer(self) -> FileWriter:
        """The writer of the folder."""
        return self._get_file_writer()

    def get_logdir(self) -> str:
        """The folder of the files."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Writes a number.

        Args:
            tag: Its name.
            scalar_value: A number, or a tensor of one element.
            global_step: The number of the step.
            walltime: The time in seconds since 1970; now if not given.
            new_style: Ignored.
            double_precision: Ignored: float32 is written.
        """
        del new_style, double_precision
        self._get_file_writer().add_summary(summary.scalar(tag, scalar_value), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Writes several numbers for one diagram, each to a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._writer(folder).add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Writes the distribution of the elements of a tensor."""
        self._get_file_writer().add_summary(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Writes an image of bytes, or of floats from 0 to 1."""
        self._get_file_writer().add_summary(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Writes several images in a grid."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Writes a figure of Matplotlib, or several, as images."""
        import matplotlib.pyplot as plt
        import numpy as np
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        pixels = []
        for one in figure if isinstance(figure, (list, tuple)) else [figure]:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            pixels.append(np.asarray(canvas.buffer_rgba())[..., :3])
            if close:
                plt.close(one)
        self.add_image(tag, np.stack(pixels), global_step, walltime, "NHWC")

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Writes a text, which may be Markdown."""
        self._get_file_writer().add_summary(summary.text(tag, text_string), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Writes hyperparameters and what came of them, to a folder of its own.

        Args:
            hparam_dict: Settings by name.
            metric_dict: Numbers by name.
            hparam_domain_discrete: Ignored.
            run_name: The folder; the time if not given.
            global_step: The number of the step.
        """
        del hparam_domain_discrete
        writer = self._writer(f"{self.log_dir}/{run_name or time.time()}")
        for part in summary.hparams(hparam_dict, list(metric_dict)):
            writer.add_summary(part)
        for name, value in metric_dict.items():
            writer.add_summary(summary.scalar(name, value), global_step)

    def add_graph(self, model: Any, *args: Any, **options: Any) -> None:
        """Warns that the graph of a model is not written: GT does not trace programs."""
        del model, args, options
        warnings.warn("add_graph(): GT does not trace programs, so no graph is written", stacklevel=2)

    def _refuse(self, *_args: Any, **_options: Any) -> NoReturn:
        """Raises `NotImplementedError`: GT writes no such summary."""
        raise NotImplementedError(
            "SummaryWriter writes scalars, histograms, images, figures, texts and hyperparameters: draw other things "
            "with add_figure"
        )

    add_audio = add_video = add_mesh = add_embedding = add_pr_curve = add_custom_scalars = _refuse
    add_onnx_graph = add_tensor = add_histogram_raw = add_pr_curve_raw = _refuse

    def flush(self) -> None:
        """Writes what waits."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        """Writes what waits, and closes the files; a value that is added later opens a new one."""
        for writer in self.all_writers.values():
            writer.close()
        self.all_writers.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
