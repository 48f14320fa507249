"""Installs GT as `torch` when it is imported: for the processes that `multiprocessing` starts."""

import gt.torch

gt.torch.install()
