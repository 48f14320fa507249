//! Between the backend and the driver: what repeats on the stream of computation goes as graphs.
//!
//! [`Launches`] is a driver in front of a driver. It sees all that is issued on one stream, and compares it with what
//! came before ([`History`]). Where a stretch comes for the second time, same kernels with the same arguments, it is
//! captured as a graph. When the first thing of a graph comes again, it is held back, and so is what follows as long as
//! it is what the graph does; at its end the graph is launched instead, in one call. At anything else, and wherever the
//! order of things shows (another stream waits, somebody reads, memory is given back), what is held is issued one by
//! one. So a graph changes what the driver is told, and never what is computed.
//!
//! Whoever holds work back keeps the device waiting. So no graph is followed that does more than the device has been
//! given since it was last waited for: while it is at that, the next graph comes together. The first ones after a wait
//! are short. And a worker to which nothing more comes says so ([`Launches::let_go`]).

mod front;
mod history;
mod shelf;
mod work;

use crate::blas::gemm::{Blas, Gemm};
use crate::driver::{CudaEvent, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, Result};
use history::History;
use shelf::Shelf;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use work::{GraphWork, Kept};

/// When a graph is made, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Stretches shorter than this are not worth a graph.
    pub shortest: usize,
    /// What may be held back when the device has nothing else to do.
    pub first: usize,
    /// No graph does more.
    pub longest: usize,
    /// Graphs at one time,
    pub graphs: usize,
    /// and what they do together.
    pub steps: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { shortest: 4, first: 8, longest: 128, graphs: 512, steps: 32_768 }
    }
}

/// What is made into graphs.
#[derive(Clone, Copy, Debug)]
pub enum Graphs {
    /// Nothing.
    Never,
    /// What repeats.
    Repeated(Limits),
    /// Each single thing, for tests: all that can be issued can be captured.
    Each,
}

/// What was issued how, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Things issued by calls of their own: launches, fills, copies, products.
    pub single: u64,
    /// Graphs launched.
    pub graphs: u64,
    /// Things that were done by them.
    pub in_graphs: u64,
    /// Graphs made.
    pub made: u64,
}

/// A driver that makes graphs of what repeats on one stream, and otherwise does as the one behind it.
pub struct Launches {
    driver: Arc<dyn Driver>,
    stream: CudaStream,
    /// Where graphs are captured.
    side: CudaStream,
    state: Mutex<GraphsState>,
}

/// A graph whose first things have come.
#[derive(Clone, Copy)]
struct Following {
    id: usize,
    /// How many have come, and how many of them were issued by themselves all the same.
    came: usize,
    issued: usize,
}

struct GraphsState {
    blas: Option<Box<dyn Blas>>,
    graphs: Graphs,
    history: History,
    shelf: Shelf,
    following: Option<Following>,
    /// The graph that came to its end just now, and how much had been issued when it began.
    ended: Option<(usize, usize)>,
    /// Records of events that come behind what is held.
    late: Vec<CudaEvent>,
    /// How often somebody asked for one of them.
    asked: u32,
    /// Things issued since the device was last waited for.
    since: usize,
    counts: LaunchCounts,
    /// Graphs in a row that could not be made.
    refused: u32,
    /// Something that was held could not be issued: nobody knows what holds after that.
    broken: Option<DriverError>,
}

/// After so many that could not be made, no more graphs are tried.
const REFUSED_MAX: u32 = 8;
/// Whoever asks so often whether an event has passed that is held back waits for it.
const ASKED_MAX: u32 = 64;

// SAFETY of what is issued below: whoever asked for it promised what it takes, in the order in which it was asked for.
// What a graph does was asked for when it is launched, with the same arguments.
impl Launches {
    /// For a new stream of this driver.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Launches> {
        let (stream, side) = (driver.new_stream()?, driver.new_stream()?);
        let state = GraphsState {
            blas: None,
            graphs: Graphs::Repeated(Limits::default()),
            history: History::new(),
            shelf: Shelf::default(),
            following: None,
            ended: None,
            late: Vec::new(),
            asked: 0,
            since: 0,
            counts: LaunchCounts::default(),
            refused: 0,
            broken: None,
        };
        Ok(Launches { driver, stream, side, state: Mutex::new(state) })
    }

    /// The stream.
    pub fn stream(&self) -> CudaStream {
        self.stream
    }

    /// The library that [`Launches::multiply`] asks.
    pub fn set_blas(&self, blas: Box<dyn Blas>) {
        self.state().blas = Some(blas);
    }

    /// Whether there is such a library.
    pub fn has_blas(&self) -> bool {
        self.state().blas.is_some()
    }

    /// What is made into graphs from now on.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn set_graphs(&self, graphs: Graphs) -> Result<()> {
        let mut state = self.settled()?;
        self.forget(&mut state);
        state.graphs = graphs;
        Ok(())
    }

    /// What was issued how.
    pub fn counts(&self) -> LaunchCounts {
        self.state().counts
    }

    /// As [`Blas::multiply`], on the stream.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn multiply(&self, gemm: &Gemm, pointers: [DevicePtr; 3]) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.issue(&GraphWork::Product { gemm, pointers }) }
    }

    /// Issues what is held back, as nothing more comes for now.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn let_go(&self) -> Result<()> {
        let mut state = self.alive()?;
        if let Some(Following { id, came, issued }) = state.following {
            self.issue_held(&mut state, id, issued..came)?;
            // What comes next may still be what the graph does: it is no news.
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

    /// With everything issued: for what shows the order of things. Nothing is held back across this.
    fn settled(&self) -> Result<MutexGuard<'_, GraphsState>> {
        let mut state = self.alive()?;
        self.settle(&mut state)?;
        Ok(state)
    }

    fn settle(&self, state: &mut GraphsState) -> Result<()> {
        self.abandon(state)?;
        self.record_late(state)?;
        let stretch = state.history.stretch();
        self.learn(state, stretch)?;
        state.history.cut();
        (state.since, state.ended) = (0, None);
        Ok(())
    }

    #[inline]
    unsafe fn issue(&self, work: &GraphWork<'_>) -> Result<bool> {
        let mut state = self.alive()?;
        let limits = match state.graphs {
            Graphs::Repeated(limits) => limits,
            Graphs::Never => {
                state.counts.single += 1;
                // SAFETY: see above.
                return unsafe { work.issue(&*self.driver, state.blas.as_deref_mut(), self.stream) };
            }
            // SAFETY: see above.
            Graphs::Each => return unsafe { self.issue_as_graph(&mut state, work) },
        };
        if let Some(mut following) = state.following {
            if !state.shelf.get(following.id).steps[following.came].1.is(work) {
                match state.shelf.like(following.id, following.came, work) {
                    Some(other) => following.id = other,
                    None => {
                        self.abandon(&mut state)?;
                        return self.issue_new(&mut state, work, &limits);
                    }
                }
            }
            return self.follow(&mut state, following).map(|()| true);
        }
        self.issue_new(&mut state, work, &limits)
    }

    /// One more of the things came that a graph does.
    #[inline]
    fn follow(&self, state: &mut GraphsState, mut following: Following) -> Result<()> {
        following.came += 1;
        state.since += 1;
        let Following { id, came, issued } = following;
        let is_whole = came == state.shelf.get(id).steps.len();
        state.following = (!is_whole).then_some(following);
        if issued > 0 {
            // Part of it is on its way by itself: so is the rest.
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
        let (graph, len) = (state.shelf.get(id).graph, state.shelf.get(id).steps.len());
        // SAFETY: see above.
        match unsafe { self.driver.launch_graph(graph, self.stream) } {
            Ok(()) => {
                state.shelf.hit(id);
                state.counts.graphs += 1;
                state.counts.in_graphs += len as u64;
                let before = state.ended.replace((id, state.since - len));
                self.join(state, before, id)
            }
            Err(error @ DriverError::Lost { .. }) => Err(self.broke(state, error)),
            Err(error) => {
                tracing::warn!(target: "gtd::cuda", %error, "a graph could not be launched");
                state.ended = None;
                // All but the last may go by others; the graph itself is no more.
                self.issue_held(state, id, 0..len - 1)?;
                self.issue_held(state, id, len - 1..len)?;
                if let Some(graph) = state.shelf.take(id) {
                    self.driver.drop_graph(graph);
                }
                Ok(())
            }
        }
    }

    /// Makes one graph of two that come one after the other again and again, where it would not hold back too much.
    fn join(&self, state: &mut GraphsState, before: Option<(usize, usize)>, id: usize) -> Result<()> {
        let (Some((first, since)), Graphs::Repeated(limits)) = (before, state.graphs) else { return Ok(()) };
        if !state.shelf.followed(first, id) {
            return Ok(());
        }
        let (one, two) = (&state.shelf.get(first).steps, &state.shelf.get(id).steps);
        let both = one.iter().chain(two);
        if one.len() + two.len() > wanted(since, &limits) || state.shelf.has(both.clone().map(|(hash, _)| *hash)) {
            return Ok(());
        }
        let both = both.cloned().collect();
        self.make(state, both, &limits)
    }

    /// What comes is no graph's next, or that of one that begins.
    fn issue_new(&self, state: &mut GraphsState, work: &GraphWork<'_>, limits: &Limits) -> Result<bool> {
        let hash = work.hash();
        let stretch = state.history.stretch();
        let wanted = wanted(state.since - (stretch.end - stretch.start) as usize, limits);
        if let Some((id, len)) = state.shelf.starting(hash, work, limits.first.max(state.since))
            && (len >= wanted || !state.history.goes_on(hash))
        {
            self.learn(state, stretch)?;
            // Learning may have taken the place of what was not used for long.
            if state.shelf.starting(hash, work, len).is_some_and(|found| found == (id, len)) {
                self.follow(state, Following { id, came: 0, issued: 0 })?;
                return Ok(true);
            }
        }
        // SAFETY: see above.
        if !unsafe { work.issue(&*self.driver, state.blas.as_deref_mut(), self.stream) }? {
            return Ok(false);
        }
        state.counts.single += 1;
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

    /// Gives up the graph that is followed, if one is: what came of it is issued by itself.
    fn abandon(&self, state: &mut GraphsState) -> Result<()> {
        let Some(Following { id, came, issued }) = state.following.take() else { return Ok(()) };
        state.ended = None;
        self.issue_held(state, id, issued..came)?;
        // Nothing was held back in vain where it had been let go before.
        if came > issued
            && let Some(graph) = state.shelf.miss(id)
        {
            self.driver.drop_graph(graph);
        }
        state.history.interrupt();
        self.record_late(state)
    }

    /// Issues some of what a graph does, by shorter graphs where there are any.
    fn issue_held(&self, state: &mut GraphsState, id: usize, which: Range<usize>) -> Result<()> {
        let mut at = which.start;
        while at < which.end {
            if let Some((shorter, len)) = state.shelf.within(id, at, which.end).filter(|(_, len)| *len > 1) {
                // SAFETY: see above.
                match unsafe { self.driver.launch_graph(state.shelf.get(shorter).graph, self.stream) } {
                    Ok(()) => {
                        state.shelf.hit(shorter);
                        state.counts.graphs += 1;
                        state.counts.in_graphs += len as u64;
                        at += len;
                        continue;
                    }
                    Err(error @ DriverError::Lost { .. }) => return Err(self.broke(state, error)),
                    Err(error) => tracing::warn!(target: "gtd::cuda", %error, "a graph could not be launched"),
                }
            }
            let GraphsState { shelf, blas, counts, .. } = &mut *state;
            let step = &shelf.get(id).steps[at].1;
            // SAFETY: see above.
            if let Err(error) = unsafe { step.issue(&*self.driver, blas.as_deref_mut(), self.stream) } {
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
            // Whoever asked for it was told that it is done.
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

    /// Makes a graph of a stretch that came again.
    fn learn(&self, state: &mut GraphsState, stretch: Range<u64>) -> Result<()> {
        let Graphs::Repeated(limits) = state.graphs else { return Ok(()) };
        let len = (stretch.end - stretch.start) as usize;
        let hashes = state.history.get(stretch.clone()).map(|(hash, _)| *hash);
        if len < limits.shortest || state.shelf.has(hashes) {
            return Ok(());
        }
        let steps = state.history.get(stretch).cloned().collect();
        self.make(state, steps, &limits)
    }

    fn make(&self, state: &mut GraphsState, steps: Vec<(u64, Kept)>, limits: &Limits) -> Result<()> {
        while state.shelf.len() >= limits.graphs || state.shelf.steps() + steps.len() > limits.steps {
            let Some(graph) = state.shelf.take_oldest() else { return Ok(()) };
            state.ended = None;
            self.driver.drop_graph(graph);
        }
        match self.captured(state, &steps) {
            Ok(graph) => {
                (state.counts.made, state.refused) = (state.counts.made + 1, 0);
                state.shelf.put(graph, steps);
                Ok(())
            }
            Err(error @ DriverError::Lost { .. }) => Err(self.broke(state, error)),
            Err(error) => {
                // Others may need what graphs take.
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

    fn captured(&self, state: &mut GraphsState, steps: &[(u64, Kept)]) -> Result<CudaGraph> {
        self.driver.begin_capture(self.side)?;
        let issue = |(_, kept): &(u64, Kept)| {
            // SAFETY: see above; it is not done before it is asked for again.
            unsafe { kept.issue(&*self.driver, state.blas.as_deref_mut(), self.side) }
        };
        let issued = steps.iter().try_for_each(issue);
        let graph = self.driver.end_capture(self.side);
        if let (Err(_), Ok(graph)) = (&issued, &graph) {
            self.driver.drop_graph(*graph);
        }
        issued.and(graph)
    }

    unsafe fn issue_as_graph(&self, state: &mut GraphsState, work: &GraphWork<'_>) -> Result<bool> {
        // What the library cannot do, it says when asked; and a product may be done twice.
        if let GraphWork::Product { .. } = work
            // SAFETY: see above.
            && !unsafe { work.issue(&*self.driver, state.blas.as_deref_mut(), self.stream) }?
        {
            return Ok(false);
        }
        let graph = self.captured(state, &[(0, Kept::from(work))])?;
        // SAFETY: see above.
        let launched = unsafe { self.driver.launch_graph(graph, self.stream) };
        self.driver.drop_graph(graph);
        state.counts.graphs += 1;
        state.counts.in_graphs += 1;
        launched.map(|()| true)
    }

    /// Gives all graphs back. None is followed.
    fn forget(&self, state: &mut GraphsState) {
        while let Some(graph) = state.shelf.take_oldest() {
            self.driver.drop_graph(graph);
        }
        state.history.interrupt();
        state.ended = None;
    }
}

/// How much is best put into a graph that begins when so much has been issued since the device was waited for.
fn wanted(since: usize, limits: &Limits) -> usize {
    let most = since.clamp(limits.first, limits.longest);
    1 << most.ilog2()
}
