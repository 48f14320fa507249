"""Datasets, samplers, and `DataLoader`, which reads samples in batches.

Knows tensors alone. Random orders come from Python's `random.Random`, seeded by `gt.manual_seed`. Start at `loader.py`.
"""

from gt import _absent
from gt.utils.data import loader as dataloader
from gt.utils.data.collate import default_collate, default_convert
from gt.utils.data.datapipes import IterDataPipe, MapDataPipe, functional_datapipe
from gt.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from gt.utils.data.distributed import DistributedSampler
from gt.utils.data.loader import DataLoader
from gt.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from gt.utils.data.worker import get_worker_info

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "dataloader",
    "default_collate",
    "default_convert",
    "functional_datapipe",
    "get_worker_info",
    "random_split",
]

__getattr__ = _absent.getter(__name__)
