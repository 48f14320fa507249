//! A rank of a group whose ranks are on several machines.

use super::machine_group::MachineGroup;
use super::mailbox::{GroupNotice, Mailbox, RankStream};
use crate::call::Call;
use crate::communicator::{AbortHandle, Health};
use crate::error::{CollectiveError, Result};
use crate::exchange::{CollectiveEngine, Exchange, MessageBuffer, Offer, compare};
use crate::local::LocalCommunicator;
use crate::operation::Operation;
use crate::reduce::{Reduce, reduce_of_ranks};
use crate::stats::CommStats;
use gt_ops::DType;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes for a rank that travel with the announcement of the call, which saves a step.
pub(super) const INLINE_BYTES_MAX: usize = 16 << 10;
/// Bytes of an all-reduce's buffer that are reduced at one time; the next ones travel meanwhile.
pub(super) const SEGMENT_BYTES: usize = 4 << 20;
/// A rank that waits until others have what it has lent looks at the group at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes of a word of an announcement.
const WORD: usize = 8;

/// Carries bytes to the other ranks of a group.
pub trait RankTransport: Send + Sync {
    /// Sends bytes to rank `to`, after those that were sent on this channel before. May wait for the network, never for
    /// the other rank to read. If the rank cannot be reached, the mailbox is told so.
    fn send(&self, to: usize, channel: RankStream, parts: &[&[u8]]);

    /// As [`send`](Self::send), perhaps from where the bytes lie: then a number is returned for
    /// [`settle`](Self::settle). Does not wait for the network.
    ///
    /// # Safety
    /// The bytes can be read, and nobody writes them, until `settle` or [`take_back`](Self::take_back) has returned for
    /// this number.
    unsafe fn lend(&self, to: usize, channel: RankStream, bytes: *const [u8]) -> Option<u64> {
        // SAFETY: by the contract of this function the bytes can be read.
        self.send(to, channel, &[unsafe { &*bytes }]);
        None
    }

    /// Waits until `is_done`, which bytes of the other ranks bring about: perhaps looks for them on this thread for a
    /// short while, so that it need not be woken, before it calls `sleep`.
    fn wait_for(&self, _is_done: &dyn Fn() -> bool, sleep: &mut dyn FnMut()) {
        sleep();
    }

    /// Waits until bytes that were lent to rank `to` are read no more, as the rank has them or cannot be reached, for
    /// at most `timeout`. Returns whether they are not.
    fn settle(&self, _to: usize, _loan: u64, _timeout: Duration) -> bool {
        true
    }

    /// Sees to it that bytes that were lent are read no more, without waiting for the other rank.
    fn take_back(&self, _to: usize, _loan: u64) {}

    /// Tells rank `to` about the group, after everything that was sent to it before.
    fn tell(&self, to: usize, notice: GroupNotice);
}

/// One rank of a group whose ranks are on several machines. Dropping it leaves the group.
pub struct NetworkCommunicator {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) transport: Arc<dyn RankTransport>,
    patience: Duration,
    stats: CommStats,
    /// The machines of the ranks, if those of one machine work together. None during such a call.
    machines: Option<MachineGroup>,
    /// Room for parts of other ranks that this one reduces, which is kept from call to call: less than
    /// `2 * SEGMENT_BYTES` and what rounding adds.
    scratch: Vec<Vec<u8>>,
}

/// The memory of a call that others read and write in the meantime: bytes that were lent to the transport, and rooms
/// for bytes that come. At its end, nobody accesses them any more.
pub(super) struct CallMemory<'a> {
    group: &'a NetworkCommunicator,
    /// Each with its rank, in their order.
    loans: VecDeque<(usize, u64)>,
    /// How many there were.
    lent: usize,
}

impl CallMemory<'_> {
    /// Sends bytes to rank `to` of the group, perhaps from where they lie.
    ///
    /// # Safety
    /// The bytes can be read, and nobody writes them, until [`settle`](Self::settle) has returned for as many loans, or
    /// this is dropped.
    pub unsafe fn lend(&mut self, to: usize, bytes: *const [u8]) {
        // SAFETY: the contract is that of this function.
        unsafe { self.lend_on(to, RankStream::Collective, bytes) };
    }

    /// As [`lend`](Self::lend), on any stream.
    ///
    /// # Safety
    /// As [`lend`](Self::lend).
    unsafe fn lend_on(&mut self, to: usize, channel: RankStream, bytes: *const [u8]) {
        // SAFETY: the contract is that of this function: dropping it takes back what was not settled.
        if let Some(loan) = unsafe { self.group.transport.lend(to, channel, bytes) } {
            self.loans.push_back((to, loan));
            self.lent += 1;
        }
    }

    /// How many loans there were.
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Waits until nobody reads the bytes of the first `loans` loans any more. An error breaks the group for all ranks.
    pub fn settle(&mut self, loans: usize, operation: Operation) -> Result<()> {
        let NetworkCommunicator { rank, patience, .. } = *self.group;
        let begun = Instant::now();
        while self.lent - self.loans.len() < loans
            && let Some((to, loan)) = self.loans.front().copied()
        {
            if self.group.transport.settle(to, loan, LOOK_EVERY) {
                self.loans.pop_front();
                continue;
            }
            self.group.check(operation)?;
            if begun.elapsed() >= patience {
                let error = CollectiveError::TimedOut { operation, rank, by: rank, waited: patience };
                self.group.break_group(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives room for bytes that rank `from` sends next; returns it for [`wait`](Self::wait).
    ///
    /// # Safety
    /// The room can be written, and nobody else accesses it, until `wait` has returned for it, or this is dropped.
    pub unsafe fn give_room(&mut self, from: usize, room: *mut [u8]) -> (usize, u64) {
        // SAFETY: the contract is that of this function: dropping it withdraws the rooms that are not full.
        (from, unsafe { self.group.mailbox.give_room((from, RankStream::Collective), room) })
    }

    /// Waits until a room is full. An error breaks the group for all ranks.
    pub fn wait(&self, (from, room): (usize, u64), operation: Operation) -> Result<()> {
        let waited = self.group.wait_full((from, RankStream::Collective), room, operation);
        waited.inspect_err(|error| self.group.break_group(error))
    }

    /// The end of a call that has succeeded: waits until the other ranks have what was lent.
    pub fn finish(mut self, operation: Operation) -> Result<()> {
        self.settle(self.lent, operation)
    }
}

impl Drop for CallMemory<'_> {
    fn drop(&mut self) {
        if !self.loans.is_empty() {
            self.loans.drain(..).for_each(|(to, loan)| self.group.transport.take_back(to, loan));
        }
        self.group.mailbox.withdraw();
    }
}

/// A call of this rank in progress.
#[derive(Clone, Copy)]
pub(super) struct CallProgress {
    pub operation: Operation,
    pub element: usize,
}

/// The announcements of all ranks, and the bytes that came with them.
struct Announced {
    calls: Vec<Option<Call>>,
    send_counts: Vec<Vec<u64>>,
    recv_counts: Vec<Vec<u64>>,
    inline: Vec<Vec<u8>>,
}

impl NetworkCommunicator {
    /// Rank `rank` of a group of `size`. `transport` carries its bytes, and delivers those of the others to `mailbox`.
    pub fn new(
        (rank, size): (usize, usize),
        mailbox: Arc<Mailbox>,
        transport: Arc<dyn RankTransport>,
        patience: Duration,
    ) -> NetworkCommunicator {
        let (stats, machines, scratch) = (CommStats::default(), None, Vec::new());
        NetworkCommunicator { rank, size, mailbox, transport, patience, stats, machines, scratch }
    }

    /// Lets the ranks of one machine work together, so that their bytes cross the network once. `names` has one name a
    /// rank, of its machine, and `local` is this rank's communicator with the ranks of its own machine, in their order.
    /// All ranks of the group must be told the same names.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if `local` has other ranks.
    pub fn join_machine<T: PartialEq>(&mut self, names: &[T], mut local: LocalCommunicator) -> Result<()> {
        local.watch_over(self.watch_health());
        self.machines = Some(MachineGroup::new(names, self.rank, local)?);
        Ok(())
    }

    /// The memory of a call.
    pub(super) fn memory(&self) -> CallMemory<'_> {
        CallMemory { group: self, loans: VecDeque::new(), lent: 0 }
    }

    /// The other ranks, in an order that differs by rank, so that not all send to one at once.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |i| (rank + i) % size)
    }

    fn tell_all(&self, notice: GroupNotice) {
        self.others().for_each(|peer| self.transport.tell(peer, notice));
    }

    /// Reads bytes of rank `from`. An error breaks the group for all ranks.
    pub(super) fn read(&self, from: usize, channel: RankStream, to: &mut [u8], operation: Operation) -> Result<()> {
        let stream = (from, channel);
        // SAFETY: `to` is borrowed until this returns, and by then the room is full or withdrawn.
        let room = unsafe { self.mailbox.give_room(stream, to) };
        let read = self.wait_full(stream, room, operation);
        read.inspect_err(|error| {
            self.mailbox.withdraw();
            self.break_group(error);
        })
    }

    fn wait_full(&self, stream: (usize, RankStream), room: u64, operation: Operation) -> Result<()> {
        let wait = || self.mailbox.wait_full(stream, room, (operation, self.rank), self.patience);
        let mut slept = None;
        self.transport.wait_for(&|| self.mailbox.is_full(stream, room), &mut || slept = Some(wait()));
        slept.unwrap_or_else(wait)
    }

    /// Refuses a call in a broken group. The other ranks are told why: this rank alone may know, and they wait for it.
    fn check(&self, operation: Operation) -> Result<()> {
        self.mailbox.check(operation, self.rank).inspect_err(|error| self.break_group(error))
    }

    /// Breaks the group for all ranks.
    pub(super) fn break_group(&self, error: &CollectiveError) {
        let notice = match *error {
            CollectiveError::Left { peer, .. } => GroupNotice::Missed(peer),
            CollectiveError::Died { peer, .. } => GroupNotice::Died(peer),
            CollectiveError::TimedOut { by, waited, .. } => GroupNotice::TimedOut(by, waited),
            // The others know it from the rank that aborted.
            _ => return,
        };
        self.mailbox.notice(self.rank, notice);
        self.tell_all(notice);
    }

    /// The bytes of `exchange` for rank `peer`.
    fn payload<'a>(&self, exchange: &'a Exchange<'_>, peer: usize) -> &'a [u8] {
        let element = exchange.call.dtype.size();
        match (exchange.call.operation, exchange.offer) {
            (Operation::AllReduce, _) => exchange.output,
            // A broadcast's root alone has an input.
            (_, Offer::Same) => &exchange.input[..exchange.send_counts[peer] * element],
            (_, Offer::Pieces) => &exchange.input[piece(exchange.send_counts, peer, element)],
        }
    }

    /// The part of [`payload`](Self::payload) that travels with the announcement.
    fn inline<'a>(&self, exchange: &'a Exchange<'_>, peer: usize) -> &'a [u8] {
        let payload = self.payload(exchange, peer);
        if exchange.call.refused || payload.len() > INLINE_BYTES_MAX { &[] } else { payload }
    }

    /// Tells all ranks this rank's call, and reads theirs.
    fn announce(&self, exchange: &Exchange<'_>) -> Result<Announced> {
        let (size, operation) = (self.size, exchange.call.operation);
        let counts = |counts: &[usize]| counts.iter().map(|count| *count as u64).collect::<Vec<_>>();
        let (gives, takes) = (counts(exchange.send_counts), counts(exchange.recv_counts));
        for peer in self.others() {
            let inline = self.inline(exchange, peer);
            let words = [exchange.call.encode(), inline.len() as u64];
            let head: Vec<u8> = words.iter().chain(&gives).chain(&takes).flat_map(|word| word.to_le_bytes()).collect();
            self.transport.send(peer, RankStream::Collective, &[&head, inline]);
        }
        let mut all = Announced {
            calls: vec![Some(exchange.call); size],
            send_counts: vec![gives; size],
            recv_counts: vec![takes; size],
            inline: vec![Vec::new(); size],
        };
        let mut head = vec![0; (2 + 2 * size) * WORD];
        for peer in self.others() {
            self.read(peer, RankStream::Collective, &mut head, operation)?;
            let words: Vec<u64> = head.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            all.calls[peer] = Call::decode(words[0]);
            all.send_counts[peer] = words[2..2 + size].to_vec();
            all.recv_counts[peer] = words[2 + size..].to_vec();
            // Both ends have the same limit, so a longer piece comes from no rank.
            all.inline[peer] = vec![0; (words[1] as usize).min(INLINE_BYTES_MAX)];
            self.read(peer, RankStream::Collective, &mut all.inline[peer], operation)?;
        }
        Ok(all)
    }

    /// Reads the `bytes` of rank `peer`, unless they came with its announcement.
    fn take(
        &self,
        peer: usize,
        came: &mut Vec<u8>,
        bytes: usize,
        CallProgress { operation, .. }: CallProgress,
    ) -> Result<Vec<u8>> {
        let mut taken = std::mem::take(came);
        if taken.len() != bytes {
            taken = vec![0; bytes];
            self.read(peer, RankStream::Collective, &mut taken, operation)?;
        }
        Ok(taken)
    }

    /// Reduces the bytes of all ranks, `others` and this rank's `own`, in the order of ranks.
    pub(super) fn reduce_into(&self, call: (DType, Reduce), own: &[u8], others: &[Vec<u8>], to: &mut [u8]) {
        let source = |peer: usize| if peer == self.rank { own } else { &others[peer] };
        let sources: Vec<&[u8]> = (0..self.size).map(source).collect();
        reduce_parts(call, self.size, &sources, to);
    }

    /// An all-reduce: each rank reduces its share of each segment, and sends it to the others.
    fn all_reduce_large(
        &self,
        exchange: &mut Exchange<'_>,
        how: Reduce,
        progress: CallProgress,
        scratch: &mut Vec<Vec<u8>>,
    ) -> Result<()> {
        let CallProgress { operation, element } = progress;
        let dtype = exchange.call.dtype;
        let segment = SEGMENT_BYTES / element * element;
        let whole = exchange.output.len();
        let segments = whole.div_ceil(segment);
        let share = |number: usize, rank: usize| {
            let start = number * segment;
            let elements = segment.min(whole - start) / element;
            let at = |rank: usize| start + elements * rank / self.size * element;
            at(rank)..at(rank + 1)
        };
        // From here on the buffer is accessed through this pointer alone: the transport reads and the mailbox writes
        // parts of it, while this thread reduces others.
        let buffer = exchange.output.as_mut_ptr();
        let part =
            |range: Range<usize>| std::ptr::slice_from_raw_parts_mut(buffer.wrapping_add(range.start), range.len());
        // The shares of the others that come here, of two segments.
        let share_bytes_max = share(0, self.rank).len().max(share(segments - 1, self.rank).len());
        scratch.resize_with(2 * self.size, Vec::new);
        let room = |(slot, bytes): (usize, &mut Vec<u8>)| {
            if slot % self.size != self.rank {
                bytes.resize(share_bytes_max, 0);
            }
            bytes.as_mut_ptr()
        };
        let room: Vec<*mut u8> = scratch.iter_mut().enumerate().map(room).collect();
        let mut memory = self.memory();
        // The loans when the shares of a segment were sent, and the rooms for those of the others and for the results.
        let (mut lent, mut shares, mut results) = (Vec::new(), VecDeque::new(), VecDeque::new());
        for number in 0..=segments {
            // The streams carry the shares of segment k + 1 before the results of segment k.
            if number < segments {
                let mut rooms = Vec::new();
                for peer in self.others() {
                    // SAFETY: `share` is within the buffer, which is borrowed for the call. The part is not written
                    // before its loan is settled: below, before room for its result is given.
                    unsafe { memory.lend(peer, part(share(number, peer))) };
                    let to = room[number % 2 * self.size + peer];
                    // SAFETY: the vector has at least the bytes of each of this rank's shares. It was read last for
                    // segment `number - 2`, and is read for this one after the room is full.
                    rooms.push(unsafe {
                        memory.give_room(peer, std::ptr::slice_from_raw_parts_mut(to, share(number, self.rank).len()))
                    });
                }
                lent.push(memory.lent);
                shares.push_back(rooms);
            }
            let Some(now) = number.checked_sub(1) else { continue };
            for room in shares.pop_front().unwrap_or_default() {
                memory.wait(room, operation)?;
            }
            let own = share(now, self.rank);
            let source = |peer: usize| {
                if peer == self.rank { buffer.wrapping_add(own.start) } else { room[now % 2 * self.size + peer] }
            };
            let sources: Vec<*const u8> = (0..self.size).map(|peer| source(peer).cast_const()).collect();
            let to = [buffer.wrapping_add(own.start)];
            // SAFETY: all sources have the bytes of this rank's share, whose rooms are full. The destination is this
            // rank's source, which is neither lent nor a room, and the others are vectors of their own.
            unsafe { reduce_of_ranks(dtype, (how, self.size), &sources, &to, own.len() / element) };
            memory.settle(lent[now], operation)?;
            let mut rooms = Vec::new();
            for peer in self.others() {
                // SAFETY: the part was reduced just now, and is not written any more in this call.
                unsafe { memory.lend(peer, part(own.clone())) };
                // SAFETY: the part is within the buffer, its loan is settled, and it is not accessed any more in this
                // call.
                rooms.push(unsafe { memory.give_room(peer, part(share(now, peer))) });
            }
            results.push_back(rooms);
            if results.len() > 1 {
                for room in results.pop_front().unwrap_or_default() {
                    memory.wait(room, operation)?;
                }
            }
        }
        for room in results.into_iter().flatten() {
            memory.wait(room, operation)?;
        }
        memory.finish(operation)
    }

    /// Executes a call on which all ranks agree.
    fn execute(&self, exchange: &mut Exchange<'_>, mut came: Vec<Vec<u8>>, scratch: &mut Vec<Vec<u8>>) -> Result<()> {
        let (call, rank) = (exchange.call, self.rank);
        let element = call.dtype.size();
        let progress = CallProgress { operation: call.operation, element };
        if let (Operation::AllReduce, Some(how)) = (call.operation, call.reduce) {
            if self.size > 1 && exchange.output.len() > INLINE_BYTES_MAX {
                return self.all_reduce_large(exchange, how, progress, scratch);
            }
            let own = exchange.output.to_vec();
            self.reduce_into((call.dtype, how), &own, &came, exchange.output);
            return Ok(());
        }
        let mut memory = self.memory();
        for peer in self.others() {
            let payload = self.payload(exchange, peer);
            if payload.len() > INLINE_BYTES_MAX {
                // SAFETY: the payload is of the input, which is borrowed for the call and not written.
                unsafe { memory.lend(peer, payload) };
            }
        }
        if let Some(how) = call.reduce {
            let bytes = exchange.recv_counts[rank] * element;
            let mut others = vec![Vec::new(); self.size];
            for peer in self.others() {
                others[peer] = self.take(peer, &mut came[peer], bytes, progress)?;
            }
            let own = &exchange.input[piece(exchange.send_counts, rank, element)];
            self.reduce_into((call.dtype, how), own, &others, exchange.output);
            return memory.finish(call.operation);
        }
        let own = piece(exchange.recv_counts, rank, element);
        if !own.is_empty() {
            let from = match exchange.offer {
                Offer::Same => 0..own.len(),
                Offer::Pieces => piece(exchange.send_counts, rank, element),
            };
            exchange.output[own].copy_from_slice(&exchange.input[from]);
        }
        for peer in self.others() {
            let to = &mut exchange.output[piece(exchange.recv_counts, peer, element)];
            if came[peer].len() == to.len() {
                to.copy_from_slice(&came[peer]);
            } else {
                self.read(peer, RankStream::Collective, to, call.operation)?;
            }
        }
        memory.finish(call.operation)
    }
}

/// Reduces parts of several of a group's `ranks` in their order.
pub(super) fn reduce_parts((dtype, how): (DType, Reduce), ranks: usize, sources: &[&[u8]], to: &mut [u8]) {
    assert!(sources.iter().all(|source| source.len() == to.len()), "parts of one length");
    let sources: Vec<*const u8> = sources.iter().map(|source| source.as_ptr()).collect();
    // SAFETY: the assertion checked that every source has `to.len()` bytes; the sources are borrowed beside the mutable
    // destination, so they do not overlap it and nobody writes them.
    unsafe { reduce_of_ranks(dtype, (how, ranks), &sources, &[to.as_mut_ptr()], to.len() / dtype.size()) };
}

/// The range of rank `rank`'s piece in a buffer of pieces of `counts` elements.
pub(super) fn piece(counts: &[usize], rank: usize, element: usize) -> Range<usize> {
    let start = counts[..rank].iter().sum::<usize>() * element;
    start..start + counts[rank] * element
}

impl CollectiveEngine for NetworkCommunicator {
    fn own_rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.size
    }

    fn exchange(&mut self, mut exchange: Exchange<'_>) -> Result<()> {
        self.check(exchange.call.operation)?;
        let Announced { calls, send_counts, recv_counts, inline } = self.announce(&exchange)?;
        compare(
            exchange.call,
            self.rank,
            self.size,
            |peer| calls[peer],
            |from, to| send_counts[from][to],
            |to, from| recv_counts[to][from],
        )?;
        if exchange.call.operation == Operation::Barrier {
            return Ok(());
        }
        if Self::goes_by_machine(&exchange)
            && let Some(mut machines) = self.machines.take()
        {
            let done = self.execute_by_machine(&mut machines, &mut exchange, &inline);
            self.machines = Some(machines);
            return done;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let done = self.execute(&mut exchange, inline, &mut scratch);
        self.scratch = scratch;
        done
    }

    fn refuse(&mut self, exchange: Exchange<'_>) -> Result<()> {
        self.announce(&exchange).map(drop)
    }

    fn message(&mut self, peer: usize, dtype: DType, side: MessageBuffer<'_>) -> Result<()> {
        let (operation, bytes, mine, theirs) = match &side {
            MessageBuffer::Send(data) => (Operation::Send, data.len(), RankStream::Offer, RankStream::Want),
            MessageBuffer::Receive(data) => (Operation::Recv, data.len(), RankStream::Want, RankStream::Offer),
        };
        let rank = self.rank;
        self.check(operation)?;
        let call = Call::new(Operation::Send, dtype);
        let heading = [call.encode(), bytes as u64].map(u64::to_le_bytes);
        self.transport.send(peer, mine, &[heading.as_flattened()]);
        let mut answer = [0; 2 * WORD];
        self.read(peer, theirs, &mut answer, operation)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| answer[at * WORD + i]));
        let (found, found_bytes) = (Call::decode(word(0)), word(1));
        if found != Some(call) || found_bytes != bytes as u64 {
            let found_dtype = found.map_or("nothing", |call| call.dtype.name());
            return Err(CollectiveError::Mismatch {
                operation,
                rank,
                peer,
                expected: format!("a message of {bytes} bytes of {dtype}"),
                found: format!("it expects {found_bytes} bytes of {found_dtype}"),
            });
        }
        match side {
            MessageBuffer::Send(data) => {
                let mut memory = self.memory();
                // SAFETY: the data are borrowed for this call and not written.
                unsafe { memory.lend_on(peer, mine, data) };
                memory.finish(operation)
            }
            MessageBuffer::Receive(data) => self.read(peer, theirs, data, operation),
        }
    }

    fn tally(&self) -> &CommStats {
        &self.stats
    }

    fn tally_mut(&mut self) -> &mut CommStats {
        &mut self.stats
    }

    fn aborter(&self) -> AbortHandle {
        let (mailbox, transport, rank, size) = (self.mailbox.clone(), self.transport.clone(), self.rank, self.size);
        let near = self.machines.as_ref().map(MachineGroup::abort_handle);
        AbortHandle::new(move || {
            mailbox.notice(rank, GroupNotice::Aborted(rank));
            near.iter().for_each(AbortHandle::abort);
            (0..size).filter(|peer| *peer != rank).for_each(|peer| transport.tell(peer, GroupNotice::Aborted(rank)));
        })
    }

    fn watch_health(&self) -> Health {
        let (mailbox, rank) = (self.mailbox.clone(), self.rank);
        Health::new(move || mailbox.check(Operation::Barrier, rank))
    }
}

impl Drop for NetworkCommunicator {
    fn drop(&mut self) {
        self.tell_all(GroupNotice::Left);
    }
}

impl std::fmt::Debug for NetworkCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NetworkCommunicator(rank {} of {})", self.rank, self.size)
    }
}
