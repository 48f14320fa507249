//! A worker's process: the program `gtd worker`.
//!
//! Apart from standard error, the process has no descriptors of the daemon's but the socket that it was started with,
//! and those that arrive over this socket. It ends when the daemon tells it to, hangs up the socket, or ends.

use super::life::Lifeline;
use super::message::{Message, Ready};
use super::worker_device::WorkerDevice;
use crate::nodes::data_port::{self, DataPort};
use crate::worker::core::Core;
use crate::worker::rank_assignment::{LocalRank, RankAssignment};
use crate::worker::reachable_memory::reachable_memory;
use crate::worker::serve::{Transport, Worker};
use crate::worker::session_tensors::SessionShared;
use crate::worker::step_wire::{MemoryLimits, WorkerLoss};
use gt_backend::{
    Backend, BackendVisitor, Cancellation, DeviceDescription, MemoryUsage, OpenOptions, OpenedBackend, Site,
};
use gt_collectives::local::SharedMemory;
use gt_ops::failure::{Fault, WorkerEnd};
use gt_ops::wire::Slot;
use gt_protocol::{DeviceInfo, WorkerInfo};
use gt_shm::port::spin_default;
use gt_shm::socket::MESSAGE_FDS_MAX;
use gt_shm::{Arena, ClientPort, Completions, Full, PortFds, Socket, Submitter};
use nix::sys::signal::{SigSet, Signal};
use std::collections::HashMap;
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The timeout of the first message, which the daemon sends at once, and of the answer.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// How many nanoseconds too late the kernel may end a sleep.
const TIMER_SLACK_NS: u64 = 1000;
/// The number of cancellations above which those of sessions that are not open are forgotten.
const CANCELLATIONS_MAX: usize = 4096;
/// The longest wait for a message that was announced.
const NAP: Duration = Duration::from_secs(3600);

/// Works for the daemon at the other end of `socket` until it is told to end.
///
/// # Errors
/// The error that keeps the worker from starting.
pub fn run(socket: Socket) -> Result<(), Box<dyn Error>> {
    reset_signals()?;
    // The kernel kills this process when the daemon ends, in whatever way.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    work(socket, |_| ())
}

/// As [`run`], in a process that the daemon has not started and that may outlive it. Calls `registered` with the
/// worker's name once new sessions compute on it, or with the reason why it cannot compute before the daemon hears of
/// that and hangs up.
///
/// # Errors
/// The error that keeps the worker from starting.
pub fn work(socket: Socket, registered: impl Fn(Result<&str, &str>) + 'static) -> Result<(), Box<dyn Error>> {
    let (Message::Start { info, device, number, report_slots, work_slots, data, .. }, fds) =
        gt_protocol::link::recv(&socket, MESSAGE_FDS_MAX, START_DEADLINE)?
    else {
        return Err("the daemon said something else before it said what this worker is".into());
    };
    let fds: [OwnedFd; 3] = fds.try_into().map_err(|fds: Vec<_>| format!("{} descriptors instead of 3", fds.len()))?;
    let port = ClientPort::connect(PortFds::from_array(fds), report_slots, work_slots)?;
    name_process(&info);
    if let Some(setup) = data {
        DataPort::open(setup)?.publish();
    }
    let WorkerDevice { backend, number: device } = device;
    if backend.site == Site::Device {
        // A worker polls its device between short naps.
        nix::sys::prctl::set_timerslack(TIMER_SLACK_NS)?;
    }
    let memory = if backend.site == Site::Host { reachable_memory(info.memory_bytes_limit) } else { None };
    let options = OpenOptions {
        device,
        threads: info.threads as usize,
        memory_bytes_limit: info.memory_bytes_limit as usize,
        shared: memory.as_ref().map(|memory| memory.segment().clone()),
    };
    let begin = Begin { socket, port, number, info: *info, memory, registered: Box::new(registered) };
    gt_backends::open(backend.name, &options, begin).ok_or("its backend is not in the registry")?
}

/// The state of a worker's process before its backend is open.
struct Begin {
    socket: Socket,
    port: ClientPort,
    number: usize,
    info: WorkerInfo,
    /// The memory of the worker's tensors, if other processes can map it.
    memory: Option<Arc<SharedMemory>>,
    registered: Box<Registered>,
}

/// Hears the worker's name once new sessions compute on it, or why it cannot compute.
type Registered = dyn Fn(Result<&str, &str>);

impl BackendVisitor for Begin {
    type Output = Result<(), Box<dyn Error>>;

    /// Reports the capabilities, or why the backend was not opened, and executes steps until the daemon ends it.
    fn visit<B: Backend + Send + 'static>(self, opened: Result<OpenedBackend<B>, String>) -> Self::Output {
        let Begin { memory, .. } = &self;
        if let Err(why) = &opened {
            (self.registered)(Err(why));
        }
        let capabilities = opened.as_ref().map(|opened| opened.capabilities).map_err(String::clone);
        let device = opened.as_ref().ok().and_then(|opened| opened.device.as_ref()).map(device_info);
        let endpoint = data_port::of_this_process().map(|port| port.endpoint().clone());
        let ready = Ready { version: env!("CARGO_PKG_VERSION").into(), capabilities, device, endpoint };
        let lifeline = Lifeline::new()?;
        let memory = memory.as_ref().and_then(|memory| memory.fd());
        let (ours, theirs) = Socket::pair()?;
        let fds: Vec<_> = [lifeline.end(), theirs.as_fd()].into_iter().chain(memory).collect();
        gt_protocol::link::send(&self.socket, &ready, &fds, START_DEADLINE)?;
        drop(theirs);
        let backend = opened?.backend;
        let cancellations = Cancellations::default();
        let raised = cancellations.clone();
        lifeline.beat(
            &self.socket,
            ours,
            move |session, id| raised.of(session).cancel_below(id),
            || data_port::of_this_process().and_then(|port| port.take_measured()),
        )?;
        let (reports, steps) = self.port.split();
        let (name, registered) = (self.info.name.clone(), self.registered);
        let registered: Box<dyn Fn()> = Box::new(move || registered(Ok(&name)));
        let (sessions, users) = (HashMap::new(), HashMap::new());
        let transport =
            PortTransport { socket: self.socket, steps, reports, registered, sessions, users, cancellations };
        match Worker::new(Arc::new(Mutex::new(Core::new(backend, self.number))), transport).run() {
            None => Ok(()),
            Some(why) => {
                tracing::error!(target: "gtd::worker", worker = self.info.name, why, "the device is lost");
                // `exit` runs no destructors: they would call a driver that does not answer any more.
                std::process::exit(i32::from(WorkerEnd::DEVICE_LOST_STATUS))
            }
        }
    }
}

/// Resets signals that the parent process ignores or blocks, since those settings are inherited.
fn reset_signals() -> nix::Result<()> {
    // The first two cannot be changed. A broken pipe must stay an error of `write`, and Rust's runtime handles the
    // next two. This program ignores the last two.
    let kept = [
        Signal::SIGKILL,
        Signal::SIGSTOP,
        Signal::SIGPIPE,
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    for signal in Signal::iterator().filter(|signal| !kept.contains(signal)) {
        // SAFETY: `SIG_DFL` installs no handler, so no code of this process runs at a signal.
        unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) }?;
    }
    SigSet::empty().thread_set_mask()
}

fn device_info(device: &DeviceDescription) -> DeviceInfo {
    let DeviceDescription { name, capability, multiprocessors, memory_bytes } = device;
    DeviceInfo {
        name: name.clone(),
        capability: *capability,
        multiprocessors: *multiprocessors,
        memory_bytes: *memory_bytes,
    }
}

/// Sets the name of the process that `ps` and `top` show.
fn name_process(info: &WorkerInfo) {
    if let Ok(name) = std::ffi::CString::new(format!("gtd-{}", info.name)) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// The worker's ends of the rings and of the socket beside them.
struct PortTransport {
    socket: Socket,
    steps: Completions,
    reports: Submitter,
    registered: Box<dyn Fn()>,
    sessions: HashMap<u64, Arc<SessionShared>>,
    /// The memory of all sessions of a user together, by user. The sessions keep it alive.
    users: HashMap<u64, Weak<MemoryUsage>>,
    cancellations: Cancellations,
}

/// The cancellations of sessions, by number. One may come before its session is opened here.
#[derive(Clone, Default)]
struct Cancellations(Arc<Mutex<HashMap<u64, Arc<Cancellation>>>>);

impl Cancellations {
    fn of(&self, session: u64) -> Arc<Cancellation> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= CANCELLATIONS_MAX {
            // A cancellation of a session that is not open came after the session's end.
            all.retain(|_, cancellation| Arc::strong_count(cancellation) > 1);
        }
        all.entry(session).or_default().clone()
    }

    fn remove(&self, session: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }
}

impl PortTransport {
    fn take_message(&mut self) -> Result<(), Box<dyn Error>> {
        let (message, fds) = gt_protocol::link::recv(&self.socket, MESSAGE_FDS_MAX, NAP)?;
        match message {
            Message::Arena { session, number, bytes } => {
                let fd = fds.into_iter().next().ok_or("an arena without its memory")?;
                let arena = Arena::map(fd, bytes)?;
                if let Some(shared) = self.sessions.get(&session) {
                    shared.set_arena(number, arena);
                }
                Ok(())
            }
            Message::Outdated { session, ended, .. } => {
                // The cancellation that was sent when the session ended comes another way, perhaps later.
                if ended {
                    self.cancellations.of(session).cancel_all();
                }
                Ok(())
            }
            Message::Start { .. } | Message::Rank { .. } | Message::Memory | Message::Network { .. } => {
                Err("a message that comes at another time".into())
            }
        }
    }

    fn take_memory(&mut self) -> Result<Arc<OwnedFd>, Box<dyn Error>> {
        match gt_protocol::link::recv(&self.socket, MESSAGE_FDS_MAX, NAP)? {
            (Message::Memory, fds) => Ok(Arc::new(fds.into_iter().next().ok_or("memory without its descriptor")?)),
            _ => Err("another message than the memory that was announced".into()),
        }
    }

    fn take_rank(&mut self) -> Result<RankAssignment, Box<dyn Error>> {
        let (message, fds) = gt_protocol::link::recv(&self.socket, MESSAGE_FDS_MAX, NAP)?;
        match message {
            Message::Network { rank, near: false } => Ok(RankAssignment::Network(rank, None)),
            Message::Network { rank, near: true } => {
                let (message, fds) = gt_protocol::link::recv(&self.socket, MESSAGE_FDS_MAX, NAP)?;
                Ok(RankAssignment::Network(rank, Some(self.take_local_rank(message, fds)?)))
            }
            message => Ok(RankAssignment::Local(self.take_local_rank(message, fds)?)),
        }
    }

    fn take_local_rank(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<LocalRank, Box<dyn Error>> {
        let Message::Rank { rank, memories } = message else {
            return Err("another message than the place in a group that was announced".into());
        };
        let group = fds.into_iter().next().ok_or("a place in a group without its memory")?;
        let memories = (0..memories).map(|_| self.take_memory()).collect::<Result<_, _>>()?;
        Ok(LocalRank::Shared { group: Arc::new(group), rank, memories })
    }
}

impl Transport for PortTransport {
    fn pop(&mut self, out: &mut [Slot]) -> usize {
        self.steps.pop_many(out)
    }
    fn wait(&mut self, timeout: Duration) -> bool {
        self.steps.wait_any(spin_default(), timeout) || !self.socket.is_hung_up()
    }
    fn push(&mut self, report: Slot) -> Result<(), Full> {
        self.reports.push(&[report])
    }
    fn unpublished_slots(&self) -> u32 {
        self.reports.unpublished_slots()
    }
    fn publish(&mut self) {
        self.reports.publish();
    }
    fn open(&mut self, session: u64, loss: Option<WorkerLoss>) -> Arc<SessionShared> {
        let usage = Arc::new(MemoryUsage::new(session));
        let shared = Arc::new(SessionShared::with(usage, loss.map(Fault::from), self.cancellations.of(session)));
        self.sessions.insert(session, shared.clone());
        shared
    }
    fn limit(&mut self, session: u64, limits: MemoryLimits) {
        let MemoryLimits { session_bytes, user, user_bytes } = limits;
        let Some(shared) = self.sessions.get(&session) else { return };
        shared.usage.set_limit(session_bytes);
        let group = match self.users.get(&user).and_then(Weak::upgrade) {
            Some(group) => group,
            None => {
                let group = Arc::new(MemoryUsage::new(user));
                self.users.retain(|_, group| group.strong_count() > 0);
                self.users.insert(user, Arc::downgrade(&group));
                group
            }
        };
        group.set_limit(user_bytes);
        shared.usage.join(group);
    }
    fn close(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.cancellations.remove(session);
    }
    fn registered(&mut self) {
        (self.registered)();
    }
    fn message(&mut self) -> bool {
        let taken = self.take_message();
        if let Err(error) = &taken {
            tracing::error!(target: "gtd::worker", %error, "a message of the daemon's could not be taken");
        }
        taken.is_ok()
    }
    fn rank(&mut self) -> Option<RankAssignment> {
        let failed = |error| tracing::error!(target: "gtd::worker", %error, "a place in a group could not be taken");
        self.take_rank().map_err(failed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_shm::DaemonPort;

    /// The cancellation of a session that has ended comes by another socket, and may be late: the steps must be skipped
    /// already when they are read after the message in place of an arena, since they may name the arena.
    #[test]
    fn the_steps_of_an_ended_session_are_skipped_where_its_arena_does_not_come() {
        let (daemon, socket) = Socket::pair().unwrap();
        let (_daemon_port, fds) = DaemonPort::create(64, 64).unwrap();
        let (reports, steps) = ClientPort::connect(fds, 64, 64).unwrap().split();
        let (sessions, users, cancellations) = (HashMap::new(), HashMap::new(), Cancellations::default());
        let mut transport =
            PortTransport { socket, steps, reports, registered: Box::new(|| ()), sessions, users, cancellations };
        let (ended, open) = (transport.open(1, None), transport.open(2, None));
        for (session, has_ended) in [(1, true), (2, false)] {
            let message = Message::Outdated { session, number: 0, ended: has_ended };
            gt_protocol::link::send(&daemon, &message, &[], NAP).unwrap();
            transport.take_message().unwrap();
        }
        assert!(ended.cancellation.covers_all() && !open.cancellation.covers_all());
    }
}
