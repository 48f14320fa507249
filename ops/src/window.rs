//! The geometry of convolutions and pools: windows that slide over the last one to three axes.
//!
//! Every such op relates an input `(samples, channels, *input)` and an output `(samples, channels', *output)`; its row
//! says which of the two is an operand and which the result. One [`WindowSpec`] describes both, so that an op and its
//! gradients carry the same one.

use crate::error::{OpError, Result};

/// Maximum number of axes that a window slides over.
pub const WINDOW_AXES_MAX: usize = 3;
/// Maximum of strides, dilations, paddings, sizes of kernels and inputs, and groups: sums of a few of them and products
/// of two fit in 64 bits.
pub const WINDOW_SIZE_MAX: usize = 1 << 31;

/// Maximum number of elements in a pool's window.
pub const POOL_WINDOW_MAX: usize = 1 << 24;

/// One size for each axis that a window can slide over.
pub type WindowSizes = [usize; WINDOW_AXES_MAX];

/// The geometry of windows over an input. Axes are aligned at the right: the last entry is the last axis. Unused
/// leading entries are neutral: sizes, stride and dilation 1, no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowSpec {
    /// The number of axes that the window slides over, 1 to 3.
    pub rank: u8,
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
    /// The sizes of the input.
    pub input: WindowSizes,
    /// The sizes of the window.
    pub kernel: WindowSizes,
    /// The distance between windows.
    pub stride: WindowSizes,
    /// The distance between elements of a window.
    pub dilation: WindowSizes,
    /// Elements of padding before the input.
    pub low: WindowSizes,
    /// Elements of padding after the input.
    pub high: WindowSizes,
}

impl WindowSpec {
    /// The sizes of the output.
    ///
    /// # Errors
    /// Sizes out of bounds, a kernel larger than the padded input.
    pub fn output(&self) -> Result<WindowSizes> {
        let all = [&self.input, &self.kernel, &self.stride, &self.dilation, &self.low, &self.high];
        if !(1..=WINDOW_AXES_MAX).contains(&(self.rank as usize)) {
            return Err(OpError::value("a window slides over 1 to 3 axes"));
        }
        if all.iter().any(|sizes| sizes.iter().any(|size| *size > WINDOW_SIZE_MAX)) || self.groups > WINDOW_SIZE_MAX {
            return Err(OpError::value(format!("a window's sizes are at most {WINDOW_SIZE_MAX}")));
        }
        let unused = WINDOW_AXES_MAX - self.rank as usize;
        let neutral = (0..unused).all(|i| {
            (self.input[i], self.kernel[i], self.stride[i], self.dilation[i], self.low[i], self.high[i])
                == (1, 1, 1, 1, 0, 0)
        });
        if !neutral {
            return Err(OpError::value("a window's unused axes are neutral"));
        }
        if self.groups == 0 {
            return Err(OpError::runtime("non-positive groups is not supported"));
        }
        if self.stride.contains(&0) {
            return Err(OpError::runtime("non-positive stride is not supported"));
        }
        if self.dilation.contains(&0) {
            return Err(OpError::runtime("dilation should be greater than zero"));
        }
        if self.kernel.contains(&0) {
            return Err(OpError::runtime("kernel size should be greater than zero"));
        }
        let mut output = [1; WINDOW_AXES_MAX];
        for (i, size) in output.iter_mut().enumerate() {
            let padded = self.input[i] + self.low[i] + self.high[i];
            let extent = self.extent(i);
            if padded < extent {
                let list = |of: &dyn Fn(usize) -> usize| {
                    (unused..WINDOW_AXES_MAX).map(|i| of(i).to_string()).collect::<Vec<_>>().join(" x ")
                };
                return Err(OpError::runtime(format!(
                    "Calculated padded input size per channel: ({}). Kernel size: ({}). Kernel size can't be greater than actual input size",
                    list(&|i| self.input[i] + self.low[i] + self.high[i]),
                    list(&|i| self.extent(i)),
                )));
            }
            *size = (padded - extent) / self.stride[i] + 1;
        }
        Ok(output)
    }

    /// The extent of a dilated window along an axis.
    pub fn extent(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    /// The entries of the axes that the window slides over.
    pub fn used<'a>(&self, sizes: &'a WindowSizes) -> &'a [usize] {
        &sizes[WINDOW_AXES_MAX - (self.rank as usize).min(WINDOW_AXES_MAX)..]
    }
}
