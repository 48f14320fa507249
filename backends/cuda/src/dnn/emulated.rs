//! A library for convolutions on an emulated device: the CPU convolves, in the order of the device's streams.

use super::conv::{Conv, ConvPass, ConvPointers, Dnn};
use crate::driver::emulated::Emulated;
use crate::driver::{CudaStream, Result};
use gt_ops::DType;
use half::{bf16, f16};
use std::collections::HashSet;
use std::sync::Arc;

/// The workspace of an algorithm, bytes.
const WORKSPACE_BYTES: usize = 1 << 10;
/// The byte that the workspace is filled with, as by an algorithm that uses it.
const USED: u8 = 0x5a;

/// The library for an [`Emulated`] device.
pub struct EmulatedDnn {
    device: Arc<Emulated>,
    /// The convolutions that it knows an algorithm for.
    plans: HashSet<Conv>,
    /// How many algorithms it has room for.
    plans_max: usize,
}

impl EmulatedDnn {
    /// The library for this device, with room for this many algorithms.
    pub fn new(device: Arc<Emulated>, plans_max: usize) -> EmulatedDnn {
        EmulatedDnn { device, plans: HashSet::new(), plans_max }
    }
}

impl Dnn for EmulatedDnn {
    fn prepare(&mut self, conv: &Conv) -> Result<Option<usize>> {
        // As cuDNN, it supports no tensors without elements.
        if conv.shapes().iter().flatten().any(|size| *size == 0) {
            return Ok(None);
        }
        self.plans.insert(*conv);
        assert!(self.plans.len() <= self.plans_max, "there is room for {conv:?}");
        Ok(Some(WORKSPACE_BYTES))
    }

    unsafe fn convolve(&mut self, conv: &Conv, pointers: &ConvPointers, stream: CudaStream) -> Result<bool> {
        let (conv, pointers) = (*conv, *pointers);
        assert!(self.plans.contains(&conv), "an algorithm was chosen for {conv:?}");
        for (at, alignment) in [pointers.input, pointers.weight, pointers.output].into_iter().zip(conv.alignments) {
            assert_eq!(at % u64::from(alignment), 0, "{conv:?}");
        }
        self.device.enqueue(stream, move || {
            // SAFETY: `convolve` requires a workspace of the prepared size, and pointers to contiguous tensors of these
            // shapes, that are valid when the stream reaches the convolution.
            unsafe {
                (pointers.workspace as usize as *mut u8).write_bytes(USED, WORKSPACE_BYTES);
                match conv.dtype {
                    DType::F16 => convolve(&conv, &pointers, |x: f16| x.into(), f16::from_f64),
                    DType::BF16 => convolve(&conv, &pointers, |x: bf16| x.into(), bf16::from_f64),
                    DType::F32 => convolve(&conv, &pointers, |x: f32| x.into(), |x| x as f32),
                    DType::F64 => convolve(&conv, &pointers, |x: f64| x, |x| x),
                    other => unreachable!("no library convolves {other:?}"),
                }
            }
        })?;
        Ok(true)
    }

    fn is_full(&self, conv: &Conv) -> bool {
        self.plans.len() >= self.plans_max && !self.plans.contains(conv)
    }

    fn clear(&mut self) {
        self.plans.clear();
    }
}

/// Adds the product of every element of the input with every element of the weight that meets it in a window.
unsafe fn convolve<T: Copy>(conv: &Conv, at: &ConvPointers, wide: fn(T) -> f64, narrow: fn(f64) -> T) {
    let Conv { window, seen, made, samples, output, .. } = conv;
    let size = |sizes: &[usize; 3]| sizes.iter().product::<usize>();
    let (input_size, taps, places) = (size(&window.input), size(&window.kernel), size(output));
    let shapes = conv.shapes().map(|shape| shape.iter().product::<usize>());
    let pointers = [at.input, at.weight, at.output].map(|pointer| pointer as usize as *mut T);
    let result = match conv.pass {
        ConvPass::Forward => 2,
        ConvPass::Input => 0,
        ConvPass::Weight => 1,
    };
    let read = |axis: usize, i: usize| match axis == result {
        true => 1.0,
        // SAFETY: the loops below stay inside the shapes of the tensors.
        false => wide(unsafe { pointers[axis].add(i).read() }),
    };
    let mut sums = vec![0.0; shapes[result]];
    for sample in 0..*samples {
        for channel in 0..window.groups * made {
            let group = channel / made;
            for (below, tap, place) in every(*seen, taps, places) {
                let (tap_at, place_at) = (position(tap, &window.kernel), position(place, output));
                let along = |axis: usize| {
                    let padded = place_at[axis] * window.stride[axis] + tap_at[axis] * window.dilation[axis];
                    padded.checked_sub(window.low[axis]).filter(|x| *x < window.input[axis])
                };
                let (Some(x), Some(y), Some(z)) = (along(0), along(1), along(2)) else { continue };
                let inside = (x * window.input[1] + y) * window.input[2] + z;
                let indices = [
                    (sample * window.groups * seen + group * seen + below) * input_size + inside,
                    (channel * seen + below) * taps + tap,
                    (sample * window.groups * made + channel) * places + place,
                ];
                sums[indices[result]] += (0..3).map(|axis| read(axis, indices[axis])).product::<f64>();
            }
        }
    }
    for (i, sum) in sums.into_iter().enumerate() {
        // SAFETY: there are as many sums as elements of the result.
        unsafe { pointers[result].add(i).write(narrow(sum)) };
    }
}

fn every(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}

/// The position of the element of this index along each axis.
fn position(index: usize, sizes: &[usize; 3]) -> [usize; 3] {
    [index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]]
}
