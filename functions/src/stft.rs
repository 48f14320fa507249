//! The short-time Fourier transform (Allen and Rabiner 1977) and its inverse by overlapping and adding (Griffin and Lim
//! 1984).

use crate::common::{extremes, filled, zeros};
use crate::declaration::functions;
use crate::fft::{fft, ifft, irfft, rfft};
use crate::padding::padded;
use gt_ops::build::Index;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::method;
use gt_ops::integers::Int;
use gt_ops::{DType, Op, OpError, Scalar};

/// The least sum of the windows' squares by which a signal is divided, as in PyTorch.
const LEAST_WEIGHT: f64 = 1e-11;

/// The sizes of both transforms.
struct Frames {
    /// The points of each transform.
    points: i64,
    /// The distance between the starts of neighbouring frames.
    hop: i64,
    /// The length of the window.
    window: i64,
}

impl Frames {
    /// # Errors
    /// A size that is not positive, or a window that is longer than a frame or not of the given length.
    fn new(name: &str, points: i64, hop: Option<i64>, length: Option<i64>, window: Option<Expr<'_>>) -> Result<Frames> {
        let (hop, length) = (hop.unwrap_or(points / 4), length.unwrap_or(points));
        let refuse = |wanted: &str| Err(OpError::runtime(format!("{name}: expected {wanted}")));
        if points <= 0 {
            return refuse(&format!("n_fft > 0, but got {points}"));
        }
        if hop <= 0 {
            return refuse(&format!("hop_length > 0, but got {hop}"));
        }
        if length <= 0 || length > points {
            return refuse(&format!("0 < win_length <= n_fft, but got win_length={length} and n_fft={points}"));
        }
        let shape = window.map(|window| window.sizes()).transpose()?;
        if let Some(shape) = shape.filter(|shape| shape[..] != [length]) {
            return refuse(&format!(
                "a 1D window tensor of size equal to win_length={length}, but got window with size {shape:?}"
            ));
        }
        Ok(Frames { points, hop, window: length })
    }

    /// The window in the middle of a frame, with zeros beside it.
    fn window<'g>(&self, g: &'g Builder<'g>, window: Option<Expr<'g>>, dtype: DType) -> Result<Expr<'g>> {
        let window = match window {
            Some(window) => window.to(if window.dtype()?.is_complex() { dtype.to_complex() } else { dtype }),
            None => filled(g, &[self.window], Scalar::Float(1.0), dtype),
        };
        let before = (self.points - self.window) / 2;
        let after = self.points - self.window - before;
        if before + after == 0 { Ok(window) } else { padded(g, window, &[before, after], "constant", None) }
    }

    /// The frames of signals, `(B, T)`, as `(B, count, points)`.
    fn cut<'g>(&self, g: &'g Builder<'g>, signal: Expr<'g>) -> Result<Expr<'g>> {
        /// Copies of less than a cache line, or of more parts than these, take as long as a gather.
        const BLOCK_MIN: i64 = 16;
        const BLOCKS_MAX: i64 = 16;
        let block = self.points.gcd(self.hop);
        if self.hop >= self.points || block < BLOCK_MIN || self.points / block > BLOCKS_MAX {
            return Ok(signal.unfold(-1, self.points, self.hop));
        }
        // Each frame is a few whole blocks of the signal, so that rows are copied rather than samples gathered.
        let (batch, samples) = (signal.size(0)?, signal.size(-1)?);
        let blocks = signal.narrow(-1, 0, samples / block * block).reshape(&[batch, samples / block, block]);
        let (last, apart) = ((samples - self.points) / self.hop * self.hop / block, self.hop / block);
        let part = |first: i64| {
            let every = Index::Range { start: Some(first), stop: Some(first + last + 1), step: Some(apart) };
            blocks.index(&[Index::Range { start: None, stop: None, step: None }, every])
        };
        Ok(g.cat(&(0..self.points / block).map(part).collect::<Vec<_>>(), 2))
    }

    /// The sums of frames, `(…, count, points)`, where they overlap.
    fn overlapped<'g>(&self, g: &'g Builder<'g>, frames: Expr<'g>) -> Result<Expr<'g>> {
        let sizes = frames.sizes()?;
        let (count, lead) = (sizes[sizes.len() - 2], &sizes[..sizes.len() - 2]);
        let places: Vec<i64> =
            (0..count).flat_map(|frame| (0..self.points).map(move |point| frame * self.hop + point)).collect();
        let flat = [lead, &[places.len() as i64]].concat();
        let frames = frames.reshape(&flat);
        let index = g.ints(&places, &[places.len() as i64]).expand(&flat);
        let total = self.points + self.hop * (count - 1);
        let none = zeros(g, &[lead, &[total]].concat(), frames.dtype()?);
        Ok(none.scatter(Op::ScatterAdd, lead.len() as i64, index, frames))
    }
}

/// The norm by which both transforms divide by the square root of the points.
fn norm(normalized: bool) -> Option<&'static str> {
    normalized.then_some("ortho")
}

functions! {
    /// The short-time Fourier transform: the spectra of overlapping frames of a signal.
    ///
    /// Args:
    ///     input: A signal, `(T,)`, or a batch of them, `(B, T)`.
    ///     n_fft: The samples of a frame, N.
    ///     hop_length: The distance between the starts of neighbouring frames; N / 4 if not given.
    ///     win_length: The length of the window, which lies in the middle of each frame; N if not given.
    ///     window: A factor for each sample of the window, such as `gt.hann_window(win_length)`; 1 if not given.
    ///     center: Whether the signal is padded, so that frame t is centred at sample t hop_length.
    ///     pad_mode: How it is padded then, as in `nn.functional.pad`.
    ///     normalized: Whether the spectra are divided by the square root of N.
    ///     onesided: Whether only N / 2 + 1 frequencies are returned, as the others are their conjugates; if not given,
    ///         where input and window are real.
    ///     return_complex: Whether the result is complex, rather than its parts along a last axis of size 2.
    ///
    /// Returns:
    ///     The spectra: `(…, frequencies, frames)`.
    ///
    /// Example:
    ///     >>> gt.stft(gt.ones(8), 4, center=False, return_complex=True).abs()[0]
    ///     tensor([4., 4., 4., 4., 4.])
    [method()]
    fn stft(g, input: Expr<'g>, n_fft: i64, hop_length: Option<i64> = None, win_length: Option<i64> = None,
        window: Option<Expr<'g>> = None, center: bool = true, pad_mode: &'g str = "reflect", normalized: bool = false,
        onesided: Option<bool> = None, return_complex: Option<bool> = None) -> Result<Expr<'g>> {
        let (dtype, rank) = (input.dtype()?, input.rank()?);
        if !dtype.is_inexact() || !(1..=2).contains(&rank) {
            return Err(OpError::runtime(format!(
                "stft: expected a 1D or 2D tensor of floating point or complex values, but got {} of rank {rank}",
                dtype.name()
            )));
        }
        let complex_window = window.map(|window| window.dtype()).transpose()?.is_some_and(DType::is_complex);
        let complex = dtype.is_complex() || complex_window;
        let Some(return_complex) = return_complex.or(complex.then_some(true)) else {
            return Err(OpError::runtime("stft requires the return_complex parameter be given for real inputs"));
        };
        let onesided = onesided.unwrap_or(!complex);
        if onesided && complex {
            return Err(OpError::runtime("Cannot have onesided output if window or input is complex"));
        }
        let frames = Frames::new("stft", n_fft, hop_length, win_length, window)?;
        let mut signal = if rank == 1 { input.unsqueeze(0) } else { input };
        if center {
            let (samples, at_each_end) = (signal.size(-1)?, n_fft / 2);
            if pad_mode == "reflect" && samples <= at_each_end {
                return Err(OpError::runtime(format!(
                    "stft: center=True pads the signal by reflection with {at_each_end} samples at each end, so it needs \
                     more than these, but got {samples}: pass a longer signal, a smaller n_fft, center=False or \
                     pad_mode='constant'"
                )));
            }
            signal = padded(g, signal, &[n_fft / 2, n_fft / 2], pad_mode, None)?;
        }
        let size = signal.size(-1)?;
        if n_fft > size {
            return Err(OpError::runtime(format!(
                "stft: expected 0 < n_fft <= {size}, the length of the signal with its padding, but got n_fft={n_fft}"
            )));
        }
        let window = frames.window(g, window, dtype.storage())?;
        let cut = frames.cut(g, signal)? * window;
        let spectra = if onesided { rfft } else { fft }(g, cut, None, -1, norm(normalized))?.transpose(-1, -2);
        let spectra = if rank == 1 { spectra.squeeze(&[0]) } else { spectra };
        Ok(if return_complex { spectra } else { spectra.reinterpret(spectra.dtype()?.storage()) })
    }

    /// The inverse of `gt.stft`: the signal whose frames have these spectra, or the nearest to them by least squares.
    ///
    /// Args:
    ///     input: Complex spectra: `(frequencies, frames)` or `(B, frequencies, frames)`.
    ///     n_fft: The samples of a frame, N.
    ///     hop_length: The distance between the starts of neighbouring frames; N / 4 if not given.
    ///     win_length: The length of the window; N if not given.
    ///     window: A factor for each sample of the window; 1 if not given.
    ///     center: Whether the signal was padded, so that frame t is centred at sample t hop_length.
    ///     normalized: Whether the spectra were divided by the square root of N.
    ///     onesided: Whether there are only N / 2 + 1 frequencies; if not given, as their number says.
    ///     length: The length of the signal, which is cut or padded with zeros.
    ///     return_complex: Whether the result is complex.
    ///
    /// Raises:
    ///     RuntimeError: Where the windows' squares add up to 0: there the signal is not known.
    ///
    /// Example:
    ///     >>> window = gt.hann_window(4)
    ///     >>> spectra = gt.stft(gt.arange(8.0), 4, window=window, return_complex=True)
    ///     >>> gt.istft(spectra, 4, window=window)
    ///     tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    [method()]
    fn istft(g, input: Expr<'g>, n_fft: i64, hop_length: Option<i64> = None, win_length: Option<i64> = None,
        window: Option<Expr<'g>> = None, center: bool = true, normalized: bool = false, onesided: Option<bool> = None,
        length: Option<i64> = None, return_complex: bool = false) -> Result<Expr<'g>> {
        let (dtype, rank) = (input.dtype()?, input.rank()?);
        if !dtype.is_complex() || !(2..=3).contains(&rank) {
            return Err(OpError::runtime(format!(
                "istft requires a complex-valued input tensor of 2 or 3 axes, but got {} of rank {rank}",
                dtype.name()
            )));
        }
        let frames = Frames::new("istft", n_fft, hop_length, win_length, window)?;
        let frequencies = input.size(-2)?;
        let onesided = onesided.unwrap_or(frequencies != n_fft);
        let expected = if onesided { n_fft / 2 + 1 } else { n_fft };
        if frequencies != expected {
            return Err(OpError::runtime(format!(
                "istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 \
                 when onesided=True and n_fft when onesided=False: {expected}, but got {frequencies}"
            )));
        }
        if onesided && return_complex {
            return Err(OpError::runtime("istft: cannot have onesided input when return_complex=True"));
        }
        let rows = input.transpose(-1, -2);
        let rows = if onesided {
            irfft(g, rows, Some(n_fft), -1, norm(normalized))?
        } else {
            let whole = ifft(g, rows, None, -1, norm(normalized))?;
            if return_complex { whole } else { whole.real() }
        };
        let window = frames.window(g, window, dtype.storage())?;
        let count = rows.size(-2)?;
        let sums = frames.overlapped(g, rows * window)?;
        let weights = frames.overlapped(g, window.square().expand(&[count, n_fft]))?;
        let start = if center { n_fft / 2 } else { 0 };
        let known = sums.size(-1)?;
        let end = match length {
            Some(length) => start + length,
            None if center => known - n_fft / 2,
            None => known,
        };
        let kept = end.min(known) - start;
        if kept <= 0 {
            return Err(OpError::runtime(format!("istft: {count} frames of {n_fft} samples leave no signal")));
        }
        let weights = weights.narrow(0, start, kept);
        let least = extremes(weights.abs().detach())?[0].to_f64();
        if least < LEAST_WEIGHT {
            return Err(OpError::runtime(format!(
                "istft: the windows' squares add up to {least} somewhere, where the signal is not known: use another \
                 window or a shorter hop_length"
            )));
        }
        let signal = sums.narrow(-1, start, kept) / weights;
        if end > known { padded(g, signal, &[0, end - known], "constant", None) } else { Ok(signal) }
    }
}
