//! The conformance suite: programs that every communicator passes.
//!
//! A [`Program`] runs on every rank of a group, each with a new communicator, and checks its own results. The test of a
//! communicator makes the ranks (threads, processes or devices) and runs each of [`PROGRAMS`] with groups of several
//! sizes, by name if the ranks are processes.
//!
//! Elements are small whole numbers, so that sums are exact in every dtype and in any order. The tests of a
//! communicator that promises an order check that order.

use crate::{CollectiveError, Communicator, Operation, Reduce, SharedValue};
use gt_ops::DType;
use half::{bf16, f16};
use std::sync::Arc;

/// A program that every rank runs.
pub type Program = fn(&mut dyn Communicator);

/// Every program, by name.
pub const PROGRAMS: [(&str, Program); 15] = [
    ("all_reduces", all_reduces),
    ("all_gathers", all_gathers),
    ("reduce_scatters", reduce_scatters),
    ("broadcasts", broadcasts),
    ("all_to_alls", all_to_alls),
    ("messages", messages),
    ("shares", shares),
    ("large_buffers", large_buffers),
    ("misaligned_buffers", misaligned_buffers),
    ("random_orders", random_orders),
    ("same_bits", same_bits),
    ("mismatches", mismatches),
    ("wrong_arguments", wrong_arguments),
    ("statistics", statistics),
    ("aborts", aborts),
];

/// The program called `name`.
///
/// # Panics
/// If no program has that name.
pub fn program(name: &str) -> Program {
    PROGRAMS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no program {name}")).1
}

/// Lengths around the edges of cache lines, tiles and slots, in elements.
const LENGTHS: [usize; 9] = [0, 1, 3, 16, 17, 1023, 4099, 70_001, 300_007];
/// Lengths for which every dtype and reduction is tested, in elements.
const SHORT_MAX: usize = 5000;
/// Bytes of the largest buffers.
const LARGE_BYTES: usize = 64 << 20;

/// Numbers that are the same on every rank and machine (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Element `i` of rank `rank`, so small that a product of eight is exact in f16.
fn value(dtype: DType, rank: usize, i: usize) -> i64 {
    let n = (i.wrapping_mul(7) ^ (i >> 5)).wrapping_add(rank * 3) % 5;
    match dtype {
        DType::Bool => i64::from(n == 0 || n == rank % 5),
        DType::U8 => [1, 2, 0, 1, 3][n],
        _ => [1, 2, -1, -2, 1][n],
    }
}

/// Appends `x` to `to` as an element of `dtype`.
pub fn encode(dtype: DType, x: f64, to: &mut Vec<u8>) {
    match dtype {
        DType::Bool | DType::U8 => to.push(x as i64 as u8),
        DType::I8 => to.push(x as i64 as i8 as u8),
        DType::I16 | DType::U16 => to.extend((x as i64 as i16).to_ne_bytes()),
        DType::I32 | DType::U32 => to.extend((x as i64 as i32).to_ne_bytes()),
        DType::I64 | DType::U64 => to.extend((x as i64).to_ne_bytes()),
        DType::F16 => to.extend(f16::from_f64(x).to_ne_bytes()),
        DType::BF16 => to.extend(bf16::from_f64(x).to_ne_bytes()),
        DType::F32 | DType::C64 => to.extend((x as f32).to_ne_bytes()),
        DType::F64 | DType::C128 => to.extend(x.to_ne_bytes()),
    }
}

fn bytes_of(dtype: DType, values: impl Iterator<Item = i64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.for_each(|x| encode(dtype, x as f64, &mut bytes));
    bytes
}

/// Elements `from..from + len` of rank `rank`.
fn elements(dtype: DType, rank: usize, from: usize, len: usize) -> Vec<u8> {
    bytes_of(dtype, (from..from + len).map(|i| value(dtype, rank, i)))
}

/// Element `i` of the reduction over `size` ranks.
fn combined(dtype: DType, how: Reduce, size: usize, i: usize) -> f64 {
    let values = (0..size).map(|rank| value(dtype, rank, i));
    let whole = match (how, dtype) {
        (Reduce::Max, _) => values.max(),
        (Reduce::Min, _) => values.min(),
        (Reduce::Sum, DType::Bool) => values.max(),
        (Reduce::Prod, DType::Bool) => values.min(),
        (Reduce::Sum, _) => Some(values.sum()),
        (Reduce::Prod, _) => Some(values.product()),
        (Reduce::Mean, _) => return values.sum::<i64>() as f64 / size as f64,
    };
    whole.unwrap_or(0) as f64
}

fn reduced(dtype: DType, how: Reduce, size: usize, from: usize, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    (from..from + len).for_each(|i| encode(dtype, combined(dtype, how, size, i), &mut bytes));
    bytes
}

/// A buffer filled with a byte that no result has.
fn blank(bytes: usize) -> Vec<u8> {
    vec![0xa5; bytes]
}

#[track_caller]
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        let near = at.unwrap_or(0) / 8 * 8..(at.unwrap_or(0) / 8 * 8 + 8).min(found.len());
        let (found_near, expected_near) = (&found[near.clone()], &expected[near]);
        panic!("{what}: byte {at:?} of {} differs: {found_near:02x?}, not {expected_near:02x?}", found.len());
    }
}

/// The reductions that are defined for a dtype.
fn reductions(dtype: DType) -> impl Iterator<Item = Reduce> {
    Reduce::ALL.into_iter().filter(move |how| how.is_defined_for(dtype))
}

fn all_reduce_once(comm: &mut dyn Communicator, dtype: DType, how: Reduce, len: usize) {
    let mut buffer = elements(dtype, comm.rank(), 0, len);
    comm.all_reduce(&mut buffer, dtype, how).expect("an all-reduce");
    assert_same(&buffer, &reduced(dtype, how, comm.size(), 0, len), &format!("all_reduce({how}) of {len} {dtype}"));
}

/// Every dtype, reduction and length.
pub fn all_reduces(comm: &mut dyn Communicator) {
    for dtype in DType::STORED {
        for how in reductions(dtype) {
            for len in LENGTHS.into_iter().filter(|len| *len < SHORT_MAX) {
                all_reduce_once(comm, dtype, how, len);
            }
        }
        for len in LENGTHS {
            all_reduce_once(comm, dtype, Reduce::Sum, len);
        }
    }
}

/// Counts per rank of one kind: even, uneven, all at one rank, or with zeros between.
fn counts(kind: usize, size: usize, len: usize) -> Vec<usize> {
    (0..size)
        .map(|rank| match kind {
            0 => len,
            1 => len * (rank + 1) / size + rank % 2,
            2 => len * usize::from(rank == size - 1),
            _ => len * usize::from(rank % 2 == 0) + rank * 3 % 4,
        })
        .collect()
}
const COUNT_KINDS: usize = 4;

fn all_gather_once(comm: &mut dyn Communicator, dtype: DType, counts: &[usize]) {
    let rank = comm.rank();
    let input = elements(dtype, rank, 10 * rank, counts[rank]);
    let expected: Vec<u8> = (0..comm.size()).flat_map(|peer| elements(dtype, peer, 10 * peer, counts[peer])).collect();
    let mut output = blank(expected.len());
    comm.all_gather(&input, &mut output, counts, dtype).expect("an all-gather");
    assert_same(&output, &expected, &format!("all_gather of {counts:?} {dtype}"));
}

/// Every dtype, with even, uneven and zero counts.
pub fn all_gathers(comm: &mut dyn Communicator) {
    for len in LENGTHS {
        for kind in 0..COUNT_KINDS {
            let counts = counts(kind, comm.size(), len);
            let dtypes = if len < SHORT_MAX { &DType::STORED[..] } else { &[DType::I8, DType::F64] };
            for dtype in dtypes {
                all_gather_once(comm, *dtype, &counts);
            }
        }
    }
}

fn reduce_scatter_once(comm: &mut dyn Communicator, dtype: DType, how: Reduce, counts: &[usize]) {
    let (rank, size) = (comm.rank(), comm.size());
    let input = elements(dtype, rank, 0, counts.iter().sum());
    let from = counts[..rank].iter().sum();
    let mut output = blank(counts[rank] * dtype.size());
    comm.reduce_scatter(&input, &mut output, counts, dtype, how).expect("a reduce-scatter");
    let expected = reduced(dtype, how, size, from, counts[rank]);
    assert_same(&output, &expected, &format!("reduce_scatter({how}) of {counts:?} {dtype}"));
}

/// Every dtype and reduction, with even, uneven and zero counts.
pub fn reduce_scatters(comm: &mut dyn Communicator) {
    let size = comm.size();
    for kind in 0..COUNT_KINDS {
        for dtype in DType::STORED {
            for how in reductions(dtype) {
                for len in [1, 17, 1023] {
                    reduce_scatter_once(comm, dtype, how, &counts(kind, size, len));
                }
            }
        }
        for len in LENGTHS {
            reduce_scatter_once(comm, DType::F32, Reduce::Sum, &counts(kind, size, len));
        }
    }
}

fn broadcast_once(comm: &mut dyn Communicator, dtype: DType, root: usize, len: usize) {
    let expected = elements(dtype, root, 1, len);
    let mut buffer = if comm.rank() == root { expected.clone() } else { blank(expected.len()) };
    comm.broadcast(&mut buffer, root, dtype).expect("a broadcast");
    assert_same(&buffer, &expected, &format!("broadcast of {len} {dtype} from {root}"));
}

/// Broadcasts from every rank, in every dtype and length.
pub fn broadcasts(comm: &mut dyn Communicator) {
    for root in 0..comm.size() {
        for dtype in DType::STORED {
            LENGTHS.into_iter().filter(|len| *len < SHORT_MAX).for_each(|len| broadcast_once(comm, dtype, root, len));
        }
        LENGTHS.into_iter().for_each(|len| broadcast_once(comm, DType::I64, root, len));
    }
}

/// The number of elements that rank `from` sends to rank `to`. It depends on the pair, and is 0 for some pairs.
fn given(from: usize, to: usize, len: usize) -> usize {
    if (from + 2 * to) % 4 == 3 { 0 } else { len + 5 * from + to }
}

fn all_to_all_once(comm: &mut dyn Communicator, dtype: DType, len: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let gives: Vec<usize> = (0..size).map(|to| given(rank, to, len)).collect();
    let takes: Vec<usize> = (0..size).map(|from| given(from, rank, len)).collect();
    let piece = |from: usize, to: usize| elements(dtype, from, 100 * to, given(from, to, len));
    let input: Vec<u8> = (0..size).flat_map(|to| piece(rank, to)).collect();
    let expected: Vec<u8> = (0..size).flat_map(|from| piece(from, rank)).collect();
    let mut output = blank(expected.len());
    comm.all_to_all(&input, &mut output, &gives, &takes, dtype).expect("an all-to-all");
    assert_same(&output, &expected, &format!("all_to_all of {takes:?} {dtype}"));
}

/// Every dtype, with counts that depend on the pair of ranks.
pub fn all_to_alls(comm: &mut dyn Communicator) {
    for dtype in DType::STORED {
        LENGTHS.into_iter().filter(|len| *len < SHORT_MAX).for_each(|len| all_to_all_once(comm, dtype, len));
    }
    LENGTHS.into_iter().for_each(|len| all_to_all_once(comm, DType::I16, len));
}

fn message_once(comm: &mut dyn Communicator, dtype: DType, from: usize, to: usize, len: usize) {
    let expected = elements(dtype, from, to, len);
    if comm.rank() == from {
        comm.send(&expected, to, dtype).expect("a send");
    } else if comm.rank() == to {
        let mut found = blank(expected.len());
        comm.recv(&mut found, from, dtype).expect("a recv");
        assert_same(&found, &expected, &format!("{len} {dtype} from {from} to {to}"));
    }
}

/// Messages between every pair, both ways, in every length.
pub fn messages(comm: &mut dyn Communicator) {
    let size = comm.size();
    for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
        if from != to {
            for (i, len) in LENGTHS.into_iter().enumerate() {
                message_once(comm, DType::STORED[(i + from) % 10], from, to, len);
            }
        }
    }
}

/// Some operations on 1, 16 and 64 MiB.
pub fn large_buffers(comm: &mut dyn Communicator) {
    let size = comm.size();
    // The largest buffers for eight ranks would take gigabytes.
    for bytes in [1 << 20, 16 << 20, LARGE_BYTES].into_iter().filter(|bytes| bytes * size <= 4 * LARGE_BYTES) {
        let len = bytes / 4 - 3;
        // One cheap pattern: making reference values takes longer than the operation.
        let fill = |x: f32, len: usize| x.to_ne_bytes().repeat(len);
        let own = comm.rank() as f32 + 1.0;
        let mut buffer = fill(own, len);
        comm.all_reduce(&mut buffer, DType::F32, Reduce::Sum).expect("an all-reduce");
        assert_same(&buffer, &fill((size * (size + 1) / 2) as f32, len), "a large all_reduce");

        let piece = len / size;
        let counts = vec![piece; size];
        let mut output = blank(4 * piece * size);
        comm.all_gather(&fill(own, piece), &mut output, &counts, DType::F32).expect("an all-gather");
        let expected: Vec<u8> = (0..size).flat_map(|rank| fill(rank as f32 + 1.0, piece)).collect();
        assert_same(&output, &expected, "a large all_gather");

        let mut part = blank(4 * piece);
        comm.reduce_scatter(&expected, &mut part, &counts, DType::F32, Reduce::Max).expect("a reduce-scatter");
        assert_same(&part, &fill(own, piece), "a large reduce_scatter");
    }
}

/// Buffers at addresses of any alignment.
pub fn misaligned_buffers(comm: &mut dyn Communicator) {
    for (offset, dtype) in (1..8).zip(DType::STORED.into_iter().rev()) {
        let (rank, size, len) = (comm.rank(), comm.size(), 1000);
        let mut bytes = vec![0; offset];
        bytes.extend(elements(dtype, rank, 0, len));
        comm.all_reduce(&mut bytes[offset..], dtype, Reduce::Sum).expect("an all-reduce");
        assert_same(&bytes[offset..], &reduced(dtype, Reduce::Sum, size, 0, len), "a misaligned all_reduce");
        let counts = vec![len; size];
        let mut output = blank(offset + size * len * dtype.size());
        comm.all_gather(&bytes[offset..], &mut output[offset..], &counts, dtype).expect("an all-gather");
        assert_same(&output[offset..], &bytes[offset..].repeat(size), "a misaligned all_gather");
    }
}

/// One operation of a random kind and size. All ranks have the same `dice`.
pub fn random_step(comm: &mut dyn Communicator, seed: u64) {
    let dice = &mut Dice(seed);
    let size = comm.size();
    let dtype = DType::STORED[dice.below(10)];
    let how = Reduce::ALL[dice.below(if dtype.is_float() { 5 } else { 4 })];
    let len = [dice.below(4), dice.below(300), dice.below(30_000)][dice.below(3)];
    let counts: Vec<usize> = (0..size).map(|_| dice.below(len + 1) * dice.below(2)).collect();
    match dice.below(7) {
        0 => all_reduce_once(comm, dtype, how, len),
        1 => all_gather_once(comm, dtype, &counts),
        2 => reduce_scatter_once(comm, dtype, how, &counts),
        3 => broadcast_once(comm, dtype, dice.below(size), len),
        4 => all_to_all_once(comm, dtype, len / size),
        5 if size > 1 => {
            let from = dice.below(size);
            message_once(comm, dtype, from, (from + 1 + dice.below(size - 1)) % size, len);
        }
        _ => comm.barrier().expect("a barrier"),
    }
}

/// A value of this rank for each rank, which names both. The clones of the last element count the values that live.
fn values(comm: &dyn Communicator, alive: &Arc<()>) -> Vec<SharedValue> {
    (0..comm.size()).map(|peer| Box::new((comm.rank(), peer, alive.clone())) as SharedValue).collect()
}

/// Threads of one process give each other values of any type; other ranks learn that they cannot. A value that was not
/// received is dropped.
pub fn shares(comm: &mut dyn Communicator) {
    let (rank, size, alive) = (comm.rank(), comm.size(), Arc::new(()));
    if !comm.shares_values() {
        let refused = comm.share(values(comm, &alive));
        assert!(matches!(refused, Err(CollectiveError::Setup { .. })));
        assert_eq!(Arc::strong_count(&alive), 1, "a value that no rank gets is dropped");
        return;
    }
    // Several in a row: a rank may give its next values while another takes those before.
    for _ in 0..100 {
        for (peer, value) in comm.share(values(comm, &alive)).expect("the values of all ranks").into_iter().enumerate()
        {
            let (from, to, _) = *value.downcast::<(usize, usize, Arc<()>)>().expect("a value of that type");
            assert_eq!((from, to), (peer, rank));
        }
    }
    comm.barrier().expect("a barrier");
    assert_eq!(Arc::strong_count(&alive), 1, "the group keeps no value");
    let few = comm.share(Vec::new()).map(drop);
    assert!(matches!(few, Err(CollectiveError::Counts { found: 0, .. })), "{few:?}");
    if size > 1 {
        let odd = rank == size - 1;
        let result = if odd { comm.barrier() } else { comm.share(values(comm, &alive)).map(drop) };
        assert_mismatch(result, if odd { Operation::Barrier } else { Operation::Share }, comm);
        assert_eq!(Arc::strong_count(&alive), 1, "a rank takes the values back that the others did not want");
    }
    comm.share(values(comm, &alive)).expect("the group remains usable");
}

/// All operations in random order.
pub fn random_orders(comm: &mut dyn Communicator) {
    (0..400).for_each(|seed| random_step(comm, seed));
}

/// Sums of floats that depend on the order of terms have the same bits on every rank and in every run.
pub fn same_bits(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for len in [7, 1000, 50_001] {
            let mut dice = Dice(rank as u64);
            let mut input = Vec::new();
            for _ in 0..len {
                encode(dtype, (dice.next() >> 40) as f64 / 1e4 - 800.0, &mut input);
            }
            let mut sums = [input.clone(), input];
            for sum in &mut sums {
                comm.all_reduce(sum, dtype, Reduce::Sum).expect("an all-reduce");
            }
            assert_same(&sums[0], &sums[1], "the same sum again");
            let mut all = blank(size * sums[0].len());
            comm.all_gather(&sums[0], &mut all, &vec![len; size], dtype).expect("an all-gather");
            assert_same(&all, &sums[0].repeat(size), "the same sum on every rank");
        }
    }
}

#[track_caller]
fn assert_mismatch(found: Result<(), CollectiveError>, operation: Operation, comm: &dyn Communicator) {
    match found {
        Err(CollectiveError::Mismatch { operation: named, rank, .. }) => {
            assert_eq!((named, rank), (operation, comm.rank()), "it names the operation and the rank");
        }
        other => panic!("a mismatch of {operation} on rank {} was {other:?}", comm.rank()),
    }
}

/// Ranks whose calls differ all get an error, and the group remains usable.
pub fn mismatches(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    if size == 1 {
        return;
    }
    let odd = rank == size - 1;
    // Lengths.
    let result = comm.all_reduce(&mut blank(if odd { 8 } else { 4 }), DType::F32, Reduce::Sum);
    assert_mismatch(result, Operation::AllReduce, comm);
    all_reduce_once(comm, DType::F32, Reduce::Sum, 5);
    // Dtypes of the same size.
    let result = comm.all_reduce(&mut blank(4), if odd { DType::I32 } else { DType::F32 }, Reduce::Sum);
    assert_mismatch(result, Operation::AllReduce, comm);
    // Reductions.
    let result = comm.all_reduce(&mut blank(4), DType::F32, if odd { Reduce::Max } else { Reduce::Sum });
    assert_mismatch(result, Operation::AllReduce, comm);
    // Counts.
    let counts: Vec<usize> = (0..size).map(|peer| 1 + usize::from(odd && peer == 0)).collect();
    let total: usize = counts.iter().sum();
    let result = comm.all_gather(&blank(counts[rank]), &mut blank(total), &counts, DType::U8);
    assert_mismatch(result, Operation::AllGather, comm);
    // Roots.
    let result = comm.broadcast(&mut blank(4), usize::from(odd), DType::F32);
    assert_mismatch(result, Operation::Broadcast, comm);
    // Counts of the sender and the receiver.
    let gives = vec![1; size];
    let takes = vec![1 + usize::from(odd); size];
    let result = comm.all_to_all(&blank(size), &mut blank(takes.iter().sum()), &gives, &takes, DType::U8);
    assert_mismatch(result, Operation::AllToAll, comm);
    // Operations.
    if odd {
        let result = comm.barrier();
        assert_mismatch(result, Operation::Barrier, comm);
    } else {
        let result = comm.broadcast(&mut blank(4), 0, DType::F32);
        assert_mismatch(result, Operation::Broadcast, comm);
    }
    // Messages.
    if rank == 0 {
        let result = comm.send(&blank(3), 1, DType::U8);
        assert_mismatch(result, Operation::Send, comm);
    } else if rank == 1 {
        let result = comm.recv(&mut blank(4), 0, DType::U8);
        assert_mismatch(result, Operation::Recv, comm);
    }
    message_once(comm, DType::F64, 0, 1, 100);
    (0..20).for_each(|seed| random_step(comm, seed));
}

/// A rank with invalid arguments gets an error that says which; the others learn that it cannot take part.
pub fn wrong_arguments(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let wrong = rank == 0;
    let counts = vec![1; size];

    let result = comm.all_reduce(&mut blank(if wrong { 7 } else { 8 }), DType::F32, Reduce::Sum);
    if wrong {
        assert!(matches!(result, Err(CollectiveError::Length { found_bytes: 7, .. })), "{result:?}");
    } else {
        assert_mismatch(result, Operation::AllReduce, comm);
    }
    let result = comm.all_gather(&blank(1), &mut blank(size + usize::from(wrong)), &counts, DType::U8);
    if wrong {
        assert!(matches!(result, Err(CollectiveError::Length { buffer: "output", .. })), "{result:?}");
    } else {
        assert_mismatch(result, Operation::AllGather, comm);
    }
    let huge = vec![usize::MAX / 2; size];
    let gives = if wrong { &huge } else { &counts };
    let result = comm.all_to_all(&blank(8 * size), &mut blank(8 * size), gives, &counts, DType::F64);
    if wrong {
        assert!(matches!(result, Err(CollectiveError::Overflow { .. })), "{result:?}");
    } else {
        assert_mismatch(result, Operation::AllToAll, comm);
    }
    let few = &counts[..size - usize::from(wrong)];
    let result = comm.reduce_scatter(&blank(size), &mut blank(1), few, DType::U8, Reduce::Sum);
    if wrong {
        assert!(matches!(result, Err(CollectiveError::Counts { .. })), "{result:?}");
    } else {
        assert_mismatch(result, Operation::ReduceScatter, comm);
    }
    // Invalid arguments on every rank.
    let result = comm.all_reduce(&mut blank(4), DType::I32, Reduce::Mean);
    assert!(matches!(result, Err(CollectiveError::Undefined { .. })), "{result:?}");
    let result = comm.broadcast(&mut blank(4), size, DType::I32);
    assert!(matches!(result, Err(CollectiveError::NoSuchRank { .. })), "{result:?}");
    for peer in [rank, size] {
        let result = comm.send(&blank(4), peer, DType::I32);
        assert!(matches!(result, Err(CollectiveError::NoSuchRank { .. })), "{result:?}");
        let result = comm.recv(&mut blank(4), peer, DType::I32);
        assert!(matches!(result, Err(CollectiveError::NoSuchRank { .. })), "{result:?}");
    }
    (0..20).for_each(|seed| random_step(comm, seed));
}

/// Calls and bytes are counted as [`CommStats`](crate::CommStats) defines, and all bytes sent are received.
pub fn statistics(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let mut before = comm.stats();
    let mut moved = |comm: &dyn Communicator, operation: Operation| {
        let now = comm.stats();
        assert_eq!(now.calls(operation), before.calls(operation) + 1, "a call of {operation}");
        let moved = (now.sent_bytes - before.sent_bytes, now.received_bytes - before.received_bytes);
        before = now;
        moved
    };
    comm.all_reduce(&mut blank(1000), DType::U8, Reduce::Max).expect("an all-reduce");
    let expected = 2 * (size - 1) * 1000 / size;
    assert_eq!(moved(comm, Operation::AllReduce), (expected, expected));

    let counts: Vec<usize> = (1..=comm.size()).collect();
    let total = size * (size + 1) / 2;
    let mut output = blank(2 * total as usize);
    comm.all_gather(&blank(2 * counts[rank as usize]), &mut output, &counts, DType::I16).expect("an all-gather");
    let own = 2 * (rank + 1);
    assert_eq!(moved(comm, Operation::AllGather), ((size - 1) * own, 2 * total - own));

    let mut part = blank(own as usize);
    comm.reduce_scatter(&output, &mut part, &counts, DType::I16, Reduce::Sum).expect("a reduce-scatter");
    assert_eq!(moved(comm, Operation::ReduceScatter), (2 * total - own, (size - 1) * own));

    comm.broadcast(&mut blank(8), 0, DType::F64).expect("a broadcast");
    assert_eq!(moved(comm, Operation::Broadcast), if rank == 0 { (8 * (size - 1), 0) } else { (0, 8) });

    let ones = vec![1; comm.size()];
    let bytes = 4 * comm.size();
    comm.all_to_all(&blank(bytes), &mut blank(bytes), &ones, &ones, DType::F32).expect("an all-to-all");
    assert_eq!(moved(comm, Operation::AllToAll), (4 * (size - 1), 4 * (size - 1)));

    if size > 1 && rank == 0 {
        comm.send(&blank(5), 1, DType::U8).expect("a send");
        assert_eq!(moved(comm, Operation::Send), (5, 0));
    } else if rank == 1 {
        comm.recv(&mut blank(5), 0, DType::U8).expect("a recv");
        assert_eq!(moved(comm, Operation::Recv), (0, 5));
    }
    comm.barrier().expect("a barrier");
    assert_eq!(moved(comm, Operation::Barrier), (0, 0));
}

/// An abort ends every waiting and every later call.
pub fn aborts(comm: &mut dyn Communicator) {
    // Another rank may hear of the abort before it has heard of all who came to the barrier.
    let began = comm.barrier();
    let is_aborted = matches!(began, Err(CollectiveError::Aborted { by: 0, .. }));
    assert!(began.is_ok() || is_aborted && comm.rank() != 0, "{began:?}");
    if comm.rank() == 0 {
        comm.abort();
    }
    // The others wait for rank 0, which never arrives.
    for _ in 0..2 {
        let result = if comm.rank() == 1 { comm.recv(&mut blank(4), 0, DType::F32) } else { comm.barrier() };
        assert!(matches!(result, Err(CollectiveError::Aborted { by: 0, .. })), "{result:?}");
    }
}
