"""Event files for TensorBoard: `SummaryWriter`. TensorBoard itself is needed only to look at them.

`writer.py` has the class, `summary.py` the messages for each kind of value, and `events.py` the format of files.
"""

from gt import _absent
from gt.utils.tensorboard.events import FileWriter
from gt.utils.tensorboard.writer import SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]

__getattr__ = _absent.getter(__name__)
