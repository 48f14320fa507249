//! The interface of a library that convolves.

use crate::driver::{CudaStream, DevicePtr, Result};
use gt_ops::window::WindowSizes;
use gt_ops::{DType, WindowSpec};

/// The tensor of a convolution that is computed from the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvPass {
    /// The output, from input and weight.
    Forward,
    /// The gradient of the input, from the output's and the weight.
    Input,
    /// The gradient of the weight, from the input and the output's.
    Weight,
}

/// A convolution of contiguous tensors, or one of its gradients: the parameters that the choice of an algorithm depends
/// on. The input is `(samples, groups * seen, *window.input)`, the weight `(groups * made, seen, *window.kernel)`, the
/// output `(samples, groups * made, *output)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The tensor that is computed.
    pub pass: ConvPass,
    /// The dtype of all three tensors; half precisions are summed in f32.
    pub dtype: DType,
    /// Whether f32 operands may be rounded to 11 bits (TF32).
    pub tf32: bool,
    /// Samples of the input and of the output.
    pub samples: usize,
    /// Channels of the input in a group.
    pub seen: usize,
    /// Channels of the output in a group.
    pub made: usize,
    /// The windows.
    pub window: WindowSpec,
    /// The sizes of the output.
    pub output: WindowSizes,
    /// The alignments of the addresses of input, weight and output, bytes.
    pub alignments: [u32; 3],
}

/// The addresses of a convolution's tensors, gradients included, and of its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvPointers {
    /// The input or its gradient.
    pub input: DevicePtr,
    /// The weight or its gradient.
    pub weight: DevicePtr,
    /// The output or its gradient.
    pub output: DevicePtr,
    /// The workspace, of the size that [`Dnn::prepare`] returned; 0 if that is 0.
    pub workspace: DevicePtr,
}

impl Conv {
    /// The shapes of input, weight and output: two axes at least behind those of samples and channels, three where the
    /// window slides over three.
    pub fn shapes(&self) -> [Vec<usize>; 3] {
        let Conv { samples, seen, made, window, output, .. } = self;
        let of = |lead: [usize; 2], sizes: &WindowSizes| [&lead[..], &sizes[self.unused()..]].concat();
        [
            of([*samples, window.groups * seen], &window.input),
            of([window.groups * made, *seen], &window.kernel),
            of([*samples, window.groups * made], output),
        ]
    }

    /// The number of leading entries of the window's sizes that [`Conv::shapes`] leaves out.
    pub fn unused(&self) -> usize {
        usize::from(self.window.rank < 3)
    }
}

/// A library that convolves floats.
pub trait Dnn: Send {
    /// Chooses an algorithm, and returns the bytes of workspace that it needs; none if the library does not support the
    /// convolution. The choice depends on nothing but the convolution, the library and the device.
    ///
    /// # Errors
    /// Those of the driver.
    fn prepare(&mut self, conv: &Conv) -> Result<Option<usize>>;

    /// Enqueues a prepared convolution on the stream. Returns false, and enqueues nothing, if the library turns out not
    /// to support it.
    ///
    /// # Errors
    /// Those of the driver and of the library.
    ///
    /// # Safety
    /// As for [`crate::driver::Driver::launch`]; neither result nor workspace overlaps another of the tensors.
    unsafe fn convolve(&mut self, conv: &Conv, pointers: &ConvPointers, stream: CudaStream) -> Result<bool>;

    /// Whether the algorithms chosen so far leave no room for this convolution's.
    fn is_full(&self, conv: &Conv) -> bool;

    /// Drops all algorithms. The caller has dropped the graphs that contain them, and waited for what they compute.
    fn clear(&mut self);
}
