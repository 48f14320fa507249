//! Ops that look up or choose single elements: gather, scatter_add, argmax, argmin.

use crate::loops::Loops;
use gt_backend::ExecError;
use gt_ops::DType;
use gt_ops::math::{Int, Truth};
use half::{bf16, f16};

/// Calls a generic function with the type that holds elements of a dtype.
macro_rules! with_type {
    ($dtype:expr, $f:ident($($arg:expr),*)) => {
        match $dtype {
            DType::Bool => $f::<Truth>($($arg),*),
            DType::U8 => $f::<u8>($($arg),*),
            DType::I8 => $f::<i8>($($arg),*),
            DType::I16 => $f::<i16>($($arg),*),
            DType::I32 => $f::<i32>($($arg),*),
            DType::I64 => $f::<i64>($($arg),*),
            DType::F16 => $f::<f16>($($arg),*),
            DType::BF16 => $f::<bf16>($($arg),*),
            DType::F32 => $f::<f32>($($arg),*),
            DType::F64 => $f::<f64>($($arg),*),
        }
    };
}

/// An element that can be added and compared.
trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    /// Whether `self` is a more extreme element than `best`, NaN being the most.
    fn beats(self, best: Self, max: bool) -> bool;
    /// Nothing beats it.
    fn is_last_word(self) -> bool;
}

macro_rules! int_number {
    ($($t:ty)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                Int::wrapping_add(self, other)
            }
            #[inline(always)]
            fn beats(self, best: Self, max: bool) -> bool {
                if max { self > best } else { self < best }
            }
            #[inline(always)]
            fn is_last_word(self) -> bool {
                false
            }
        }
    )*};
}
int_number!(Truth u8 i8 i16 i32 i64);

macro_rules! float_number {
    ($($t:ty, |$a:ident, $b:ident| $plus:expr;)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $plus
            }
            #[inline(always)]
            fn beats(self, best: Self, max: bool) -> bool {
                (if max { self > best } else { self < best }) || (self.is_nan() && !best.is_nan())
            }
            #[inline(always)]
            fn is_last_word(self) -> bool {
                self.is_nan()
            }
        }
    )*};
}
float_number! {
    f16, |a, b| f16::from_f32(a.to_f32() + b.to_f32());
    bf16, |a, b| bf16::from_f32(a.to_f32() + b.to_f32());
    f32, |a, b| a + b;
    f64, |a, b| a + b;
}

/// One search along an axis.
pub struct Search {
    /// The dtype searched.
    pub dtype: DType,
    /// The first element.
    pub from: *const u8,
    /// The axes that stay.
    pub kept: Loops<1>,
    /// Bytes from one element of the axis to the next.
    pub step: isize,
    /// How many there are.
    pub count: usize,
    /// The largest rather than the smallest.
    pub max: bool,
    /// Where the positions go.
    pub out: *mut i64,
}

// SAFETY: shared only while threads write disjoint positions.
unsafe impl Sync for Search {}

impl Search {
    /// Finds results `first..last`.
    ///
    /// # Safety
    /// The operand is readable for all elements, of which each result has at least one, and the result is writable.
    pub unsafe fn range(&self, first: usize, last: usize) {
        /// # Safety
        /// As [`Search::range`].
        unsafe fn typed<T: Number>(search: &Search, first: usize, last: usize) {
            search.kept.for_runs(first, last, |run| {
                for i in 0..run.len {
                    let at = run.offsets[0] + i as isize * search.kept.inner_strides()[0];
                    let from = search.from.wrapping_offset(at);
                    // SAFETY: the caller's promise.
                    unsafe {
                        let (mut best, mut position) = (from.cast::<T>().read(), 0);
                        for j in 1..search.count {
                            if best.is_last_word() {
                                break;
                            }
                            let x = from.wrapping_offset(j as isize * search.step).cast::<T>().read();
                            if x.beats(best, search.max) {
                                (best, position) = (x, j);
                            }
                        }
                        search.out.add(run.at + i).write(position as i64);
                    }
                }
            });
        }
        // SAFETY: the caller's promise.
        unsafe { with_type!(self.dtype, typed(self, first, last)) }
    }
}

/// Where elements are looked up: along one axis, at the position an index says.
pub struct Lookup {
    /// The axis.
    pub axis: usize,
    /// Its size.
    pub size: usize,
    /// Bytes from one of its elements to the next.
    pub step: isize,
}

impl Lookup {
    /// Bytes to the element at `index`.
    #[inline(always)]
    fn offset(&self, index: i64) -> Result<isize, ExecError> {
        if index < 0 || index as u64 >= self.size as u64 {
            return Err(ExecError::IndexOutOfRange { index, axis: self.axis, size: self.size });
        }
        Ok(index as isize * self.step)
    }

    /// `out[i] = from[.., index[i], ..]` for elements `first..last`, `loops` walking index and operand, whose stride
    /// along the axis is 0.
    ///
    /// # Safety
    /// The places are valid for all elements, of `size` bytes.
    pub unsafe fn gather(
        &self,
        loops: &Loops<2>,
        (first, last): (usize, usize),
        index: *const u8,
        from: *const u8,
        out: *mut u8,
        size: usize,
    ) -> Result<(), ExecError> {
        let mut result = Ok(());
        let steps = loops.inner_strides();
        loops.for_runs(first, last, |run| {
            for i in 0..run.len {
                // SAFETY: the caller's promise, and the index is in range.
                unsafe {
                    let at = index.wrapping_offset(run.offsets[0] + i as isize * steps[0]).cast::<i64>().read();
                    match self.offset(at) {
                        Ok(offset) => {
                            let from = from.wrapping_offset(run.offsets[1] + i as isize * steps[1] + offset);
                            let to = out.add((run.at + i) * size);
                            match size {
                                1 => to.write(from.read()),
                                2 => to.cast::<u16>().write(from.cast::<u16>().read()),
                                4 => to.cast::<u32>().write(from.cast::<u32>().read()),
                                _ => to.cast::<u64>().write(from.cast::<u64>().read()),
                            }
                        }
                        Err(error) => {
                            if result.is_ok() {
                                result = Err(error);
                            }
                        }
                    }
                }
            }
        });
        result
    }

    /// `out[.., index[i], ..] += from[i]` for all elements in order, `loops` walking index, source and result, whose
    /// stride along the axis is 0.
    ///
    /// # Safety
    /// The places are valid for all elements.
    pub unsafe fn scatter_add(
        &self,
        loops: &Loops<3>,
        dtype: DType,
        index: *const u8,
        from: *const u8,
        out: *mut u8,
    ) -> Result<(), ExecError> {
        /// # Safety
        /// As [`Lookup::scatter_add`].
        unsafe fn typed<T: Number>(
            lookup: &Lookup,
            loops: &Loops<3>,
            index: *const u8,
            from: *const u8,
            out: *mut u8,
        ) -> Result<(), ExecError> {
            let mut result = Ok(());
            let steps = loops.inner_strides();
            loops.for_runs(0, loops.numel(), |run| {
                for i in 0..run.len as isize {
                    // SAFETY: the caller's promise, and the index is in range.
                    unsafe {
                        let at = index.wrapping_offset(run.offsets[0] + i * steps[0]).cast::<i64>().read();
                        match lookup.offset(at) {
                            Ok(offset) => {
                                let x = from.wrapping_offset(run.offsets[1] + i * steps[1]).cast::<T>().read();
                                let to = out.wrapping_offset(run.offsets[2] + i * steps[2] + offset).cast::<T>();
                                to.write(to.read().plus(x));
                            }
                            Err(error) => {
                                if result.is_ok() {
                                    result = Err(error);
                                }
                            }
                        }
                    }
                }
            });
            result
        }
        // SAFETY: the caller's promise.
        unsafe { with_type!(dtype, typed(self, loops, index, from, out)) }
    }
}
