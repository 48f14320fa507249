//! [`Launches`] as a [`Driver`], which the backend sees. Work for the stream of computation goes through [`Launches`];
//! a call whose result depends on the order of work waits until held work has been issued. Everything else goes to the
//! inner driver.

use super::work::GraphWork;
use super::{ASKED_MAX, Launches};
use crate::driver::{
    Args, CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, GraphNode, Grid, KernelFunction, Module, Properties,
    Result,
};
use std::ptr::NonNull;

impl Launches {
    fn issue_all_if(&self, stream: CudaStream) -> Result<()> {
        if stream == self.stream { self.all_issued().map(drop) } else { Ok(()) }
    }
}

// Each unsafe method forwards to the inner driver's method of the same contract.
impl Driver for Launches {
    fn enter(&self) -> Result<()> {
        self.all_issued().map(drop)?;
        self.driver.enter()
    }

    fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    fn checks_addresses(&self) -> bool {
        self.driver.checks_addresses()
    }

    fn new_stream(&self) -> Result<CudaStream> {
        self.driver.new_stream()
    }

    fn raw(&self, stream: CudaStream) -> u64 {
        self.driver.raw(stream)
    }

    fn synchronize(&self, stream: CudaStream) -> Result<()> {
        self.issue_all_if(stream)?;
        self.driver.synchronize(stream)
    }

    fn new_event(&self) -> Result<CudaEvent> {
        self.driver.new_event()
    }

    fn new_timer(&self) -> Result<CudaEvent> {
        self.driver.new_timer()
    }

    fn drop_event(&self, event: CudaEvent) {
        let mut state = self.state();
        state.late.retain(|late| *late != event);
        state.behind_gathered.retain(|late| *late != event);
        drop(state);
        self.driver.drop_event(event);
    }

    fn record(&self, event: CudaEvent, stream: CudaStream) -> Result<()> {
        if stream == self.stream {
            let mut state = self.alive()?;
            if !state.gathered.is_empty() {
                state.late.retain(|late| *late != event);
                if !state.behind_gathered.contains(&event) {
                    state.behind_gathered.push(event);
                }
                return Ok(());
            }
            if state.following.is_some_and(|following| following.came > following.issued) {
                if !state.late.contains(&event) {
                    state.late.push(event);
                }
                return Ok(());
            }
        }
        self.driver.record(event, stream)
    }

    fn wait(&self, stream: CudaStream, event: CudaEvent) -> Result<()> {
        // Either computation waits for another stream, or another stream waits, most likely for computation.
        self.all_issued().map(drop)?;
        self.driver.wait(stream, event)
    }

    fn has_passed(&self, event: CudaEvent) -> Result<bool> {
        let mut state = self.alive()?;
        if state.is_late(event) {
            let waits_for_device = matches!(state.marker, (Some(marker), true) if !self.driver.has_passed(marker)?);
            if waits_for_device && state.behind_gathered.contains(&event) {
                return Ok(false);
            }
            state.asked += 1;
            if state.asked <= ASKED_MAX {
                return Ok(false);
            }
            self.issue_all(&mut state)?;
        }
        drop(state);
        self.driver.has_passed(event)
    }

    fn await_event(&self, event: CudaEvent) -> Result<()> {
        if self.alive()?.is_late(event) {
            self.all_issued().map(drop)?;
        }
        self.driver.await_event(event)
    }

    fn elapsed_ns(&self, from: CudaEvent, to: CudaEvent) -> Result<u64> {
        // Both timers have passed, so neither record is held back.
        self.driver.elapsed_ns(from, to)
    }

    fn allocate(&self, bytes: usize, stream: CudaStream) -> Result<DevicePtr> {
        // New memory is used by no held work.
        self.driver.allocate(bytes, stream)
    }

    unsafe fn free(&self, ptr: DevicePtr, stream: CudaStream) -> Result<()> {
        self.issue_all_if(stream)?;
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.free(ptr, stream) }
    }

    fn trim(&self) -> Result<()> {
        let mut state = self.all_issued()?;
        tracing::debug!(target: "gtd::cuda", counts = ?state.counts, "has launched");
        self.forget(&mut state);
        self.driver.trim()
    }

    fn free_bytes(&self) -> Result<usize> {
        self.driver.free_bytes()
    }

    unsafe fn fill(&self, to: DevicePtr, byte: u8, bytes: usize, stream: CudaStream) -> Result<()> {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe {
            if stream == self.stream {
                return self.issue(&GraphWork::Fill { to, byte, bytes }).map(drop);
            }
            self.driver.fill(to, byte, bytes, stream)
        }
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe {
            if stream == self.stream {
                return self.issue(&GraphWork::Copy { to, from, bytes }).map(drop);
            }
            self.driver.copy(to, from, bytes, stream)
        }
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: CudaStream) -> Result<()> {
        self.issue_all_if(stream)?;
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.upload(to, from, bytes, stream) }
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: CudaStream) -> Result<()> {
        self.issue_all_if(stream)?;
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.download(to, from, bytes, stream) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.driver.allocate_host(bytes)
    }

    unsafe fn free_host(&self, start: NonNull<u8>) {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.free_host(start) }
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.register(start, bytes) }
    }

    unsafe fn unregister(&self, start: NonNull<u8>) -> Result<()> {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.unregister(start) }
    }

    fn load(&self, image: &[u8]) -> Result<Module> {
        self.driver.load(image)
    }

    fn function(&self, module: Module, name: &str) -> Result<KernelFunction> {
        let function = self.driver.function(module, name)?;
        self.state().times.name(function, name);
        Ok(function)
    }

    fn allow_shared(&self, function: KernelFunction, bytes: u32) -> Result<()> {
        self.driver.allow_shared(function, bytes)
    }

    #[inline]
    unsafe fn launch(&self, function: KernelFunction, grid: Grid, args: &Args, stream: CudaStream) -> Result<()> {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe {
            if stream == self.stream {
                return self.issue(&GraphWork::Launch { function, grid, args }).map(drop);
            }
            self.driver.launch(function, grid, args, stream)
        }
    }

    fn begin_capture(&self, stream: CudaStream) -> Result<()> {
        self.driver.begin_capture(stream)
    }

    fn end_capture(&self, stream: CudaStream) -> Result<CudaGraph> {
        self.driver.end_capture(stream)
    }

    fn updates_graphs(&self) -> bool {
        self.driver.updates_graphs()
    }

    fn captured_launch(&self, stream: CudaStream) -> Result<GraphNode> {
        self.driver.captured_launch(stream)
    }

    unsafe fn update_launch(
        &self,
        graph: CudaGraph,
        node: GraphNode,
        function: KernelFunction,
        grid: Grid,
        args: &Args,
    ) -> Result<()> {
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.update_launch(graph, node, function, grid, args) }
    }

    unsafe fn launch_graph(&self, graph: CudaGraph, stream: CudaStream) -> Result<()> {
        self.issue_all_if(stream)?;
        // SAFETY: the caller fulfils this method's contract, which is that of the inner driver.
        unsafe { self.driver.launch_graph(graph, stream) }
    }

    fn drop_graph(&self, graph: CudaGraph) {
        self.driver.drop_graph(graph);
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        // Held work uses memory that is about to be freed. A lost device does nothing any more.
        if let Ok(mut state) = self.all_issued() {
            self.forget(&mut state);
            if let Some(marker) = state.marker.0.take() {
                self.driver.drop_event(marker);
            }
        }
    }
}
