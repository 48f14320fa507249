//! The lines of the program's newest instructions, in memory that `gtctl trace` and `gtctl post-mortem` can read.
//!
//! The session labels each instruction with its call site, which costs two stores. The text of a call site is written
//! before the first instruction that has it: a small cache tells in a nanosecond whether that was done.

use crate::lock::lock;
use crate::origin::{self, CallSite};
use gt_ops::TensorId;
use gt_shm::Socket;
use gt_shm::labels::LabelWriter;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The call sites that the cache holds: more than a loop of a program has.
const CACHED_SITES: usize = 1 << 10;
/// A multiplier that spreads call sites over the cache (Fibonacci hashing, Knuth 1973).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The lines that a session shares; nothing where the daemon cannot share them or the host language tells no lines.
#[derive(Default)]
pub(crate) struct SharedLines(Option<SharedLabels>);

struct SharedLabels {
    labels: LabelWriter,
    /// Call sites whose texts are written, by their hash.
    cache: Box<[AtomicU64]>,
    /// Every call site whose text was written.
    written: Mutex<HashSet<CallSite>>,
}

impl SharedLines {
    /// The memory that the daemon at the other end of `socket` grants. Without it, others see no lines.
    pub(crate) fn granted(socket: &Socket) -> SharedLines {
        SharedLines(match gt_protocol::ask_lines(socket) {
            Ok(labels) => Some(SharedLabels {
                labels,
                cache: (0..CACHED_SITES).map(|_| AtomicU64::new(0)).collect(),
                written: Mutex::default(),
            }),
            Err(error) => {
                tracing::info!(target: "gt_client", %error, "lines of this program are not shared");
                None
            }
        })
    }

    /// Makes sure that the text of `site` is written. Called before any lock is taken: the host language may run code.
    #[inline]
    pub(crate) fn tell(&self, site: CallSite) {
        let Some(memory) = &self.0 else { return };
        let cached = &memory.cache[(site.wrapping_mul(SPREAD) >> (u64::BITS - CACHED_SITES.trailing_zeros())) as usize];
        if cached.load(Relaxed) != site {
            memory.write(site);
            cached.store(site, Relaxed);
        }
    }

    /// Notes that instruction `id` was issued at `site`. Called under the lock that numbers instructions.
    #[inline]
    pub(crate) fn issued(&self, id: TensorId, site: CallSite) {
        if let Some(memory) = &self.0 {
            memory.labels.set(id, site);
        }
    }

    /// Notes that the program waits at `site` for tensor `id`. Called under the same lock.
    pub(crate) fn waited(&self, id: TensorId, site: CallSite) {
        if let Some(memory) = &self.0 {
            memory.labels.set_wait(id, site);
        }
    }
}

impl SharedLabels {
    #[cold]
    fn write(&self, site: CallSite) {
        if lock(&self.written).insert(site)
            && let Some(line) = origin::line_of(site)
        {
            self.labels.define(site, &line.to_string());
        }
    }
}
