//! Discrete Fourier transforms of complex rows, by one pass for each factor of the length (Stockham's order, which
//! needs no permutation of bits), and of real rows as complex ones of half the length.

use super::row_plan::extent;
use crate::backend::CudaBackend;
use crate::driver::Args;
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::ExecError;
use gt_ops::{DType, Meta, Op};

/// The largest factor that a pass combines of small primes: a pass reads each number as often.
const RADIX_MAX: usize = 8;

/// The largest prime factor of a length: a pass of a larger one would keep a device busy for minutes.
const PRIME_MAX: usize = 1 << 16;

pub(crate) static FOURIER: Template = Template {
    name: "fourier",
    includes: &["fourier.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        format!(
            "GT_KERNEL(256) {name}({t}* to, const {t}* from, i64 numbers, i64 length, i64 done, i64 radix, i64 sign) {{
    fourier_pass<{t}>((Complex<{t}>*)to, (const Complex<{t}>*)from, numbers, length, done, radix, sign);
}}"
        )
    },
    catalogue: || [DType::F32, DType::F64].map(|dtype| KernelKey::new(&FOURIER, None, Some(dtype), 0)).to_vec(),
};

/// The kernel after the passes of real numbers' transform, or before those of its inverse: the key's op says which.
pub(crate) static REAL_FOURIER: Template = Template {
    name: "real_fourier",
    includes: &["fourier.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let call = if key.op == Some(Op::RealFourier) { "fourier_separate" } else { "fourier_join" };
        format!(
            "GT_KERNEL(256) {name}({t}* to, const {t}* from, i64 numbers, i64 half) {{
    {call}<{t}>((Complex<{t}>*)to, (const Complex<{t}>*)from, numbers, half);
}}"
        )
    },
    catalogue: || {
        let ops = [Op::RealFourier, Op::InverseRealFourier];
        let of = |op| [DType::F32, DType::F64].map(|dtype| KernelKey::new(&REAL_FOURIER, Some(op), Some(dtype), 0));
        ops.into_iter().flat_map(of).collect()
    },
};

/// The factors of a length: its primes, of which small ones are multiplied with each other.
fn radices(mut length: usize) -> Vec<usize> {
    let (mut factors, mut prime) = (Vec::new(), 2);
    let mut radix = 1;
    while length > 1 {
        if prime * prime > length {
            prime = length;
        }
        if !length.is_multiple_of(prime) {
            prime += 1;
            continue;
        }
        length /= prime;
        if radix * prime > RADIX_MAX && radix > 1 {
            factors.push(radix);
            radix = 1;
        }
        radix *= prime;
    }
    factors.push(radix);
    factors
}

impl CudaBackend {
    /// The transforms of the rows of a tensor. Complex numbers are two elements, their parts.
    pub(crate) fn fourier(&mut self, op: Op, input: &CudaTensor, out: &Meta) -> Result<CudaTensor> {
        let from = self.contiguous(input)?;
        let ((_, columns), (_, found)) = (extent(&from.meta), extent(out));
        let half = columns.min(found) / 2;
        if out.shape.numel() == 0 {
            return self.new_tensor(out);
        }
        match op {
            Op::RealFourier => {
                let pairs = self.passes(-1, from, half)?;
                self.real_fourier(op, &pairs, half, out)
            }
            Op::InverseRealFourier => {
                let pairs = Meta::new(from.meta.shape.with_dim(from.meta.shape.rank() - 1, 2 * half), out.dtype);
                let pairs = self.real_fourier(op, &from, half, &pairs)?;
                self.passes(1, pairs, half)
            }
            _ => self.passes(if op == Op::Fourier { -1 } else { 1 }, from, half),
        }
    }

    /// The pairs that a row of real numbers is transformed as, and its frequencies: one of the other.
    fn real_fourier(&mut self, op: Op, from: &CudaTensor, half: usize, out: &Meta) -> Result<CudaTensor> {
        let function = self.kernels.get(&KernelKey::new(&REAL_FOURIER, Some(op), Some(out.dtype), 0))?;
        let (result, numbers) = (self.new_tensor(out)?, out.shape.numel() / 2);
        let mut args = Args::new();
        args.push(result.ptr()).push(from.ptr()).push(numbers as i64).push(half as i64);
        // SAFETY: the arguments match the kernel; the result has `numbers` pairs, and its rows and the operand's have
        // `half` pairs and one more, by the op.
        unsafe { self.launch(function, self.grid_stride(numbers), &args) }?;
        Ok(result)
    }

    /// The transforms of rows of `length` complex numbers.
    fn passes(&mut self, sign: i64, mut from: CudaTensor, length: usize) -> Result<CudaTensor> {
        let meta = from.meta;
        let numbers = meta.shape.numel() / 2;
        let radices = radices(length);
        if let Some(prime) = radices.iter().find(|radix| **radix > PRIME_MAX) {
            return Err(ExecError::internal(format!(
                "a Fourier transform of {length} points, a multiple of the prime {prime}: CUDA devices transform \
                 lengths whose prime factors are at most {PRIME_MAX}; pad to another length with n="
            )));
        }
        let function = self.kernels.get(&KernelKey::new(&FOURIER, None, Some(meta.dtype), 0))?;
        let mut done = 1usize;
        for radix in radices {
            let result = self.new_tensor(&meta)?;
            let mut args = Args::new();
            args.push(result.ptr()).push(from.ptr()).push(numbers as i64).push(length as i64);
            args.push(done as i64).push(radix as i64).push(sign);
            // SAFETY: the arguments match `fourier_pass`; both tensors have `numbers` pairs of elements, in rows of
            // `length` pairs, and `done * radix` divides `length`.
            unsafe { self.launch(function, self.grid_stride(numbers), &args) }?;
            done *= radix;
            from = result;
        }
        Ok(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_radices_of_a_length_multiply_to_it() {
        for length in 1..2000 {
            assert_eq!(radices(length).iter().product::<usize>(), length);
        }
        assert_eq!(radices(64), [8, 8]);
        assert_eq!(radices(1), [1]);
        assert_eq!(radices(97 * 4), [4, 97]);
        assert_eq!(radices(2 * 65_537), [2, 65_537]);
    }
}
