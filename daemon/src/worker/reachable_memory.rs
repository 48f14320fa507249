//! Memory for tensors that workers in other processes can map, so that collectives copy straight between tensors.

use gt_collectives::local::SharedMemory;
use std::sync::Arc;

/// The memory's size in multiples of the worker's limit, which leaves room for gaps between tensors.
const REACHABLE_LIMITS: u64 = 4;
/// The size never exceeds this many bytes, so that a process can map the memories of all workers.
const REACHABLE_BYTES_MAX: u64 = 1 << 40;

/// Shared memory for the tensors of a worker with this limit; none if the system refuses it.
pub fn reachable_memory(memory_bytes_limit: u64) -> Option<Arc<SharedMemory>> {
    let made = SharedMemory::create(memory_bytes_limit.saturating_mul(REACHABLE_LIMITS).min(REACHABLE_BYTES_MAX));
    if let Err(error) = &made {
        tracing::warn!(target: "gtd::worker", %error, "what moves between processes is copied once more");
    }
    made.ok()
}
