//! A device that is the CPU: the very kernels, compiled by g++, in memory that is the host's.
//!
//! It is for tests where there is no GPU, and made to find mistakes rather than to be fast. Streams do nothing until
//! somebody waits for them, and then in their own order alone, so that work which should have waited for an event is
//! done too early or too late. Freed memory is overwritten, memory is never what a kernel hopes for, and what is
//! written beyond the end of an allocation is found when that is freed. Everything that is asked of the driver is
//! counted.

use super::{
    Args, CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, Function, Grid, Module, Properties, Result,
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

/// Bytes behind each allocation that nobody may write.
const FENCE_BYTES: usize = 64;
const FENCE: u8 = 0x5e;
/// What memory holds that nobody wrote, or that was freed.
const NOISE: u8 = 0xa5;
const ALIGN_BYTES: usize = 256;
/// Work that streams put off at most, so that freed memory comes back.
const PUT_OFF_MAX: usize = 4096;
/// What a stream does whenever somebody asks how far it is.
const DONE_WHEN_ASKED: usize = 8;
/// What a kernel takes unless somebody says otherwise, and a copy, nanoseconds.
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
    CudaGraph(Arc<Vec<EmulatedWork>>),
}

/// What came of a stream's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Did,
    /// There is nothing to do.
    Idle,
    /// What comes next waits for another device.
    Stuck,
}

/// Work of a library that may have to wait for other devices: what `cudaStream_t` is to a stand-in for NCCL.
#[repr(C)]
struct Task {
    data: *mut c_void,
    /// Goes on with it; not 0 once it is done.
    step: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Whether another device waits for it.
    wanted: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Frees `data`.
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: libraries for tests make tasks that any thread may go on with.
unsafe impl Send for Task {}
// SAFETY: only who holds the lock of the state goes on with one.
unsafe impl Sync for Task {}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: the library's function for its data.
        unsafe { (self.release)(self.data) };
    }
}

/// What the handle of a stream points to.
#[repr(C)]
struct RawStream {
    magic: u64,
    enqueue: unsafe extern "C" fn(*const RawStream, *const Task),
    state: Arc<Mutex<EmulatedState>>,
    stream: CudaStream,
}

const RAW_STREAM_MAGIC: u64 = 0x6774_7374_7265_616d;

/// Puts a task into the stream; it is the stream's from then on.
unsafe extern "C" fn enqueue_task(stream: *const RawStream, task: *const Task) {
    // SAFETY: a library for tests passes the handle that it was given, and a task of its own.
    let (stream, task) = unsafe { (&*stream, task.read()) };
    let mut state = lock(&stream.state);
    state.streams[stream.stream.0 as usize].push_back(EmulatedWork::Task(task));
    state.put_off += 1;
}

fn lock(state: &Mutex<EmulatedState>) -> MutexGuard<'_, EmulatedState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often it is looked whether another device waits for this one, and how long a waiting one pauses.
const TASK_NAP: std::time::Duration = std::time::Duration::from_micros(200);

/// A record of an event: its number, and the stream that it is in. An event may be recorded again, elsewhere, before
/// the stream has come to it; who waits for the one record does not wait for the other.
#[derive(Clone, Copy, Default)]
struct Record {
    number: u64,
    stream: usize,
}

#[derive(Default)]
struct EmulatedState {
    streams: Vec<VecDeque<EmulatedWork>>,
    /// How late it is in each stream, nanoseconds: nothing takes time but kernels and copies.
    clocks: Vec<u64>,
    /// When each event was last passed.
    passed_ns: HashMap<u64, u64>,
    put_off: usize,
    /// The last record of each event, and the numbers of those that their streams have not come to.
    events: HashMap<u64, Record>,
    ahead: HashSet<u64>,
    next: u64,
    memory: HashMap<DevicePtr, usize>,
    held: usize,
    host: HashMap<usize, usize>,
    modules: Vec<libloading::Library>,
    functions: Vec<Run>,
    /// What streams keep that are captured, and what was kept.
    captures: HashMap<u64, Vec<EmulatedWork>>,
    graphs: HashMap<u64, Arc<Vec<EmulatedWork>>>,
    lost: Option<String>,
}

/// What has been asked of an [`Emulated`] driver.
#[derive(Debug, Default)]
pub struct Counts {
    /// Kernels launched, each by a call of its own.
    pub launches: AtomicU64,
    /// Graphs launched.
    pub graphs: AtomicU64,
    /// Graphs made.
    pub captures: AtomicU64,
    /// Allocations.
    pub allocations: AtomicU64,
    /// Copies to and from the device.
    pub transfers: AtomicU64,
    /// Modules loaded.
    pub modules: AtomicU64,
}

/// The driver of a device that is not there.
pub struct Emulated {
    properties: Properties,
    state: Arc<Mutex<EmulatedState>>,
    raw: Mutex<Vec<Arc<RawStream>>>,
    /// What has been asked of it.
    pub counts: Counts,
    /// What kernels that are launched from now on take, nanoseconds.
    pub kernel_ns: AtomicU64,
    /// From now on it has no memory for graphs.
    pub without_room_for_graphs: AtomicBool,
}

impl Emulated {
    /// A device with so much memory.
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

    /// The same as the device of this name, for a stand-in for NCCL. A thread goes on with what other devices wait for,
    /// whether or not somebody waits here.
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

    /// From now on every call fails as those of a broken device do.
    pub fn lose(&self, why: &str) {
        self.state().lost = Some(why.into());
    }

    /// Allocations that nobody freed, once all streams have done their work.
    pub fn leaked(&self) -> usize {
        let mut state = self.state();
        state.run_all();
        state.memory.len()
    }

    /// Graphs that nobody has given back.
    pub fn graphs(&self) -> usize {
        self.state().graphs.len()
    }

    /// Does something when the stream comes to it, once or, if it is captured, as often as its graph is launched.
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
    /// The same once more, of what can be captured.
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

    /// Goes on with what other devices wait for.
    fn serve(&mut self) {
        for stream in 0..self.streams.len() {
            let last = self.streams[stream].iter().rposition(|work| match work {
                // SAFETY: the library's function for its data.
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

    /// Does the first thing of a stream; and before it, what that waits for.
    fn run_one(&mut self, stream: usize) -> Turn {
        let Some(work) = self.streams[stream].pop_front() else { return Turn::Idle };
        self.put_off -= 1;
        let stuck = match &work {
            EmulatedWork::Wait { record } => !self.pass(*record),
            // SAFETY: the library's function for its data.
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
                // SAFETY: the arguments are the kernel's, as whoever launched it promised.
                unsafe { run(pointers.as_mut_ptr(), grid.blocks.as_ptr(), grid.threads) };
            }
            // SAFETY: as whoever asked for it promised.
            EmulatedWork::Fill { to, byte, bytes } => unsafe {
                std::ptr::write_bytes(to as usize as *mut u8, byte, bytes)
            },
            // SAFETY: as above.
            EmulatedWork::Copy { to, from, bytes } => unsafe {
                self.clocks[stream] += TAKES_NS;
                std::ptr::copy_nonoverlapping(from as usize as *const u8, to as usize as *mut u8, bytes);
            },
            EmulatedWork::Free { at } => self.release(at),
            EmulatedWork::Record { number, event } => {
                self.ahead.remove(&number);
                self.passed_ns.insert(event, self.clocks[stream]);
            }
            // As late as it is there, if not later.
            EmulatedWork::Wait { record } => self.clocks[stream] = self.clocks[stream].max(self.clocks[record.stream]),
            EmulatedWork::Task(_) => {}
            EmulatedWork::Do(work) => work(),
            EmulatedWork::CudaGraph(all) => all.iter().for_each(|work| self.run(stream, work.again())),
        }
    }

    /// Runs the stream of a record until that is reached. False if something before it waits for another device.
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
            // SAFETY: the fence is part of the allocation.
            let byte = unsafe { start.add(i).read() };
            assert_eq!(byte, FENCE, "a kernel wrote byte {i} of an allocation of {bytes}");
        }
        // SAFETY: the allocation is as long as that, and freed once, with the layout it was made with.
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
        // Whoever asks often enough sees the device get on.
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
        // SAFETY: the fence makes the size at least one byte.
        let start = unsafe { std::alloc::alloc(layout(bytes + FENCE_BYTES)) };
        assert!(!start.is_null(), "the host is out of memory");
        // SAFETY: the allocation is as long as that.
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
        // SAFETY: it was allocated with this layout.
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
        // SAFETY: it is what g++ made of our kernels, and has no initialisers but those of the C++ library.
        let library = unsafe { libloading::Library::new(&file) };
        let _ = std::fs::remove_file(&file);
        let mut state = self.alive()?;
        state.modules.push(library.map_err(|error| failed(error.to_string()))?);
        Ok(Module(state.modules.len() as u64 - 1))
    }

    fn function(&self, module: Module, name: &str) -> Result<Function> {
        let mut state = self.alive()?;
        let symbol = format!("emulator_run_{name}\0");
        // SAFETY: `wrapped` gave it this signature.
        let run = *unsafe { state.modules[module.0 as usize].get::<Run>(symbol.as_bytes()) }
            .map_err(|error| DriverError::Failed { call: "function", what: error.to_string() })?;
        state.functions.push(run);
        Ok(Function(state.functions.len() as u64 - 1))
    }

    fn allow_shared(&self, _function: Function, bytes: u32) -> Result<()> {
        if bytes > self.properties.shared_bytes_per_block {
            return Err(DriverError::Failed { call: "allow_shared", what: format!("{bytes} bytes are too many") });
        }
        self.alive().map(drop)
    }

    unsafe fn launch(&self, function: Function, grid: Grid, args: &Args, stream: CudaStream) -> Result<()> {
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
        self.put_off(stream, EmulatedWork::CudaGraph(work))
    }

    fn drop_graph(&self, graph: CudaGraph) {
        let before = self.state().graphs.remove(&graph.0);
        assert!(before.is_some(), "a graph is given back once");
    }
}

/// A file of our own that does not exist yet.
fn scratch(extension: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("gt-emulated-{}-{}.{extension}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}

/// g++, as a compiler of kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gxx;

const EMULATOR: &str = include_str!("emulator.h");
const OPTIONS: [&str; 9] =
    ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-xc++", "-fwrapv"];

/// The source with a function for each of its kernels that runs all of the kernel's threads.
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

/// The names behind each `GT_KERNEL(threads)`.
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

/// Whether g++ is here.
pub fn is_available() -> bool {
    Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Where tests keep what g++ made, so that the next run need not wait for it.
pub fn test_store() -> crate::compile::store::Store {
    crate::compile::store::Store::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/emulated-kernels"))
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
