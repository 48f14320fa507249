//! A worker's membership in a group, and NCCL's communicator between the devices of a group.
//!
//! Beside NCCL's communicator, the ranks always have one in shared host memory, the hosts' group. Through it they agree
//! on each reshard before they enqueue it on their devices, which takes microseconds: a poisoned operand or a worker
//! that is gone is noticed then, and no device waits for a rank that does not come. NCCL does not notice that a rank is
//! gone, so a thread watches the hosts' group while transfers are in flight. When the hosts' group is broken, this
//! thread aborts NCCL's communicator: the device goes on, and the transfers in flight fail with the name of the lost
//! worker. The next reshard forms both groups again.
//!
//! The ranks form NCCL's communicator through the hosts' group, so that the daemon knows nothing of NCCL: rank 0 makes
//! the communicator's id and sends it to the others, and all tell each other whether they have joined.

use super::rank_assignment::GROUP_PATIENCE;
use super::shared_replica::SharedReplicas;
use gt_backend::{Backend, EnqueuedTransfer, ExecError, Link};
use gt_collectives::nccl::device::{DeviceComm, DeviceCommOptions};
use gt_collectives::nccl::{self, UNIQUE_ID_BYTES, UniqueId};
use gt_collectives::{CollectiveError, Communicator, Health};
use gt_ops::{DType, Workers};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long NCCL may take until all ranks have joined.
const FORMING_PATIENCE: Duration = Duration::from_secs(120);
/// How often the ranks tell each other whether they have joined.
const FORMING_NAP: Duration = Duration::from_millis(1);
/// How often transfers in flight are checked.
const TICK: Duration = Duration::from_millis(20);
/// After NCCL has failed, how long to wait for the hosts' group to report that another rank is gone: a better reason.
const GRACE: Duration = Duration::from_secs(2);
/// The variable by which NCCL is told its network interface, and the one for workers of one machine: by default NCCL
/// prefers every other, through which the service may not connect.
pub const LOOPBACK_OF_NCCL: (&str, &str) = ("NCCL_SOCKET_IFNAME", "lo");
/// Allows two workers on one device, which NCCL supports since 2.30.
const SHARED_DEVICES_VARIABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
const SHARED_DEVICES_VERSION_MIN: i32 = 23_000;

/// A worker's membership in a group.
pub struct GroupMember {
    group: Box<dyn Communicator>,
    devices: Option<Arc<DeviceLink>>,
    replicas: Option<SharedReplicas>,
}

/// The routes that a tensor may take.
pub struct Routes<'a> {
    /// Through host memory.
    pub group: &'a mut dyn Communicator,
    /// Between the devices, if every worker of the group has one.
    pub devices: Option<&'a Arc<DeviceLink>>,
    /// The replicas that the workers hold together, if they can.
    pub replicas: Option<&'a mut SharedReplicas>,
}

impl GroupMember {
    /// The membership of `backend` in the group of `workers`. All ranks must call this at the same time.
    pub fn new<B: Backend>(backend: &mut B, mut group: Box<dyn Communicator>, workers: Workers) -> GroupMember {
        let formed = form(backend, &mut *group, workers)
            .and_then(|devices| Ok((devices, SharedReplicas::agree(backend, &mut *group)?)));
        let (devices, replicas) = match formed {
            Ok(routes) => routes,
            Err(error) => {
                // The next reshard in this group fails with the same reason.
                tracing::warn!(target: "gtd::worker", %workers, %error, "a group broke while it was formed");
                (None, None)
            }
        };
        GroupMember { group, devices, replicas }
    }

    /// The routes between the members.
    pub fn routes(&mut self) -> Routes<'_> {
        Routes { group: &mut *self.group, devices: self.devices.as_ref(), replicas: self.replicas.as_mut() }
    }

    /// Leaves the group. NCCL's communicator is destroyed once every device has completed its transfers.
    pub fn leave(mut self) {
        if let Some(devices) = &self.devices {
            devices.finish();
            // The barrier of a broken group returns at once.
            let _ = self.group.barrier();
            devices.comm().give_up();
        }
    }
}

impl Routes<'_> {
    /// The route through host memory alone.
    #[cfg(test)]
    pub fn by_host(group: &mut dyn Communicator) -> Routes<'_> {
        Routes { group, devices: None, replicas: None }
    }
}

/// Whether a rank can join NCCL's communicator.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum NcclSupport {
    /// The worker has no device that NCCL could use.
    NoDevice,
    NoNccl,
    Yes,
}

/// The link between the devices of a group; none if a rank has no device, or NCCL does not connect them.
///
/// # Errors
/// The group is broken.
fn form<B: Backend>(
    backend: &mut B,
    group: &mut dyn Communicator,
    workers: Workers,
) -> Result<Option<Arc<DeviceLink>>, CollectiveError> {
    let (rank, size) = (group.rank(), group.size());
    let by_host = |why: String| {
        if rank == 0 {
            tracing::info!(target: "gtd::worker", %workers, why, "tensors are moved through the host");
        }
        Ok(None)
    };
    let device = backend.device().unwrap_or(None);
    let version = if device.is_some() { nccl_version() } else { None };
    let support = match (device, version) {
        (None, _) => NcclSupport::NoDevice,
        (Some(_), None) => NcclSupport::NoNccl,
        (Some(_), Some(_)) => NcclSupport::Yes,
    };
    let mut own = vec![support as u8];
    own.extend(version.unwrap_or_default().to_le_bytes());
    own.extend(device.unwrap_or_default());
    let all = gathered(group, &own)?;
    let who = |rank: usize| workers.iter().nth(rank).unwrap_or_default();
    for (peer, of) in all.iter().enumerate() {
        if of[0] == NcclSupport::NoDevice as u8 {
            // A group without any device is not worth a line in the log.
            return if device.is_some() || rank == 0 && all.iter().any(|of| of[0] != 0) {
                by_host(format!("worker {} has no device that others reach", who(peer)))
            } else {
                Ok(None)
            };
        }
    }
    if let Some(peer) = all.iter().position(|of| of[0] == NcclSupport::NoNccl as u8) {
        return by_host(format!("worker {} has no NCCL that can be used", who(peer)));
    }
    let versions: Vec<i32> = all.iter().map(|of| i32::from_le_bytes(of[1..5].try_into().unwrap_or_default())).collect();
    if let Some(peer) = versions.iter().position(|version| *version != versions[0]) {
        return by_host(format!(
            "workers {} and {} have NCCL {} and {}: set GT_NCCL_LIBRARY to one file for both",
            who(0),
            who(peer),
            nccl::version_text(versions[0]),
            nccl::version_text(versions[peer])
        ));
    }
    let may_share =
        versions[0] >= SHARED_DEVICES_VERSION_MIN && std::env::var(SHARED_DEVICES_VARIABLE).is_ok_and(|on| on == "1");
    for (peer, of) in all.iter().enumerate().filter(|_| !may_share) {
        if let Some(other) = all[..peer].iter().position(|other| other == of) {
            return by_host(format!("workers {} and {} share a device", who(other), who(peer)));
        }
    }
    // The id holds the address of the process that makes it, which must be rank 0's.
    let made = if rank == 0 { UniqueId::new().map(|id| id.0) } else { Ok([0; UNIQUE_ID_BYTES]) };
    let ids = gathered(group, &made.clone().unwrap_or([0; UNIQUE_ID_BYTES]))?;
    if ids[0].iter().all(|byte| *byte == 0) {
        return by_host(made.err().map_or_else(|| "rank 0 says why".into(), |error| error.to_string()));
    }
    let mut id = [0; UNIQUE_ID_BYTES];
    id.copy_from_slice(&ids[0]);
    let options = DeviceCommOptions { rank, size, patience: FORMING_PATIENCE, health: group.health() };
    let Some(comm) = joined(group, DeviceComm::begin(&UniqueId(id), options), workers)? else {
        return by_host("NCCL does not bring the devices together".into());
    };
    if rank == 0 {
        let (version, path) = nccl::version()?;
        let path = path.display();
        tracing::info!(target: "gtd::worker", %workers, version, %path, "tensors are moved between devices by NCCL");
    }
    Ok(Some(DeviceLink::new(comm, group.health(), workers)))
}

/// Waits until all ranks have joined NCCL's communicator; none if a rank cannot. The other ranks learn that through
/// `group`, instead of waiting in NCCL for ever.
fn joined(
    group: &mut dyn Communicator,
    comm: Result<DeviceComm, CollectiveError>,
    workers: Workers,
) -> Result<Option<DeviceComm>, CollectiveError> {
    const WAITS: u8 = 0;
    const READY: u8 = 1;
    const FAILED: u8 = 2;
    let begun = Instant::now();
    loop {
        let ready = comm.as_ref().map_err(|error| error.clone()).and_then(DeviceComm::is_ready);
        let own = match &ready {
            Ok(true) => READY,
            Ok(false) if begun.elapsed() < FORMING_PATIENCE => WAITS,
            Ok(false) | Err(_) => FAILED,
        };
        let all = gathered(group, &[own])?;
        if all.iter().all(|of| of[0] == READY) {
            return Ok(comm.ok());
        }
        if all.iter().any(|of| of[0] == FAILED) {
            if own == FAILED {
                let why = ready.err().map_or_else(|| "it takes too long".into(), |error| error.to_string());
                tracing::warn!(target: "gtd::worker", %workers, why, "NCCL does not bring the devices together");
            }
            return Ok(None);
        }
        std::thread::sleep(FORMING_NAP);
    }
}

/// All ranks' bytes, by rank.
fn gathered(group: &mut dyn Communicator, own: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
    let mut all = vec![0; own.len() * group.size()];
    group.all_gather(own, &mut all, &vec![own.len(); group.size()], DType::U8)?;
    Ok(all.chunks_exact(own.len()).map(<[u8]>::to_vec).collect())
}

/// The version of NCCL; none if it cannot be used, for a reason that is logged once.
fn nccl_version() -> Option<i32> {
    static HERE: OnceLock<Option<i32>> = OnceLock::new();
    let look = || {
        let found = nccl::version();
        if let Err(error) = &found {
            tracing::warn!(target: "gtd::worker", %error, "what moves between devices goes through the host");
        }
        found.ok().map(|(version, _)| version)
    };
    *HERE.get_or_init(look)
}

/// A rank's connection to the other devices of its group, by NCCL.
pub struct DeviceLink {
    comm: Mutex<DeviceComm>,
    health: Health,
    workers: Workers,
    failure: OnceLock<ExecError>,
    watched: Arc<Watched>,
}

/// The transfers that the watching thread checks.
#[derive(Default)]
struct Watched {
    moves: Mutex<WatchedMoves>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchedMoves {
    /// Transfers in flight, oldest first, each with the time of its beginning.
    open: Vec<(Instant, Arc<dyn EnqueuedTransfer>)>,
    /// Set when the link is dropped: the thread ends.
    closed: bool,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, WatchedMoves> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The beginning of the oldest transfer in flight. Removes those that have ended.
    fn oldest(&self) -> Option<Instant> {
        let mut moves = self.lock();
        let ended = moves.open.iter().take_while(|(_, step)| step.has_ended()).count();
        let ended: Vec<_> = moves.open.drain(..ended).collect();
        let oldest = moves.open.first().map(|(begun, _)| *begun);
        drop(moves);
        // Dropping the last transfer may drop the link, whose `drop` takes the lock again.
        drop(ended);
        oldest
    }
}

impl DeviceLink {
    fn new(comm: DeviceComm, health: Health, workers: Workers) -> Arc<DeviceLink> {
        let watched = Arc::new(Watched::default());
        let (comm, failure) = (Mutex::new(comm), OnceLock::new());
        let link = Arc::new(DeviceLink { comm, health, workers, failure, watched: watched.clone() });
        let weak = Arc::downgrade(&link);
        let watch = move || {
            loop {
                let mut moves = watched.lock();
                while moves.open.is_empty() && !moves.closed {
                    moves = watched.changed.wait(moves).unwrap_or_else(PoisonError::into_inner);
                }
                if moves.closed {
                    return;
                }
                drop(watched.changed.wait_timeout(moves, TICK));
                let Some(link) = weak.upgrade() else { return };
                link.check();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("gtd-moves".into()).spawn(watch) {
            tracing::error!(target: "gtd::worker", %error, "nobody looks after moves between devices");
        }
        link
    }

    /// The number of ranks in the group.
    pub fn size(&self) -> usize {
        self.workers.len()
    }

    /// Lets `call` enqueue a collective.
    ///
    /// # Errors
    /// Why the communicator cannot be used any more.
    pub fn enqueue(&self, call: impl FnOnce(&mut DeviceComm) -> Result<(), CollectiveError>) -> Result<(), ExecError> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        let result = call(&mut self.comm());
        result.map_err(|error| self.fail(error))
    }

    fn comm(&self) -> MutexGuard<'_, DeviceComm> {
        self.comm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no transfer is in flight.
    fn finish(&self) {
        while self.watched.oldest().is_some() {
            self.check();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Fails the transfers in flight if the group is broken or they take too long.
    fn check(&self) {
        let Some(begun) = self.watched.oldest() else { return };
        let broken = self.health.check().and_then(|()| match self.comm.try_lock() {
            Ok(comm) => comm.is_ready().map(drop),
            // Another thread is enqueuing, and checks NCCL itself.
            Err(_) => Ok(()),
        });
        let patience = GROUP_PATIENCE;
        let broken = broken.and_then(|()| match begun.elapsed() < patience {
            true => Ok(()),
            false => {
                let (operation, rank) = (gt_collectives::Operation::Barrier, self.comm().rank());
                Err(CollectiveError::TimedOut { operation, rank, by: rank, waited: patience })
            }
        });
        if let Err(error) = broken {
            self.fail(error);
        }
    }

    /// Aborts NCCL's communicator. If another rank is gone, the error names that worker; if NCCL itself failed, this
    /// worker's device is lost and its process is started again.
    #[cold]
    fn fail(&self, error: CollectiveError) -> ExecError {
        let begun = Instant::now();
        let failure = self.failure.get_or_init(|| {
            let mut error = error;
            while matches!(error, CollectiveError::Device { .. }) && begun.elapsed() < GRACE {
                match self.health.check() {
                    Ok(()) => std::thread::sleep(TICK),
                    Err(better) => error = better,
                }
            }
            tracing::warn!(target: "gtd::worker", workers = %self.workers, %error, "the devices of a group do not reach each other any more");
            let gone = match &error {
                CollectiveError::Died { peer, .. } | CollectiveError::Left { peer, .. } => Some(*peer),
                CollectiveError::Aborted { by, .. } => Some(*by),
                _ => None,
            };
            let why = error.to_string().into_boxed_str();
            match gone {
                Some(rank) => ExecError::Unreached { worker: self.workers.iter().nth(rank), why },
                None => ExecError::Lost(why),
            }
        });
        // Aborting the communicator ends the kernels of transfers in flight.
        self.comm().give_up();
        failure.clone()
    }
}

impl Link for DeviceLink {
    fn begun(&self, step: Arc<dyn EnqueuedTransfer>) {
        self.watched.lock().open.push((Instant::now(), step));
        self.watched.changed.notify_one();
    }

    fn failure(&self) -> Option<ExecError> {
        self.failure.get().cloned()
    }
}

impl Drop for DeviceLink {
    fn drop(&mut self) {
        self.watched.lock().closed = true;
        self.watched.changed.notify_one();
    }
}
