"""What is done to the gradients and values of many parameters at once."""

from gt.nn.utils import parametrizations, parametrize, rnn
from gt.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, get_total_norm
from gt.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from gt.nn.utils.reparametrize import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
