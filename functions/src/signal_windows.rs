//! Window functions for signal processing, computed in float64.
//!
//! With `sym` a window is symmetric; without, it is periodic: the first `M` numbers of the symmetric window of `M + 1`.

use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, module};
use gt_ops::special::i0;
use gt_ops::{DType, OpError, build};
use std::f64::consts::PI;

/// A window of `length` numbers.
struct SignalWindow<'g> {
    builder: &'g Builder<'g>,
    length: i64,
    /// The last position of the period.
    end: f64,
    dtype: DType,
}

impl<'g> SignalWindow<'g> {
    /// A window of `gt.signal.windows`.
    fn new(g: &'g Builder<'g>, name: &str, length: i64, sym: bool, dtype: Option<DType>) -> Result<SignalWindow<'g>> {
        if length < 0 {
            return Err(OpError::value(format!("{name} requires non-negative window length, got M={length}")));
        }
        let dtype = dtype.unwrap_or_else(DType::default_float);
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(OpError::value(format!("{name} expects float32 or float64 dtypes, got: gt.{}", dtype.name())));
        }
        Self::checked(g, length, sym, dtype)
    }

    /// A window under the name that it has outside `gt.signal.windows`.
    fn older(
        g: &'g Builder<'g>,
        name: &str,
        length: i64,
        periodic: bool,
        dtype: Option<DType>,
    ) -> Result<SignalWindow<'g>> {
        if length < 0 {
            return Err(OpError::runtime(format!(
                "{name} requires non-negative window_length, got window_length={length}"
            )));
        }
        let dtype = dtype.unwrap_or_else(DType::default_float);
        if !dtype.is_float() {
            return Err(OpError::runtime(format!("{name} expects floating point dtypes, got: gt.{}", dtype.name())));
        }
        Self::checked(g, length, !periodic, dtype)
    }

    fn checked(g: &'g Builder<'g>, length: i64, sym: bool, dtype: DType) -> Result<SignalWindow<'g>> {
        // Fails before numbers are computed for a length that no tensor has.
        build::shape_of(&[length])?;
        Ok(SignalWindow { builder: g, length, end: (if sym { length - 1 } else { length }) as f64, dtype })
    }

    /// The last position of the period, or 1 for the shortest windows.
    fn period(&self) -> f64 {
        self.end.max(1.0)
    }

    /// The window of a formula over the positions 0, 1, …; a window of one number is 1.
    fn of(&self, weight: impl Fn(f64) -> f64) -> Expr<'g> {
        let numbers: Vec<f64> = match self.length {
            1 => vec![1.0],
            length => (0..length).map(|position| weight(position as f64)).collect(),
        };
        self.builder.floats(&numbers, &[self.length], self.dtype)
    }

    /// `a[0] - a[1] cos(x) + a[2] cos(2 x) - …` for `x` from 0 to 2π.
    fn cosines(&self, a: &[f64]) -> Expr<'g> {
        let step = 2.0 * PI / self.period();
        self.of(|position| {
            let mut sign = 1.0;
            let mut total = 0.0;
            for (i, factor) in a.iter().enumerate() {
                total += sign * factor * (i as f64 * (step * position)).cos();
                sign = -sign;
            }
            total
        })
    }

    fn bartlett(&self) -> Expr<'g> {
        let step = 2.0 / self.period();
        self.of(|position| 1.0 - (step * position - 1.0).abs())
    }

    fn kaiser(&self, beta: f64) -> Result<Expr<'g>> {
        if beta < 0.0 {
            return Err(OpError::value(format!("beta must be non-negative, got: {beta:?} instead.")));
        }
        let step = 2.0 / self.period();
        Ok(self.of(|position| i0(beta * (1.0 - (step * position - 1.0).powi(2)).max(0.0).sqrt()) / i0(beta)))
    }
}

const BLACKMAN: &[f64] = &[0.42, 0.5, 0.08];
const HANN: &[f64] = &[0.5, 0.5];

functions! {
    /// The general cosine window: a[0] - a[1] * cos(x) + a[2] * cos(2 * x) - ...
    ///
    /// Example:
    ///     >>> gt.signal.windows.general_cosine(3, a=[0.5, 0.5])
    ///     tensor([0., 1., 0.])
    [module("signal.windows").creation()]
    fn general_cosine(g, M: i64; a: &'g [f64], sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let window = SignalWindow::new(g, "general_cosine", M, sym, dtype)?;
        if a.is_empty() {
            return Err(OpError::value("Coefficients cannot be empty"));
        }
        Ok(window.cosines(a))
    }

    /// The general Hamming window: alpha - (1 - alpha) * cos(x).
    [module("signal.windows").creation()]
    fn general_hamming(g, M: i64; alpha: f64 = 0.54, sym: bool = true,
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::new(g, "general_hamming", M, sym, dtype)?.cosines(&[alpha, 1.0 - alpha]))
    }

    /// The Hamming window: 0.54 - 0.46 * cos(x).
    [module("signal.windows").creation()]
    fn hamming(g, M: i64; sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::new(g, "hamming", M, sym, dtype)?.cosines(&[0.54, 0.46]))
    }

    /// The Hann window: 0.5 - 0.5 * cos(x).
    ///
    /// Example:
    ///     >>> gt.signal.windows.hann(4, sym=False)
    ///     tensor([0.0000, 0.5000, 1.0000, 0.5000])
    [module("signal.windows").creation()]
    fn hann(g, M: i64; sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::new(g, "hann", M, sym, dtype)?.cosines(HANN))
    }

    /// The Blackman window: 0.42 - 0.5 * cos(x) + 0.08 * cos(2 * x).
    [module("signal.windows").creation()]
    fn blackman(g, M: i64; sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::new(g, "blackman", M, sym, dtype)?.cosines(BLACKMAN))
    }

    /// The Nuttall window, four cosine terms chosen for small side lobes.
    [module("signal.windows").creation()]
    fn nuttall(g, M: i64; sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::new(g, "nuttall", M, sym, dtype)?.cosines(&[0.3635819, 0.4891775, 0.1365995, 0.0106411]))
    }

    /// The Bartlett window, a triangle that is 0 at its ends.
    [module("signal.windows").creation()]
    fn bartlett(g, M: i64; sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::new(g, "bartlett", M, sym, dtype)?.bartlett())
    }

    /// The cosine window: half a period of the sine.
    [module("signal.windows").creation()]
    fn cosine(g, M: i64; sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let window = SignalWindow::new(g, "cosine", M, sym, dtype)?;
        let step = PI / (window.end + 1.0).max(1.0);
        Ok(window.of(|position| (step * (position + 0.5)).sin()))
    }

    /// The Gaussian window: exp(-t ** 2 / (2 * std ** 2)), 1 at its centre.
    [module("signal.windows").creation()]
    fn gaussian(g, M: i64; std: f64 = 1.0, sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let window = SignalWindow::new(g, "gaussian", M, sym, dtype)?;
        if std <= 0.0 {
            return Err(OpError::value(format!("Standard deviation must be positive, got: {std:?} instead.")));
        }
        let centre = window.end / 2.0;
        Ok(window.of(|position| (-((position - centre) / (2f64.sqrt() * std)).powi(2)).exp()))
    }

    /// The exponential window: exp(-abs(t - center) / tau).
    [module("signal.windows").creation()]
    fn exponential(g, M: i64; center: Option<f64> = None, tau: f64 = 1.0, sym: bool = true,
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        let window = SignalWindow::new(g, "exponential", M, sym, dtype)?;
        if tau <= 0.0 {
            return Err(OpError::value(format!("Tau must be positive, got: {tau:?} instead.")));
        }
        if sym && center.is_some() {
            return Err(OpError::value("Center must be None for symmetric windows"));
        }
        let centre = center.unwrap_or(window.end / 2.0);
        Ok(window.of(|position| (-(position - centre).abs() / tau).exp()))
    }

    /// The Kaiser window: I_0(beta * sqrt(1 - t ** 2)) / I_0(beta) for t from -1 to 1.
    [module("signal.windows").creation()]
    fn kaiser(g, M: i64; beta: f64 = 12.0, sym: bool = true, dtype: Option<DType> = None) -> Result<Expr<'g>> {
        SignalWindow::new(g, "kaiser", M, sym, dtype)?.kaiser(beta)
    }

    /// The Bartlett window, a triangle that is 0 at its ends.
    ///
    /// Args:
    ///     window_length: The number of elements.
    ///     periodic: Whether the window is one period of a periodic function; symmetric otherwise.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.bartlett_window(5, periodic=False)
    ///     tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    [function().creation()]
    fn bartlett_window(g, window_length: i64, periodic: bool = true; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::older(g, "bartlett_window", window_length, periodic, dtype)?.bartlett())
    }

    /// The Blackman window: 0.42 - 0.5 * cos(x) + 0.08 * cos(2 * x).
    ///
    /// Args:
    ///     window_length: The number of elements.
    ///     periodic: Whether the window is one period of a periodic function; symmetric otherwise.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.blackman_window(5, periodic=False).shape
    ///     gt.Size([5])
    [function().creation()]
    fn blackman_window(g, window_length: i64, periodic: bool = true; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::older(g, "blackman_window", window_length, periodic, dtype)?.cosines(BLACKMAN))
    }

    /// The Hamming window: alpha - beta * cos(x).
    ///
    /// Args:
    ///     window_length: The number of elements.
    ///     periodic: Whether the window is one period of a periodic function; symmetric otherwise.
    ///     alpha: The constant.
    ///     beta: The amplitude of the cosine.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.hamming_window(5, periodic=False)
    ///     tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    [function().creation()]
    fn hamming_window(g, window_length: i64, periodic: bool = true, alpha: f64 = 0.54, beta: f64 = 0.46;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::older(g, "hamming_window", window_length, periodic, dtype)?.cosines(&[alpha, beta]))
    }

    /// The Hann window: 0.5 - 0.5 * cos(x).
    ///
    /// Args:
    ///     window_length: The number of elements.
    ///     periodic: Whether the window is one period of a periodic function; symmetric otherwise.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.hann_window(4)
    ///     tensor([0.0000, 0.5000, 1.0000, 0.5000])
    [function().creation()]
    fn hann_window(g, window_length: i64, periodic: bool = true; dtype: Option<DType> = None) -> Result<Expr<'g>> {
        Ok(SignalWindow::older(g, "hann_window", window_length, periodic, dtype)?.cosines(HANN))
    }

    /// The Kaiser window: I_0(beta * sqrt(1 - t ** 2)) / I_0(beta) for t from -1 to 1.
    ///
    /// Args:
    ///     window_length: The number of elements.
    ///     periodic: Whether the window is one period of a periodic function; symmetric otherwise.
    ///     beta: The shape: the larger, the narrower the window.
    ///     dtype: The dtype; the default dtype if not given.
    ///
    /// Example:
    ///     >>> gt.kaiser_window(5, periodic=False).shape
    ///     gt.Size([5])
    [function().creation()]
    fn kaiser_window(g, window_length: i64, periodic: bool = true, beta: f64 = 12.0;
        dtype: Option<DType> = None) -> Result<Expr<'g>> {
        SignalWindow::older(g, "kaiser_window", window_length, periodic, dtype)?.kaiser(beta)
    }
}
