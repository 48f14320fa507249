//! Discrete Fourier transforms of complex rows, by one pass for each factor of the length (Stockham's order, which
//! needs no permutation of bits).

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
    /// The transforms of the rows of a tensor, whose elements are the parts of complex numbers in turn.
    pub(crate) fn fourier(&mut self, op: Op, input: &CudaTensor, out: &Meta) -> Result<CudaTensor> {
        let (_, columns) = extent(out);
        if out.shape.numel() == 0 {
            return self.new_tensor(out);
        }
        let (length, numbers) = (columns / 2, out.shape.numel() / 2);
        let radices = radices(length);
        if let Some(prime) = radices.iter().find(|radix| **radix > PRIME_MAX) {
            return Err(ExecError::internal(format!(
                "a Fourier transform of {length} points, a multiple of the prime {prime}: CUDA devices transform \
                 lengths whose prime factors are at most {PRIME_MAX}; pad to another length with n="
            )));
        }
        let function = self.kernels.get(&KernelKey::new(&FOURIER, None, Some(out.dtype), 0))?;
        let sign: i64 = if op == Op::Fourier { -1 } else { 1 };
        let mut from = self.contiguous(input)?;
        let mut done = 1usize;
        for radix in radices {
            let result = self.new_tensor(out)?;
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
