//! The inner loops of convolutions: tiles of accumulators that stay in vector registers, as in a GEMM micro-kernel
//! (BLIS, Van Zee & van de Geijn 2015).
//!
//! Both loops multiply vectors by broadcast numbers. [`RegisterTiles::spread`] computes a tile of results: the numbers
//! are packed weights, and the vectors are neighbouring positions in the input's planes. [`RegisterTiles::collect`]
//! computes a tile of the weight's gradient: the numbers are elements of the input, and the vectors are the channels of
//! the gradient at one position.
//!
//! Where a group has few channels, such tiles would be nearly empty. [`RegisterTiles::lines`] computes rows of one
//! channel instead: the numbers are its weights, and the vectors are neighbouring positions of several rows.
//! [`RegisterTiles::dots`] sums the products of gradients and inputs over the positions of rows.

#![expect(clippy::needless_range_loop, reason = "iterators over vectors are not inlined into functions of a level")]

use crate::kernels::SimdLevel;

/// Computes a tile of results, sums that begin with `start` for each row: for each of `terms` terms, `rows` packed
/// weights times the vectors at `from` plus an offset.
type Spread<E> =
    unsafe fn(terms: usize, weights: *const E, offsets: *const isize, from: *const E, start: *const E, to: *mut E);

/// The output positions that a tile of a weight's gradient is summed over.
#[derive(Clone, Copy, Debug)]
pub struct OutputPositions<E> {
    /// The input of the first position.
    pub from: *const E,
    /// Elements from a row of the input to the next.
    pub from_row: usize,
    /// The gradients of the first position, by channel.
    pub grads: *const E,
    /// Elements from the gradients of a position to those of the next.
    pub grads_step: usize,
    /// Rows of positions.
    pub rows: usize,
    /// Positions in a row.
    pub columns: usize,
}

/// Adds to a tile of a weight's gradient, which has one row for each of [`RegisterTiles::taps`] offsets.
type Collect<E> = unsafe fn(places: &OutputPositions<E>, offsets: *const isize, sums: *mut E, sums_step: usize);

/// Rows of results of one channel.
#[derive(Clone, Copy, Debug)]
pub struct OutputRows<E> {
    /// The number of terms of each sum.
    pub terms: usize,
    /// The weight of each term.
    pub weights: *const E,
    /// The offset of each term's input from the position of the result.
    pub offsets: *const isize,
    /// The input at the position of the first result. Vectors of a row are read beyond its end.
    pub from: *const E,
    /// Elements from a row of the input to the next.
    pub from_row: usize,
    /// The number that sums begin with.
    pub start: E,
    /// The first result.
    pub to: *mut E,
    /// Elements from a row of results to the next.
    pub to_row: usize,
    /// Elements from a result to the next.
    pub to_step: usize,
    /// The number of results in a row.
    pub columns: usize,
}

/// Computes rows of results.
type LinesOf<E> = unsafe fn(rows: &OutputRows<E>);

/// Rows of gradients of one channel, whose products with the input are summed.
#[derive(Clone, Copy, Debug)]
pub struct GradientRows<E> {
    /// The gradient at the first position.
    pub grads: *const E,
    /// The input at the first position.
    pub from: *const E,
    /// Elements from a row of the input to the next.
    pub from_row: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of positions in a row. Rows of gradients follow each other.
    pub columns: usize,
}

/// Adds the products at all positions to a vector of partial sums for each offset of the input.
type Dots<E> = unsafe fn(rows: &GradientRows<E>, offsets: *const isize, sums: *mut E);

/// The numbers of offsets for which there are [`Dots`].
pub const DOTS: [usize; 3] = [9, 3, 1];
/// The largest number of rows that [`RegisterTiles::lines`] computes together.
pub const LINES_MAX: usize = 8;
/// The largest number of elements of a vector.
pub const LANES_MAX: usize = 16;
/// The largest number of vectors in a row of a tile.
pub const WIDTH_MAX: usize = 4;
/// The largest number of elements in a tile.
pub const TILE_ELEMENTS_MAX: usize = 8 * 3 * 16;

/// The tiles of one level for one type of element.
#[derive(Clone, Copy)]
pub struct RegisterTiles<E: 'static> {
    /// Elements of a vector.
    pub lanes: usize,
    /// The largest number of rows of a tile of results.
    pub rows: usize,
    /// The largest number of vectors in a row of a tile of results.
    pub width: usize,
    /// The loops for tiles of results, by the binary logarithm of the rows and by vectors - 1.
    pub spread: [[Spread<E>; 3]; 4],
    /// As `spread`, but the sums begin with the tile at `to`.
    pub spread_onto: [[Spread<E>; 3]; 4],
    /// The number of offsets in a tile of a weight's gradient.
    pub taps: usize,
    /// The loops for tiles of a weight's gradient, by vectors - 1.
    pub collect: [Collect<E>; WIDTH_MAX],
    /// The loops for rows of one channel, by the binary logarithm of their number, up to [`LINES_MAX`].
    pub lines: [LinesOf<E>; 4],
    /// The loops for gradients of one channel, by the number of offsets in [`DOTS`].
    pub dots: [Dots<E>; 3],
}

/// An element type that has tiles.
pub trait Tiled: Copy + Send + Sync + 'static {
    /// The number 0.
    const ZERO: Self;
    /// The sum of `self` and `other`.
    fn plus(self, other: Self) -> Self;
    /// The tiles of a level that this CPU has.
    fn tiles(level: SimdLevel) -> RegisterTiles<Self>;
}

/// A vector register, or an array in its place.
///
/// # Safety
/// The functions need a machine that has the register's instructions, and a caller that is compiled for them.
pub trait SimdVector: Copy {
    /// The type of an element.
    type E: Copy;
    /// The number of elements.
    const N: usize;
    /// The same number in all elements.
    unsafe fn splat(x: Self::E) -> Self;
    /// Loads the elements, which need no alignment.
    unsafe fn load(from: *const Self::E) -> Self;
    /// Stores the elements.
    unsafe fn store(self, to: *mut Self::E);
    /// The first `n` elements, fewer than a vector has, and zeros.
    unsafe fn load_first(from: *const Self::E, n: usize) -> Self;
    /// Stores the first `n` elements, fewer than a vector has.
    unsafe fn store_first(self, to: *mut Self::E, n: usize);
    /// `self + a * b`.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    /// The sum of all elements: the halves are added, then the halves of their sum, and so on.
    unsafe fn total(self) -> Self::E;
}

/// # Safety
/// All pointers are valid for `terms` terms and the vectors of a tile.
#[inline(always)]
unsafe fn spread<V: SimdVector, const ROWS: usize, const WIDTH: usize, const ONTO: bool>(
    terms: usize,
    weights: *const V::E,
    offsets: *const isize,
    from: *const V::E,
    start: *const V::E,
    to: *mut V::E,
) {
    // SAFETY: `weights` holds `terms * ROWS` elements, `offsets` holds `terms`, each of which leaves `WIDTH` vectors
    // readable at `from`, `start` holds `ROWS`, and `to` has room for the tile, by the contract of `Spread`.
    unsafe {
        let mut sums = [[V::splat(*start); WIDTH]; ROWS];
        for row in 0..ROWS {
            for i in 0..WIDTH {
                sums[row][i] = if ONTO { V::load(to.add((row * WIDTH + i) * V::N)) } else { V::splat(*start.add(row)) };
            }
        }
        for term in 0..terms {
            let source = from.offset(*offsets.add(term));
            let mut vectors = [V::load(source); WIDTH];
            for i in 1..WIDTH {
                vectors[i] = V::load(source.add(i * V::N));
            }
            for row in 0..ROWS {
                let weight = V::splat(*weights.add(term * ROWS + row));
                for i in 0..WIDTH {
                    sums[row][i] = sums[row][i].plus_product(weight, vectors[i]);
                }
            }
        }
        for row in 0..ROWS {
            for i in 0..WIDTH {
                sums[row][i].store(to.add((row * WIDTH + i) * V::N));
            }
        }
    }
}

/// # Safety
/// Input and gradients are valid for all positions, and `to` for its rows.
#[inline(always)]
unsafe fn collect<V: SimdVector, const TAPS: usize, const WIDTH: usize>(
    places: &OutputPositions<V::E>,
    offsets: *const isize,
    to: *mut V::E,
    step: usize,
) {
    // SAFETY: `offsets` holds `TAPS` offsets, `to` has `TAPS` rows of `WIDTH` vectors, `step` elements apart, and input
    // and gradients are readable at all positions, by the contract of `Collect`.
    unsafe {
        let mut sums = [[V::load(to); WIDTH]; TAPS];
        for tap in 0..TAPS {
            for i in 0..WIDTH {
                sums[tap][i] = V::load(to.add(tap * step + i * V::N));
            }
        }
        let mut grads = places.grads;
        for row in 0..places.rows {
            let mut sources = [places.from; TAPS];
            for tap in 0..TAPS {
                sources[tap] = places.from.add(row * places.from_row).offset(*offsets.add(tap));
            }
            for column in 0..places.columns {
                let mut vectors = [V::load(grads); WIDTH];
                for i in 1..WIDTH {
                    vectors[i] = V::load(grads.add(i * V::N));
                }
                for tap in 0..TAPS {
                    let x = V::splat(*sources[tap].add(column));
                    for i in 0..WIDTH {
                        sums[tap][i] = sums[tap][i].plus_product(x, vectors[i]);
                    }
                }
                grads = grads.add(places.grads_step);
            }
        }
        for tap in 0..TAPS {
            for i in 0..WIDTH {
                sums[tap][i].store(to.add(tap * step + i * V::N));
            }
        }
    }
}

/// # Safety
/// The weights and offsets are valid for all terms, the input for a vector at each column of the `ROWS` rows, and the
/// results for all columns.
#[inline(always)]
unsafe fn lines<V: SimdVector, const ROWS: usize>(rows: &OutputRows<V::E>) {
    let mut column = 0;
    while column < rows.columns {
        // SAFETY: all addresses are of terms, rows and columns that the contract covers.
        unsafe {
            let mut sums = [V::splat(rows.start); ROWS];
            let from = rows.from.add(column);
            for term in 0..rows.terms {
                let weight = V::splat(*rows.weights.add(term));
                let from = from.offset(*rows.offsets.add(term));
                for row in 0..ROWS {
                    sums[row] = sums[row].plus_product(weight, V::load(from.add(row * rows.from_row)));
                }
            }
            let n = V::N.min(rows.columns - column);
            for row in 0..ROWS {
                let to = rows.to.add(row * rows.to_row + column * rows.to_step);
                if rows.to_step != 1 {
                    let mut results = [rows.start; LANES_MAX];
                    sums[row].store(results.as_mut_ptr());
                    for i in 0..n {
                        to.add(i * rows.to_step).write(results[i]);
                    }
                } else if n == V::N {
                    sums[row].store(to);
                } else {
                    sums[row].store_first(to, n);
                }
            }
        }
        column += V::N;
    }
}

/// # Safety
/// Gradients and input are valid at all positions, the latter at `TAPS` offsets, and `to` for as many vectors.
#[inline(always)]
unsafe fn dots<V: SimdVector, const TAPS: usize>(rows: &GradientRows<V::E>, offsets: *const isize, to: *mut V::E) {
    // SAFETY: `offsets` has `TAPS` offsets, and `to` as many vectors; the positions are those of the contract.
    unsafe {
        let mut sums = [V::load(to); TAPS];
        for tap in 1..TAPS {
            sums[tap] = V::load(to.add(tap * V::N));
        }
        for row in 0..rows.rows {
            let (grads, from) = (rows.grads.add(row * rows.columns), rows.from.add(row * rows.from_row));
            let mut column = 0;
            while column + V::N <= rows.columns {
                let grad = V::load(grads.add(column));
                for tap in 0..TAPS {
                    let x = V::load(from.add(column).offset(*offsets.add(tap)));
                    sums[tap] = sums[tap].plus_product(grad, x);
                }
                column += V::N;
            }
            let rest = rows.columns - column;
            if rest > 0 {
                // Zeros on both sides: the input behind the row may be infinite.
                let grad = V::load_first(grads.add(column), rest);
                for tap in 0..TAPS {
                    let x = V::load_first(from.add(column).offset(*offsets.add(tap)), rest);
                    sums[tap] = sums[tap].plus_product(grad, x);
                }
            }
        }
        for tap in 0..TAPS {
            sums[tap].store(to.add(tap * V::N));
        }
    }
}

impl<E: Copy + Default + std::ops::Add<Output = E> + std::ops::Mul<Output = E>, const N: usize> SimdVector for [E; N] {
    type E = E;
    const N: usize = N;
    #[inline(always)]
    unsafe fn splat(x: E) -> Self {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load(from: *const E) -> Self {
        // SAFETY: `from` is valid for `N` elements; the read needs no alignment.
        unsafe { from.cast::<[E; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut E) {
        // SAFETY: `to` has room for `N` elements; the write needs no alignment.
        unsafe { to.cast::<[E; N]>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const E, n: usize) -> Self {
        let mut all = [E::default(); N];
        for i in 0..n.min(N) {
            // SAFETY: `from` is valid for `n` elements.
            all[i] = unsafe { from.add(i).read() };
        }
        all
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut E, n: usize) {
        for i in 0..n.min(N) {
            // SAFETY: `to` has room for `n` elements.
            unsafe { to.add(i).write(self[i]) };
        }
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        std::array::from_fn(|i| self[i] + a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn total(mut self) -> E {
        let mut some = N / 2;
        while some > 0 {
            for i in 0..some {
                self[i] = self[i] + self[i + some];
            }
            some /= 2;
        }
        self[0]
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! lanes {
    ($($v:ty, $e:ty, $n:literal: $splat:ident $load:ident $store:ident $fma:ident,
       $mask:expr, $load_first:ident $store_first:ident $order:ident, $total:ident;)*) => {$(
        impl SimdVector for $v {
            type E = $e;
            const N: usize = $n;
            #[inline(always)]
            unsafe fn splat(x: $e) -> Self {
                // SAFETY: instantiated only in functions of a level that has these instructions.
                unsafe { std::arch::x86_64::$splat(x) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $e) -> Self {
                // SAFETY: instantiated only in functions of a level that has these instructions, and `from` is valid
                // for a vector.
                unsafe { std::arch::x86_64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $e) {
                // SAFETY: instantiated only in functions of a level that has these instructions, and `to` has room
                // for a vector.
                unsafe { std::arch::x86_64::$store(to, self) }
            }
            #[inline(always)]
            unsafe fn load_first(from: *const $e, n: usize) -> Self {
                // SAFETY: instantiated only in functions of a level that has these instructions, and `from` is valid
                // for the `n` elements that the mask selects.
                unsafe { masked!($order load $load_first, $mask(n), from) }
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut $e, n: usize) {
                // SAFETY: instantiated only in functions of a level that has these instructions, and `to` has room for
                // the `n` elements that the mask selects.
                unsafe { masked!($order store $store_first, $mask(n), to, self) }
            }
            #[inline(always)]
            unsafe fn plus_product(self, a: Self, b: Self) -> Self {
                // SAFETY: instantiated only in functions of a level that has these instructions.
                unsafe { std::arch::x86_64::$fma(a, b, self) }
            }
            #[inline(always)]
            unsafe fn total(self) -> $e {
                // SAFETY: instantiated only in functions of a level that has these instructions.
                unsafe { $total(self) }
            }
        }
    )*};
}

/// Calls an instruction with a mask: AVX-512's loads take it first, AVX2's last.
#[cfg(target_arch = "x86_64")]
macro_rules! masked {
    (mask_first load $f:ident, $mask:expr, $from:expr) => {
        std::arch::x86_64::$f($mask, $from)
    };
    (mask_last load $f:ident, $mask:expr, $from:expr) => {
        std::arch::x86_64::$f($from, $mask)
    };
    ($order:ident store $f:ident, $mask:expr, $to:expr, $x:expr) => {
        std::arch::x86_64::$f($to, $mask, $x)
    };
}

/// Masks of the first `n` elements, for AVX2: a window of ones and zeros.
///
/// # Safety
/// The machine has AVX, and `n` is at most 8.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_8(n: usize) -> std::arch::x86_64::__m256i {
    static WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: `n` is at most 8, so that 8 elements follow `8 - n`.
    unsafe { std::arch::x86_64::_mm256_loadu_si256(WINDOW.as_ptr().add(8 - n).cast()) }
}

/// As [`first_of_8`], of 4 elements of 64 bits.
///
/// # Safety
/// The machine has AVX, and `n` is at most 4.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_4(n: usize) -> std::arch::x86_64::__m256i {
    // SAFETY: `2 * n` is at most 8.
    unsafe { first_of_8(2 * n) }
}

/// The sums of [`SimdVector::total`], each of which continues with the next smaller register.
#[cfg(target_arch = "x86_64")]
macro_rules! totals {
    ($($name:ident($v:ident) -> $e:ty: $x:ident => $sum:expr;)*) => {$(
        /// # Safety
        /// The machine has the instructions of the register.
        #[inline(always)]
        unsafe fn $name($x: std::arch::x86_64::$v) -> $e {
            use std::arch::x86_64::*;
            // SAFETY: the machine has the instructions of this register by the contract, and so of smaller ones.
            unsafe { $sum }
        }
    )*};
}
#[cfg(target_arch = "x86_64")]
totals! {
    total_of_16(__m512) -> f32: x => total_of_8(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x)));
    total_of_8(__m256) -> f32: x => {
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    };
    total_of_8_wide(__m512d) -> f64: x => total_of_4(_mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd::<1>(x)));
    total_of_4(__m256d) -> f64: x => {
        let two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd::<1>(x));
        _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
    };
}

#[cfg(target_arch = "x86_64")]
lanes! {
    std::arch::x86_64::__m256, f32, 8: _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps,
        first_of_8, _mm256_maskload_ps _mm256_maskstore_ps mask_last, total_of_8;
    std::arch::x86_64::__m256d, f64, 4: _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd,
        first_of_4, _mm256_maskload_pd _mm256_maskstore_pd mask_last, total_of_4;
    std::arch::x86_64::__m512, f32, 16: _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps,
        |n: usize| ((1u32 << n) - 1) as u16, _mm512_maskz_loadu_ps _mm512_mask_storeu_ps mask_first, total_of_16;
    std::arch::x86_64::__m512d, f64, 8: _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd,
        |n: usize| ((1u32 << n) - 1) as u8, _mm512_maskz_loadu_pd _mm512_mask_storeu_pd mask_first, total_of_8_wide;
}

/// The functions of one level, with as many accumulators as its registers hold.
macro_rules! level {
    ($(#[$enable:meta])* $name:ident, $rows:literal rows, $width:literal wide, $taps:literal taps, $collect_width:literal) => {
        mod $name {
            use crate::register_tiles::{
                Collect, GradientRows, OutputPositions, OutputRows, RegisterTiles, SimdVector, Spread, WIDTH_MAX,
            };
            $(#[$enable])*
            unsafe fn spread<V: SimdVector, const ROWS: usize, const WIDTH: usize, const ONTO: bool>(
                terms: usize,
                weights: *const V::E,
                offsets: *const isize,
                from: *const V::E,
                start: *const V::E,
                to: *mut V::E,
            ) {
                // SAFETY: `RegisterTiles` holds this instance only for a level that the CPU has, and the contract is
                // that of the function called.
                unsafe { crate::register_tiles::spread::<V, ROWS, WIDTH, ONTO>(terms, weights, offsets, from, start, to) }
            }
            $(#[$enable])*
            unsafe fn collect<V: SimdVector, const TAPS: usize, const WIDTH: usize>(
                places: &OutputPositions<V::E>,
                offsets: *const isize,
                sums: *mut V::E,
                step: usize,
            ) {
                // SAFETY: `RegisterTiles` holds this instance only for a level that the CPU has, and the contract is
                // that of the function called.
                unsafe { crate::register_tiles::collect::<V, TAPS, WIDTH>(places, offsets, sums, step) }
            }
            $(#[$enable])*
            unsafe fn lines<V: SimdVector, const ROWS: usize>(rows: &OutputRows<V::E>) {
                // SAFETY: `RegisterTiles` holds this instance only for a level that the CPU has, and the contract is
                // that of the function called.
                unsafe { crate::register_tiles::lines::<V, ROWS>(rows) }
            }
            $(#[$enable])*
            unsafe fn dots<V: SimdVector, const TAPS: usize>(
                rows: &GradientRows<V::E>,
                offsets: *const isize,
                sums: *mut V::E,
            ) {
                // SAFETY: `RegisterTiles` holds this instance only for a level that the CPU has, and the contract is
                // that of the function called.
                unsafe { crate::register_tiles::dots::<V, TAPS>(rows, offsets, sums) }
            }
            fn widths<V: SimdVector, const ROWS: usize, const ONTO: bool>() -> [Spread<V::E>; 3] {
                [spread::<V, ROWS, 1, ONTO>, spread::<V, ROWS, 2, ONTO>, spread::<V, ROWS, 3, ONTO>]
            }
            fn all_widths<V: SimdVector, const ONTO: bool>() -> [[Spread<V::E>; 3]; 4] {
                [widths::<V, 1, ONTO>(), widths::<V, 2, ONTO>(), widths::<V, 4, ONTO>(), widths::<V, $rows, ONTO>()]
            }
            pub fn tiles<V: SimdVector>() -> RegisterTiles<V::E> {
                let collect: [Collect<V::E>; WIDTH_MAX] =
                    [collect::<V, $taps, 1>, collect::<V, $taps, 2>, collect::<V, $taps, 3>, collect::<V, $taps, $collect_width>];
                RegisterTiles {
                    lanes: V::N,
                    rows: $rows,
                    width: $width,
                    spread: all_widths::<V, false>(),
                    spread_onto: all_widths::<V, true>(),
                    taps: $taps,
                    collect,
                    lines: [lines::<V, 1>, lines::<V, 2>, lines::<V, 4>, lines::<V, 8>],
                    dots: [dots::<V, 9>, dots::<V, 3>, dots::<V, 1>],
                }
            }
        }
    };
}

level! { baseline, 4 rows, 2 wide, 2 taps, 4 }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx2,fma")] avx2, 4 rows, 3 wide, 3 taps, 4 }
#[cfg(target_arch = "x86_64")]
level! { #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")] avx512, 8 rows, 3 wide, 6 taps, 4 }

macro_rules! tiled {
    ($($e:ty: $baseline:ty, $avx2:ident, $avx512:ident;)*) => {$(
        impl Tiled for $e {
            const ZERO: Self = 0.0;
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn tiles(level: SimdLevel) -> RegisterTiles<Self> {
                match level {
                    SimdLevel::Baseline => baseline::tiles::<$baseline>(),
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx2 => avx2::tiles::<std::arch::x86_64::$avx2>(),
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx512 => avx512::tiles::<std::arch::x86_64::$avx512>(),
                }
            }
        }
    )*};
}

tiled! {
    f32: [f32; 4], __m256, __m512;
    f64: [f64; 2], __m256d, __m512d;
}
