//! Steps from the dispatcher to the workers of all nodes, and their reports back.
//!
//! The dispatcher's cost of a step must not grow with each worker by a ring to write, a thread to wake and a bell to
//! silence. So the workers of nodes share one list of steps and one list of reports:
//!
//! - A step that several workers get is written once, with the set of its workers ([`RelayPort::push`]). All steps are
//!   published together, and wake one thread, the *relay*, which sends each step once to each node.
//! - The reports of all workers come to one list, with one bell ([`Relay::report`]).
//!
//! A [`Lane`] is one worker's part of both. The relay waits for nobody: a step that the node gets after something else,
//! such as the bytes that a write reads, goes to the thread of the worker's stand-in, and with it all later steps of
//! that worker until the thread has sent them ([`Lane::take_detoured`]). Steps in flight and unread reports are limited
//! for each worker by the dispatcher's queue and by [`STEPS_MAX`].

use crate::worker::queue::STEPS_MAX;
use crate::worker::step_wire::{StepHeader, StepKind};
use gt_bridge::lasting_link::LastingLink;
use gt_bridge::link_frame::{push_shared_slots, send_shared_slots};
use gt_ops::Workers;
use gt_ops::placement::WORKERS_MAX;
use gt_ops::wire::{self, Command};
use gt_shm::{Doorbell, Slot};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A frame of at least so many bytes is sent before the next step is added.
const FRAME_BYTES: usize = 256 << 10;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lists that the dispatcher, the relay's thread and the stand-ins share.
pub struct Relay {
    steps: Mutex<StepList>,
    published: Condvar,
    sender: Mutex<NodeSender>,
    reports: Mutex<ReportList>,
    /// Whether there are reports, to look without the lock.
    has_reports: AtomicBool,
    /// Whether the next report rings the bell.
    asleep: AtomicBool,
    bell: Doorbell,
}

#[derive(Default)]
struct StepList {
    entries: Vec<RelayEntry>,
    /// The open lanes, by their tokens.
    lanes: HashMap<u64, Arc<Lane>>,
    /// True while the relay's thread waits.
    sleeps: bool,
    ended: bool,
}

/// An entry of the list of steps.
enum RelayEntry {
    /// A step, and the workers that get it.
    Step(Workers, Arc<[Slot]>),
    /// From here on worker `number` has the lane `token`.
    Begin { number: usize, token: u64 },
}

#[derive(Default)]
struct ReportList {
    slots: Vec<Slot>,
    /// The lane of each batch, and the number of its slots.
    batches: Vec<(Arc<Lane>, usize)>,
}

/// One worker's part of the lists.
pub struct Lane {
    token: u64,
    /// The worker, as the dispatcher numbers it.
    number: usize,
    link: LastingLink,
    /// The worker, as its node's frames number it.
    worker: usize,
    /// Reports that the dispatcher has not read.
    unread: AtomicU32,
    /// Whether steps go to the stand-in's thread, because it has not sent the earlier ones.
    is_detoured: AtomicBool,
    detoured: Mutex<Vec<Slot>>,
    more: Condvar,
}

impl Lane {
    /// Takes steps for the stand-in's thread, which must have sent those that it has taken before. Waits for at most
    /// `patience`; false if there are none.
    pub fn take_detoured(&self, slots: &mut Vec<Slot>, patience: Duration) -> bool {
        slots.clear();
        let mut detoured = lock(&self.detoured);
        if detoured.is_empty() {
            self.is_detoured.store(false, Release);
            detoured = self.more.wait_timeout(detoured, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(slots, &mut *detoured);
        !slots.is_empty()
    }

    fn detour(&self, slots: &[Slot]) {
        let mut detoured = lock(&self.detoured);
        detoured.extend_from_slice(slots);
        self.is_detoured.store(true, Relaxed);
        self.more.notify_one();
    }
}

impl Relay {
    /// Starts the relay's thread, which ends with the dispatcher's end.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start() -> std::io::Result<(Arc<Relay>, RelayPort)> {
        let (relay, port) = Relay::new()?;
        let own = relay.clone();
        std::thread::Builder::new().name("gt-relay".into()).spawn(move || own.run())?;
        Ok((relay, port))
    }

    fn new() -> std::io::Result<(Arc<Relay>, RelayPort)> {
        let relay = Arc::new(Relay {
            steps: Mutex::default(),
            published: Condvar::new(),
            sender: Mutex::default(),
            reports: Mutex::default(),
            has_reports: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            bell: Doorbell::new().map_err(std::io::Error::other)?,
        });
        let port = RelayPort::new(relay.clone());
        Ok((relay, port))
    }

    /// Opens the lane `token` of the worker that the dispatcher calls `number`, and the node at `link` calls `worker`.
    /// It must be open before the dispatcher [begins](RelayPort::begin) it.
    ///
    /// # Errors
    /// The node has more workers than a set of workers can have.
    pub fn open(&self, token: u64, number: usize, link: LastingLink, worker: u32) -> Result<Arc<Lane>, String> {
        if worker as usize >= WORKERS_MAX || number >= WORKERS_MAX {
            return Err(format!("worker {worker} of a node, of which at most {WORKERS_MAX} can be used"));
        }
        let lane = Arc::new(Lane {
            token,
            number,
            link,
            worker: worker as usize,
            unread: AtomicU32::new(0),
            is_detoured: AtomicBool::new(false),
            detoured: Mutex::default(),
            more: Condvar::new(),
        });
        lock(&self.steps).lanes.insert(token, lane.clone());
        Ok(lane)
    }

    /// Closes a lane. None of its steps is sent after that, since the next ones of this worker are for another process.
    pub fn close(&self, lane: &Lane) {
        lock(&self.steps).lanes.remove(&lane.token);
        lock(&self.sender).close(lane.token);
    }

    /// Passes reports of a worker on to the dispatcher.
    ///
    /// # Errors
    /// There are more reports than steps.
    pub fn report(&self, lane: &Arc<Lane>, slots: &[Slot]) -> Result<(), String> {
        let unread = lane.unread.fetch_add(slots.len() as u32, Relaxed) as usize;
        if unread + slots.len() > STEPS_MAX {
            return Err("more reports than steps".into());
        }
        {
            let mut reports = lock(&self.reports);
            reports.slots.extend_from_slice(slots);
            reports.batches.push((lane.clone(), slots.len()));
            self.has_reports.store(true, Release);
        }
        // The fence of `prepare_sleep` is the other one: this thread sees the flag, or the dispatcher the reports.
        fence(SeqCst);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.bell.ring();
        }
        Ok(())
    }

    fn run(&self) {
        let mut entries = Vec::new();
        while self.wait(&mut entries) {
            self.send(&mut entries);
        }
    }

    /// Waits for entries, and takes them. False if there will be none.
    fn wait(&self, entries: &mut Vec<RelayEntry>) -> bool {
        let mut steps = lock(&self.steps);
        while steps.entries.is_empty() {
            if steps.ended {
                return false;
            }
            steps.sleeps = true;
            steps = self.published.wait(steps).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(entries, &mut steps.entries);
        true
    }

    fn send(&self, entries: &mut Vec<RelayEntry>) {
        let mut sender = lock(&self.sender);
        for entry in entries.drain(..) {
            match entry {
                RelayEntry::Step(workers, slots) => sender.send(workers, &slots),
                RelayEntry::Begin { number, token } => {
                    let lane = lock(&self.steps).lanes.get(&token).cloned();
                    sender.begin(number, lane);
                }
            }
        }
        sender.flush();
    }
}

/// The relay's thread: it sends each step once to each node.
#[derive(Default)]
struct NodeSender {
    /// By the dispatcher's number of the worker: its lane, and its node's place in `nodes`.
    lanes: Vec<Option<(Arc<Lane>, usize)>>,
    nodes: Vec<NodeFrame>,
}

/// The frame of a node that is being written.
struct NodeFrame {
    link: LastingLink,
    bytes: Vec<u8>,
    /// The node's workers that get the present step, one bit each.
    workers: [u64; 2],
}

impl NodeFrame {
    fn flush(&mut self) {
        if !self.bytes.is_empty() {
            // The stand-ins notice a link that has ended.
            let _ = send_shared_slots(&self.link, &self.bytes);
            self.bytes.clear();
        }
    }
}

impl NodeSender {
    /// From now on steps of worker `number` take this lane; none leads nowhere.
    fn begin(&mut self, number: usize, lane: Option<Arc<Lane>>) {
        self.flush();
        if number >= self.lanes.len() {
            self.lanes.resize_with(number + 1, || None);
        }
        self.lanes[number] = lane.map(|lane| (lane, 0));
        self.collect_nodes();
    }

    /// Sends no more steps by this lane.
    fn close(&mut self, token: u64) {
        self.flush();
        let is_it =
            |place: &&mut Option<(Arc<Lane>, usize)>| place.as_ref().is_some_and(|(lane, _)| lane.token == token);
        if let Some(closed) = self.lanes.iter_mut().find(is_it) {
            *closed = None;
            self.collect_nodes();
        }
    }

    fn collect_nodes(&mut self) {
        // Nodes without workers are not needed any more.
        self.nodes.clear();
        for (lane, node) in self.lanes.iter_mut().flatten() {
            *node = self.nodes.iter().position(|known| known.link.is_same(&lane.link)).unwrap_or(self.nodes.len());
            if *node == self.nodes.len() {
                self.nodes.push(NodeFrame { link: lane.link.clone(), bytes: Vec::new(), workers: [0; 2] });
            }
        }
    }

    fn send(&mut self, workers: Workers, step: &[Slot]) {
        let needs_detour = needs_detour(step);
        for worker in workers.iter() {
            let Some(Some((lane, node))) = self.lanes.get(worker) else { continue };
            let node = &mut self.nodes[*node];
            // Only this thread sets the flag, and the stand-in's clears it when it has sent everything.
            if needs_detour || lane.is_detoured.load(Acquire) {
                // The steps before must not be overtaken.
                node.flush();
                lane.detour(step);
            } else {
                node.workers[lane.worker / 64] |= 1 << (lane.worker % 64);
            }
        }
        for node in self.nodes.iter_mut().filter(|node| node.workers != [0; 2]) {
            push_shared_slots(&mut node.bytes, std::mem::take(&mut node.workers), step);
            if node.bytes.len() >= FRAME_BYTES {
                node.flush();
            }
        }
    }

    fn flush(&mut self) {
        self.nodes.iter_mut().for_each(NodeFrame::flush);
    }
}

/// Whether the stand-in's thread has to send a step: it receives something from the dispatcher's socket first, sends
/// the bytes that a write reads, or forgets arenas.
fn needs_detour(step: &[Slot]) -> bool {
    let Some((header, command)) = step.split_first() else { return false };
    match StepHeader::decode(header).map(|header| header.kind) {
        Ok(StepKind::Run(_)) => {
            command.first().is_some_and(wire::is_transfer) && matches!(wire::decode(command), Ok(Command::Write { .. }))
        }
        Ok(StepKind::Message | StepKind::Join { .. } | StepKind::Close | StepKind::DropArena { .. }) => true,
        // The stand-in's thread ends the worker of a slot that is no header.
        kind => kind.is_err(),
    }
}

/// The dispatcher's end of the lists.
pub struct RelayPort {
    relay: Arc<Relay>,
    /// Entries that are not published.
    out: Vec<RelayEntry>,
    /// How many entries were published.
    published: u64,
    lanes: Vec<PortLane>,
    next_token: u64,
    /// Reports that are being handed out to their lanes.
    taken: ReportList,
    /// Whether a worker that was idle has got a step which is not published.
    is_awaited: bool,
    sleeps: bool,
}

/// A worker's lane, at the dispatcher.
#[derive(Default)]
struct PortLane {
    lane: Option<Arc<Lane>>,
    /// The number of entries up to the worker's last one.
    after: u64,
    reports: VecDeque<Slot>,
    /// Reports that were read since the lane was last told.
    read: u32,
}

impl RelayPort {
    fn new(relay: Arc<Relay>) -> RelayPort {
        let lanes = std::iter::repeat_with(PortLane::default).take(WORKERS_MAX).collect();
        let (out, taken) = (Vec::new(), ReportList::default());
        RelayPort { relay, out, published: 0, lanes, next_token: 0, taken, is_awaited: false, sleeps: false }
    }

    /// A token for a lane, which no other has.
    pub fn new_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Begins the lane `token` of worker `number`.
    pub fn begin(&mut self, number: usize, token: u64) {
        let lane = lock(&self.relay.steps).lanes.get(&token).cloned();
        self.out.push(RelayEntry::Begin { number, token });
        self.publish();
        self.lanes[number] = PortLane { lane, after: self.published, ..PortLane::default() };
    }

    /// Ends the lane of worker `number`: its reports are of no use any more.
    pub fn end(&mut self, number: usize) {
        let after = self.published + self.out.len() as u64;
        self.lanes[number] = PortLane { after, ..PortLane::default() };
    }

    /// Writes a step for worker `number`. It goes into the entry of the same step for other workers, if one is there
    /// that no step of this worker follows. The relay gets it when it is [published](Self::publish).
    #[inline]
    pub fn push(&mut self, number: usize, slots: &Arc<[Slot]>) {
        let lane = &mut self.lanes[number];
        let first = lane.after.saturating_sub(self.published) as usize;
        // Several steps that are handed over together follow each other, and a single one is the last.
        for at in [first, (self.out.len().max(1) - 1).max(first)] {
            if let Some(RelayEntry::Step(workers, step)) = self.out.get_mut(at)
                && Arc::ptr_eq(step, slots)
            {
                *workers = workers.with(Workers::one(number));
                lane.after = self.published + at as u64 + 1;
                return;
            }
        }
        self.out.push(RelayEntry::Step(Workers::one(number), slots.clone()));
        lane.after = self.published + self.out.len() as u64;
    }

    /// Notes that a worker was idle when it got the last step.
    #[inline]
    pub fn await_publication(&mut self) {
        self.is_awaited = true;
    }

    /// Publishes the steps if a worker waits for one.
    #[inline]
    pub fn publish_if_awaited(&mut self) {
        if self.is_awaited {
            self.publish();
        }
    }

    /// Gives the steps to the relay.
    #[inline]
    pub fn publish(&mut self) {
        if !self.out.is_empty() {
            self.publish_steps();
        }
    }

    fn publish_steps(&mut self) {
        self.published += self.out.len() as u64;
        let mut steps = lock(&self.relay.steps);
        if steps.entries.is_empty() {
            std::mem::swap(&mut steps.entries, &mut self.out);
        } else {
            steps.entries.append(&mut self.out);
        }
        let sleeps = std::mem::take(&mut steps.sleeps);
        drop(steps);
        if sleeps {
            self.relay.published.notify_one();
        }
        self.is_awaited = false;
    }

    /// The next report of worker `number`.
    #[inline]
    pub fn pop(&mut self, number: usize) -> Option<Slot> {
        if self.lanes[number].reports.is_empty() {
            if !self.relay.has_reports.load(Relaxed) {
                return None;
            }
            self.take_reports();
        }
        let PortLane { lane, reports, read, .. } = &mut self.lanes[number];
        let report = reports.pop_front()?;
        *read += 1;
        if reports.is_empty()
            && let Some(lane) = lane
        {
            // There is room for as many again.
            lane.unread.fetch_sub(std::mem::take(read), Relaxed);
        }
        Some(report)
    }

    /// Hands out the reports that have come, unless a stand-in is adding some: these are taken later.
    fn take_reports(&mut self) {
        {
            let Ok(mut reports) = self.relay.reports.try_lock() else { return };
            self.relay.has_reports.store(false, Relaxed);
            std::mem::swap(&mut *reports, &mut self.taken);
        }
        let mut rest = &self.taken.slots[..];
        for (lane, count) in self.taken.batches.drain(..) {
            let (reports, others) = rest.split_at(count);
            rest = others;
            let own = &mut self.lanes[lane.number];
            // The last reports of a worker that was given up are of no use.
            if own.lane.as_ref().is_some_and(|own| own.token == lane.token) {
                own.reports.extend(reports);
            }
        }
        self.taken.slots.clear();
    }

    /// Whether reports of worker `number` were taken and not read.
    pub fn has_reports(&self, number: usize) -> bool {
        !self.lanes[number].reports.is_empty()
    }

    /// Makes the next report ring the bell. False if worker `number` has reported something already, or reports have
    /// come that were not taken.
    #[must_use = "only sleep if there is no report"]
    pub fn prepare_sleep(&mut self, number: usize) -> bool {
        if !std::mem::replace(&mut self.sleeps, true) {
            self.relay.asleep.store(true, Relaxed);
            fence(SeqCst);
            // Nobody else takes the reports of workers that have nothing to do.
            if self.relay.has_reports.load(Relaxed) {
                self.take_reports();
            }
        }
        !self.has_reports(number) && !self.relay.has_reports.load(Relaxed)
    }

    /// Ends the wait for the bell.
    #[inline]
    pub fn cancel_sleep(&mut self) {
        if std::mem::take(&mut self.sleeps) {
            self.relay.asleep.store(false, Relaxed);
        }
    }

    /// The bell that rings for reports.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.relay.bell.as_fd()
    }

    /// Silences the bell.
    pub fn silence(&self) {
        self.relay.bell.silence();
    }
}

impl Drop for RelayPort {
    fn drop(&mut self) {
        lock(&self.relay.steps).ended = true;
        self.relay.published.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::step::SessionSlot;
    use crate::worker::step_wire::RunHeader;
    use gt_bridge::lasting_link::{LinkOptions, LinkRole};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A link that nobody takes frames from, so that they are only counted.
    fn link() -> LastingLink {
        let options = LinkOptions { name: "nobody".into(), grace: PATIENCE };
        LastingLink::start(options, LinkRole::Awaits(Box::new(|| None)), None, |_: &mut Vec<u8>| Ok(()), drop).unwrap()
    }

    fn step(kind: StepKind, command: &[Slot]) -> Arc<[Slot]> {
        let header = StepHeader { owner: SessionSlot { session: 1, slot: 0 }, kind };
        std::iter::once(header.encode()).chain(command.iter().copied()).collect()
    }

    /// Step number `origin`, whose command is one slot.
    fn run(origin: u64) -> Arc<[Slot]> {
        let run = RunHeader { command_slots: 1, origin, expected_ns: 1, unreported_ns_max: 1, is_light: false };
        step(StepKind::Run(run), &[[0; 8]])
    }

    /// The workers and the number of each step that is not published.
    fn unpublished(port: &RelayPort) -> Vec<(Workers, u64)> {
        let steps = port.out.iter().filter_map(|entry| match entry {
            RelayEntry::Step(workers, slots) => Some((*workers, StepHeader::decode(&slots[0]).unwrap().origin())),
            RelayEntry::Begin { .. } => None,
        });
        steps.collect()
    }

    /// Sends all published entries, as the thread of the relay does.
    fn relay_all(relay: &Relay) {
        let mut entries = std::mem::take(&mut lock(&relay.steps).entries);
        relay.send(&mut entries);
    }

    /// A relay without its thread, and the lanes of the workers of nodes, which have two each.
    fn with_nodes(links: &[LastingLink]) -> (Arc<Relay>, RelayPort, Vec<Arc<Lane>>) {
        let (relay, mut port) = Relay::new().unwrap();
        let mut lanes = Vec::new();
        for (number, link) in links.iter().flat_map(|link| [link, link]).enumerate() {
            let token = port.new_token();
            lanes.push(relay.open(token, number, link.clone(), number as u32 % 2).unwrap());
            port.begin(number, token);
        }
        relay_all(&relay);
        (relay, port, lanes)
    }

    fn frame_bytes(steps: u64, slots_each: u64) -> u64 {
        // The link's length, the kind, and for each step its workers and the number of its slots.
        4 + 1 + steps * (20 + 64 * slots_each)
    }

    #[test]
    fn a_step_of_several_workers_is_written_once() {
        let (_relay, mut port, _lanes) = with_nodes(&[link(), link()]);
        let [one, other, third] = [1, 2, 3].map(run);
        (0..4).for_each(|worker| port.push(worker, &one));
        // Steps that are handed over together reach each worker one after another.
        (0..4).for_each(|worker| [&other, &third].into_iter().for_each(|step| port.push(worker, step)));
        let all = Workers::first_of(4);
        assert_eq!(unpublished(&port), [(all, 1), (all, 2), (all, 3)]);
    }

    #[test]
    fn steps_keep_their_order_at_each_worker() {
        let (_relay, mut port, _lanes) = with_nodes(&[link()]);
        let [one, other] = [1, 2].map(run);
        port.push(0, &one);
        port.push(1, &other);
        port.push(1, &one);
        port.push(0, &other);
        // Worker 1 gets the second step first, so the first step is written again for it.
        let [first, second] = [0, 1].map(Workers::one);
        assert_eq!(unpublished(&port), [(first, 1), (first.with(second), 2), (second, 1)]);
        port.publish();
        port.push(1, &other);
        assert_eq!(unpublished(&port), [(second, 2)], "what was published is not added to");
    }

    #[test]
    fn a_step_is_sent_once_to_each_node() {
        let links = [link(), link(), link()];
        let (relay, mut port, _lanes) = with_nodes(&links);
        for origin in [1, 2] {
            let step = run(origin);
            (0..4).for_each(|worker| port.push(worker, &step));
        }
        assert_eq!(links[0].counts().sent_bytes, 0, "not published");
        port.publish();
        relay_all(&relay);
        let sent = links.each_ref().map(|link| link.counts().sent_bytes);
        assert_eq!(sent, [frame_bytes(2, 2), frame_bytes(2, 2), 0]);
    }

    #[test]
    fn steps_wait_behind_one_that_the_stand_in_sends() {
        let links = [link()];
        let (relay, mut port, lanes) = with_nodes(&links);
        let (message, next) = (step(StepKind::Message, &[]), run(1));
        port.push(0, &message);
        (0..2).for_each(|worker| port.push(worker, &next));
        port.publish();
        relay_all(&relay);
        assert_eq!(links[0].counts().sent_bytes, frame_bytes(1, 2), "the other worker does not wait");
        let mut slots = Vec::new();
        assert!(lanes[0].take_detoured(&mut slots, Duration::ZERO));
        assert_eq!(slots, [&message[..], &next[..]].concat());
        // The stand-in has not asked again, so it may still be sending.
        let last = run(2);
        port.push(0, &last);
        port.publish();
        relay_all(&relay);
        assert!(lanes[0].take_detoured(&mut slots, Duration::ZERO));
        assert_eq!(slots, &last[..]);
        assert!(!lanes[0].take_detoured(&mut slots, Duration::ZERO) && slots.is_empty());
        port.push(0, &last);
        port.publish();
        relay_all(&relay);
        assert_eq!(links[0].counts().sent_bytes, 2 * frame_bytes(1, 2), "nothing is waited for any more");
    }

    #[test]
    fn a_closed_lane_leads_nowhere() {
        let links = [link()];
        let (relay, mut port, lanes) = with_nodes(&links);
        port.push(0, &run(1));
        port.publish();
        relay.close(&lanes[0]);
        relay_all(&relay);
        assert_eq!(links[0].counts().sent_bytes, 0);
        assert!(relay.open(9, 0, links[0].clone(), WORKERS_MAX as u32).is_err(), "no set of workers has this number");
    }

    #[test]
    fn reports_come_to_their_workers_in_order() {
        let (relay, mut port, lanes) = with_nodes(&[link()]);
        relay.report(&lanes[1], &[[1; 8], [2; 8]]).unwrap();
        relay.report(&lanes[0], &[[3; 8]]).unwrap();
        relay.report(&lanes[1], &[[4; 8]]).unwrap();
        assert_eq!(port.pop(0), Some([3; 8]));
        assert_eq!(std::iter::from_fn(|| port.pop(1)).collect::<Vec<_>>(), [[1; 8], [2; 8], [4; 8]]);
        assert_eq!(port.pop(0), None);
        let token = port.new_token();
        relay.open(token, 1, link(), 0).unwrap();
        port.begin(1, token);
        relay.report(&lanes[1], &[[5; 8]]).unwrap();
        assert_eq!(port.pop(1), None, "the worker that reported this has left");
    }

    #[test]
    fn a_worker_with_too_many_unread_reports_is_in_error() {
        let (relay, mut port, lanes) = with_nodes(&[link()]);
        let full = vec![[1; 8]; STEPS_MAX];
        relay.report(&lanes[0], &full).unwrap();
        while port.pop(0).is_some() {}
        relay.report(&lanes[0], &full).unwrap();
        assert!(relay.report(&lanes[1], &full).is_ok(), "each worker has room of its own");
        assert_eq!(relay.report(&lanes[0], &[[1; 8]]), Err("more reports than steps".into()));
    }

    #[test]
    fn the_bell_rings_once_for_a_dispatcher_that_sleeps() {
        let (relay, mut port, lanes) = with_nodes(&[link()]);
        let rings = |port: &RelayPort| {
            let bell = port.bell();
            poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
        };
        assert!((0..2).all(|worker| port.prepare_sleep(worker)));
        assert!(!rings(&port));
        relay.report(&lanes[1], &[[1; 8]]).unwrap();
        assert!(rings(&port));
        port.cancel_sleep();
        port.silence();
        assert!(!(0..2).all(|worker| port.prepare_sleep(worker)), "a report has come");
        port.cancel_sleep();
        relay.report(&lanes[1], &[[2; 8]]).unwrap();
        assert!(!rings(&port), "the dispatcher is awake");
        assert_eq!((port.pop(1), port.pop(1)), (Some([1; 8]), Some([2; 8])));
    }

    #[test]
    fn the_relay_ends_with_the_dispatchers_end() {
        let (relay, port) = Relay::start().unwrap();
        let watched = Arc::downgrade(&relay);
        drop((relay, port));
        let begun = std::time::Instant::now();
        while watched.strong_count() > 0 {
            assert!(begun.elapsed() < PATIENCE, "the relay's thread goes on");
            std::thread::yield_now();
        }
    }
}
