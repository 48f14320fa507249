//! A session: reads what its client submits, validates it as if hostile, and turns it into steps for workers.
//!
//! Nothing here waits. A client that breaks the protocol loses its session with a [`Violation`]. An error during
//! execution is no violation but a [`Failure`], which poisons tensors.
//!
//! Here are the session and its visits; `submitted_slots` copies commands from the ring, `validation` turns them into
//! steps, `handover` gives these to the workers, `completion` processes their ends, `reports` informs users.

mod completion;
mod handover;
mod reports;
mod submitted_slots;
mod validation;
pub mod violation;

use crate::account::{ArenaRoom, UserAccount};
use crate::fair_queue::{CostCorrection, SessionShare, VISIT_NS};
use crate::hot_paths::plan::CopiedSlots;
use crate::hot_paths::{CompilePolicy, HotPaths};
use crate::modifiers::pipeline::{Pipeline, SessionWorkers};
use crate::nodes::relay::RelayPort;
use crate::operation_counts::OperationCounts;
use crate::signals::Signals;
use crate::table::TensorTable;
use crate::tape::Tape;
use crate::worker::fusion_window::FusionWindow;
use crate::worker::groups::Groups;
use crate::worker::queue::{QueueLimit, are_light};
use crate::worker::step::{SessionSlot, Step};
use crate::worker::worker_link::WorkerLink;
use gt_backend::{FUSED_BYTES_MIN, MemoryUsage};
use gt_ops::event::{Event, EventKind, Subject};
use gt_ops::failure::Failure;
use gt_ops::infer::InputMeta;
use gt_ops::wire::{Encoder, InstructionPattern, decode};
use gt_ops::{TensorId, Workers};
use gt_protocol::limits::{ARENA_BYTES_MIN, ARENAS_NUMBERED_MAX, ARENAS_PER_SESSION_MAX, TENSORS_PER_SESSION_MAX};
use gt_protocol::{CollectiveTraffic, DeviceSet, Quota, RefusalCode, Refused, bytes_text};
use gt_shm::{Arena, DaemonPort, SessionState};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;
use submitted_slots::SubmittedSlots;
use violation::Violation;

/// The estimated time of an instruction besides its arithmetic and memory traffic, nanoseconds.
const STEP_NS: u64 = 200;
/// The time that each command takes of a visit, nanoseconds, even if it computes nothing.
const COMMAND_NS: i64 = 50;
/// The longest visit while others have work, nanoseconds, unless a single step takes longer.
const VISIT_NS_MAX: u64 = 2 * VISIT_NS;
/// A new arena is as large as all earlier ones together, so that there are few, but larger than this only on request.
const ARENA_GROWTH_BYTES_MAX: u64 = 1 << 30;

/// The state of the dispatcher that a visit needs.
pub struct Context<'a> {
    /// The workers.
    pub links: &'a mut [Box<dyn WorkerLink>],
    /// The way of steps to the workers of nodes; none if no node may join.
    pub relay: Option<&'a RefCell<RelayPort>>,
    /// The workers' groups, for reshards.
    pub groups: &'a mut Groups,
    /// The modifiers that steps pass through.
    pub pipeline: &'a mut Pipeline,
    /// The tape, for events.
    pub tape: &'a mut Tape,
    /// Scratch space for the shapes of operands.
    pub metas: &'a mut Vec<InputMeta>,
    /// The number of workers.
    pub workers: usize,
    /// How much a worker's queue may hold.
    pub queue_limit: QueueLimit,
    /// The workers whose running step the session's light steps may overtake, since the session is due time.
    pub overtakes: Workers,
    /// True while the daemon ends, and no more commands are read.
    pub ending: bool,
}

/// The charges of a visit besides the time it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bill {
    /// Expected time of queued steps, divided by the number of workers, nanoseconds.
    pub queued_ns: f64,
    /// Estimated time of steps that were done in the visit, nanoseconds.
    done_ns: u64,
    /// Commands read.
    commands: u64,
    /// True if a step was handed over.
    served: bool,
}

/// One client's session.
pub struct Session {
    slot: SessionSlot,
    /// The workers at the session's begin; some may have left.
    workers: Workers,
    /// The devices to which the session is pinned, whose workers these are; none if it may use all.
    devices: Option<DeviceSet>,
    /// The home worker, for tensors that no modifier places.
    worker: u16,
    port: DaemonPort,
    submitted: SubmittedSlots,
    tensors: TensorTable,
    /// The user's quota.
    quota: Quota,
    /// The memory that its tensors hold, counted in its user's usage as well.
    usage: Arc<MemoryUsage>,
    /// The account of its user, and what is counted there of this session.
    account: Arc<UserAccount>,
    tensors_counted: u64,
    /// The tensors at which the visit looks at the limits: until then, a new one costs a comparison.
    tensors_unchecked: usize,
    arena_bytes_counted: u64,
    /// Allocations that failed.
    out_of_memory: u64,
    /// Instructions that failed, counted on each worker.
    errors: u64,
    /// Tensor bytes that clients' writes and fetches have moved.
    bytes_moved: u64,
    /// The most memory that its tensors held until the peak was last reset, bytes.
    pub earlier_peak_bytes: u64,
    /// Completions in flight of steps that modifiers rewrote: by token, the number of parts in flight and the first
    /// failure.
    parts: HashMap<u64, (u32, Result<(), Failure>)>,
    signals: Signals,
    /// Collectives, by worker and name.
    traffic: BTreeMap<(usize, &'static str), CollectiveTraffic>,
    /// The steps that ended.
    operations: OperationCounts,
    last_id: TensorId,
    /// Instructions whose results have lower ids are cancelled.
    interrupted_below: TensorId,
    completions_in_flight: u32,
    /// By number; 0 for an arena that was returned.
    arena_bytes: Vec<u64>,
    arena_bytes_total: u64,
    kept_descriptors: u64,
    /// The session's entry in the fair queue.
    pub share: SessionShare,
    /// The ratio of measured to estimated time of its steps.
    correction: CostCorrection,
    /// The time left of the visit, expected nanoseconds. Negative after a long step.
    budget_ns: i64,
    bill: Bill,
    /// The time of the last submission, by the tape's clock.
    pub last_work_ns: u64,
    /// True while the dispatcher waits for the session's doorbell.
    pub asleep: bool,
    /// True if the next step must wait for a worker whose queue is full, or if the session's limit of queued
    /// instructions is reached.
    pub blocked: bool,
    /// True if the last visit ended because its time was used up.
    pub spent: bool,
    /// Scratch space for the steps that modifiers make.
    rewritten: Vec<Step>,
    /// Steps that are handed over together, at the latest when the visit ends.
    group: Vec<Step>,
    /// Encodes the commands of steps that several workers get. Boxed because it is large.
    encoder: Box<Encoder>,
    /// The instructions among them, if they can be fused.
    window: FusionWindow,
    /// Steps that wait for a worker whose queue is full, in groups, in order. No command is taken from the ring
    /// meanwhile, so these are the steps of one command and of the group before it.
    held: VecDeque<Vec<Step>>,
    instructions: u64,
    queued: u64,
    /// The same by worker.
    queued_at: Vec<u64>,
    /// The memory in which the client tells the lines of its program, and its length.
    lines: Option<(Arc<OwnedFd>, u64)>,
    /// The sequences of instructions that it repeats, and their plans.
    pub hot_paths: HotPaths,
    since: SystemTime,
}

impl Session {
    /// A session on `workers` with the home worker `worker`, which is one of them. It is pinned to `devices`, whose
    /// workers these are, if there are any.
    #[expect(clippy::too_many_arguments, reason = "everything that a session begins with")]
    pub fn new(
        slot: SessionSlot,
        workers: Workers,
        devices: Option<DeviceSet>,
        worker: u16,
        port: DaemonPort,
        quota: Quota,
        usage: Arc<MemoryUsage>,
        account: Arc<UserAccount>,
        share: SessionShare,
        policy: CompilePolicy,
        links: &mut [Box<dyn WorkerLink>],
    ) -> Session {
        for worker in workers.iter() {
            links[worker].open(slot, &usage);
        }
        Session {
            slot,
            workers,
            devices,
            worker,
            port,
            submitted: SubmittedSlots::new(),
            tensors: TensorTable::new(worker as usize),
            quota,
            usage,
            account,
            tensors_counted: 0,
            tensors_unchecked: 0,
            arena_bytes_counted: 0,
            out_of_memory: 0,
            errors: 0,
            bytes_moved: 0,
            earlier_peak_bytes: 0,
            parts: HashMap::new(),
            signals: Signals::default(),
            traffic: BTreeMap::new(),
            operations: OperationCounts::default(),
            last_id: 0,
            interrupted_below: 0,
            completions_in_flight: 0,
            arena_bytes: Vec::new(),
            arena_bytes_total: 0,
            kept_descriptors: 0,
            share,
            correction: CostCorrection::default(),
            budget_ns: 0,
            bill: Bill::default(),
            last_work_ns: 0,
            asleep: false,
            blocked: false,
            spent: false,
            rewritten: Vec::new(),
            group: Vec::new(),
            encoder: Box::default(),
            window: FusionWindow::new(FUSED_BYTES_MIN, 0),
            held: VecDeque::new(),
            instructions: 0,
            queued: 0,
            queued_at: vec![0; links.len()],
            lines: None,
            hot_paths: HotPaths::new(policy),
            since: SystemTime::now(),
        }
    }

    /// The session's number and its slot at workers.
    pub fn slot(&self) -> SessionSlot {
        self.slot
    }

    /// The workers at the session's begin; some may have left.
    pub fn workers(&self) -> Workers {
        self.workers
    }

    /// The session's workers among those present.
    pub fn present(&self, present: Workers) -> SessionWorkers {
        SessionWorkers { workers: self.workers.and(present), several: self.workers.len() > 1 }
    }

    /// The number of the home worker.
    pub fn worker(&self) -> u16 {
        self.worker
    }

    /// The daemon's end of the session's rings.
    pub fn port(&mut self) -> &mut DaemonPort {
        &mut self.port
    }

    /// True if a step waits for its worker, or a command to be read. Costs three loads.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.held.is_empty() || self.submitted.has_command() || self.port.has_work()
    }

    /// True if a visit would submit nothing: the next step waits for a full worker, or the session's limit of queued
    /// instructions is reached.
    #[inline]
    pub fn must_wait(&self, links: &mut [Box<dyn WorkerLink>], limit: QueueLimit, overtakes: Workers) -> bool {
        match self.held.front() {
            Some(group) => !self.have_room(group, links, limit, overtakes),
            None => self.queue_is_long(),
        }
    }

    /// True if the next step waits for a full worker and is light: it may overtake the running step soon, without a
    /// report of that worker's.
    pub fn holds_light_step(&self) -> bool {
        self.held.front().is_some_and(|group| are_light(group, self.expected_ns(group)))
    }

    fn queue_is_long(&self) -> bool {
        self.quota.queued > 0 && self.queued >= self.quota.queued.into()
    }

    /// True if steps wait for workers whose queues are full.
    pub fn holds_steps(&self) -> bool {
        !self.held.is_empty()
    }

    /// True while steps are queued at workers, or wait for that.
    pub fn is_draining(&self) -> bool {
        self.queued > 0 || self.holds_steps()
    }

    /// Processes submitted commands until the visit's time is used up or a queue is full. True if there were any.
    ///
    /// # Errors
    /// A violation of the protocol: the session must end.
    pub fn visit(&mut self, cx: &mut Context<'_>) -> Result<bool, Violation> {
        self.budget_ns = VISIT_NS as i64;
        self.bill = Bill::default();
        self.admit_tensors();
        self.hot_paths.set_rates(cx.links[self.worker as usize].rates());
        (self.blocked, self.spent) = (false, false);
        let mut served = self.submit_held(cx)?;
        served |= !cx.ending && self.process_all(cx)?;
        self.submit_group(cx)?;
        self.blocked |= !self.held.is_empty();
        self.count_tensors();
        Ok(served)
    }

    /// True if the last visit handed steps over. A visit at which they had to be held is no time slice.
    pub fn was_served(&self) -> bool {
        self.bill.served
    }

    /// The expected time of the steps that the last visit queued, nanoseconds. The visit took `took_ns`.
    pub fn queued_ns(&mut self, took_ns: u64) -> f64 {
        let Bill { queued_ns, done_ns, commands, .. } = self.bill;
        if done_ns > 0 {
            self.correction.learn(done_ns, took_ns.saturating_sub(commands * COMMAND_NS as u64));
        }
        queued_ns
    }

    fn process_all(&mut self, cx: &mut Context<'_>) -> Result<bool, Violation> {
        let mut served = false;
        let begun_ns = cx.tape.now_ns();
        let cost_ns_max = self.cost_ns_max();
        loop {
            if !self.submitted.fill(&mut self.port)? {
                return Ok(served);
            }
            self.last_work_ns = cx.tape.now_ns();
            while let Some(slots) = self.submitted.next_command()? {
                if !self.held.is_empty() || self.queue_is_long() {
                    self.blocked = true;
                    return Ok(served);
                }
                if self.budget_ns <= 0 || cx.tape.now_ns() - begun_ns >= VISIT_NS_MAX {
                    self.spent = true;
                    return Ok(served);
                }
                served = true;
                let count = slots.len();
                let plans = self.hot_paths.plans(self.signals.compile());
                if plans {
                    let result = InstructionPattern::out(&slots[0]);
                    if self.is_plain(result)
                        && let Some((mut planned, number)) = self.hot_paths.foretold(slots, &self.tensors, cost_ns_max)
                    {
                        self.submitted.consume(count);
                        if let Some(instruction) = planned.get_mut(number) {
                            self.process_planned(instruction, count, cx)?;
                        }
                        let change = self.hot_paths.followed(planned, result);
                        self.change_path(change, cx);
                        continue;
                    }
                }
                let copied = if plans && self.hot_paths.learns() { CopiedSlots::of(slots) } else { None };
                let command = decode(slots)?;
                self.submitted.consume(count);
                self.process(command, count, copied, cx)?;
            }
        }
    }

    /// Writes an event to the tape.
    #[inline(always)]
    fn event(
        &self,
        cx: &mut Context<'_>,
        kind: EventKind,
        worker: u16,
        subject: Subject,
        bytes: u64,
        [result, left, right]: [TensorId; 3],
    ) {
        let (time_ns, session, run_ns) = (0, self.slot.session, 0);
        cx.tape.write(Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns });
    }

    /// The memory in which the client tells the lines of its program, which is made at the first call, and its length.
    ///
    /// # Errors
    /// The system has no memory or descriptors.
    pub fn share_lines(&mut self) -> Result<(Arc<OwnedFd>, u64), Refused> {
        if let Some(lines) = &self.lines {
            return Ok(lines.clone());
        }
        let made = gt_shm::labels::create();
        let (fd, bytes) = made.map_err(|error| Refused::new(RefusalCode::Exhausted, error.to_string()))?;
        Ok(self.lines.insert((Arc::new(fd), bytes)).clone())
    }

    /// The memory in which the client tells the lines of its program, and its length; none if it has none.
    pub fn lines(&self) -> Option<(Arc<OwnedFd>, u64)> {
        self.lines.clone()
    }

    /// Adds an arena with room for a block of `bytes`, if its user has `room`. Returns its number, length and
    /// descriptor. The first arena is granted in any case if [`ARENA_BYTES_MIN`] is enough, so that every session can
    /// fetch numbers.
    ///
    /// # Errors
    /// A limit is reached, or the system has no memory or descriptors.
    pub fn grow_arena(
        &mut self,
        bytes: u64,
        room: ArenaRoom,
        links: &mut [Box<dyn WorkerLink>],
    ) -> Result<(u32, u64, Arc<OwnedFd>), Refused> {
        let wanted = bytes.max(ARENA_BYTES_MIN).max(self.arena_bytes_total.min(ARENA_GROWTH_BYTES_MAX));
        let first = self.arena_bytes_total == 0;
        // Near the limit, the arena gets the requested size only.
        let granted = [wanted, bytes.max(ARENA_BYTES_MIN)]
            .into_iter()
            .filter_map(|bytes| bytes.checked_next_multiple_of(gt_shm::segment::PAGE_BYTES as u64))
            .find(|bytes| room.has(*bytes) || first && *bytes <= ARENA_BYTES_MIN);
        let (held, most) = (room.held, room.most());
        let refused = |code, text: String| Err(Refused::new(code, text).with_limit(held, most));
        let live = self.arena_bytes.iter().filter(|bytes| **bytes > 0).count();
        if live >= ARENAS_PER_SESSION_MAX as usize || self.arena_bytes.len() >= ARENAS_NUMBERED_MAX as usize {
            let text = format!("it has {live} arenas already: drop NumPy arrays, or copy them");
            return refused(RefusalCode::ArenaLimit, text);
        }
        let Some(granted) = granted else {
            let own =
                format!("all sessions of this user together hold {} of {}", bytes_text(held), bytes_text(room.limit));
            let text = if held.saturating_add(bytes) > room.limit {
                format!(
                    "{own}: drop NumPy arrays that view tensors, or copy them, end other sessions, or ask an \
                     administrator for more"
                )
            } else {
                format!(
                    "{own}, and {} more is what other users leave of the memory for arenas: fetch smaller tensors, drop \
                     NumPy arrays that view tensors, or ask those whom gtctl status shows to hold arenas",
                    bytes_text(room.left)
                )
            };
            return refused(RefusalCode::ArenaLimit, text);
        };
        let (arena, fd) = match Arena::create(granted) {
            Ok(created) => created,
            Err(error) => return refused(RefusalCode::Exhausted, format!("no arena of {granted} bytes: {error}")),
        };
        let segment = self.arena_bytes.len() as u32;
        let len = arena.len();
        self.arena_bytes.push(len);
        self.arena_bytes_total += len;
        self.account.count_arena_bytes(&mut self.arena_bytes_counted, self.arena_bytes_total);
        let fd = Arc::new(fd);
        for worker in self.workers.iter() {
            links[worker].add_arena(self.slot, arena.clone(), &fd);
        }
        // A worker in another process keeps the descriptor, for the next process.
        self.kept_descriptors += u64::from(Arc::strong_count(&fd) > 1);
        Ok((segment, len, fd))
    }

    /// Takes an arena back, which no command in flight may name. Calls `dispose` with this process's mappings, since
    /// unmapping takes long.
    ///
    /// # Errors
    /// Transfers are in flight, which could name it, or there is no such arena.
    pub fn return_arena(
        &mut self,
        number: u32,
        links: &mut [Box<dyn WorkerLink>],
        dispose: impl FnMut(Arena),
    ) -> Result<(), Refused> {
        let refused = |text: String| Err(Refused::new(RefusalCode::Other, text));
        if self.completions_in_flight > 0 {
            return refused(format!("transfers are in flight that could name arena {number}: return it later"));
        }
        let Some(bytes) = self.arena_bytes.get_mut(number as usize).filter(|bytes| **bytes > 0) else {
            return refused(format!("the session has no arena {number}"));
        };
        self.arena_bytes_total -= std::mem::take(bytes);
        self.account.count_arena_bytes(&mut self.arena_bytes_counted, self.arena_bytes_total);
        let workers: Vec<usize> = self.workers.iter().collect();
        let is_kept = workers.iter().any(|worker| !links[*worker].is_thread());
        self.kept_descriptors = self.kept_descriptors.saturating_sub(is_kept.into());
        workers.iter().filter_map(|worker| links[*worker].drop_arena(self.slot, number)).for_each(dispose);
        Ok(())
    }

    /// Applies another quota.
    pub fn set_quota(&mut self, quota: Quota, links: &mut [Box<dyn WorkerLink>]) {
        self.quota = quota;
        self.usage.set_limit(quota.session_memory_bytes);
        if let Some(user) = self.usage.group() {
            user.set_limit(quota.memory_bytes);
        }
        for link in links {
            link.limit(self.slot, &self.usage);
        }
    }

    /// Allocations that failed.
    pub fn out_of_memory(&self) -> u64 {
        self.out_of_memory
    }

    /// The memory that the session's tensors hold.
    pub fn usage(&self) -> &Arc<MemoryUsage> {
        &self.usage
    }

    /// The account of the session's user.
    pub fn user_account(&self) -> &Arc<UserAccount> {
        &self.account
    }

    /// Counts the session's tensors in its user's account. Returns the tensors of all sessions of the user.
    #[inline]
    fn count_tensors(&mut self) -> u64 {
        self.account.count_tensors(&mut self.tensors_counted, self.tensors.len() as u64)
    }

    /// Sets how many tensors the session may have until the visit looks at its limits. Nobody else makes tensors
    /// meanwhile.
    fn admit_tensors(&mut self) {
        let (held, limit) = (self.count_tensors(), self.quota.tensors);
        let room = if limit == 0 { usize::MAX } else { limit.saturating_sub(held) as usize };
        self.tensors_unchecked = self.tensors.len().saturating_add(room).min(TENSORS_PER_SESSION_MAX);
    }

    /// Takes what the session holds out of its user's account, at its end.
    pub fn close_account(&mut self) {
        self.account.count_tensors(&mut self.tensors_counted, 0);
        self.account.count_arena_bytes(&mut self.arena_bytes_counted, 0);
    }

    /// The descriptors of arenas that are kept for workers in other processes.
    pub fn kept_descriptors(&self) -> u64 {
        self.kept_descriptors
    }

    /// The records of the session's tensors, copies included.
    pub fn records(&self) -> u64 {
        self.tensors.len() as u64
    }

    /// Releases memory that is only kept for reuse.
    pub fn trim(&mut self) {
        self.tensors.trim();
    }

    /// Bytes of all arenas.
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes_total
    }

    /// Shows the client that there is a new notice, by its number.
    pub fn set_notice(&mut self, number: u32) {
        self.port.set_notice(number);
    }

    /// Shows the session's state to its client.
    pub fn set_state(&mut self, state: SessionState) {
        self.port.set_state(state);
    }
}
