//! CUDA graphs for repeated work, between the backend and the driver.
//!
//! [`Launches`] is a [`Driver`] around another driver. It compares everything that is issued on one stream with earlier
//! work ([`History`]). A stretch that occurs for the second time, the same kernels with the same arguments, is captured
//! as a graph. When the first launch of a graph recurs, the graph is *followed*: this launch is held back, and so are
//! the next ones as long as they match; at the graph's end, one call launches the graph instead. A mismatch, or any
//! call whose result depends on the order of work (another stream waits, the host reads, memory is freed), issues the
//! held work one by one, or as shorter graphs. So a graph changes the calls to the driver, never the results.
//!
//! Held work keeps the device waiting. So a graph is followed only if it is no longer than the work issued since the
//! host last waited for the device: the device runs that work while the graph is held back. Graphs just after a wait
//! are short. A worker with nothing more to issue calls [`Launches::let_go`].

mod as_driver;
mod cache;
pub(crate) mod gathered;
mod history;
mod times;
mod work;

use crate::blas::gemm::{Blas, Gemm, GemmPointers};
use crate::dnn::conv::{Conv, ConvPointers, Dnn};
use crate::driver::{CudaEvent, CudaGraph, CudaStream, Driver, DriverError, GraphNode, KernelFunction, Result};
use cache::GraphCache;
use gathered::{ElementwiseLaunch, Gathered};
use history::History;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use times::KernelTimes;
use work::{GraphWork, Kept, Libraries};

/// The sizes of graphs, in calls that enqueue work, and how many graphs are kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The shortest stretch that is worth a graph.
    pub shortest: usize,
    /// The most work that is held back while the device is idle.
    pub first: usize,
    /// The longest graph.
    pub longest: usize,
    /// The most graphs.
    pub graphs: usize,
    /// The most work in all graphs together.
    pub steps: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { shortest: 4, first: 8, longest: 128, graphs: 512, steps: 32_768 }
    }
}

/// Which work is captured as graphs.
#[derive(Clone, Copy, Debug)]
pub enum Graphs {
    /// No work.
    Never,
    /// Repeated work.
    Repeated(Limits),
    /// Every launch by itself, to test that all work can be captured.
    Each,
    /// No work; the device's time for each kernel is measured and logged.
    Timed,
}

/// Counts of issued work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Launches, fills, copies and calls of libraries that were issued one by one.
    pub single: u64,
    /// Graphs launched.
    pub graphs: u64,
    /// Launches, fills, copies and calls of libraries that graphs did.
    pub in_graphs: u64,
    /// Graphs captured.
    pub made: u64,
    /// Elementwise launches that one launch for several did, which counts by itself above.
    pub gathered: u64,
    /// Launches in graphs that got other numbers.
    pub updated: u64,
}

/// A driver that launches repeated work of one stream as graphs, and forwards everything else to the inner driver.
pub struct Launches {
    driver: Arc<dyn Driver>,
    stream: CudaStream,
    /// The stream on which graphs are captured.
    side: CudaStream,
    state: Mutex<GraphsState>,
}

/// A graph whose first launches have recurred.
#[derive(Clone, Copy)]
struct Following {
    id: usize,
    /// The number of its steps that have recurred, and how many of these were issued one by one.
    came: usize,
    issued: usize,
}

struct GraphsState {
    libraries: Libraries,
    graphs: Graphs,
    /// The measurements of [`Graphs::Timed`].
    times: KernelTimes,
    history: History,
    cache: GraphCache,
    following: Option<Following>,
    /// The last completed graph, and the value of `since` when it began.
    ended: Option<(usize, usize)>,
    /// Elementwise launches that are held back to be gathered, and the events that will be recorded behind them.
    gathered: Gathered,
    behind_gathered: Vec<CudaEvent>,
    /// An event, and whether it stands behind the work that was issued before the launches that are held back.
    marker: (Option<CudaEvent>, bool),
    /// Events that will be recorded once the held work of a graph has been issued.
    late: Vec<CudaEvent>,
    /// The number of times that the host has polled an event of `late` or `behind_gathered`.
    asked: u32,
    /// Work issued since the host last waited for the device, and launches that gathered ones took the place of.
    since: usize,
    since_gathered: usize,
    counts: LaunchCounts,
    /// The counts that were logged last, and when.
    logged: (LaunchCounts, Instant),
    /// Credit for making graphs, times [`SINGLES_PER_CREDIT`].
    credit: usize,
    /// Captures that failed in a row.
    refused: u32,
    /// The error of held work that could not be issued: the contents of memory are unknown after that.
    broken: Option<DriverError>,
}

/// Where a stream repeats itself with other addresses each time, making graphs that never recur would take more time
/// than others save. So making one is paid for: with a credit for each piece of its work and some for the driver's own
/// time. Work that graphs have done earns as much credit, and this much work that was issued one by one earns one. At
/// first there is enough for a training step of a thousand launches.
const SINGLES_PER_CREDIT: usize = 16;
const CREDIT_PER_GRAPH: usize = 64;
const CREDIT_FIRST: usize = 16_384;
const CREDIT_MAX: usize = 2 * CREDIT_FIRST;
/// The least time between two logs of the counts.
const LOGGED_APART: Duration = Duration::from_secs(2);
/// After this many failed captures in a row, no more are tried.
const REFUSED_MAX: u32 = 8;
/// After this many polls of an event that is held back, the held work is issued.
const ASKED_MAX: u32 = 64;

// Every `issue` and `launch_graph` below does work whose submitter fulfilled the driver's contract, in the order of
// submission; a graph is launched only after all its work was submitted with the same arguments.
impl Launches {
    /// Creates the stream of computation on `driver`, and a second one for captures.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Launches> {
        let (stream, side) = (driver.new_stream()?, driver.new_stream()?);
        let state = GraphsState {
            libraries: Libraries::default(),
            graphs: Graphs::Repeated(Limits::default()),
            times: KernelTimes::new(),
            history: History::new(),
            cache: GraphCache::default(),
            following: None,
            ended: None,
            gathered: Gathered::default(),
            behind_gathered: Vec::new(),
            marker: (None, false),
            late: Vec::new(),
            asked: 0,
            since: 0,
            since_gathered: 0,
            counts: LaunchCounts::default(),
            logged: (LaunchCounts::default(), Instant::now()),
            credit: CREDIT_FIRST * SINGLES_PER_CREDIT,
            refused: 0,
            broken: None,
        };
        Ok(Launches { driver, stream, side, state: Mutex::new(state) })
    }

    /// The stream of computation.
    pub fn stream(&self) -> CudaStream {
        self.stream
    }

    /// Sets the library that [`Launches::convolve`] uses.
    pub fn set_dnn(&self, dnn: Box<dyn Dnn>) {
        self.state().libraries.dnn = Some(dnn);
    }

    /// Sets the library that [`Launches::multiply`] uses.
    pub fn set_blas(&self, blas: Box<dyn Blas>) {
        self.state().libraries.blas = Some(blas);
    }

    /// [`Blas::stop_tuning`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn stop_tuning(&self) -> Result<()> {
        let mut state = self.alive()?;
        if state.libraries.blas.as_mut().is_some_and(|blas| blas.stop_tuning()) {
            self.issue_all(&mut state)?;
            self.forget(&mut state);
        }
        Ok(())
    }

    /// Whether a library for matrix products is set.
    pub fn has_blas(&self) -> bool {
        self.state().libraries.blas.is_some()
    }

    /// Sets which work is captured from here on.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn set_graphs(&self, graphs: Graphs) -> Result<()> {
        let mut state = self.all_issued()?;
        self.forget(&mut state);
        state.graphs = graphs;
        Ok(())
    }

    /// The counts so far.
    pub fn counts(&self) -> LaunchCounts {
        self.state().counts
    }

    /// [`Blas::multiply`] on the stream of computation.
    ///
    /// # Safety
    /// As [`Blas::multiply`].
    pub unsafe fn multiply(&self, gemm: &Gemm, pointers: GemmPointers) -> Result<bool> {
        // SAFETY: the caller fulfils the contract of `Blas::multiply`.
        unsafe { self.issue(&GraphWork::Product { gemm, pointers }) }
    }

    /// [`Dnn::prepare`]; none without a library.
    ///
    /// # Errors
    /// Those of the driver and of the library.
    pub fn prepare(&self, conv: &Conv) -> Result<Option<usize>> {
        let mut state = self.alive()?;
        if state.libraries.dnn.as_ref().is_some_and(|dnn| dnn.is_full(conv)) {
            // The code of the algorithms may be in graphs, or be running.
            self.issue_all(&mut state)?;
            self.forget(&mut state);
            self.driver.synchronize(self.stream)?;
            state.libraries.dnn.as_mut().into_iter().for_each(|dnn| dnn.clear());
        }
        state.libraries.dnn.as_mut().map_or(Ok(None), |dnn| dnn.prepare(conv))
    }

    /// [`Dnn::convolve`] on the stream of computation.
    ///
    /// # Safety
    /// As [`Dnn::convolve`].
    pub unsafe fn convolve(&self, conv: &Conv, pointers: ConvPointers) -> Result<bool> {
        // SAFETY: the caller fulfils the contract of `Dnn::convolve`.
        unsafe { self.issue(&GraphWork::Convolution { conv, pointers }) }
    }

    /// Launches an elementwise kernel on the stream of computation, or holds the launch back so that the next ones are
    /// gathered with it; `several` is the kernel for several, if it is there. Returns whether the launch follows one
    /// that it can be gathered with.
    ///
    /// # Safety
    /// As [`Driver::launch`], and the kernels compute the same.
    pub unsafe fn elementwise(&self, launch: &ElementwiseLaunch<'_>, several: Option<KernelFunction>) -> Result<bool> {
        let mut state = self.alive()?;
        let joins = state.gathered.admits(launch);
        if !joins {
            self.issue_gathered(&mut state)?;
        }
        state.gathered.remember(launch);
        let Some(several) = several else {
            let (function, grid, args) = (launch.kernel, launch.grid(), launch.args());
            // SAFETY: the caller fulfils the contract of `Driver::launch`.
            unsafe { self.issue_next(&mut state, &GraphWork::Launch { function, grid, args: &args }) }?;
            return Ok(joins);
        };
        state.gathered.hold(launch, several);
        if state.gathered.is_enough() || state.gathered.len() > state.since + state.since_gathered {
            self.issue_gathered(&mut state)?;
        }
        Ok(joins)
    }

    /// Issues gathered launches.
    #[inline]
    fn issue_gathered(&self, state: &mut GraphsState) -> Result<()> {
        if state.gathered.is_empty() {
            state.gathered.forget();
            return Ok(());
        }
        self.issue_several(state)
    }

    fn issue_several(&self, state: &mut GraphsState) -> Result<()> {
        let parts = state.gathered.len();
        let launch = state.gathered.launch(self.driver.updates_graphs());
        state.gathered.forget();
        state.marker.1 = false;
        let Some((function, grid, args)) = launch else { return Ok(()) };
        // SAFETY: the submitters fulfilled the contract of this work; see the head of this impl.
        if let Err(error) = unsafe { self.issue_next(state, &GraphWork::Launch { function, grid, args: &args }) } {
            return Err(self.broke(state, error));
        }
        if parts > 1 {
            state.counts.gathered += parts as u64;
            state.since_gathered += parts - 1;
        }
        let mut events = std::mem::take(&mut state.behind_gathered);
        state.late.append(&mut events);
        state.behind_gathered = events;
        if state.following.is_none_or(|following| following.came == following.issued) {
            self.record_late(state)?;
        }
        Ok(())
    }

    /// Whether launches are held back to be gathered while the device is still busy with earlier work, so that holding
    /// them costs nothing. Marks where the earlier work ends.
    fn mark_gathered(&self, state: &mut GraphsState) -> Result<bool> {
        if state.gathered.is_empty() {
            return Ok(false);
        }
        let marker = match state.marker.0 {
            Some(marker) => marker,
            None => *state.marker.0.insert(self.driver.new_event()?),
        };
        if !state.marker.1 {
            self.driver.record(marker, self.stream)?;
            state.marker.1 = true;
        }
        Ok(!self.driver.has_passed(marker)?)
    }

    /// Issues held work, but for launches that may be gathered with others while the device is busy; called again and
    /// again while no more work comes and some is in flight.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn let_go(&self) -> Result<()> {
        let mut state = self.alive()?;
        if !self.mark_gathered(&mut state)? {
            self.issue_gathered(&mut state)?;
        }
        if let Graphs::Timed = state.graphs {
            state.times.show(&*self.driver, self.stream)?;
        }
        if let Some(blas) = &mut state.libraries.blas {
            blas.let_go()?;
        }
        if state.counts != state.logged.0 && state.logged.1.elapsed() >= LOGGED_APART {
            let LaunchCounts { single, graphs, in_graphs, made, gathered, updated } = state.counts;
            tracing::debug!(target: "gtd::cuda", single, graphs, in_graphs, made, gathered, updated, "launches so far");
            state.logged = (state.counts, Instant::now());
        }
        if let Some(Following { id, came, issued }) = state.following {
            self.issue_held(&mut state, id, issued..came)?;
            // The next launch may still match the graph, so it is not counted as a miss.
            state.following = Some(Following { id, came, issued: came });
        }
        self.record_late(&mut state)
    }

    fn state(&self) -> MutexGuard<'_, GraphsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Result<MutexGuard<'_, GraphsState>> {
        let state = self.state();
        match &state.broken {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }

    /// The state after all held work is issued, for calls whose result depends on the order of work.
    fn all_issued(&self) -> Result<MutexGuard<'_, GraphsState>> {
        let mut state = self.alive()?;
        self.issue_all(&mut state)?;
        Ok(state)
    }

    fn issue_all(&self, state: &mut GraphsState) -> Result<()> {
        self.issue_gathered(state)?;
        self.abandon(state)?;
        self.record_late(state)?;
        let stretch = state.history.stretch();
        self.learn(state, stretch)?;
        state.history.cut();
        (state.since, state.since_gathered, state.ended) = (0, 0, None);
        Ok(())
    }

    #[inline]
    unsafe fn issue(&self, work: &GraphWork<'_>) -> Result<bool> {
        let mut state = self.alive()?;
        self.issue_gathered(&mut state)?;
        // SAFETY: the caller fulfils the contract of this work.
        unsafe { self.issue_next(&mut state, work) }
    }

    /// Issues work behind all work that was submitted, of which no launch is gathered any more.
    #[inline]
    unsafe fn issue_next(&self, state: &mut GraphsState, work: &GraphWork<'_>) -> Result<bool> {
        let limits = match state.graphs {
            Graphs::Repeated(limits) => limits,
            Graphs::Never => {
                (state.counts.single, state.since) = (state.counts.single + 1, state.since + 1);
                // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
                return unsafe { work.issue(&*self.driver, &mut state.libraries, self.stream) };
            }
            Graphs::Timed => {
                let GraphsState { libraries, times, counts, since, .. } = &mut *state;
                (counts.single, *since) = (counts.single + 1, *since + 1);
                let begun = times.begins(&*self.driver, self.stream)?;
                // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
                let issued = unsafe { work.issue(&*self.driver, libraries, self.stream) }?;
                times.ends(work, begun, &*self.driver, self.stream)?;
                return Ok(issued);
            }
            // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
            Graphs::Each => return unsafe { self.issue_as_graph(state, work) },
        };
        if let Some(mut following) = state.following {
            if !state.cache.get(following.id).steps[following.came].1.is(work) {
                match state.cache.like(following.id, following.came, work) {
                    Some(other) => following.id = other,
                    None => {
                        self.abandon(state)?;
                        return self.issue_new(state, work, &limits);
                    }
                }
            }
            return self.follow(state, following, work).map(|()| true);
        }
        self.issue_new(state, work, &limits)
    }

    /// Advances a followed graph by one launch.
    #[inline]
    fn follow(&self, state: &mut GraphsState, mut following: Following, work: &GraphWork<'_>) -> Result<()> {
        state.cache.recur(following.id, following.came, work);
        following.came += 1;
        state.since += 1;
        let Following { id, came, issued } = following;
        let is_whole = came == state.cache.get(id).steps.len();
        state.following = (!is_whole).then_some(following);
        if issued > 0 {
            // A part was issued one by one, so the rest is too.
            state.ended = None;
            self.issue_held(state, id, came - 1..came)?;
            if let Some(following) = &mut state.following {
                following.issued = came;
            }
        } else if is_whole {
            self.launch_whole(state, id)?;
        }
        if is_whole {
            state.history.interrupt();
            self.record_late(state)?;
        }
        Ok(())
    }

    fn launch_whole(&self, state: &mut GraphsState, id: usize) -> Result<()> {
        let len = state.cache.get(id).steps.len();
        match self.launch_graph(state, id) {
            Ok(()) => {
                state.earn(len * SINGLES_PER_CREDIT);
                let before = state.ended.replace((id, state.since - len));
                self.join(state, before, id)
            }
            Err(error @ DriverError::Lost { .. }) => Err(self.broke(state, error)),
            Err(error) => {
                tracing::warn!(target: "gtd::cuda", %error, "a graph could not be launched");
                state.ended = None;
                // The work is issued in two parts, so that only shorter graphs are tried. This graph is dropped.
                self.issue_held(state, id, 0..len - 1)?;
                self.issue_held(state, id, len - 1..len)?;
                if let Some(graph) = state.cache.take(id) {
                    self.driver.drop_graph(graph);
                }
                Ok(())
            }
        }
    }

    /// Launches a graph with the present numbers of its steps, all of which were submitted.
    fn launch_graph(&self, state: &mut GraphsState, id: usize) -> Result<()> {
        let entry = state.cache.get_mut(id);
        let (graph, len) = (entry.graph, entry.steps.len());
        // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
        let updated = unsafe { entry.update(&*self.driver) }?;
        // SAFETY: all work of the graph was submitted, with the arguments that it has after the update.
        unsafe { self.driver.launch_graph(graph, self.stream) }?;
        state.cache.hit(id);
        state.counts.graphs += 1;
        state.counts.in_graphs += len as u64;
        state.counts.updated += updated;
        Ok(())
    }

    /// Joins two graphs that follow each other repeatedly into one, unless it would hold back too much.
    fn join(&self, state: &mut GraphsState, before: Option<(usize, usize)>, id: usize) -> Result<()> {
        let (Some((first, since)), Graphs::Repeated(limits)) = (before, state.graphs) else { return Ok(()) };
        if !state.cache.followed(first, id) {
            return Ok(());
        }
        let (one, two) = (&state.cache.get(first).steps, &state.cache.get(id).steps);
        let both = one.iter().chain(two);
        if one.len() + two.len() > wanted(since, &limits) || state.cache.has(both.clone().map(|(hash, _)| *hash)) {
            return Ok(());
        }
        let both = both.cloned().collect();
        self.make(state, both, &limits)
    }

    /// Issues work that no followed graph expects; it may begin a graph.
    fn issue_new(&self, state: &mut GraphsState, work: &GraphWork<'_>, limits: &Limits) -> Result<bool> {
        let hash = work.hash();
        let stretch = state.history.stretch();
        let wanted = wanted(state.since - (stretch.end - stretch.start) as usize, limits);
        if let Some((id, len)) = state.cache.starting(hash, work, limits.first.max(state.since))
            && (len >= wanted || !state.history.goes_on(hash))
        {
            self.learn(state, stretch)?;
            // Learning may have evicted the graph.
            if state.cache.starting(hash, work, len).is_some_and(|found| found == (id, len)) {
                self.follow(state, Following { id, came: 0, issued: 0 }, work)?;
                return Ok(true);
            }
        }
        // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
        if !unsafe { work.issue(&*self.driver, &mut state.libraries, self.stream) }? {
            return Ok(false);
        }
        state.counts.single += 1;
        state.earn(1);
        state.since += 1;
        state.ended = None;
        let ended = state.history.push(hash, work);
        self.learn(state, ended)?;
        let stretch = state.history.stretch();
        if (stretch.end - stretch.start) as usize >= wanted {
            self.learn(state, stretch)?;
            state.history.cut();
        }
        Ok(true)
    }

    /// Stops following a graph and issues its held work.
    fn abandon(&self, state: &mut GraphsState) -> Result<()> {
        let Some(Following { id, came, issued }) = state.following.take() else { return Ok(()) };
        state.ended = None;
        self.issue_held(state, id, issued..came)?;
        // A graph counts as missed only if work was held back for it.
        if came > issued
            && let Some(graph) = state.cache.miss(id)
        {
            self.driver.drop_graph(graph);
        }
        state.history.interrupt();
        self.record_late(state)
    }

    /// Issues part of a graph's work, by shorter graphs where there are any.
    fn issue_held(&self, state: &mut GraphsState, id: usize, which: Range<usize>) -> Result<()> {
        let mut at = which.start;
        while at < which.end {
            if let Some((shorter, len)) = state.cache.within(id, at, which.end).filter(|(_, len)| *len > 1) {
                match self.launch_graph(state, shorter) {
                    Ok(()) => {
                        at += len;
                        continue;
                    }
                    Err(error @ DriverError::Lost { .. }) => return Err(self.broke(state, error)),
                    Err(error) => tracing::warn!(target: "gtd::cuda", %error, "a graph could not be launched"),
                }
            }
            let GraphsState { cache, libraries, counts, .. } = &mut *state;
            let step = &cache.get(id).steps[at].1;
            // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
            if let Err(error) = unsafe { step.issue(&*self.driver, libraries, self.stream) } {
                return Err(self.broke(state, error));
            }
            counts.single += 1;
            at += 1;
        }
        Ok(())
    }

    fn broke(&self, state: &mut GraphsState, error: DriverError) -> DriverError {
        let error = match error {
            lost @ DriverError::Lost { .. } => lost,
            // The submitter was told that this work is issued.
            other => DriverError::Lost { call: "work that was held back", what: other.to_string() },
        };
        state.following = None;
        state.broken = Some(error.clone());
        error
    }

    fn record_late(&self, state: &mut GraphsState) -> Result<()> {
        state.asked = 0;
        for event in state.late.drain(..) {
            self.driver.record(event, self.stream)?;
        }
        Ok(())
    }

    /// Captures a repeated stretch as a graph.
    fn learn(&self, state: &mut GraphsState, stretch: Range<u64>) -> Result<()> {
        let Graphs::Repeated(limits) = state.graphs else { return Ok(()) };
        let len = (stretch.end - stretch.start) as usize;
        let hashes = state.history.get(stretch.clone()).map(|(hash, _)| *hash);
        if len < limits.shortest || state.cache.has(hashes) {
            return Ok(());
        }
        let steps = state.history.get(stretch).cloned().collect();
        self.make(state, steps, &limits)
    }

    fn make(&self, state: &mut GraphsState, steps: Vec<(u64, Kept)>, limits: &Limits) -> Result<()> {
        // A graph launches the algorithms of its capture for good, and its products are not timed any more.
        if !steps.iter().all(|(_, kept)| kept.is_settled(&state.libraries)) {
            return Ok(());
        }
        let Some(credit) = state.credit.checked_sub((steps.len() + CREDIT_PER_GRAPH) * SINGLES_PER_CREDIT) else {
            return Ok(());
        };
        state.credit = credit;
        while state.cache.len() >= limits.graphs || state.cache.steps() + steps.len() > limits.steps {
            let Some(graph) = state.cache.take_oldest() else { return Ok(()) };
            state.ended = None;
            self.driver.drop_graph(graph);
        }
        match self.captured(state, &steps) {
            Ok((graph, nodes)) => {
                (state.counts.made, state.refused) = (state.counts.made + 1, 0);
                state.cache.put(graph, steps, &nodes);
                Ok(())
            }
            Err(error @ DriverError::Lost { .. }) => Err(self.broke(state, error)),
            Err(error) => {
                // Graphs take memory that others may need.
                self.forget(state);
                state.refused += 1;
                tracing::debug!(target: "gtd::cuda", %error, "no graph was made");
                if state.refused == REFUSED_MAX {
                    tracing::warn!(target: "gtd::cuda", %error, "no graphs can be made: everything goes by itself");
                    state.graphs = Graphs::Never;
                }
                Ok(())
            }
        }
    }

    /// A graph of the steps, and the nodes of those that have numbers.
    fn captured(&self, state: &mut GraphsState, steps: &[(u64, Kept)]) -> Result<(CudaGraph, Vec<GraphNode>)> {
        self.driver.begin_capture(self.side)?;
        state.libraries.capturing = true;
        let mut nodes = Vec::new();
        let issue = |(_, kept): &(u64, Kept)| {
            // SAFETY: the stream captures the work; it runs only when a graph is launched after it was submitted again.
            unsafe { kept.issue(&*self.driver, &mut state.libraries, self.side) }?;
            if kept.has_numbers() {
                nodes.push(self.driver.captured_launch(self.side)?);
            }
            Ok(())
        };
        let issued = steps.iter().try_for_each(issue);
        state.libraries.capturing = false;
        let graph = self.driver.end_capture(self.side);
        if let (Err(_), Ok(graph)) = (&issued, &graph) {
            self.driver.drop_graph(*graph);
        }
        issued.and(graph).map(|graph| (graph, nodes))
    }

    unsafe fn issue_as_graph(&self, state: &mut GraphsState, work: &GraphWork<'_>) -> Result<bool> {
        // Only an attempt tells whether a library supports its work, and computing it twice does no harm.
        if work.is_of_library()
            // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
            && !unsafe { work.issue(&*self.driver, &mut state.libraries, self.stream) }?
        {
            return Ok(false);
        }
        let (graph, _) = self.captured(state, &[(0, Kept::from(work))])?;
        // SAFETY: the submitter fulfilled the contract of this work; see the head of this impl.
        let launched = unsafe { self.driver.launch_graph(graph, self.stream) };
        self.driver.drop_graph(graph);
        (state.counts.graphs, state.counts.in_graphs) = (state.counts.graphs + 1, state.counts.in_graphs + 1);
        state.since += 1;
        launched.map(|()| true)
    }

    /// Drops all graphs, and ends the current repetition.
    fn forget(&self, state: &mut GraphsState) {
        while let Some(graph) = state.cache.take_oldest() {
            self.driver.drop_graph(graph);
        }
        state.history.interrupt();
        state.ended = None;
    }
}

impl GraphsState {
    /// Whether an event will be recorded only once held work has been issued.
    fn is_late(&self, event: CudaEvent) -> bool {
        self.late.contains(&event) || self.behind_gathered.contains(&event)
    }

    /// Adds to the credit.
    fn earn(&mut self, credit: usize) {
        self.credit = (self.credit + credit).min(CREDIT_MAX * SINGLES_PER_CREDIT);
    }
}

/// The best length of a graph that begins when this much work was issued since the last wait.
fn wanted(since: usize, limits: &Limits) -> usize {
    let most = since.clamp(limits.first, limits.longest);
    1 << most.ilog2()
}
