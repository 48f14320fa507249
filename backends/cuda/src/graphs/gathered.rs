//! Elementwise launches that are gathered: launches of one kernel that follow each other on the stream, where none
//! reads or overwrites a result of another, take one launch of the kernel for several.
//!
//! A fused optimizer computes the same program for each parameter. The kernel for several finds the operands of each
//! launch in a table in its arguments (`kernels/tensors.cuh`), with the numbers, which may differ. Its threads compute
//! what those of the launches one by one do, so the bits are the same. Operands and results are compared by address,
//! not by tensor, since freed memory is reused in the order of the stream.

use crate::driver::{Args, DevicePtr, Grid, KernelFunction};
use crate::program::{INPUTS_MAX, THREADS, part_bytes, parts_max};
use std::ops::Range;

/// With so many elements, gathered launches are issued: the device computes them while the next ones are gathered.
const ELEMENTS_ENOUGH: u64 = 1 << 24;
/// The most launches whose operands are remembered while they are issued one by one.
const REMEMBERED_MAX: usize = 32;

/// A launch of an elementwise kernel on contiguous operands and results: [`crate::program::Traversal::Straight`].
pub struct ElementwiseLaunch<'a> {
    /// The kernel.
    pub kernel: KernelFunction,
    /// The number of operands.
    pub inputs: usize,
    /// The address of each operand, or the bits of a scalar, and then the address of each result.
    pub columns: &'a [u64],
    /// The bytes that the kernel reads or writes at each address; none for a scalar.
    pub bytes: &'a [u64],
    /// A bit for each operand of one element, and from bit [`INPUTS_MAX`] on one for each scalar.
    pub masks: u32,
    /// The elements of a result.
    pub count: u64,
    /// The blocks that compute them.
    pub blocks: u32,
}

impl ElementwiseLaunch<'_> {
    /// The arguments of the launch by itself.
    pub fn args(&self) -> Args {
        let mut args = Args::new();
        let (inputs, results) = self.columns.split_at(self.inputs);
        for (i, column) in inputs.iter().enumerate() {
            let is_scalar = self.masks >> (INPUTS_MAX + i) & 1 == 1;
            args.push(if is_scalar { [0, *column] } else { [*column, 0] });
        }
        for result in results {
            args.push(*result);
        }
        args.push(self.masks & ((1 << INPUTS_MAX) - 1)).push(self.count);
        args
    }

    /// The grid of the launch by itself.
    pub fn grid(&self) -> Grid {
        Grid::new(self.blocks, THREADS)
    }

    fn ranges(&self, which: Range<usize>) -> impl Iterator<Item = Range<DevicePtr>> {
        let columns = self.columns[which.clone()].iter().zip(&self.bytes[which]);
        columns.filter(|(_, bytes)| **bytes > 0).map(|(at, bytes)| *at..*at + *bytes)
    }

    fn reads(&self) -> impl Iterator<Item = Range<DevicePtr>> {
        self.ranges(0..self.inputs)
    }

    fn writes(&self) -> impl Iterator<Item = Range<DevicePtr>> {
        self.ranges(self.inputs..self.columns.len())
    }
}

/// Elementwise launches of one kernel that follow each other on the stream: those that are held back, and the memory of
/// all of them that are remembered.
#[derive(Default)]
pub struct Gathered {
    kernel: Option<KernelFunction>,
    /// The kernel for several, and the words of its table so far.
    several: Option<KernelFunction>,
    table: Vec<u64>,
    inputs: usize,
    columns: usize,
    held: usize,
    blocks: u32,
    elements: u64,
    remembered: usize,
    reads: Vec<Range<DevicePtr>>,
    writes: Vec<Range<DevicePtr>>,
}

fn overlap(one: &Range<DevicePtr>, other: &Range<DevicePtr>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Gathered {
    /// The number of launches that are held back.
    #[inline]
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether no launch is held back.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Whether `launch` is of the same kernel as those that are remembered and may run at the same time.
    pub fn admits(&self, launch: &ElementwiseLaunch<'_>) -> bool {
        let meets =
            |ranges: &[Range<DevicePtr>], range: &Range<DevicePtr>| ranges.iter().any(|one| overlap(one, range));
        self.kernel == Some(launch.kernel)
            && self.remembered > 0
            && self.blocks.checked_add(launch.blocks).is_some_and(|blocks| blocks <= i32::MAX as u32)
            && !launch.writes().any(|range| meets(&self.writes, &range) || meets(&self.reads, &range))
            && !launch.reads().any(|range| meets(&self.writes, &range))
    }

    /// Remembers the memory of a launch, the first one or one that is [admitted](Gathered::admits).
    pub fn remember(&mut self, launch: &ElementwiseLaunch<'_>) {
        if self.remembered >= REMEMBERED_MAX && self.is_empty() {
            self.forget();
        }
        self.kernel = Some(launch.kernel);
        self.remembered += 1;
        self.reads.extend(launch.reads());
        self.writes.extend(launch.writes());
    }

    /// Holds back a launch that is remembered; `several` is the kernel for several.
    pub fn hold(&mut self, launch: &ElementwiseLaunch<'_>, several: KernelFunction) {
        self.several = Some(several);
        (self.inputs, self.columns) = (launch.inputs, launch.columns.len());
        self.table.extend_from_slice(launch.columns);
        self.table.extend([launch.count, u64::from(self.blocks) | u64::from(launch.masks) << 32]);
        self.held += 1;
        self.blocks += launch.blocks;
        self.elements += launch.count;
    }

    /// Whether the launches that are held back should be issued before others join them.
    pub fn is_enough(&self) -> bool {
        self.held == parts_max(self.columns) || self.elements >= ELEMENTS_ENOUGH
    }

    /// Forgets the launches, whose work was issued.
    #[inline]
    pub fn forget(&mut self) {
        if self.remembered > 0 {
            self.kernel = None;
            self.table.clear();
            self.reads.clear();
            self.writes.clear();
            (self.held, self.blocks, self.elements, self.remembered) = (0, 0, 0, 0);
        }
    }

    /// The positions of the scalars in the table.
    fn numbers(&self) -> impl Iterator<Item = usize> {
        let row = self.columns + 2;
        let is_scalar = move |masks: u64, i: usize| masks >> (32 + INPUTS_MAX + i) & 1 == 1;
        let rows = self.table.chunks_exact(row).enumerate();
        rows.flat_map(move |(at, words)| {
            (0..self.inputs).filter(move |i| is_scalar(words[row - 1], *i)).map(move |i| at * row + i)
        })
    }

    /// The one launch that does the work of those that are held back; none if there are none. If `notes_numbers`, the
    /// scalars of several are [numbers](Args::mark_numbers): graphs update them when they differ.
    pub fn launch(&self, notes_numbers: bool) -> Option<(KernelFunction, Grid, Args)> {
        let (Some(kernel), Some(several)) = (self.kernel, self.several) else { return None };
        let grid = Grid::new(self.blocks, THREADS);
        match self.held {
            0 => None,
            1 => {
                let [columns @ .., count, places] = &self.table[..] else { return None };
                let (inputs, masks) = (self.inputs, (places >> 32) as u32);
                let launch = ElementwiseLaunch {
                    kernel,
                    inputs,
                    columns,
                    bytes: &[],
                    masks,
                    count: *count,
                    blocks: self.blocks,
                };
                Some((kernel, grid, launch.args()))
            }
            parts => {
                let words = parts_max(self.columns) * part_bytes(self.columns) / 8;
                let mut args = Args::new();
                args.push_padded(&self.table, words).push(parts as u32);
                if notes_numbers {
                    args.mark_numbers(self.numbers());
                }
                Some((several, grid, args))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: KernelFunction = KernelFunction(1);

    /// A launch that reads 64 bytes at each of two addresses and writes 64 bytes.
    fn launch<'a>(columns: &'a [u64; 3]) -> ElementwiseLaunch<'a> {
        ElementwiseLaunch { kernel: KERNEL, inputs: 2, columns, bytes: &[64; 3], masks: 0, count: 16, blocks: 1 }
    }

    fn admits(first: [u64; 3], second: [u64; 3]) -> bool {
        let mut gathered = Gathered::default();
        gathered.remember(&launch(&first));
        gathered.admits(&launch(&second))
    }

    #[test]
    fn a_launch_is_admitted_unless_it_meets_what_another_one_writes() {
        assert!(admits([0, 64, 128], [192, 256, 320]));
        assert!(admits([0, 64, 128], [0, 64, 192]), "both read the same");
        assert!(admits([0, 64, 0], [192, 256, 192]), "each writes over its own operand");
        assert!(!admits([0, 64, 128], [128, 256, 320]), "it reads a result");
        assert!(!admits([0, 64, 128], [192, 256, 128]), "it writes to a result");
        assert!(!admits([0, 64, 128], [192, 256, 64]), "it writes over an operand that may not have been read");
        assert!(!admits([0, 64, 128], [129, 256, 320]), "it reads a part of a result");
        assert!(!Gathered::default().admits(&launch(&[0, 64, 128])), "there is nothing to join");
    }

    #[test]
    fn launches_of_another_kernel_are_not_admitted() {
        let mut gathered = Gathered::default();
        gathered.remember(&launch(&[0, 64, 128]));
        let other = ElementwiseLaunch { kernel: KernelFunction(2), ..launch(&[192, 256, 320]) };
        assert!(!gathered.admits(&other));
        gathered.forget();
        assert!(!gathered.admits(&launch(&[192, 256, 320])));
    }

    #[test]
    fn one_launch_keeps_its_kernel_and_several_have_a_table() {
        let several = KernelFunction(7);
        let (first, second) = ([0, 64, 128], [192, 256, 320]);
        let mut gathered = Gathered::default();
        assert!(gathered.launch(true).is_none());
        for (held, columns) in [&first, &second].into_iter().enumerate() {
            gathered.remember(&launch(columns));
            gathered.hold(&launch(columns), several);
            let (kernel, grid, args) = gathered.launch(true).expect("something is held back");
            assert_eq!(grid.blocks, [held as u32 + 1, 1, 1]);
            if held == 0 {
                assert_eq!((kernel, args.hash()), (KERNEL, launch(columns).args().hash()));
            } else {
                let table: Vec<u8> =
                    [0, 64, 128, 16, 0, 192, 256, 320, 16, 1].into_iter().flat_map(u64::to_le_bytes).collect();
                let [parts, count] = args.iter().collect::<Vec<_>>()[..] else { panic!("two arguments") };
                assert_eq!((kernel, &parts[..table.len()], count), (several, &table[..], &2u32.to_le_bytes()[..]));
                assert_eq!(parts.len(), parts_max(3) * part_bytes(3));
            }
        }
    }
}
