//! An emulated device: the same kernels, compiled by g++, run on the CPU in host memory.
//!
//! It serves tests on machines without a GPU, and aims to expose mistakes rather than to be fast. A stream does nothing
//! until the host waits for it or polls one of its events, and then only its own work in order, so that work which
//! should have waited for an event runs too early or too late. Freed memory is overwritten, new memory is filled with
//! noise, and a write beyond the end of an allocation is detected when that is freed. Calls to the driver are counted.
//!
//! [`EmulatedChecks`] find more, at a price: accesses outside of tensors, and races. With a seed, blocks and threads
//! run in shuffled order.

mod checks;
mod gxx;
mod races;
mod scratch;

pub use checks::{CHECKS_VARIABLE, EmulatedChecks, SEED_VARIABLE};
pub use gxx::{Gxx, is_available, test_store};

use super::{
    Args, CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, GraphNode, Grid, KernelFunction, Module,
    Properties, Result,
};
use races::Races;
use scratch::scratch;
use std::alloc::Layout;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Guard bytes behind each allocation.
const FENCE_BYTES: usize = 64;
const FENCE: u8 = 0x5e;
/// The byte that fills new and freed memory.
const NOISE: u8 = 0xa5;
const ALIGN_BYTES: usize = 256;
/// The most pending work: beyond it, streams run, so that freed memory becomes available.
const PUT_OFF_MAX: usize = 4096;
/// The amount of work that a stream runs when the host polls one of its events.
const DONE_WHEN_ASKED: usize = 8;
/// The duration of a copy, and the default duration of a kernel, nanoseconds.
const TAKES_NS: u64 = 1000;

type Run = unsafe extern "C" fn(launch: *const LaunchCall);

/// The arguments of a launch: `emulator::Launch` of `fibers.h`.
#[repr(C)]
struct LaunchCall {
    args: *mut *mut c_void,
    blocks: [c_uint; 3],
    threads: c_uint,
    shared_bytes: c_uint,
    /// Shuffles blocks and threads; 0 keeps them in order.
    seed: u64,
}

enum EmulatedWork {
    Launch { run: Run, grid: Grid, args: Vec<Vec<u8>>, takes_ns: u64 },
    Fill { to: DevicePtr, byte: u8, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
    Free { at: DevicePtr },
    Record { number: u64, event: u64 },
    Wait { record: Record },
    Do(Arc<dyn Fn() + Send + Sync>),
    Task(Task),
    Graph(Arc<Vec<EmulatedWork>>),
}

/// The outcome of an attempt to run a stream's first work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Did,
    /// The stream is empty.
    Idle,
    /// The work waits for another device.
    Stuck,
}

/// Work of a library that may have to wait for other devices: the tests' replacement of NCCL enqueues it through the
/// [`RawStream`] that it gets as a `cudaStream_t`.
#[repr(C)]
struct Task {
    data: *mut c_void,
    /// Continues the work; returns nonzero once it is done.
    step: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Whether another device waits for this work.
    wanted: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Frees `data`.
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the test libraries that make tasks allow any thread to continue them.
unsafe impl Send for Task {}
// SAFETY: a task's functions are called only under the lock of `EmulatedState`.
unsafe impl Sync for Task {}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: the library that made the task declared `release` for `data`, and a task is dropped once.
        unsafe { (self.release)(self.data) };
    }
}

/// The struct that a stream's raw handle points to.
#[repr(C)]
struct RawStream {
    magic: u64,
    enqueue: unsafe extern "C" fn(*const RawStream, *const Task),
    state: Arc<Mutex<EmulatedState>>,
    stream: CudaStream,
}

const RAW_STREAM_MAGIC: u64 = 0x6774_7374_7265_616d;

/// Enqueues a task; the stream takes ownership.
unsafe extern "C" fn enqueue_task(stream: *const RawStream, task: *const Task) {
    // SAFETY: the library passes the handle that it was given for this stream, and a task that it does not use any
    // more.
    let (stream, task) = unsafe { (&*stream, task.read()) };
    let mut state = lock(&stream.state);
    state.streams[stream.stream.0 as usize].push_back(EmulatedWork::Task(task));
    state.put_off += 1;
}

fn lock(state: &Mutex<EmulatedState>) -> MutexGuard<'_, EmulatedState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interval at which a thread looks for work that other devices wait for, and at which a stuck stream tries again.
const TASK_NAP: std::time::Duration = std::time::Duration::from_micros(200);

/// A record of an event: its number and its stream. An event may be recorded again before the stream has reached the
/// first record; a wait is for one record.
#[derive(Clone, Copy, Default)]
struct Record {
    number: u64,
    stream: usize,
}

#[derive(Default)]
struct EmulatedState {
    streams: Vec<VecDeque<EmulatedWork>>,
    /// The emulated time of each stream, nanoseconds: only kernels and copies take time.
    clocks: Vec<u64>,
    /// The emulated time at which each event was last passed.
    passed_ns: HashMap<u64, u64>,
    put_off: usize,
    /// The last record of each event, and the numbers of records that their streams have not reached.
    events: HashMap<u64, Record>,
    ahead: HashSet<u64>,
    next: u64,
    memory: HashMap<DevicePtr, usize>,
    held: usize,
    host: HashMap<usize, usize>,
    modules: Vec<LoadedModule>,
    checks: EmulatedChecks,
    /// Shuffles the blocks and threads of every launch, unless it is 0.
    seed: u64,
    /// Launches so far.
    launched: u64,
    functions: Vec<Run>,
    /// The streams that are captured and their captured work.
    captures: HashMap<u64, Vec<EmulatedWork>>,
    graphs: HashMap<u64, Arc<Vec<EmulatedWork>>>,
    lost: Option<String>,
    /// The file that loses the device once it is there, and is then removed.
    lost_by: Option<PathBuf>,
}

/// A module, and its file, which checks read to name lines of code.
struct LoadedModule {
    library: libloading::Library,
    file: Option<PathBuf>,
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Counts of the calls to an [`Emulated`] driver.
#[derive(Debug, Default)]
pub struct Counts {
    /// Kernels that were launched one by one.
    pub launches: AtomicU64,
    /// Graph launches.
    pub graphs: AtomicU64,
    /// Graphs captured.
    pub captures: AtomicU64,
    /// Launches in graphs that got other arguments.
    pub updates: AtomicU64,
    /// Allocations.
    pub allocations: AtomicU64,
    /// Copies between host and device.
    pub transfers: AtomicU64,
    /// Modules loaded.
    pub modules: AtomicU64,
}

/// The driver of an emulated device.
pub struct Emulated {
    properties: Properties,
    state: Arc<Mutex<EmulatedState>>,
    raw: Mutex<Vec<Arc<RawStream>>>,
    /// Counts of calls.
    pub counts: Counts,
    /// The duration of each kernel launched from here on, nanoseconds.
    pub kernel_ns: AtomicU64,
    /// Makes captures of graphs fail from here on, as if memory were short.
    pub without_room_for_graphs: AtomicBool,
}

/// `CUDA_ERROR_ECC_UNCORRECTABLE`.
const ECC_UNCORRECTABLE: u32 = 214;

impl Emulated {
    /// A device with this much memory, and with the checks and the seed that the environment asks for.
    pub fn new(memory_bytes: usize) -> Emulated {
        let properties = Properties {
            name: "an emulated device".into(),
            capability: 90,
            multiprocessors: 4,
            threads_per_multiprocessor: 2048,
            shared_bytes_per_block: 227 << 10,
            memory_bytes,
            uuid: None,
        };
        let kernel_ns = AtomicU64::new(TAKES_NS);
        let state =
            EmulatedState { checks: EmulatedChecks::asked(), seed: checks::seed_asked(), ..EmulatedState::default() };
        let state = Arc::new(Mutex::new(state));
        let (raw, counts, without_room_for_graphs) = Default::default();
        Emulated { properties, state, raw, counts, kernel_ns, without_room_for_graphs }
    }

    /// The same device with these checks.
    #[must_use]
    pub fn with_checks(self, checks: EmulatedChecks) -> Emulated {
        self.state().checks = checks;
        self
    }

    /// The same device, with blocks and threads in an order that depends on the seed; 0 keeps them in order.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Emulated {
        self.state().seed = seed;
        self
    }

    /// The same device with a UUID, for the tests' replacement of NCCL. A thread then runs work that other devices wait
    /// for, whether or not the host waits for this device.
    #[must_use]
    pub fn named(mut self, uuid: [u8; 16]) -> Emulated {
        self.properties.uuid = Some(uuid);
        let state = Arc::downgrade(&self.state);
        std::thread::spawn(move || {
            while let Some(state) = state.upgrade() {
                lock(&state).serve();
                drop(state);
                std::thread::sleep(TASK_NAP);
            }
        });
        self
    }

    /// Makes every call fail from here on, as on a lost device.
    pub fn lose(&self, why: &str) {
        self.state().lost = Some(why.into());
    }

    /// The same device, which is lost once this file is there. The file is removed, so that the next device works.
    #[must_use]
    pub fn lost_by(self, file: PathBuf) -> Emulated {
        self.state().lost_by = Some(file);
        self
    }

    /// The number of allocations that were not freed, after all streams have run.
    pub fn leaked(&self) -> usize {
        let mut state = self.state();
        state.run_all();
        state.memory.len()
    }

    /// The number of graphs that were not dropped.
    pub fn graphs(&self) -> usize {
        self.state().graphs.len()
    }

    /// Enqueues a function that runs when the stream reaches it, and again at each launch of a graph that captured it.
    pub(crate) fn enqueue(&self, stream: CudaStream, work: impl Fn() + Send + Sync + 'static) -> Result<()> {
        self.put_off(stream, EmulatedWork::Do(Arc::new(work)))
    }

    fn state(&self) -> MutexGuard<'_, EmulatedState> {
        lock(&self.state)
    }

    fn alive(&self) -> Result<MutexGuard<'_, EmulatedState>> {
        let mut state = self.state();
        if state.lost_by.as_ref().is_some_and(|file| std::fs::remove_file(file).is_ok()) {
            state.lost = Some(gt_nvidia::explain(ECC_UNCORRECTABLE, Some("CUDA_ERROR_ECC_UNCORRECTABLE"), None));
        }
        match &state.lost {
            Some(why) => Err(DriverError::Lost { call: "the emulated driver", what: why.clone() }),
            None => Ok(state),
        }
    }

    fn put_off(&self, stream: CudaStream, work: EmulatedWork) -> Result<()> {
        let mut state = self.alive()?;
        if let Some(kept) = state.captures.get_mut(&stream.0) {
            let may_be_kept = matches!(
                work,
                EmulatedWork::Launch { .. }
                    | EmulatedWork::Fill { .. }
                    | EmulatedWork::Copy { .. }
                    | EmulatedWork::Do(_)
            );
            assert!(may_be_kept, "a stream that is captured takes no such work");
            kept.push(work);
            return Ok(());
        }
        state.streams[stream.0 as usize].push_back(work);
        state.put_off += 1;
        if state.put_off > PUT_OFF_MAX {
            state.run_all();
        }
        Ok(())
    }
}

impl EmulatedWork {
    /// A copy of work that can be captured.
    fn again(&self) -> EmulatedWork {
        match self {
            EmulatedWork::Launch { run, grid, args, takes_ns } => {
                EmulatedWork::Launch { run: *run, grid: *grid, args: args.clone(), takes_ns: *takes_ns }
            }
            EmulatedWork::Fill { to, byte, bytes } => EmulatedWork::Fill { to: *to, byte: *byte, bytes: *bytes },
            EmulatedWork::Copy { to, from, bytes } => EmulatedWork::Copy { to: *to, from: *from, bytes: *bytes },
            EmulatedWork::Do(work) => EmulatedWork::Do(work.clone()),
            _ => unreachable!("a stream that is captured takes no such work"),
        }
    }
}

impl EmulatedState {
    fn run_all(&mut self) {
        for stream in 0..self.streams.len() {
            while self.run_one(stream) == Turn::Did {}
        }
    }

    /// Runs work that other devices wait for.
    fn serve(&mut self) {
        for stream in 0..self.streams.len() {
            let last = self.streams[stream].iter().rposition(|work| match work {
                // SAFETY: the library that made the task declared `wanted` for `data`, and the state is locked.
                EmulatedWork::Task(task) => unsafe { (task.wanted)(task.data) != 0 },
                _ => false,
            });
            for _ in 0..last.map_or(0, |last| last + 1) {
                if self.run_one(stream) != Turn::Did {
                    break;
                }
            }
        }
    }

    /// Runs the first work of a stream, after the work that it waits for.
    fn run_one(&mut self, stream: usize) -> Turn {
        let Some(work) = self.streams[stream].pop_front() else { return Turn::Idle };
        self.put_off -= 1;
        let stuck = match &work {
            EmulatedWork::Wait { record } => !self.pass(*record),
            // SAFETY: the library that made the task declared `step` for `data`, and the state is locked.
            EmulatedWork::Task(task) => unsafe { (task.step)(task.data) == 0 },
            _ => false,
        };
        if stuck {
            self.streams[stream].push_front(work);
            self.put_off += 1;
            return Turn::Stuck;
        }
        self.run(stream, work);
        Turn::Did
    }

    fn run(&mut self, stream: usize, work: EmulatedWork) {
        match work {
            EmulatedWork::Launch { run, grid, mut args, takes_ns } => {
                self.clocks[stream] += takes_ns;
                let mut pointers: Vec<*mut c_void> = args.iter_mut().map(|arg| arg.as_mut_ptr().cast()).collect();
                let call = LaunchCall {
                    args: pointers.as_mut_ptr(),
                    blocks: grid.blocks,
                    threads: grid.threads,
                    shared_bytes: grid.shared_bytes,
                    seed: self.next_seed(),
                };
                // SAFETY: the arguments match the kernel, by the contract of `Driver::launch`; `args` holds them.
                unsafe { run(&raw const call) };
                if self.checks == EmulatedChecks::Races {
                    let found = Races::get().map(Races::report).unwrap_or_else(Some);
                    assert!(found.is_none(), "{}", found.unwrap_or_default());
                }
            }
            // SAFETY: the range is allocated until the stream has done this, by the contract of `Driver::fill`.
            EmulatedWork::Fill { to, byte, bytes } => unsafe {
                std::ptr::write_bytes(to as usize as *mut u8, byte, bytes)
            },
            // SAFETY: both ranges are valid until the stream has done this, by the contracts of `Driver::copy`,
            // `upload` and `download`.
            EmulatedWork::Copy { to, from, bytes } => unsafe {
                self.clocks[stream] += TAKES_NS;
                std::ptr::copy_nonoverlapping(from as usize as *const u8, to as usize as *mut u8, bytes);
            },
            EmulatedWork::Free { at } => self.release(at),
            EmulatedWork::Record { number, event } => {
                self.ahead.remove(&number);
                self.passed_ns.insert(event, self.clocks[stream]);
            }
            // The clock of the waiting stream catches up with that of the stream it waited for.
            EmulatedWork::Wait { record } => self.clocks[stream] = self.clocks[stream].max(self.clocks[record.stream]),
            EmulatedWork::Task(_) => {}
            EmulatedWork::Do(work) => work(),
            EmulatedWork::Graph(all) => all.iter().for_each(|work| self.run(stream, work.again())),
        }
    }

    /// The seed of the next launch.
    fn next_seed(&mut self) -> u64 {
        self.launched += 1;
        if self.seed == 0 { 0 } else { (self.seed ^ self.launched.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1) }
    }

    /// The bytes behind each allocation that a write beyond its end changes. AddressSanitizer has its own.
    fn fence_bytes(&self) -> usize {
        if self.checks == EmulatedChecks::Addresses { 0 } else { FENCE_BYTES }
    }

    /// Runs the record's stream until it has passed the record. False if earlier work waits for another device.
    fn pass(&mut self, record: Record) -> bool {
        while self.ahead.contains(&record.number) {
            match self.run_one(record.stream) {
                Turn::Did => {}
                Turn::Idle => return true,
                Turn::Stuck => return false,
            }
        }
        true
    }

    fn last_record(&self, event: CudaEvent) -> Record {
        *self.events.get(&event.0).expect("the event is there")
    }

    fn release(&mut self, at: DevicePtr) {
        let bytes = self.memory.remove(&at).expect("freed memory was allocated");
        self.held -= bytes;
        let start = at as usize as *mut u8;
        let fence = self.fence_bytes();
        for i in bytes..bytes + fence {
            // SAFETY: an allocation has `fence` bytes behind its `bytes`, so `start.add(i)` lies in it.
            let byte = unsafe { start.add(i).read() };
            assert_eq!(byte, FENCE, "a kernel wrote byte {i} of an allocation of {bytes}");
        }
        // SAFETY: `allocate` made the allocation with this layout, and the map gave up its entry, so it is freed once.
        unsafe {
            std::ptr::write_bytes(start, NOISE, bytes);
            std::alloc::dealloc(start, layout(bytes + fence));
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN_BYTES).expect("a size that fits")
}

impl Driver for Emulated {
    fn enter(&self) -> Result<()> {
        self.alive().map(drop)
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn checks_addresses(&self) -> bool {
        self.state().checks == EmulatedChecks::Addresses
    }

    fn new_stream(&self) -> Result<CudaStream> {
        let mut state = self.alive()?;
        state.streams.push(VecDeque::new());
        state.clocks.push(0);
        Ok(CudaStream(state.streams.len() as u64 - 1))
    }

    fn raw(&self, stream: CudaStream) -> u64 {
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let found = raw.iter().position(|raw| raw.stream == stream);
        let at = found.unwrap_or_else(|| {
            let state = self.state.clone();
            raw.push(Arc::new(RawStream { magic: RAW_STREAM_MAGIC, enqueue: enqueue_task, state, stream }));
            raw.len() - 1
        });
        std::ptr::from_ref(&*raw[at]) as u64
    }

    fn synchronize(&self, stream: CudaStream) -> Result<()> {
        loop {
            match self.alive()?.run_one(stream.0 as usize) {
                Turn::Did => {}
                Turn::Idle => return Ok(()),
                Turn::Stuck => std::thread::sleep(TASK_NAP),
            }
        }
    }

    fn new_event(&self) -> Result<CudaEvent> {
        let mut state = self.alive()?;
        state.next += 1;
        let event = state.next;
        state.events.insert(event, Record::default());
        Ok(CudaEvent(event))
    }

    fn new_timer(&self) -> Result<CudaEvent> {
        self.new_event()
    }

    fn drop_event(&self, event: CudaEvent) {
        let mut state = self.state();
        state.events.remove(&event.0);
        state.passed_ns.remove(&event.0);
    }

    fn record(&self, event: CudaEvent, stream: CudaStream) -> Result<()> {
        let number = {
            let mut state = self.alive()?;
            state.next += 1;
            let number = state.next;
            state.ahead.insert(number);
            state.events.insert(event.0, Record { number, stream: stream.0 as usize });
            number
        };
        self.put_off(stream, EmulatedWork::Record { number, event: event.0 })
    }

    fn wait(&self, stream: CudaStream, event: CudaEvent) -> Result<()> {
        let record = self.alive()?.last_record(event);
        self.put_off(stream, EmulatedWork::Wait { record })
    }

    fn has_passed(&self, event: CudaEvent) -> Result<bool> {
        let mut state = self.alive()?;
        let record = state.last_record(event);
        let passed = !state.ahead.contains(&record.number);
        // Polling lets the device make progress.
        if !passed {
            (0..DONE_WHEN_ASKED).all(|_| state.run_one(record.stream) == Turn::Did);
        }
        Ok(passed)
    }

    fn await_event(&self, event: CudaEvent) -> Result<()> {
        let record = self.alive()?.last_record(event);
        while !self.alive()?.pass(record) {
            std::thread::sleep(TASK_NAP);
        }
        Ok(())
    }

    fn elapsed_ns(&self, from: CudaEvent, to: CudaEvent) -> Result<u64> {
        let state = self.alive()?;
        let passed = |event: CudaEvent| state.passed_ns.get(&event.0).copied();
        match (passed(from), passed(to)) {
            (Some(from), Some(to)) if from <= to => Ok(to - from),
            times => Err(DriverError::Failed { call: "elapsed_ns", what: format!("from and to: {times:?}") }),
        }
    }

    fn allocate(&self, bytes: usize, _stream: CudaStream) -> Result<DevicePtr> {
        let mut state = self.alive()?;
        if state.held + bytes > self.properties.memory_bytes {
            state.run_all();
            if state.held + bytes > self.properties.memory_bytes {
                return Err(DriverError::OutOfMemory);
            }
        }
        let (bytes, fence) = (bytes.max(1), state.fence_bytes());
        // SAFETY: `bytes` is not 0.
        let start = unsafe { std::alloc::alloc(layout(bytes + fence)) };
        assert!(!start.is_null(), "the host is out of memory");
        // SAFETY: the allocation has this size.
        unsafe {
            std::ptr::write_bytes(start, NOISE, bytes);
            std::ptr::write_bytes(start.add(bytes), FENCE, fence);
        }
        state.memory.insert(start as u64, bytes);
        state.held += bytes;
        self.counts.allocations.fetch_add(1, Relaxed);
        Ok(start as u64)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: CudaStream) -> Result<()> {
        self.put_off(stream, EmulatedWork::Free { at: ptr })
    }

    fn trim(&self) -> Result<()> {
        self.alive().map(drop)
    }

    fn free_bytes(&self) -> Result<usize> {
        Ok(self.properties.memory_bytes - self.alive()?.held)
    }

    unsafe fn fill(&self, to: DevicePtr, byte: u8, bytes: usize, stream: CudaStream) -> Result<()> {
        self.put_off(stream, EmulatedWork::Fill { to, byte, bytes })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        self.put_off(stream, EmulatedWork::Copy { to, from, bytes })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: CudaStream) -> Result<()> {
        self.counts.transfers.fetch_add(1, Relaxed);
        self.put_off(stream, EmulatedWork::Copy { to, from: from as u64, bytes })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        self.counts.transfers.fetch_add(1, Relaxed);
        self.put_off(stream, EmulatedWork::Copy { to: to as u64, from, bytes })
    }

    fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        let bytes = bytes.max(1);
        // SAFETY: the size is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout(bytes)) };
        let start = NonNull::new(start).ok_or(DriverError::OutOfMemory)?;
        self.alive()?.host.insert(start.as_ptr() as usize, bytes);
        Ok(start)
    }

    unsafe fn free_host(&self, start: NonNull<u8>) {
        let bytes = self.state().host.remove(&(start.as_ptr() as usize)).expect("host memory of ours");
        // SAFETY: `allocate_host` made it with this layout.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout(bytes)) };
    }

    unsafe fn register(&self, _start: NonNull<u8>, _bytes: usize) -> Result<()> {
        self.alive().map(drop)
    }

    unsafe fn unregister(&self, _start: NonNull<u8>) -> Result<()> {
        self.alive().map(drop)
    }

    fn load(&self, image: &[u8]) -> Result<Module> {
        self.counts.modules.fetch_add(1, Relaxed);
        let failed = |what: String| DriverError::Failed { call: "load", what };
        let mut state = self.alive()?;
        if state.checks == EmulatedChecks::Races {
            Races::get().map_err(failed)?;
        }
        let file = scratch("so");
        std::fs::write(&file, image).map_err(|error| failed(error.to_string()))?;
        // SAFETY: g++ compiled the library from our kernels; its only initialisers are those of the C++ library.
        let library = unsafe { libloading::Library::new(&file) };
        let keeps_file = library.is_ok() && state.checks != EmulatedChecks::None;
        if !keeps_file {
            let _ = std::fs::remove_file(&file);
        }
        let library = library.map_err(|error| failed(error.to_string()))?;
        state.modules.push(LoadedModule { library, file: keeps_file.then_some(file) });
        Ok(Module(state.modules.len() as u64 - 1))
    }

    fn function(&self, module: Module, name: &str) -> Result<KernelFunction> {
        let mut state = self.alive()?;
        let symbol = format!("emulator_run_{name}\0");
        // SAFETY: `wrapped` gives each kernel's function this signature.
        let run = *unsafe { state.modules[module.0 as usize].library.get::<Run>(symbol.as_bytes()) }
            .map_err(|error| DriverError::Failed { call: "function", what: error.to_string() })?;
        state.functions.push(run);
        Ok(KernelFunction(state.functions.len() as u64 - 1))
    }

    fn allow_shared(&self, _function: KernelFunction, bytes: u32) -> Result<()> {
        if bytes > self.properties.shared_bytes_per_block {
            return Err(DriverError::Failed { call: "allow_shared", what: format!("{bytes} bytes are too many") });
        }
        self.alive().map(drop)
    }

    unsafe fn launch(&self, function: KernelFunction, grid: Grid, args: &Args, stream: CudaStream) -> Result<()> {
        let blocks_fit = grid.blocks.iter().all(|n| *n >= 1) && grid.blocks[1] <= 65535 && grid.blocks[2] <= 65535;
        if !blocks_fit || grid.blocks[0] > i32::MAX as u32 || grid.threads == 0 || grid.threads > 1024 {
            return Err(DriverError::Failed { call: "launch", what: format!("a grid of {grid:?}") });
        }
        let state = self.alive()?;
        if !state.captures.contains_key(&stream.0) {
            self.counts.launches.fetch_add(1, Relaxed);
        }
        let run = state.functions[function.0 as usize];
        drop(state);
        let takes_ns = self.kernel_ns.load(Relaxed);
        self.put_off(
            stream,
            EmulatedWork::Launch { run, grid, args: args.iter().map(<[u8]>::to_vec).collect(), takes_ns },
        )
    }

    fn begin_capture(&self, stream: CudaStream) -> Result<()> {
        let mut state = self.alive()?;
        assert!(state.streams[stream.0 as usize].is_empty(), "a stream for captures alone");
        let before = state.captures.insert(stream.0, Vec::new());
        assert!(before.is_none(), "a capture begins once");
        Ok(())
    }

    fn end_capture(&self, stream: CudaStream) -> Result<CudaGraph> {
        let mut state = self.alive()?;
        let kept = state.captures.remove(&stream.0).expect("a capture that began");
        if self.without_room_for_graphs.load(Relaxed) {
            return Err(DriverError::OutOfMemory);
        }
        state.next += 1;
        let graph = state.next;
        state.graphs.insert(graph, Arc::new(kept));
        self.counts.captures.fetch_add(1, Relaxed);
        Ok(CudaGraph(graph))
    }

    fn updates_graphs(&self) -> bool {
        true
    }

    fn captured_launch(&self, stream: CudaStream) -> Result<GraphNode> {
        let state = self.alive()?;
        let kept = state.captures.get(&stream.0).expect("a capture that began");
        assert!(matches!(kept.last(), Some(EmulatedWork::Launch { .. })), "a launch was captured last");
        Ok(GraphNode(kept.len() as u64 - 1))
    }

    unsafe fn update_launch(
        &self,
        graph: CudaGraph,
        node: GraphNode,
        function: KernelFunction,
        grid: Grid,
        args: &Args,
    ) -> Result<()> {
        let mut state = self.alive()?;
        self.counts.updates.fetch_add(1, Relaxed);
        let run = state.functions[function.0 as usize];
        let work = state.graphs.get_mut(&graph.0).expect("a graph that is there");
        // Launches of the graph that were enqueued keep their arguments.
        let mut updated: Vec<EmulatedWork> = work.iter().map(EmulatedWork::again).collect();
        match &mut updated[node.0 as usize] {
            EmulatedWork::Launch { run: before, grid: shape, args: values, .. } => {
                assert!(
                    *before as usize == run as usize && *shape == grid,
                    "a graph's launch keeps its kernel and grid"
                );
                *values = args.iter().map(<[u8]>::to_vec).collect();
            }
            _ => panic!("a node that is a launch"),
        }
        *work = Arc::new(updated);
        Ok(())
    }

    unsafe fn launch_graph(&self, graph: CudaGraph, stream: CudaStream) -> Result<()> {
        let work = self.alive()?.graphs.get(&graph.0).expect("a graph that is there").clone();
        self.counts.graphs.fetch_add(1, Relaxed);
        self.put_off(stream, EmulatedWork::Graph(work))
    }

    fn drop_graph(&self, graph: CudaGraph) {
        let before = self.state().graphs.remove(&graph.0);
        assert!(before.is_some(), "a graph is given back once");
    }
}
