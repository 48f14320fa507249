//! The thread that starts a worker's process, waits for its end, and starts it again.
//!
//! Starting a process and waiting for its answer takes milliseconds, which the dispatcher must not spend. The thread
//! lives as long as the link, since the kernel kills the process when the thread that started it ends
//! (`PR_SET_PDEATHSIG`).

use super::life;
use super::message::{Message, Ready};
use super::worker_device::WorkerDevice;
use crate::bandwidth::machine_bytes_per_ns;
use crate::nodes::data_port;
use crate::nodes::endpoint::Endpoint;
use crate::worker::device_link::LOOPBACK_OF_NCCL;
use crate::worker::queue::{STEPS_MAX, WORK_SLOTS};
use gt_backend::Capabilities;
use gt_ops::failure::WorkerEnd;
use gt_protocol::{DeviceInfo, WorkerInfo};
use gt_shm::{DaemonPort, Doorbell, Socket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The end of a process that lived this long starts a new count of losses.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The delay before the second start in a row. It doubles with each further one (exponential backoff).
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The number of losses in a row after which the worker is down.
const LOSSES_MAX: u32 = 6;
/// The delay before a worker that is down is started again.
const DOWN_FOR: Duration = Duration::from_secs(30);

/// A change in the state of the process.
pub enum News {
    /// The process works.
    Started {
        /// The process.
        child: Child,
        /// The process's rings; none for a worker of a node, which has a lane instead.
        port: Option<Box<DaemonPort>>,
    },
    /// The process has ended.
    Ended {
        /// How the process ended.
        end: WorkerEnd,
        /// The error that kept the process from starting, if there was one.
        why: Option<String>,
        /// The delay after which it is started again, if it is.
        again: Option<Duration>,
        /// Whether the worker is down until a long delay has passed.
        waits: bool,
    },
}

/// A worker's process.
pub struct Child {
    /// The process id, for people.
    pub pid: u32,
    /// The socket for messages.
    pub socket: Socket,
    /// The memory of the worker's tensors, if other processes can map it.
    pub memory: Option<Arc<OwnedFd>>,
    /// The worker's capabilities.
    pub capabilities: Capabilities,
    /// The device that the worker computes on, unless it is the host's processor.
    pub device: Option<DeviceInfo>,
    /// Where workers of other machines reach it; none without nodes.
    pub endpoint: Option<Endpoint>,
    /// The socket for cancellations.
    pub cancellations: Socket,
    /// Why the link ended the process, if it did.
    pub ended_for: Option<WorkerEnd>,
    /// None for a process that the daemon did not start.
    pidfd: Option<OwnedFd>,
    lifeline: OwnedFd,
}

impl Child {
    /// Kills the process.
    pub fn kill(&self) {
        self.let_go();
        if self.pidfd.is_none() {
            life::end(&self.lifeline);
        }
    }

    /// Kills a process that the daemon started. For one that registered itself, hangs up the socket: it then says why
    /// it ends, and ends.
    pub fn let_go(&self) {
        match &self.pidfd {
            // Fails if the process has ended already.
            Some(pidfd) => drop(pidfd_send_signal(pidfd, Signal::KILL)),
            None => self.socket.shut_down(),
        }
    }
}

#[derive(Default)]
struct KeeperState {
    /// Whether there is unread news.
    news: AtomicBool,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

/// The dispatcher's handle of the thread.
pub struct Keeper {
    shared: Arc<KeeperState>,
    news: Receiver<News>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts the thread, and with it the process.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(
        program: PathBuf,
        number: usize,
        device: WorkerDevice,
        info: WorkerInfo,
        bell: Doorbell,
    ) -> std::io::Result<Keeper> {
        Keeper::begin(number, device, info, bell, move |keeping| keeping.run(&program))
    }

    /// As [`start`](Keeper::start) for a process that is not started again when it has ended.
    ///
    /// # Errors
    /// As [`start`](Keeper::start).
    pub fn start_once(
        program: PathBuf,
        number: usize,
        device: WorkerDevice,
        info: WorkerInfo,
        bell: Doorbell,
    ) -> std::io::Result<Keeper> {
        Keeper::begin(number, device, info, bell, move |keeping| keeping.run_once(&program))
    }

    /// Starts the thread for process `pid`, which runs already and is at the other end of `socket`. The stand-in of a
    /// node's worker opens `lane` and gets no rings.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn adopt(
        socket: Socket,
        pid: u32,
        number: usize,
        device: WorkerDevice,
        info: WorkerInfo,
        (bell, lane): (Doorbell, Option<u64>),
    ) -> std::io::Result<Keeper> {
        Keeper::begin(number, device, info, bell, move |keeping| keeping.look_after(socket, pid, lane))
    }

    fn begin(
        number: usize,
        device: WorkerDevice,
        info: WorkerInfo,
        bell: Doorbell,
        run: impl FnOnce(Keeping) + Send + 'static,
    ) -> std::io::Result<Keeper> {
        let shared = Arc::<KeeperState>::default();
        let (sender, news) = channel();
        let keeping = Keeping { number, device, info, bell, shared: shared.clone(), news: sender };
        let thread = keeping.thread().spawn(move || run(keeping))?;
        Ok(Keeper { shared, news, thread })
    }

    /// Whether there is news.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shared.news.load(SeqCst)
    }

    /// The next news, if there is any.
    pub fn news(&mut self) -> Option<News> {
        // The flag is cleared before reading, so that news which comes afterwards sets it again.
        self.shared.news.store(false, SeqCst);
        self.news.try_recv().ok()
    }

    /// Prevents further starts. The thread ends when the running process has ended.
    pub fn stop(&self) {
        *self.shared.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.stopped.notify_all();
    }

    /// Whether thread and process have ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// The state of the thread.
struct Keeping {
    number: usize,
    device: WorkerDevice,
    info: WorkerInfo,
    bell: Doorbell,
    shared: Arc<KeeperState>,
    news: Sender<News>,
}

impl Keeping {
    fn thread(&self) -> std::thread::Builder {
        std::thread::Builder::new().name(format!("gt-keeps-{}", self.info.name))
    }

    fn run_once(self, program: &Path) {
        let (end, why) = self.life(program);
        self.tell(News::Ended { end, why, again: None, waits: true });
    }

    fn run(self, program: &Path) {
        let mut in_a_row = 0;
        loop {
            let start = Instant::now();
            let (end, why) = self.life(program);
            if self.waits_to_stop(Duration::ZERO) {
                return;
            }
            in_a_row = if start.elapsed() >= STABLE_AFTER { 1 } else { in_a_row + 1 };
            let delay = delay(in_a_row);
            let down = in_a_row >= LOSSES_MAX;
            self.tell(News::Ended { end, why, again: Some(delay), waits: down });
            if self.waits_to_stop(delay) {
                return;
            }
        }
    }

    /// Starts a process and waits for its end. Returns how it ended, and the error that kept it from starting.
    fn life(&self, program: &Path) -> (WorkerEnd, Option<String>) {
        match self.live(program) {
            Ok(status) => (end_of(status), None),
            Err(error) => {
                let name = &self.info.name;
                tracing::error!(target: "gtd::worker", worker = name, %error, "its process could not be started");
                (WorkerEnd::NotStarted, Some(error.to_string()))
            }
        }
    }

    /// Starts a process and waits for its end.
    fn live(&self, program: &Path) -> Result<ExitStatus, Error> {
        let (ours, theirs) = Socket::pair().map_err(Error::other)?;
        // A process group of its own keeps Ctrl-C from the worker: the daemon ends it when its work is done.
        let mut command = Command::new(program);
        let (interface, loopback) = LOOPBACK_OF_NCCL;
        if data_port::setup().is_none() && std::env::var_os(interface).is_none() {
            command.env(interface, loopback);
        }
        let mut process = command
            .arg0("gtd")
            .args(["worker", "--fd", "0", "--name", &self.info.name])
            // These settings are the daemon's; a wrong value must not keep the worker from starting.
            .env_remove("GT_WORKERS")
            .env_remove("GT_DEVICES")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let started = || -> Result<_, Error> {
            let pid = rustix::process::Pid::from_child(&process);
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            self.introduce(ours, process.id(), Some(pidfd), None)
        };
        match started() {
            Ok((child, port)) => {
                tracing::info!(target: "gtd::worker", worker = self.info.name, process = child.pid, "started");
                self.tell(News::Started { child, port });
                process.wait()
            }
            Err(error) => {
                // The error names the signal that ended the process, unless it is the SIGKILL sent here.
                let _ = process.kill();
                let status = process.wait()?;
                match status.signal() {
                    Some(signal) if signal != Signal::KILL.as_raw() => Err(Error::other(format!("{error} ({status})"))),
                    _ => Err(error),
                }
            }
        }
    }

    /// Sends a process its description, and waits until it is ready.
    fn introduce(
        &self,
        socket: Socket,
        pid: u32,
        pidfd: Option<OwnedFd>,
        lane: Option<u64>,
    ) -> Result<(Child, Option<Box<DaemonPort>>), Error> {
        let rings = match lane {
            Some(_) => None,
            None => {
                let bell = self.bell.try_clone().map_err(Error::other)?;
                Some(DaemonPort::create_with(STEPS_MAX as u32, WORK_SLOTS, bell).map_err(Error::other)?)
            }
        };
        let message = Message::Start {
            info: Box::new(self.info.clone()),
            device: self.device,
            number: self.number,
            report_slots: STEPS_MAX as u32,
            work_slots: WORK_SLOTS,
            data: data_port::setup(),
            lane,
        };
        let deadline = self.device.backend.ready_deadline;
        let fds = rings.as_ref().map(|(_, fds)| fds.as_array());
        let sent = gt_protocol::link::send(&socket, &message, fds.as_ref().map_or(&[], |fds| &fds[..]), deadline);
        sent.map_err(Error::other)?;
        let port = rings.map(|(port, _)| Box::new(port));
        let (Ready { version, capabilities, device, endpoint }, fds) =
            gt_protocol::link::recv(&socket, 3, deadline).map_err(Error::other)?;
        if version != env!("CARGO_PKG_VERSION") {
            return Err(Error::other(format!("it is version {version}")));
        }
        let capabilities = capabilities.and_then(Capabilities::checked).map_err(Error::other)?;
        let mut fds = fds.into_iter();
        let lifeline = fds.next().ok_or_else(|| Error::other("it has no lifeline"))?;
        let cancellations = fds.next().ok_or_else(|| Error::other("it takes no cancellations"))?.into();
        let memory = fds.next().map(Arc::new);
        // The name is shown on terminals, so it must be printable.
        let device = device.filter(|device| gt_protocol::check_name(Some(&device.name)).is_ok());
        let child = Child {
            pid,
            socket,
            memory,
            capabilities,
            device,
            endpoint,
            cancellations,
            ended_for: None,
            pidfd,
            lifeline,
        };
        Ok((child, port))
    }

    /// Serves a process that registered itself, until it hangs up.
    fn look_after(self, socket: Socket, pid: u32, lane: Option<u64>) {
        let name = &self.info.name;
        let ended = socket.as_fd().try_clone_to_owned().and_then(|hangs_up| {
            // The bandwidth is measured once, here, where no session waits for it.
            machine_bytes_per_ns();
            let (child, port) = self.introduce(socket, pid, None, lane)?;
            tracing::info!(target: "gtd::worker", worker = name, process = pid, "registered");
            self.tell(News::Started { child, port });
            // `poll` always reports a hang-up; messages on the socket are read elsewhere.
            while let Err(Errno::INTR) = poll(&mut [PollFd::new(&hangs_up, PollFlags::RDHUP)], None) {}
            Ok(())
        });
        let (end, why) = match ended {
            Ok(()) => {
                // Nobody misses what it held if the daemon ends.
                if !self.waits_to_stop(Duration::ZERO) {
                    tracing::warn!(target: "gtd::worker", "worker {name} has left; what it held is lost");
                }
                (WorkerEnd::Left, None)
            }
            Err(error) => {
                tracing::error!(target: "gtd::worker", worker = name, %error, "it could not be registered");
                (WorkerEnd::NotStarted, Some(error.to_string()))
            }
        };
        self.tell(News::Ended { end, why, again: None, waits: true });
    }

    fn tell(&self, news: News) {
        let _ = self.news.send(news);
        self.shared.news.store(true, SeqCst);
        self.bell.ring();
    }

    /// Waits for `delay`, or until [`Keeper::stop`] is called. True if it was called: no process may be started again.
    fn waits_to_stop(&self, delay: Duration) -> bool {
        let stopping = self.shared.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.stopped.wait_timeout_while(stopping, delay, |stopping| !*stopping);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The delay before the next start, after `in_a_row` losses in a row.
fn delay(in_a_row: u32) -> Duration {
    match in_a_row {
        0 | 1 => Duration::ZERO,
        _ if in_a_row >= LOSSES_MAX => DOWN_FOR,
        _ => BACKOFF_MIN * 2u32.pow(in_a_row - 2),
    }
}

fn end_of(status: ExitStatus) -> WorkerEnd {
    match (status.signal(), status.code()) {
        (Some(signal), _) => WorkerEnd::Signal(signal as u8),
        (None, Some(code)) if code == i32::from(WorkerEnd::DEVICE_LOST_STATUS) => WorkerEnd::DeviceLost,
        (None, Some(code)) => WorkerEnd::Exit(code as u8),
        (None, None) => WorkerEnd::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_ends_again_and_again_is_started_ever_later() {
        let delays: Vec<_> = (1..=7).map(|n| delay(n).as_millis()).collect();
        assert_eq!(delays, [0, 50, 100, 200, 400, 30_000, 30_000]);
    }

    #[test]
    fn an_end_has_a_reason() {
        assert_eq!(end_of(ExitStatus::from_raw(9)), WorkerEnd::Signal(9));
        assert_eq!(end_of(ExitStatus::from_raw(101 << 8)), WorkerEnd::Exit(101));
        assert_eq!(end_of(ExitStatus::from_raw(69 << 8)), WorkerEnd::DeviceLost);
    }
}
