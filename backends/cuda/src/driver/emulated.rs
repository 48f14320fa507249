//! An emulated device: the same kernels, compiled by g++, run on the CPU in host memory.
//!
//! It serves tests on machines without a GPU, and aims to expose mistakes rather than to be fast. A stream does nothing
//! until the host waits for it or polls one of its events, and then only its own work in order, so that work which
//! should have waited for an event runs too early or too late. Freed memory is overwritten, new memory is filled with
//! noise, and a write beyond the end of an allocation is detected when that is freed. Calls to the driver are counted.

use super::{
    Args, CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, Grid, KernelFunction, Module, Properties,
    Result,
};
use crate::compile::compiler::{Compiler, Image};
use crate::headers::HEADERS;
use gt_backend::ExecError;
use std::alloc::Layout;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
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

type Run = unsafe extern "C" fn(args: *mut *mut c_void, blocks: *const c_uint, threads: c_uint);

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
    modules: Vec<libloading::Library>,
    functions: Vec<Run>,
    /// The streams that are captured and their captured work.
    captures: HashMap<u64, Vec<EmulatedWork>>,
    graphs: HashMap<u64, Arc<Vec<EmulatedWork>>>,
    lost: Option<String>,
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

impl Emulated {
    /// A device with this much memory.
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
        let (state, raw, counts, without_room_for_graphs) = Default::default();
        Emulated { properties, state, raw, counts, kernel_ns, without_room_for_graphs }
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
        let state = self.state();
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
                // SAFETY: the arguments match the kernel, by the contract of `Driver::launch`; `args` holds them.
                unsafe { run(pointers.as_mut_ptr(), grid.blocks.as_ptr(), grid.threads) };
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
        for i in bytes..bytes + FENCE_BYTES {
            // SAFETY: an allocation has `FENCE_BYTES` behind its `bytes`, so `start.add(i)` lies in it.
            let byte = unsafe { start.add(i).read() };
            assert_eq!(byte, FENCE, "a kernel wrote byte {i} of an allocation of {bytes}");
        }
        // SAFETY: `allocate` made the allocation with this layout, and the map gave up its entry, so it is freed once.
        unsafe {
            std::ptr::write_bytes(start, NOISE, bytes);
            std::alloc::dealloc(start, layout(bytes + FENCE_BYTES));
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
        // SAFETY: the size is at least `FENCE_BYTES`, so not 0.
        let start = unsafe { std::alloc::alloc(layout(bytes + FENCE_BYTES)) };
        assert!(!start.is_null(), "the host is out of memory");
        // SAFETY: the allocation has this size.
        unsafe {
            std::ptr::write_bytes(start, NOISE, bytes);
            std::ptr::write_bytes(start.add(bytes), FENCE, FENCE_BYTES);
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
        let file = scratch("so");
        std::fs::write(&file, image).map_err(|error| failed(error.to_string()))?;
        // SAFETY: g++ compiled the library from our kernels; its only initialisers are those of the C++ library.
        let library = unsafe { libloading::Library::new(&file) };
        let _ = std::fs::remove_file(&file);
        let mut state = self.alive()?;
        state.modules.push(library.map_err(|error| failed(error.to_string()))?);
        Ok(Module(state.modules.len() as u64 - 1))
    }

    fn function(&self, module: Module, name: &str) -> Result<KernelFunction> {
        let mut state = self.alive()?;
        let symbol = format!("emulator_run_{name}\0");
        // SAFETY: `wrapped` gives each kernel's function this signature.
        let run = *unsafe { state.modules[module.0 as usize].get::<Run>(symbol.as_bytes()) }
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

/// A new file name in the folder for temporary files.
fn scratch(extension: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("gt-emulated-{}-{}.{extension}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}

/// g++ as a compiler of kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gxx;

const EMULATOR: &str = include_str!("emulator.h");
const OPTIONS: [&str; 9] =
    ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-xc++", "-fwrapv"];

/// The source with a function for each kernel that runs all threads of a launch.
fn wrapped(source: &str) -> String {
    let mut text = format!("{EMULATOR}\n");
    text.push_str(source);
    for name in kernel_names(source) {
        text.push_str(&format!(
            "\nextern \"C\" void emulator_run_{name}(void** args, const unsigned* blocks, unsigned threads) {{\n    \
             emulator::run<&{name}>(\"{name}\", args, blocks, threads);\n}}\n"
        ));
    }
    text
}

/// The names after each `GT_KERNEL(threads)`.
fn kernel_names(source: &str) -> Vec<&str> {
    let after = source.split("GT_KERNEL(").skip(1);
    let name = |rest: &str| -> Option<usize> { rest.find(')') };
    after
        .filter_map(|rest| {
            let rest = rest[name(rest)? + 1..].trim_start();
            Some(&rest[..rest.find('(')?])
        })
        .filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .collect()
}

impl Compiler for Gxx {
    fn identity(&self) -> String {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        EMULATOR.hash(&mut hasher);
        format!("g++ {} {:x}", OPTIONS.join(" "), hasher.finish())
    }

    fn takes_many(&self) -> bool {
        true
    }

    fn compile(&self, name: &str, source: &str) -> std::result::Result<Image, ExecError> {
        let failed = |what: String| ExecError::internal(format!("g++ does not compile {name}: {what}"));
        let folder = scratch("d");
        let file = |name: &str| folder.join(name);
        let made = (|| -> std::io::Result<std::result::Result<Image, String>> {
            std::fs::create_dir(&folder)?;
            for (name, text) in HEADERS {
                std::fs::write(file(name), text)?;
            }
            std::fs::write(file("kernel.cu"), wrapped(source))?;
            let output = Command::new("g++")
                .args(OPTIONS)
                .arg(file("kernel.cu"))
                .arg("-o")
                .arg(file("kernel.so"))
                .arg("-I")
                .arg(&folder)
                .output()?;
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Ok(Err(errors.lines().take(30).collect::<Vec<_>>().join("\n")));
            }
            std::fs::read(file("kernel.so")).map(Ok)
        })();
        let _ = std::fs::remove_dir_all(&folder);
        made.map_err(|error| failed(error.to_string()))?.map_err(failed)
    }
}

/// Whether g++ is installed.
pub fn is_available() -> bool {
    Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The store of images that the tests share, so that kernels are compiled once: in the folder that `GT_TEST_KERNELS`
/// names, or in this workspace's `target`, which is not there where the tests run on another machine.
pub fn test_store() -> crate::compile::store::Store {
    let of_workspace = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/emulated-kernels");
    crate::compile::store::Store::at(std::env::var_os("GT_TEST_KERNELS").map_or_else(of_workspace, PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_mark() {
        let source = "GT_DEVICE f(int);\nGT_KERNEL(256) gt_a(float* x) {}\nGT_KERNEL(32)\ngt_b_2(\n int y) {}";
        assert_eq!(kernel_names(source), ["gt_a", "gt_b_2"]);
    }
}
