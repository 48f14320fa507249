//! The inner loops of convolutions: tiles of accumulators that stay in vector registers, as in a GEMM micro-kernel
//! (BLIS, Van Zee & van de Geijn 2015).
//!
//! Both loops multiply vectors by broadcast numbers. [`RegisterTiles::spread`] computes a tile of results: the numbers
//! are packed weights, and the vectors are neighbouring positions in the input's planes. [`RegisterTiles::collect`]
//! computes a tile of the weight's gradient: the numbers are elements of the input, and the vectors are the channels of
//! the gradient at one position.

#![expect(clippy::needless_range_loop, reason = "iterators over vectors are not inlined into functions of a level")]

use crate::kernels::SimdLevel;

/// Computes a tile of results: for each of `terms` terms, `rows` packed weights times the vectors at `from` plus an
/// offset.
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
    /// The number of offsets in a tile of a weight's gradient.
    pub taps: usize,
    /// The loops for tiles of a weight's gradient, by vectors - 1.
    pub collect: [Collect<E>; WIDTH_MAX],
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
trait SimdVector: Copy {
    type E: Copy;
    const N: usize;
    unsafe fn splat(x: Self::E) -> Self;
    unsafe fn load(from: *const Self::E) -> Self;
    unsafe fn store(self, to: *mut Self::E);
    /// `self + a * b`.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
}

/// # Safety
/// All pointers are valid for `terms` terms and the vectors of a tile.
#[inline(always)]
unsafe fn spread<V: SimdVector, const ROWS: usize, const WIDTH: usize>(
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
                sums[row][i] = V::splat(*start.add(row));
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

impl<E: Copy + std::ops::Add<Output = E> + std::ops::Mul<Output = E>, const N: usize> SimdVector for [E; N] {
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
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        std::array::from_fn(|i| self[i] + a[i] * b[i])
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! lanes {
    ($($v:ty, $e:ty, $n:literal: $splat:ident $load:ident $store:ident $fma:ident;)*) => {$(
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
            unsafe fn plus_product(self, a: Self, b: Self) -> Self {
                // SAFETY: instantiated only in functions of a level that has these instructions.
                unsafe { std::arch::x86_64::$fma(a, b, self) }
            }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
lanes! {
    std::arch::x86_64::__m256, f32, 8: _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps;
    std::arch::x86_64::__m256d, f64, 4: _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd;
    std::arch::x86_64::__m512, f32, 16: _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps;
    std::arch::x86_64::__m512d, f64, 8: _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd;
}

/// The functions of one level, with as many accumulators as its registers hold.
macro_rules! level {
    ($(#[$enable:meta])* $name:ident, $rows:literal rows, $width:literal wide, $taps:literal taps, $collect_width:literal) => {
        mod $name {
            use crate::register_tiles::{Collect, SimdVector, OutputPositions, Spread, RegisterTiles, WIDTH_MAX};
            $(#[$enable])*
            unsafe fn spread<V: SimdVector, const ROWS: usize, const WIDTH: usize>(
                terms: usize,
                weights: *const V::E,
                offsets: *const isize,
                from: *const V::E,
                start: *const V::E,
                to: *mut V::E,
            ) {
                // SAFETY: `RegisterTiles` holds this instance only for a level that the CPU has, and the contract is
                // that of the function called.
                unsafe { crate::register_tiles::spread::<V, ROWS, WIDTH>(terms, weights, offsets, from, start, to) }
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
            fn widths<V: SimdVector, const ROWS: usize>() -> [Spread<V::E>; 3] {
                [spread::<V, ROWS, 1>, spread::<V, ROWS, 2>, spread::<V, ROWS, 3>]
            }
            pub fn tiles<V: SimdVector>() -> RegisterTiles<V::E> {
                let collect: [Collect<V::E>; WIDTH_MAX] =
                    [collect::<V, $taps, 1>, collect::<V, $taps, 2>, collect::<V, $taps, 3>, collect::<V, $taps, $collect_width>];
                RegisterTiles {
                    lanes: V::N,
                    rows: $rows,
                    width: $width,
                    spread: [widths::<V, 1>(), widths::<V, 2>(), widths::<V, 4>(), widths::<V, $rows>()],
                    taps: $taps,
                    collect,
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
