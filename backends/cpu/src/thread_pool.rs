//! A fork-join thread pool whose caller never waits for a helper that has not started.
//!
//! The caller of [`ThreadPool::run`] publishes a job and works on it at once. Helpers join when they notice the job.
//! When all chunks are claimed, the caller closes the job and waits only for helpers that are still inside a chunk. A
//! late helper finds the job closed and never touches it.
//!
//! Each thread first claims the chunks of its own share, from the first on, and then steals those of the others, from
//! the last on (work stealing, Blumofe & Leiserson 1999). Kernels that divide the same elements in the same way thus
//! find most of them in their core's own caches.

use crate::checkpoint::{Watch, pause};
use gt_backend::ExecError;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a helper spins for more work before it sleeps: longer than the gap between two kernels of one program.
const SPIN_US_MAX: u64 = 50;
/// How often the caller checks for the end of the last chunks before it yields its core.
const CALLER_SPINS: u32 = 4_000;

/// The bits of the state that count the helpers inside the job.
const INSIDE: u64 = 0xffff;
/// The bit of the state that says whether helpers may join the job.
const OPEN: u64 = 1 << 16;
/// Adding this to the state gives the next job's number.
const NEXT_JOB: u64 = 1 << 17;

/// Shorter work is not shared with helpers that are awake: it would be done when they notice it.
const SHARED_NS_MIN: usize = 5_000;
/// Like [`SHARED_NS_MIN`], for helpers that have to be woken first, which takes a few microseconds.
const WAKING_NS_MIN: usize = 15_000;
/// No waking is taken to last longer: then the helper's core was busy.
const WAKING_NS_MAX: u64 = 100_000;
/// A helper is woken for work that follows without a pause once that has taken the caller alone as long as so many
/// wakings.
const REPAID_WAKINGS: usize = 2;
/// Work is taken to last at most so many times as long as estimated.
const SLOWEST: usize = 4;
/// The time that a chunk should take, so that claiming it costs little beside it.
const CHUNK_NS: usize = 4_000;
/// The longest time that a chunk should take: a cancellation is noticed between chunks.
const CHUNK_NS_MAX: usize = 500_000;
/// Chunks per thread: enough that a late helper still finds some.
const CHUNKS_PER_THREAD: usize = 4;

type Work = dyn Fn(usize) + Sync;

struct PoolState {
    /// The job's number, whether it is open, and how many helpers are inside it.
    state: AtomicU64,
    /// The current job's work, which the caller writes while the job is closed and no helper is inside.
    work: UnsafeCell<Option<*const Work>>,
    /// The unclaimed chunks of each thread's share; the caller's comes first.
    shares: Vec<ChunkShare>,
    unwound: AtomicBool,
    stop: AtomicBool,
    spins: bool,
    asleep: Vec<AtomicBool>,
    start: Instant,
    /// When helpers were last woken, in nanoseconds from the start.
    woken_ns: AtomicU64,
    /// How long it took until a helper ran that had been woken: the mean of the last few times, in nanoseconds.
    waking_ns: AtomicU64,
    /// The work that the caller has done alone, one after the other, while a helper slept, in nanoseconds.
    alone_ns: AtomicU64,
    /// When the last of it has ended at the latest, in nanoseconds from the start.
    alone_until_ns: AtomicU64,
    /// The helpers' system thread ids; 0 before they run.
    tids: Vec<AtomicI32>,
}

// SAFETY: `work` is written only while the job is closed and no helper is inside, and read only by helpers inside an
// open job; the work itself is `Sync`.
unsafe impl Sync for PoolState {}
// SAFETY: only `join` dereferences the pointer in `work`, and only inside a job; the work is `Sync`.
unsafe impl Send for PoolState {}

/// The chunks of a share that are not claimed yet: the first in the lower half, the end in the upper half. Each share
/// has a cache line of its own.
#[repr(align(64))]
struct ChunkShare(AtomicU64);

impl ChunkShare {
    fn set(&self, first: usize, end: usize) {
        self.0.store((end as u64) << 32 | first as u64, Ordering::Relaxed);
    }

    /// Claims the first chunk, or the last.
    fn claim(&self, last: bool) -> Option<usize> {
        let ends = |share: u64| (share & 0xffff_ffff, share >> 32);
        let claimed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |share| {
            let (first, end) = ends(share);
            (first < end).then(|| if last { share - (1 << 32) } else { share + 1 })
        });
        let (first, end) = ends(claimed.ok()?);
        Some(if last { end - 1 } else { first } as usize)
    }
}

/// Threads that share the work of one caller.
pub struct ThreadPool {
    shared: Arc<PoolState>,
    helpers: Vec<(Thread, JoinHandle<()>)>,
    places: HelperAffinity,
    /// The instruction for which the pool works.
    pub watch: Watch,
}

impl ThreadPool {
    /// A pool of `threads` threads, including the caller.
    pub fn new(threads: usize) -> ThreadPool {
        let helpers = threads.max(1) - 1;
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        let shared = Arc::new(PoolState {
            state: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            shares: (0..=helpers).map(|_| ChunkShare(AtomicU64::new(0))).collect(),
            unwound: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            spins: threads <= cores,
            asleep: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            start: Instant::now(),
            woken_ns: AtomicU64::new(0),
            waking_ns: AtomicU64::new(0),
            alone_ns: AtomicU64::new(0),
            alone_until_ns: AtomicU64::new(0),
            tids: (0..helpers).map(|_| AtomicI32::new(0)).collect(),
        });
        let places = HelperAffinity::new(helpers);
        let helpers = (0..helpers)
            .filter_map(|i| {
                let shared = Arc::clone(&shared);
                // A helper that cannot be started is left out: the pool is only slower.
                let handle = thread::Builder::new().name(format!("gt-cpu-{i}")).spawn(move || shared.help(i)).ok()?;
                Some((handle.thread().clone(), handle))
            })
            .collect();
        ThreadPool { shared, helpers, places, watch: Watch::default() }
    }

    /// The number of threads, including the caller.
    #[inline]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Whether work that takes one thread `work_ns` nanoseconds should be divided: several threads finish it sooner, or
    /// it takes so long that it must notice a cancellation.
    #[inline]
    pub fn pays(&self, work_ns: usize) -> bool {
        if work_ns < SHARED_NS_MIN {
            return false;
        }
        if self.helpers.is_empty() {
            return work_ns >= CHUNK_NS_MAX;
        }
        if self.shared.asleep.iter().any(|asleep| !asleep.load(Ordering::Relaxed)) {
            return true;
        }
        // On a virtual machine, a sleeping core takes tens of microseconds to wake up: a helper that comes when half of
        // the work is done saves little, unless more work follows at once.
        let waking_ns = self.shared.waking_ns.load(Ordering::Relaxed) as usize;
        work_ns >= WAKING_NS_MIN
            && (work_ns >= 2 * waking_ns || self.shared.repays_waking(self.shared.now_ns(), work_ns, waking_ns))
    }

    /// The number of chunks to divide work into that takes one thread `work_ns` nanoseconds.
    pub fn chunks(&self, work_ns: usize) -> usize {
        (work_ns / CHUNK_NS).clamp(1, (self.threads() * CHUNKS_PER_THREAD).max(work_ns / CHUNK_NS_MAX))
    }

    /// Calls `work` once with each of `0..chunks`, on all threads of the pool.
    ///
    /// # Errors
    /// [`ExecError::Cancelled`] if the instruction that the pool [watches](ThreadPool::watch) is cancelled, and
    /// [`ExecError::Internal`] if a call panicked; some of the other calls may then not have been made.
    pub fn run(&mut self, chunks: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), ExecError> {
        let watch = &self.watch;
        let watched = |chunk| watch.during(|| work(chunk));
        let work: &(dyn Fn(usize) + Sync) = &watched;
        if chunks <= 1 || self.helpers.is_empty() || u32::try_from(chunks).is_err() {
            let all = catch_unwind(AssertUnwindSafe(|| (0..chunks).for_each(work)));
            return all.map_err(|_| unwound(watch));
        }
        let shared = &*self.shared;
        debug_assert_eq!(shared.state.load(Ordering::Relaxed) & (OPEN | INSIDE), 0);
        // SAFETY: only the lifetime changes, and the job is closed and left by all helpers before this function
        // returns.
        let work: &'static Work = unsafe { std::mem::transmute(work) };
        // SAFETY: the job is closed and no helper is inside (asserted above); `&mut self` excludes other callers.
        unsafe { *shared.work.get() = Some(work) };
        let shares = shared.shares.len();
        for (i, share) in shared.shares.iter().enumerate() {
            share.set(chunks * i / shares, chunks * (i + 1) / shares);
        }
        shared.unwound.store(false, Ordering::Relaxed);
        let job = shared.state.load(Ordering::Relaxed) + NEXT_JOB;
        shared.state.store(job | OPEN, Ordering::Release);
        // This fence and the one in `help` order the accesses to `state` and `asleep`: a helper that goes to sleep sees
        // the open job, or the caller sees that the helper is asleep.
        fence(Ordering::SeqCst);
        for (i, (helper, asleep)) in self.helpers.iter().zip(&shared.asleep).take(chunks - 1).enumerate() {
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::Relaxed) {
                self.places.keep_off(i, &shared.tids[i]);
                shared.woken_ns.store(shared.now_ns(), Ordering::Relaxed);
                helper.0.unpark();
            }
        }
        shared.claim(0, work);
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while shared.state.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins < CALLER_SPINS {
                std::hint::spin_loop();
            } else {
                pause();
                thread::yield_now();
            }
        }
        if shared.unwound.load(Ordering::Relaxed) { Err(unwound(watch)) } else { Ok(()) }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for (thread, handle) in self.helpers.drain(..) {
            thread.unpark();
            // A join error is impossible: a helper catches the panics of its chunks.
            let _ = handle.join();
        }
    }
}

/// The reason why a chunk unwound.
#[cold]
fn unwound(watch: &Watch) -> ExecError {
    if watch.is_cancelled() { ExecError::Cancelled } else { ExecError::internal("a kernel panicked") }
}

impl PoolState {
    /// Claims chunks and works on them, first those of share `own`, until none is left.
    fn claim(&self, own: usize, work: &Work) {
        for i in 0..self.shares.len() {
            let share = &self.shares[(own + i) % self.shares.len()];
            while let Some(chunk) = share.claim(i > 0) {
                if catch_unwind(AssertUnwindSafe(|| work(chunk))).is_err() {
                    self.unwound.store(true, Ordering::Relaxed);
                    self.shares.iter().for_each(|share| share.set(0, 0));
                }
            }
        }
    }

    /// Works on the current job if it is open and not `done`, as helper `me`, and returns its number.
    fn join(&self, me: usize, done: u64) -> Option<u64> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let job = state & !(OPEN | INSIDE);
            if state & OPEN == 0 || job == done {
                return None;
            }
            match self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: the exchange above put this helper inside an open job: the caller wrote the work before
                    // it opened the job, and does not write it again until no helper is inside.
                    if let Some(work) = unsafe { *self.work.get() } {
                        // SAFETY: the caller of `run` keeps the work alive until no helper is inside the job, and
                        // this helper is inside.
                        self.claim(me + 1, unsafe { &*work });
                    }
                    // The release orders the chunks' writes before the caller's return.
                    self.state.fetch_sub(1, Ordering::Release);
                    return Some(job);
                }
                Err(now) => state = now,
            }
        }
    }

    fn help(&self, me: usize) {
        self.tids[me].store(tid(), Ordering::Relaxed);
        let mut done = 0;
        loop {
            if let Some(job) = self.join(me, done) {
                done = job;
                continue;
            }
            if self.spins && self.spin(done) {
                continue;
            }
            self.asleep[me].store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let state = self.state.load(Ordering::Relaxed);
            let open = state & OPEN != 0 && state & !(OPEN | INSIDE) != done;
            if !open && !self.stop.load(Ordering::Acquire) {
                thread::park();
                self.woke();
            }
            self.asleep[me].store(false, Ordering::Relaxed);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Whether a helper should be woken although this work alone, of `work_ns`, ends too soon: so much has come without
    /// a pause before it that more will follow, which finds the helper awake.
    fn repays_waking(&self, now_ns: u64, work_ns: usize, waking_ns: usize) -> bool {
        let dense = now_ns < self.alone_until_ns.load(Ordering::Relaxed) + SPIN_US_MAX * 1000;
        let alone_ns = work_ns + if dense { self.alone_ns.load(Ordering::Relaxed) as usize } else { 0 };
        let repays = alone_ns >= REPAID_WAKINGS * waking_ns;
        self.alone_ns.store(if repays { 0 } else { alone_ns as u64 }, Ordering::Relaxed);
        self.alone_until_ns.store(now_ns + (SLOWEST * work_ns) as u64, Ordering::Relaxed);
        repays
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Notes how long it took to wake the calling helper.
    fn woke(&self) {
        let took = self.now_ns().saturating_sub(self.woken_ns.load(Ordering::Relaxed)).min(WAKING_NS_MAX);
        let mean = self.waking_ns.load(Ordering::Relaxed);
        self.waking_ns.store((3 * mean + took) / 4, Ordering::Relaxed);
    }

    /// Spins until there is a job other than `done`; returns false after [`SPIN_US_MAX`].
    fn spin(&self, done: u64) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                let state = self.state.load(Ordering::Relaxed);
                if state & OPEN != 0 && state & !(OPEN | INSIDE) != done {
                    return true;
                }
                std::hint::spin_loop();
            }
            let spun = start.elapsed();
            if spun > Duration::from_micros(SPIN_US_MAX) {
                return false;
            }
            // The dispatcher, which is woken when a kernel is done, may wait for this core.
            gt_shm::spin::pause(spun);
        }
    }
}

/// The cores that helpers may run on: all of the process's but the caller's.
///
/// The scheduler of a virtual machine may take an idle virtual core for a busy one, because the host lends it to other
/// guests. It then starts a woken thread on the waker's core, and both share that core for milliseconds, until the load
/// is balanced. The caller keeps working on its core, so any other core is better for a helper.
struct HelperAffinity {
    /// The cores of this process, or `None` if the scheduler alone chooses where helpers run.
    #[cfg(all(target_os = "linux", not(miri)))]
    all: Option<libc::cpu_set_t>,
    /// The core that is excluded from each helper's set, or -1.
    #[cfg(all(target_os = "linux", not(miri)))]
    off: Vec<i32>,
}

#[cfg(all(target_os = "linux", not(miri)))]
impl HelperAffinity {
    fn new(helpers: usize) -> HelperAffinity {
        // SAFETY: all-zero is a valid, empty set, and `sched_getaffinity` writes at most the size it is given.
        let all = unsafe {
            let mut all: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of_val(&all), &mut all) == 0 && libc::CPU_COUNT(&all) > 1).then_some(all)
        };
        HelperAffinity { all, off: vec![-1; helpers] }
    }

    /// Keeps a sleeping helper off the calling thread's core.
    fn keep_off(&mut self, helper: usize, tid: &AtomicI32) {
        let (Some(mut cores), tid) = (self.all, tid.load(Ordering::Relaxed)) else { return };
        let here = gt_shm::cores::current() as i32;
        if here < 0 || here as usize >= libc::CPU_SETSIZE as usize || here == self.off[helper] || tid == 0 {
            return;
        }
        self.off[helper] = here;
        // SAFETY: `here < CPU_SETSIZE` was checked above, so the bit is within the set; `tid` is a thread of this pool,
        // which lives until the pool is dropped.
        let kept = unsafe {
            libc::CPU_CLR(here as usize, &mut cores);
            libc::CPU_COUNT(&cores) > 0 && libc::sched_setaffinity(tid, size_of_val(&cores), &cores) == 0
        };
        if !kept {
            // The call is not permitted, or the process was moved to other cores: the scheduler chooses.
            self.all = None;
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
impl HelperAffinity {
    fn new(_helpers: usize) -> HelperAffinity {
        HelperAffinity {}
    }
    fn keep_off(&mut self, _helper: usize, _tid: &AtomicI32) {}
}

#[cfg(all(target_os = "linux", not(miri)))]
fn tid() -> i32 {
    // The C library has a function for this since 2.30, and wheels run on older ones.
    // SAFETY: this system call takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn tid() -> i32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::checkpoint;
    use gt_backend::Cancellation;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_chunk_is_done_once_by_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let mut pool = ThreadPool::new(threads);
            for round in 0..if cfg!(miri) { 3 } else { 2000 } {
                let chunks = round % 17;
                let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(chunks, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    /// A helper is woken for short work when as much as two wakings take was done alone, without a pause between.
    #[test]
    fn work_without_a_pause_wakes_a_helper() {
        let pool = ThreadPool::new(2);
        let (work_ns, waking_ns) = (30_000, 100_000);
        let wakes = |at: u64| pool.shared.repays_waking(at, work_ns, waking_ns);
        let dense: Vec<bool> = (0..14).map(|i| wakes(1_000_000 + i * 40_000)).collect();
        assert_eq!(dense.iter().enumerate().filter(|(_, wakes)| **wakes).map(|(i, _)| i).collect::<Vec<_>>(), [6, 13]);
        assert!((0..100).all(|i| !wakes(10_000_000 + i * 200_000)));
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_goes_on() {
        let mut pool = ThreadPool::new(3);
        for threads_busy in [1, 8] {
            let result = pool.run(threads_busy, &|i| assert!(i != threads_busy - 1, "expected by this test"));
            assert_eq!(result, Err(unwound(&Watch::default())));
            pool.run(8, &|_| ()).unwrap();
        }
    }

    #[test]
    fn a_cancelled_instruction_ends_at_its_next_checkpoint_and_the_pool_goes_on() {
        for threads in [1, 3] {
            let mut pool = ThreadPool::new(threads);
            let cancellation = Arc::new(Cancellation::default());
            pool.watch.set(&cancellation, 7);
            for chunks in [1, 8] {
                let begun = AtomicUsize::new(0);
                let endless = |_| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    cancellation.cancel_below(8);
                    loop {
                        checkpoint();
                    }
                };
                pool.watch.set(&cancellation, if chunks == 1 { 7 } else { 8 });
                if chunks == 8 {
                    cancellation.cancel_below(9);
                }
                assert_eq!(pool.run(chunks, &endless), Err(ExecError::Cancelled));
                assert_eq!(begun.load(Ordering::Relaxed), usize::from(chunks == 1), "{chunks} chunks");
            }
            pool.watch.set(&cancellation, 9);
            pool.run(8, &|_| checkpoint()).unwrap();
        }
    }

    #[test]
    fn long_work_is_divided_even_for_one_thread() {
        let pool = ThreadPool::new(1);
        assert!(!pool.pays(CHUNK_NS_MAX - 1) && pool.pays(CHUNK_NS_MAX));
        assert_eq!(pool.chunks(1000 * CHUNK_NS_MAX), 1000);
    }
}
