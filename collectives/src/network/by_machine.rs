//! Calls in which the ranks of one machine work together, so that their bytes cross the network once for the machine.
//!
//! Each of `M` machines sends `2 (M-1)/M` of an all-reduce's bytes to the others, however many ranks it has. Its ranks
//! reduce among themselves first, each the part of the buffer that it then reduces with its counterparts on the other
//! machines, and the results spread within the machine (after Jia et al. 2018, "Highly Scalable Deep Learning Training
//! System with Mixed-Precision"). A reduction combines the ranks of each machine in order, and then the machines in the
//! order of their lowest ranks; one rank computes each element, so that the result has the same bits on all ranks.
//!
//! All ranks have agreed on the call before, over the network, so that no rank waits for one of its machine that has
//! called something else. A rank that fails tells the others, and aborts the group of its machine, whose ranks then
//! look up why.

use super::communicator::{CallMemory, INLINE_BYTES_MAX, NetworkCommunicator, SEGMENT_BYTES, piece, reduce_parts};
use super::machine_group::{BroadcastSide, MachineGroup};
use super::mailbox::RankStream;
use crate::error::{CollectiveError, Result};
use crate::exchange::{CollectiveEngine, Exchange};
use crate::operation::Operation;
use crate::reduce::Reduce;
use gt_ops::DType;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// How long a rank whose machine's group was aborted waits to be told why. The rank that aborted it has told it before.
const REASON_PATIENCE: Duration = Duration::from_secs(5);

/// Part `part` of `parts` of a range of elements.
fn part_of(whole: &Range<usize>, part: usize, parts: usize) -> Range<usize> {
    let at = |part: usize| whole.start + whole.len() * part / parts;
    at(part)..at(part + 1)
}

/// The bytes of a range of elements, counted from element `origin`.
fn bytes(elements: &Range<usize>, origin: usize, element: usize) -> Range<usize> {
    (elements.start - origin) * element..(elements.end - origin) * element
}

/// How ranks of one machine reduce before the machines do: a mean is divided once, at the end.
fn within_machine(how: Reduce) -> Reduce {
    match how {
        Reduce::Mean => Reduce::Sum,
        how => how,
    }
}

/// A segment of an all-reduce's or broadcast's buffer, in elements.
struct BufferSegment<'a> {
    machines: &'a MachineGroup,
    elements: Range<usize>,
}

impl BufferSegment<'_> {
    fn lane(&self, lane: usize) -> Range<usize> {
        part_of(&self.elements, lane, self.machines.lanes())
    }

    /// The part of a lane that a machine's owner reduces.
    fn part(&self, lane: usize, machine: usize) -> Range<usize> {
        part_of(&self.lane(lane), machine, self.machines.machines())
    }

    /// All lanes of this machine's rank number `member`.
    fn share(&self, member: usize) -> Range<usize> {
        let lanes = self.machines.lanes_of(member);
        self.lane(lanes.start).start..self.lane(lanes.end - 1).end
    }

    fn shares(&self) -> Vec<Range<usize>> {
        (0..self.machines.own_ranks().len()).map(|member| self.share(member)).collect()
    }
}

/// Segment `number` of a buffer of `whole` elements.
fn segment(machines: &MachineGroup, number: usize, whole: usize, element: usize) -> BufferSegment<'_> {
    let most = SEGMENT_BYTES / element;
    BufferSegment { machines, elements: (number * most).min(whole)..((number + 1) * most).min(whole) }
}

fn segments(whole: usize, element: usize) -> usize {
    whole.div_ceil(SEGMENT_BYTES / element)
}

impl NetworkCommunicator {
    /// Whether the ranks of a machine work together on a call. All ranks decide alike.
    pub(super) fn goes_by_machine(exchange: &Exchange<'_>) -> bool {
        let call = exchange.call;
        let is_large = |count: &usize| count * call.dtype.size() > INLINE_BYTES_MAX;
        match call.operation {
            // The sum of one machine's ranks may be infinite where the mean of all is not.
            _ if call.reduce == Some(Reduce::Mean) && call.dtype == DType::F16 => false,
            Operation::AllReduce | Operation::AllGather => exchange.recv_counts.iter().any(is_large),
            Operation::ReduceScatter => exchange.send_counts.iter().any(is_large),
            Operation::Broadcast => exchange.send_counts.iter().chain(exchange.recv_counts).any(is_large),
            _ => false,
        }
    }

    /// Executes a call on which all ranks agree.
    pub(super) fn execute_by_machine(
        &self,
        machines: &mut MachineGroup,
        exchange: &mut Exchange<'_>,
        came: &[Vec<u8>],
    ) -> Result<()> {
        let done = match (exchange.call.operation, exchange.call.reduce) {
            (Operation::AllReduce, Some(how)) => self.all_reduce_by_machine(machines, exchange, how),
            (Operation::ReduceScatter, Some(how)) => self.reduce_scatter_by_machine(machines, exchange, came, how),
            (Operation::Broadcast, _) => self.broadcast_by_machine(machines, exchange),
            _ => self.all_gather_by_machine(machines, exchange, came),
        };
        // The other ranks of this machine may wait for this one.
        done.inspect_err(|_| machines.abort_handle().abort())
    }

    /// The error of a call after the group of this machine's ranks broke. It breaks the whole group.
    fn near_failed(&self, machines: &MachineGroup, operation: Operation, error: CollectiveError) -> CollectiveError {
        let error = machines.outer_error(error, operation, self.rank);
        // A rank that fails while it hears of the others' calls may leave while this one waits for it.
        if matches!(error, CollectiveError::Aborted { .. } | CollectiveError::Left { .. }) {
            self.mailbox.wait_for_trouble(REASON_PATIENCE);
        }
        let error = self.mailbox.check(operation, self.rank).err().unwrap_or(error);
        self.break_group(&error);
        if matches!(error, CollectiveError::Mismatch { .. }) {
            self.aborter().abort();
        }
        error
    }

    /// Reduces the inputs of this machine's ranks; rank number `r` of them gets the part `shares[r]`, in `output`.
    fn reduce_near(
        &self,
        machines: &mut MachineGroup,
        call: (Operation, DType, Reduce),
        (input, shares): (&[u8], &[Range<usize>]),
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let (operation, dtype, how) = call;
        let counts: Vec<usize> = shares.iter().map(Range::len).collect();
        output.resize(counts[machines.own_member()] * dtype.size(), 0);
        let reduced = machines.reduce_scatter((dtype, within_machine(how)), input, output, &counts);
        reduced.map_err(|error| self.near_failed(machines, operation, error))
    }

    /// Copies bytes of this machine's rank number `root` to the others.
    fn spread(
        &self,
        machines: &mut MachineGroup,
        (operation, dtype): (Operation, DType),
        (root, buffer): (usize, &mut [u8]),
    ) -> Result<()> {
        if buffer.is_empty() || machines.own_ranks().len() == 1 {
            return Ok(());
        }
        let is_root = root == machines.own_member();
        let side = if is_root { BroadcastSide::Root(buffer) } else { BroadcastSide::Other(buffer) };
        machines.broadcast(dtype, root, side).map_err(|error| self.near_failed(machines, operation, error))
    }

    /// As [`spread`](Self::spread), from a buffer of this rank that is not written.
    fn spread_own(
        &self,
        machines: &mut MachineGroup,
        (operation, dtype): (Operation, DType),
        bytes: &[u8],
    ) -> Result<()> {
        let root = machines.own_member();
        let done = machines.broadcast(dtype, root, BroadcastSide::Root(bytes));
        done.map_err(|error| self.near_failed(machines, operation, error))
    }

    fn all_reduce_by_machine(
        &self,
        machines: &mut MachineGroup,
        exchange: &mut Exchange<'_>,
        how: Reduce,
    ) -> Result<()> {
        let (operation, dtype) = (exchange.call.operation, exchange.call.dtype);
        let element = dtype.size();
        let whole = exchange.output.len() / element;
        let count = segments(whole, element);
        // The buffer is accessed through this pointer alone, in parts: others read and write some of them meanwhile.
        let buffer = exchange.output.as_mut_ptr();
        // The sums of this machine's ranks, in this rank's share of two segments.
        let mut sums = [Vec::new(), Vec::new()];
        // The parts of other machines' sums that this rank reduces, of two segments.
        let mut came = [Vec::new(), Vec::new()];
        let mut memory = self.memory();
        // Each has an entry for a segment: how many loans there were when it was sent, and the rooms for the others'.
        let (mut sums_lent, mut results_lent) = (Vec::new(), Vec::new());
        let (mut sums_rooms, mut results_rooms) = (VecDeque::new(), VecDeque::new());
        // The streams carry the shares of segment k + 1 before the results of segment k.
        for number in 0..=count + 1 {
            if number < count {
                let (at, shares) = {
                    let segment = segment(machines, number, whole, element);
                    (bytes(&segment.elements, 0, element), segment.shares())
                };
                if let Some(last) = number.checked_sub(2) {
                    memory.settle(sums_lent[last], operation)?;
                }
                // SAFETY: the segment is within the buffer. Nothing of it was lent or is a room before its results are.
                let input = unsafe { std::slice::from_raw_parts(buffer.add(at.start), at.len()) };
                let sums = &mut sums[number % 2];
                self.reduce_near(machines, (operation, dtype, how), (input, &shares), sums)?;
                let segment = segment(machines, number, whole, element);
                // SAFETY: the sums are written again after their loans are settled, above.
                unsafe { self.lend_sums(&mut memory, &segment, sums, element) };
                sums_lent.push(memory.lent());
                let came = &mut came[number % 2];
                // SAFETY: the vectors are used again for segment `number + 2`, when these rooms are full.
                sums_rooms.push_back(unsafe { self.room_for_sums(&mut memory, &segment, came, element) });
            }
            if let Some(now) = number.checked_sub(1).filter(|now| *now < count) {
                for room in sums_rooms.pop_front().unwrap_or_default() {
                    memory.wait(room, operation)?;
                }
                let segment = segment(machines, now, whole, element);
                let sources = (sums[now % 2].as_slice(), came[now % 2].as_slice());
                // SAFETY: the parts are in this segment, which nobody accesses: no room was given in it, and nothing
                // lent.
                unsafe { self.reduce_far(&mut memory, &segment, sources, buffer, (dtype, how, element)) };
                results_lent.push(memory.lent());
                // SAFETY: the parts of the other machines are accessed again after these rooms are full.
                results_rooms.push_back(unsafe { self.room_for_results(&mut memory, &segment, buffer, element) });
            }
            if let Some(before) = number.checked_sub(2) {
                for room in results_rooms.pop_front().unwrap_or_default() {
                    memory.wait(room, operation)?;
                }
                memory.settle(results_lent[before], operation)?;
                let shares = segment(machines, before, whole, element).shares();
                for (member, share) in shares.iter().enumerate() {
                    let at = bytes(share, 0, element);
                    // SAFETY: the share is within the buffer. The rooms of its segment are full, and its loans settled.
                    let part = unsafe { std::slice::from_raw_parts_mut(buffer.add(at.start), at.len()) };
                    self.spread(machines, (operation, dtype), (member, part))?;
                }
            }
        }
        memory.finish(operation)
    }

    /// Sends the owners of this rank's lanes on other machines what they reduce.
    ///
    /// # Safety
    /// The sums are not written before their loans are settled.
    unsafe fn lend_sums(&self, memory: &mut CallMemory<'_>, segment: &BufferSegment<'_>, sums: &[u8], element: usize) {
        let machines = segment.machines;
        let origin = segment.share(machines.own_member()).start;
        for lane in machines.lanes_of(machines.own_member()) {
            for machine in machines.others() {
                let part = bytes(&segment.part(lane, machine), origin, element);
                // SAFETY: the contract is that of this function.
                unsafe { memory.lend(machines.owner(machine, lane), &sums[part]) };
            }
        }
    }

    /// Gives room in `came` for the parts of the other machines' sums that this rank reduces, in their order.
    ///
    /// # Safety
    /// `came` is not accessed before these rooms are full.
    unsafe fn room_for_sums(
        &self,
        memory: &mut CallMemory<'_>,
        segment: &BufferSegment<'_>,
        came: &mut Vec<Vec<u8>>,
        element: usize,
    ) -> Vec<(usize, u64)> {
        let machines = segment.machines;
        let mut rooms = Vec::new();
        let mut next = 0;
        for lane in machines.lanes_of(machines.own_member()) {
            let bytes = segment.part(lane, machines.own_machine()).len() * element;
            for machine in machines.others() {
                if came.len() == next {
                    came.push(Vec::new());
                }
                came[next].resize(bytes, 0);
                // SAFETY: the contract is that of this function; the vectors stay where they are.
                rooms.push(unsafe { memory.give_room(machines.owner(machine, lane), came[next].as_mut_slice()) });
                next += 1;
            }
        }
        rooms
    }

    /// Reduces this rank's parts of a segment over all machines, and sends the results to the other owners. `came` are
    /// the parts of the other machines, as [`room_for_sums`](Self::room_for_sums) has them.
    ///
    /// # Safety
    /// `buffer` is the call's. This rank's parts of the segment can be written, and nobody else accesses them or writes
    /// them before their loans are settled.
    unsafe fn reduce_far(
        &self,
        memory: &mut CallMemory<'_>,
        segment: &BufferSegment<'_>,
        (sums, came): (&[u8], &[Vec<u8>]),
        buffer: *mut u8,
        (dtype, how, element): (DType, Reduce, usize),
    ) {
        let machines = segment.machines;
        let (own, origin) = (machines.own_machine(), segment.share(machines.own_member()).start);
        let mut came = came.iter();
        for lane in machines.lanes_of(machines.own_member()) {
            let part = segment.part(lane, own);
            let sum = &sums[bytes(&part, origin, element)];
            let mut sources = vec![sum; machines.machines()];
            for machine in machines.others() {
                sources[machine] = came.next().map_or(&[], Vec::as_slice);
            }
            let at = bytes(&part, 0, element);
            // SAFETY: by the contract of this function nobody else accesses the part.
            let result = unsafe { std::slice::from_raw_parts_mut(buffer.add(at.start), at.len()) };
            reduce_parts((dtype, how), self.size, &sources, result);
            for machine in machines.others() {
                // SAFETY: by the contract of this function the part is not written before its loan is settled.
                unsafe { memory.lend(machines.owner(machine, lane), &raw const *result) };
            }
        }
    }

    /// Gives room for the results of a segment that the owners of this rank's lanes on other machines send.
    ///
    /// # Safety
    /// `buffer` is the call's. The parts of the segment that are not this machine's are not accessed before these rooms
    /// are full.
    unsafe fn room_for_results(
        &self,
        memory: &mut CallMemory<'_>,
        segment: &BufferSegment<'_>,
        buffer: *mut u8,
        element: usize,
    ) -> Vec<(usize, u64)> {
        let machines = segment.machines;
        let mut rooms = Vec::new();
        for lane in machines.lanes_of(machines.own_member()) {
            for machine in machines.others() {
                let at = bytes(&segment.part(lane, machine), 0, element);
                let room = std::ptr::slice_from_raw_parts_mut(buffer.wrapping_add(at.start), at.len());
                // SAFETY: the contract is that of this function.
                rooms.push(unsafe { memory.give_room(machines.owner(machine, lane), room) });
            }
        }
        rooms
    }

    /// The root sends each machine its buffer once, in lanes, which then spread there.
    fn broadcast_by_machine(&self, machines: &mut MachineGroup, exchange: &mut Exchange<'_>) -> Result<()> {
        let (operation, dtype, root) = (exchange.call.operation, exchange.call.dtype, exchange.call.root);
        let element = dtype.size();
        let whole = exchange.input.len().max(exchange.output.len()) / element;
        let mut memory = self.memory();
        for number in 0..segments(whole, element) {
            let (all, shares) = {
                let segment = segment(machines, number, whole, element);
                let own_lanes = machines.lanes_of(machines.own_member());
                let lanes = if root == self.rank { 0..machines.lanes() } else { own_lanes };
                for lane in lanes {
                    let lane_bytes = bytes(&segment.lane(lane), 0, element);
                    if root == self.rank {
                        for machine in machines.others() {
                            let lane_bytes = &exchange.input[lane_bytes.clone()];
                            // SAFETY: the input is borrowed for the call and not written.
                            unsafe { memory.lend(machines.owner(machine, lane), lane_bytes) };
                        }
                    } else if !machines.is_near(root) {
                        self.read(root, RankStream::Collective, &mut exchange.output[lane_bytes], operation)?;
                    }
                }
                (bytes(&segment.elements, 0, element), segment.shares())
            };
            if root == self.rank {
                self.spread_own(machines, (operation, dtype), &exchange.input[all])?;
            } else if let Some(member) = machines.own_ranks().iter().position(|rank| *rank == root) {
                self.spread(machines, (operation, dtype), (member, &mut exchange.output[all]))?;
            } else {
                for (member, share) in shares.iter().enumerate() {
                    let part = &mut exchange.output[bytes(share, 0, element)];
                    self.spread(machines, (operation, dtype), (member, part))?;
                }
            }
        }
        memory.finish(operation)
    }

    /// Each rank sends its piece to one rank of each other machine, which spreads it there.
    fn all_gather_by_machine(
        &self,
        machines: &mut MachineGroup,
        exchange: &mut Exchange<'_>,
        came: &[Vec<u8>],
    ) -> Result<()> {
        let (operation, dtype) = (exchange.call.operation, exchange.call.dtype);
        let element = dtype.size();
        let counts = exchange.recv_counts;
        let is_large = |rank: usize| counts[rank] * element > INLINE_BYTES_MAX;
        let mut memory = self.memory();
        if is_large(self.rank) {
            for machine in machines.others() {
                let to = machines.counterpart(machine, self.rank);
                // SAFETY: the input is borrowed for the call and not written.
                unsafe { memory.lend(to, exchange.input) };
            }
        }
        exchange.output[piece(counts, self.rank, element)].copy_from_slice(exchange.input);
        for peer in self.others().filter(|peer| !is_large(*peer)) {
            exchange.output[piece(counts, peer, element)].copy_from_slice(&came[peer]);
        }
        // Pieces of this machine first: the others are still coming.
        let near: Vec<usize> = machines.own_ranks().to_vec();
        for (member, rank) in near.iter().enumerate().filter(|(_, rank)| is_large(**rank)) {
            let part = &mut exchange.output[piece(counts, *rank, element)];
            if *rank == self.rank {
                self.spread_own(machines, (operation, dtype), exchange.input)?;
            } else {
                self.spread(machines, (operation, dtype), (member, part))?;
            }
        }
        for rank in (0..self.size).filter(|rank| is_large(*rank) && !near.contains(rank)) {
            let part = &mut exchange.output[piece(counts, rank, element)];
            let by = machines.counterpart(machines.own_machine(), rank);
            if by == self.rank {
                self.read(rank, RankStream::Collective, part, operation)?;
            }
            let member = near.iter().position(|near| *near == by).unwrap_or_default();
            self.spread(machines, (operation, dtype), (member, part))?;
        }
        memory.finish(operation)
    }

    /// The ranks of each machine reduce the pieces of the others, each a part of every piece, and send that to the rank
    /// whose piece it is.
    fn reduce_scatter_by_machine(
        &self,
        machines: &mut MachineGroup,
        exchange: &mut Exchange<'_>,
        came: &[Vec<u8>],
        how: Reduce,
    ) -> Result<()> {
        let (operation, dtype) = (exchange.call.operation, exchange.call.dtype);
        let element = dtype.size();
        let (counts, input) = (exchange.send_counts, exchange.input);
        let is_large = |rank: usize| counts[rank] * element > INLINE_BYTES_MAX;
        let call = (operation, dtype, how);
        let mut part = Vec::new();
        for machine in machines.others() {
            for rank in machines.ranks_of(machine).to_vec().into_iter().filter(|rank| is_large(*rank)) {
                let members = machines.own_ranks().len();
                let shares: Vec<_> = (0..members).map(|member| part_of(&(0..counts[rank]), member, members)).collect();
                self.reduce_near(machines, call, (&input[piece(counts, rank, element)], &shares), &mut part)?;
                self.transport.send(rank, RankStream::Collective, &[&part]);
            }
        }
        let own_sum = self.reduce_near_pieces(machines, call, (input, counts))?;
        if !is_large(self.rank) {
            let own = &input[piece(counts, self.rank, element)];
            self.reduce_into((dtype, how), own, came, exchange.output);
            return Ok(());
        }
        let mut sums = vec![Vec::new(); machines.machines()];
        sums[machines.own_machine()] = own_sum;
        for machine in machines.others() {
            sums[machine] = vec![0; counts[self.rank] * element];
            let ranks = machines.ranks_of(machine);
            for (member, rank) in ranks.iter().enumerate() {
                let part = bytes(&part_of(&(0..counts[self.rank]), member, ranks.len()), 0, element);
                self.read(*rank, RankStream::Collective, &mut sums[machine][part], operation)?;
            }
        }
        let sources: Vec<&[u8]> = sums.iter().map(Vec::as_slice).collect();
        reduce_parts((dtype, how), self.size, &sources, exchange.output);
        Ok(())
    }

    /// Reduces the large pieces of this machine's ranks among them, and returns this rank's. Pieces that lie side by
    /// side, those of ranks with neighbouring numbers, are reduced at one time.
    fn reduce_near_pieces(
        &self,
        machines: &mut MachineGroup,
        call: (Operation, DType, Reduce),
        (input, counts): (&[u8], &[usize]),
    ) -> Result<Vec<u8>> {
        let element = call.1.size();
        let near = machines.own_ranks().to_vec();
        let large: Vec<usize> =
            near.iter().copied().filter(|rank| counts[*rank] * element > INLINE_BYTES_MAX).collect();
        let mut own = Vec::new();
        for run in large.chunk_by(|rank, next| rank + 1 == *next) {
            let start = piece(counts, run[0], element).start;
            let end = piece(counts, run[run.len() - 1], element).end;
            let share = |rank: &usize| 0..if run.contains(rank) { counts[*rank] } else { 0 };
            let shares: Vec<Range<usize>> = near.iter().map(share).collect();
            let mut sum = Vec::new();
            self.reduce_near(machines, call, (&input[start..end], &shares), &mut sum)?;
            if run.contains(&self.rank) {
                own = sum;
            }
        }
        Ok(own)
    }
}
