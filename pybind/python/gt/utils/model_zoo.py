"""`torch.utils.model_zoo`: the older name of `gt.hub.load_state_dict_from_url`."""

from gt import _absent
from gt.hub import load_state_dict_from_url as load_url
from gt.hub import tqdm

__all__ = ["load_url", "tqdm"]

__getattr__ = _absent.getter(__name__)
