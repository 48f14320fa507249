//! Tensors of the tests: their elements as f64.

use crate::CpuTensor;
use crate::backend::CpuBackend;
use gt_backend::{Backend, HostRange, Input};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::{Attrs, DType, Meta, Op, Scalar, Shape};
use std::ptr::NonNull;

/// A tensor of these elements, converted to `dtype`.
pub fn upload(backend: &mut CpuBackend, shape: Shape, dtype: DType, elements: &[f64]) -> CpuTensor {
    let mut bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut tensor = backend.allocate(&Meta::new(shape, DType::F64)).unwrap();
    // SAFETY: the bytes live until the write is done, and nobody else refers to them meanwhile.
    let range = unsafe { HostRange::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len()) };
    backend.write(&mut tensor, 0, range).unwrap();
    run(backend, Op::Cast, &[&tensor], &[], &Attrs::DType(dtype))
}

/// The elements of a tensor.
pub fn download(backend: &mut CpuBackend, tensor: &CpuTensor) -> Vec<f64> {
    let wide = run(backend, Op::Cast, &[tensor], &[], &Attrs::DType(DType::F64));
    let mut elements = vec![0.0; wide.numel()];
    let bytes = size_of_val(elements.as_slice());
    // SAFETY: the elements live until the read is done, and nothing else refers to them meanwhile.
    let range = unsafe { HostRange::new(NonNull::from(elements.as_mut_slice()).cast(), bytes) };
    backend.read(&wide, 0, range).unwrap();
    elements
}

/// The result of an op on tensors and numbers.
pub fn run(backend: &mut CpuBackend, op: Op, tensors: &[&CpuTensor], numbers: &[Scalar], attrs: &Attrs) -> CpuTensor {
    let tensors = tensors.iter().map(|t| (Input::Tensor(*t), InputMeta::Tensor(t.meta)));
    let numbers = numbers.iter().map(|number| (Input::Scalar(*number), InputMeta::Scalar(*number)));
    let (inputs, metas): (Vec<_>, Vec<_>) = tensors.chain(numbers).unzip();
    let out = infer(op, &metas, attrs).unwrap();
    backend.execute(op, &inputs, attrs, &out, 0).unwrap()
}
