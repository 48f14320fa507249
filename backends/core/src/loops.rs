//! Loops over several strided operands of one shape, in row-major order.

use gt_ops::{RANK_MAX, Shape};

/// The axes of the loops, outermost first. Neighbouring axes are merged where all operands allow it.
#[derive(Clone, Copy, Debug)]
pub struct Loops<const N: usize> {
    rank: usize,
    sizes: [usize; RANK_MAX],
    /// Bytes from one index to the next, of each operand on each axis.
    strides: [[isize; N]; RANK_MAX],
}

/// A run of elements along the innermost axis.
#[derive(Clone, Copy, Debug)]
pub struct Run<const N: usize> {
    /// Bytes from each operand's first element to the run's first.
    pub offsets: [isize; N],
    /// The row-major position of the run's first element.
    pub at: usize,
    /// The number of elements.
    pub len: usize,
}

/// Whole runs that follow one another along the second innermost axis, or a part of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plane<const N: usize> {
    /// Bytes from each operand's first element to the plane's first.
    pub offsets: [isize; N],
    /// The row-major position of the plane's first element.
    pub at: usize,
    /// The number of runs.
    pub rows: usize,
    /// The number of elements in each run.
    pub len: usize,
}

impl<const N: usize> Loops<N> {
    /// Loops over `shape`, which has no zero sizes, for operands with these strides in bytes.
    pub fn new(shape: &Shape, strides: [&[isize; RANK_MAX]; N]) -> Loops<N> {
        let mut loops = Loops { rank: 0, sizes: [1; RANK_MAX], strides: [[0; N]; RANK_MAX] };
        for (axis, &size) in shape.dims().iter().enumerate() {
            if size == 1 {
                continue;
            }
            let step: [isize; N] = std::array::from_fn(|i| strides[i][axis]);
            let merges = loops.rank > 0
                && (0..N).all(|i| loops.strides[loops.rank - 1][i] == step[i].wrapping_mul(size as isize));
            if merges {
                loops.sizes[loops.rank - 1] *= size;
                loops.strides[loops.rank - 1] = step;
            } else {
                loops.sizes[loops.rank] = size;
                loops.strides[loops.rank] = step;
                loops.rank += 1;
            }
        }
        if loops.rank == 0 {
            loops.rank = 1;
        }
        loops
    }

    /// A single loop of `size` elements, `step` bytes apart for each operand.
    pub fn line(size: usize, step: isize) -> Loops<N> {
        let mut loops = Loops { rank: 1, sizes: [1; RANK_MAX], strides: [[0; N]; RANK_MAX] };
        loops.sizes[0] = size;
        loops.strides[0] = [step; N];
        loops
    }

    /// The loops without one axis.
    #[must_use]
    pub fn without(&self, axis: usize) -> Loops<N> {
        let mut loops = *self;
        loops.sizes.copy_within(axis + 1.., axis);
        loops.strides.copy_within(axis + 1.., axis);
        loops.rank -= 1;
        if loops.rank == 0 {
            return Loops::line(1, 0);
        }
        loops
    }

    /// The size of the innermost axis.
    #[inline]
    pub fn inner(&self) -> usize {
        self.sizes[self.rank - 1]
    }
    /// The strides along the innermost axis.
    #[inline]
    pub fn inner_strides(&self) -> [isize; N] {
        self.strides[self.rank - 1]
    }
    /// The sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes[..self.rank]
    }
    /// The strides of each axis, outermost first.
    pub fn strides(&self) -> &[[isize; N]] {
        &self.strides[..self.rank]
    }
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.sizes().iter().product()
    }

    /// The strides along the second innermost axis; 0 if there is none.
    #[inline]
    pub fn row_strides(&self) -> [isize; N] {
        if self.rank > 1 { self.strides[self.rank - 2] } else { [0; N] }
    }

    /// Calls `each` with the runs that make up elements `from..to`.
    #[inline]
    pub fn for_runs(&self, from: usize, to: usize, mut each: impl FnMut(Run<N>)) {
        self.walk::<false>(from, to, |Plane { offsets, at, len, .. }| each(Run { offsets, at, len }));
    }

    /// Calls `each` with the planes that make up elements `from..to`: fewer calls than runs, where these are short.
    #[inline]
    pub fn for_planes(&self, from: usize, to: usize, each: impl FnMut(Plane<N>)) {
        self.walk::<true>(from, to, each);
    }

    /// Calls `each` with the planes, or the single runs, that make up elements `from..to`.
    #[expect(
        clippy::needless_range_loop,
        reason = "iterators over several slices are not inlined into large functions"
    )]
    #[inline(always)]
    fn walk<const PLANES: bool>(&self, from: usize, to: usize, mut each: impl FnMut(Plane<N>)) {
        if from >= to {
            return;
        }
        let last = self.rank - 1;
        let inner = self.sizes[last];
        let mut index = [0usize; RANK_MAX];
        let mut offsets = [0isize; N];
        let mut rest = from;
        for axis in (0..=last).rev() {
            index[axis] = rest % self.sizes[axis];
            rest /= self.sizes[axis];
            for i in 0..N {
                offsets[i] += index[axis] as isize * self.strides[axis][i];
            }
        }
        let mut at = from;
        loop {
            let len = (inner - index[last]).min(to - at);
            let rows = if PLANES && len == inner && last > 0 {
                ((to - at) / inner).min(self.sizes[last - 1] - index[last - 1])
            } else {
                1
            };
            each(Plane { offsets, at, rows, len });
            at += rows * len;
            if at == to {
                return;
            }
            // The last run ended at the end of its axis: reset that axis and advance the next outer one.
            for i in 0..N {
                offsets[i] -= index[last] as isize * self.strides[last][i];
            }
            index[last] = 0;
            let (mut axis, mut ahead) = (last, rows);
            while axis > 0 {
                axis -= 1;
                index[axis] += ahead;
                for i in 0..N {
                    offsets[i] += ahead as isize * self.strides[axis][i];
                }
                if index[axis] < self.sizes[axis] {
                    break;
                }
                for i in 0..N {
                    offsets[i] -= index[axis] as isize * self.strides[axis][i];
                }
                index[axis] = 0;
                ahead = 1;
            }
        }
    }
}

/// Splits a shape into its kept and its reduced axes (bit `i` of `mask` is set for a reduced axis `i`). The reduced
/// axes with the smallest strides come last.
pub fn split_axes(shape: &Shape, strides: &[isize; RANK_MAX], mask: u8) -> (Loops<1>, Loops<1>) {
    let (mut kept, mut reduced) = ([0usize; RANK_MAX], [0usize; RANK_MAX]);
    let (mut stay, mut go) = (0, 0);
    for axis in 0..shape.rank() {
        if mask >> axis & 1 == 1 {
            reduced[go] = axis;
            go += 1;
        } else {
            kept[stay] = axis;
            stay += 1;
        }
    }
    reduced[..go].sort_by_key(|axis| std::cmp::Reverse(strides[*axis].unsigned_abs()));
    let pick = |axes: &[usize]| {
        let (mut dims, mut steps) = ([0; RANK_MAX], [0; RANK_MAX]);
        for (i, &axis) in axes.iter().enumerate() {
            dims[i] = shape.dims()[axis];
            steps[i] = strides[axis];
        }
        // A subset of a shape's axes is a valid shape.
        let part = Shape::new(&dims[..axes.len()]).unwrap_or(Shape::SCALAR);
        Loops::new(&part, [&steps])
    };
    (pick(&kept[..stay]), pick(&reduced[..go]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_a_range_in_row_major_order() {
        let shape = Shape::new(&[3, 1, 4, 5]).unwrap();
        let mut transposed = [0isize; RANK_MAX];
        transposed[..4].copy_from_slice(&[1, 7, 15, 3]);
        let plain = shape.contiguous_strides();
        let loops = Loops::new(&shape, [&plain, &transposed]);
        assert_eq!(loops.numel(), 60);
        for (from, to) in [(0, 60), (7, 53), (5, 6), (9, 9)] {
            let mut seen = Vec::new();
            loops.for_runs(from, to, |run| {
                for i in 0..run.len {
                    let at: [isize; 2] =
                        std::array::from_fn(|o| run.offsets[o] + i as isize * loops.inner_strides()[o]);
                    seen.push((run.at + i, at));
                }
            });
            let expected: Vec<_> = (from..to)
                .map(|i| (i, [i as isize, (i / 20) as isize + (i / 5 % 4) as isize * 15 + (i % 5) as isize * 3]))
                .collect();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn planes_are_the_same_runs_in_fewer_calls() {
        let shape = Shape::new(&[3, 4, 5]).unwrap();
        let mut transposed = [0isize; RANK_MAX];
        transposed[..3].copy_from_slice(&[1, 16, 3]);
        let mut line = [0isize; RANK_MAX];
        line[..3].copy_from_slice(&[20, 5, 1]);
        for strides in [transposed, line] {
            let loops = Loops::new(&shape, [&strides]);
            for (from, to) in [(0, 60), (7, 53), (5, 6), (3, 21), (20, 40), (9, 9)] {
                let (mut runs, mut rows, mut planes) = (Vec::new(), Vec::new(), 0);
                loops.for_runs(from, to, |run| runs.push((run.at, run.offsets[0], run.len)));
                loops.for_planes(from, to, |plane| {
                    planes += 1;
                    rows.extend((0..plane.rows).map(|row| {
                        let offset = plane.offsets[0] + row as isize * loops.row_strides()[0];
                        (plane.at + row * plane.len, offset, plane.len)
                    }));
                });
                assert_eq!(rows, runs, "{from}..{to}");
                if (from, to) == (0, 60) {
                    assert_eq!(planes, if strides == line { 1 } else { 3 });
                }
            }
        }
    }

    #[test]
    fn axes_merge_where_all_operands_allow() {
        let shape = Shape::new(&[2, 3, 4]).unwrap();
        let plain = shape.contiguous_strides();
        assert_eq!(Loops::new(&shape, [&plain]).sizes(), &[24]);
        let mut row = [0isize; RANK_MAX];
        row[2] = 1;
        assert_eq!(Loops::new(&shape, [&plain, &row]).sizes(), &[6, 4]);
        assert_eq!(Loops::new(&Shape::SCALAR, [&plain]).sizes(), &[1]);
    }
}
