//! A rank whose buffers lie in memory that the others map: they are copied there before each call, and back after it.

use gt_collectives::local::{LocalCommunicator, SharedMemory};
use gt_collectives::{AbortHandle, CommStats, Communicator, Health, Reduce, Result};
use gt_ops::DType;
use std::sync::Arc;

/// Room for the buffers of any call.
const BYTES: u64 = 1 << 40;
/// Buffers begin a few bytes after multiples of this.
const APART_BYTES: usize = 4096;

/// A communicator that copies its buffers into mapped memory for each call.
pub struct Reached {
    comm: LocalCommunicator,
    memory: Arc<SharedMemory>,
    /// Every n-th call leaves its buffers where the others cannot reach them; 0 for none.
    hides: usize,
    calls: usize,
}

pub fn memory() -> Arc<SharedMemory> {
    SharedMemory::create(BYTES).unwrap()
}

impl Reached {
    pub fn new(comm: LocalCommunicator, memory: Arc<SharedMemory>, hides: usize) -> Reached {
        Reached { comm, memory, hides, calls: 0 }
    }

    /// Runs `call` on copies of these buffers in this rank's memory, and copies the output back.
    fn moved<T>(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        call: impl FnOnce(&mut LocalCommunicator, &[u8], &mut [u8]) -> T,
    ) -> T {
        self.calls += 1;
        if self.hides > 0 && self.calls.is_multiple_of(self.hides) {
            return call(&mut self.comm, input, output);
        }
        let mut at = self.memory.segment().as_ptr().wrapping_add(self.calls % 3);
        let mut stretch = |len: usize| {
            // SAFETY: the two ranges lie in this rank's mapped memory and do not overlap; only this call uses them, and
            // the other ranks during the call.
            let stretch = unsafe { std::slice::from_raw_parts_mut(at, len) };
            at = at.wrapping_add((len + 1).next_multiple_of(APART_BYTES));
            stretch
        };
        let (given, taken) = (stretch(input.len()), stretch(output.len()));
        given.copy_from_slice(input);
        taken.copy_from_slice(output);
        let result = call(&mut self.comm, given, taken);
        output.copy_from_slice(taken);
        result
    }
}

impl Communicator for Reached {
    fn rank(&self) -> usize {
        self.comm.rank()
    }
    fn size(&self) -> usize {
        self.comm.size()
    }
    fn all_reduce(&mut self, buffer: &mut [u8], dtype: DType, reduce: Reduce) -> Result<()> {
        self.moved(&[], buffer, |comm, _, buffer| comm.all_reduce(buffer, dtype, reduce))
    }
    fn all_gather(&mut self, input: &[u8], output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        self.moved(input, output, |comm, input, output| comm.all_gather(input, output, counts, dtype))
    }
    fn reduce_scatter(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        counts: &[usize],
        dtype: DType,
        reduce: Reduce,
    ) -> Result<()> {
        self.moved(input, output, |comm, input, output| comm.reduce_scatter(input, output, counts, dtype, reduce))
    }
    fn broadcast(&mut self, buffer: &mut [u8], root: usize, dtype: DType) -> Result<()> {
        self.moved(&[], buffer, |comm, _, buffer| comm.broadcast(buffer, root, dtype))
    }
    fn all_to_all(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        gives: &[usize],
        takes: &[usize],
        dtype: DType,
    ) -> Result<()> {
        self.moved(input, output, |comm, input, output| comm.all_to_all(input, output, gives, takes, dtype))
    }
    fn send(&mut self, data: &[u8], to: usize, dtype: DType) -> Result<()> {
        self.comm.send(data, to, dtype)
    }
    fn recv(&mut self, data: &mut [u8], from: usize, dtype: DType) -> Result<()> {
        self.comm.recv(data, from, dtype)
    }
    fn barrier(&mut self) -> Result<()> {
        self.comm.barrier()
    }
    fn stats(&self) -> CommStats {
        self.comm.stats()
    }
    fn abort_handle(&self) -> AbortHandle {
        self.comm.abort_handle()
    }
    fn health(&self) -> Health {
        self.comm.health()
    }
}
