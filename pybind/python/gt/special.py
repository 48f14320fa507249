"""Special functions under the names of `torch.special`."""

from __future__ import annotations

from gt import _core as _gt
from gt._absent import getter as _getter
from gt._composites import polynomials as _polynomials
from gt._composites import special as _composites
from gt._forms import function_form as _form
from gt._gt import Tensor as _Tensor

digamma = psi = _gt.digamma
entr = _form("special_entr", _composites.entr)
erf = _gt.erf
erfc = _gt.erfc
erfcx = _form("special_erfcx", _gt.erfcx)
erfinv = _gt.erfinv
exp2 = _gt.exp2
expit = _gt.sigmoid
expm1 = _gt.expm1
gammainc = _gt.igamma
gammaincc = _gt.igammac
gammaln = _gt.lgamma
i0 = _gt.i0
i0e = _form("special_i0e", _gt.i0e)
i1 = _form("special_i1", _gt.i1)
i1e = _form("special_i1e", _gt.i1e)
log1p = _gt.log1p
log_ndtr = _form("special_log_ndtr", _gt.log_ndtr)
log_softmax = _gt.log_softmax
logit = _gt.logit
logsumexp = _gt.logsumexp
multigammaln = _gt.mvlgamma
ndtr = _form("special_ndtr", _composites.ndtr)
ndtri = _form("special_ndtri", _gt.ndtri)
polygamma = _gt.polygamma
sinc = _gt.sinc
softmax = _gt.softmax
xlog1py = _form("special_xlog1py", _composites.xlog1py)
xlogy = _gt.xlogy
zeta = _form("special_zeta", _gt.zeta)

# The polynomials, each with an `out`.
globals().update({name: _form(f"special_{name}", function) for name, function in _polynomials.POLYNOMIALS.items()})
modified_bessel_i0 = _gt.i0
modified_bessel_i1 = i1
spherical_bessel_j0 = _form("special_spherical_bessel_j0", _composites.spherical_bessel_j0)


def round(input: _Tensor, *, decimals: int = 0) -> _Tensor:
    """Each element rounded to a number of decimal places; halves are rounded to even.

    Example:
        >>> gt.special.round(gt.tensor([1.25, 2.5]), decimals=1)
        tensor([1.2000, 2.5000])
    """
    return _gt.round(input, decimals=decimals)


__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc",
    "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "modified_bessel_i0", "modified_bessel_i1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "sinc",
    "softmax", "spherical_bessel_j0", "xlog1py", "xlogy", "zeta", *_polynomials.POLYNOMIALS,
]  # fmt: skip
__getattr__ = _getter(__name__)
