//! A process's port for messages by UCX, and its peers.
//!
//! All calls on UCX's worker are made under one lock. A thread of the port makes progress for all peers, takes the
//! messages that come, and hands them over in the order in which they were sent, outside the lock. It sleeps on the
//! worker's descriptor when there is nothing to do. A message is copied when it is sent, so that nobody waits for the
//! peer to read it, and belongs to UCX until its callback is called, even if that never happens.

use super::library::{BUSY, Begun, EndpointParams, MessageInfo, OK, RequestParams, Status, UcxLibrary, WorkerParams};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// [`UcxPeer::send`] waits while more bytes than this are in flight to the peer.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;
/// The port's thread looks at the worker at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the end of a port waits for what is in flight.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The transports that UCX may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transports {
    /// The transports of RDMA devices alone, so that nothing falls back to plain TCP.
    Rdma,
    /// All, or those that the variable `UCX_TLS` names.
    Any,
}

impl Transports {
    /// The value of UCX's setting `TLS`; none to leave it as it is.
    fn setting(self) -> Option<&'static CStr> {
        match self {
            Transports::Rdma => Some(c"ib"),
            Transports::Any => None,
        }
    }
}

/// Takes the messages of a peer, on the port's thread.
pub type Taken = Arc<dyn Fn(Vec<u8>) + Send + Sync>;
/// Hears why a peer has failed, once, on the port's thread.
pub type Failed = Box<dyn FnOnce(&str) + Send>;

/// A process's port for messages by UCX.
pub struct UcxPort {
    shared: Arc<PortShared>,
    thread: Option<JoinHandle<()>>,
}

struct PortShared {
    library: &'static UcxLibrary,
    address: Vec<u8>,
    descriptor: c_int,
    state: Mutex<UcxPortState>,
    /// The threads that want the lock, to which the port's thread leaves it.
    waiting: AtomicUsize,
    /// The messages that are being received. They change under the lock alone.
    receiving: Arc<AtomicUsize>,
    /// The peers whose endpoints have failed and are to be closed, by number.
    failures: Arc<Mutex<Vec<u64>>>,
    /// How long bytes may be in flight to a peer of which none arrive.
    patience: Duration,
}

struct UcxPortState {
    context: UcxHandle,
    worker: UcxHandle,
    inboxes: HashMap<u64, InboxState>,
    /// By number.
    endpoints: HashMap<u64, OpenEndpoint>,
    /// Endpoints that are being closed, whose error handlers may still be called.
    closing: Vec<(Arc<PeerShared>, Arc<Closing>)>,
    next: u64,
    /// True while the port's thread sleeps, or is about to.
    asleep: bool,
    ended: bool,
}

/// A pointer of UCX's.
#[derive(Clone, Copy)]
struct UcxHandle(*mut c_void);

// SAFETY: the port's mutex guards every use of the pointers, and UCX's worker was made for several threads of which one
// at a time uses it (`UCS_THREAD_MODE_SERIALIZED`).
unsafe impl Send for UcxHandle {}

struct InboxState {
    taken: Taken,
    /// The messages that were begun to be received, in the order in which they were sent.
    coming: VecDeque<Arc<IncomingMessage>>,
}

/// A message that is received.
struct IncomingMessage {
    /// The bytes, which UCX writes until there is a result, and the result.
    received: Mutex<(Vec<u8>, Option<Status>)>,
    /// The port's count of messages that UCX still writes to.
    receiving: Arc<AtomicUsize>,
}

/// The end of an endpoint: whether it is done.
#[derive(Default)]
struct Closing(Mutex<bool>);

struct OpenEndpoint {
    handle: UcxHandle,
    peer: Arc<PeerShared>,
    failed: Failed,
}

/// The state of a peer, which its handle, the callbacks and the port share.
struct PeerShared {
    number: u64,
    library: &'static UcxLibrary,
    state: Mutex<PeerState>,
    changed: Condvar,
    /// The port's list of failures.
    failures: Arc<Mutex<Vec<u64>>>,
}

struct PeerState {
    in_flight_bytes: usize,
    /// When bytes were last sent to a peer with none in flight, or have last arrived.
    progressed: Instant,
    failed: Option<String>,
}

/// A message in flight. It is freed by its callback.
struct SendInFlight {
    bytes: Vec<u8>,
    peer: Arc<PeerShared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PeerShared {
    /// Notes that the peer has failed, unless it has already.
    fn fail(&self, why: String) {
        let mut state = lock(&self.state);
        if state.failed.is_none() {
            state.failed = Some(why);
            lock(&self.failures).push(self.number);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Fails the peer if bytes are in flight and none have arrived for `patience`.
    fn check_patience(&self, patience: Duration) {
        let state = lock(&self.state);
        let is_stuck = state.in_flight_bytes > 0 && state.progressed.elapsed() > patience;
        drop(state);
        if is_stuck {
            self.fail(format!("nothing that is in flight by UCX has arrived for {} s", patience.as_secs_f64()));
        }
    }

    fn sent(&self, bytes: usize, status: Status) {
        let mut state = lock(&self.state);
        state.in_flight_bytes -= bytes;
        state.progressed = Instant::now();
        drop(state);
        self.changed.notify_all();
        if status != OK {
            self.fail(self.library.explain(status));
        }
    }
}

unsafe extern "C" fn sent(request: *mut c_void, status: Status, argument: *mut c_void) {
    // SAFETY: `UcxPeer::send` gave the box away with this message, whose callback is called once.
    let message = unsafe { Box::from_raw(argument.cast::<SendInFlight>()) };
    // SAFETY: the request of this callback is complete, and nothing else uses it.
    unsafe { (message.peer.library.request_free)(request) };
    message.peer.sent(message.bytes.len(), status);
}

unsafe extern "C" fn received(request: *mut c_void, status: Status, _info: *const MessageInfo, argument: *mut c_void) {
    // SAFETY: `PortShared::receive` gave one count of the arrival away with this request, whose callback is called
    // once.
    let arrival = unsafe { Arc::from_raw(argument.cast::<IncomingMessage>()) };
    lock(&arrival.received).1 = Some(status);
    arrival.receiving.fetch_sub(1, SeqCst);
    free(request);
}

unsafe extern "C" fn closed(request: *mut c_void, _status: Status, argument: *mut c_void) {
    // SAFETY: `PortShared::close` gave one count away with this request, whose callback is called once.
    let closing = unsafe { Arc::from_raw(argument.cast::<Closing>()) };
    *lock(&closing.0) = true;
    free(request);
}

/// Frees a request that is complete.
fn free(request: *mut c_void) {
    if let Ok(library) = UcxLibrary::get() {
        // SAFETY: callers are callbacks of this request, which is complete, and nothing else uses it.
        unsafe { (library.request_free)(request) };
    }
}

unsafe extern "C" fn endpoint_failed(argument: *mut c_void, _endpoint: *mut c_void, status: Status) {
    // SAFETY: the argument is the peer of an endpoint that is open or being closed, and the port keeps both kinds.
    let peer = unsafe { &*argument.cast::<PeerShared>() };
    peer.fail(peer.library.explain(status));
}

impl UcxPort {
    /// The version of this machine's UCX and the path of its library.
    ///
    /// # Errors
    /// A sentence that says why UCX cannot be used.
    pub fn library() -> Result<(String, String), String> {
        let library = UcxLibrary::get()?;
        let (major, minor, release) = library.version();
        Ok((format!("{major}.{minor}.{release}"), library.path.display().to_string()))
    }

    /// Opens a port with a thread of its own. A peer fails if bytes are in flight to it and none arrive for `patience`.
    ///
    /// # Errors
    /// UCX is missing or too old, or has no such transport here.
    pub fn open(transports: Transports, patience: Duration) -> Result<UcxPort, String> {
        let library = UcxLibrary::get()?;
        let context = library.context(transports.setting())?;
        let begun = PortShared::begin(library, context, patience);
        if begun.is_err() {
            // SAFETY: the context was made just now, and its worker, if there was one, is destroyed.
            unsafe { (library.cleanup)(context) };
        }
        let shared = Arc::new(begun?);
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("gt-ucx".into()).spawn(move || serving.run());
        let thread = Some(thread.map_err(|error| format!("UCX's thread cannot be started: {error}"))?);
        Ok(UcxPort { shared, thread })
    }

    /// The address that peers need.
    pub fn address(&self) -> &[u8] {
        &self.shared.address
    }

    /// Hands messages that come with `tag` to `taken` in their order.
    pub fn expect(&self, tag: u64, taken: Taken) -> Inbox {
        self.shared.call(|state| state.inboxes.insert(tag, InboxState { taken, coming: VecDeque::new() }));
        Inbox { tag, shared: self.shared.clone() }
    }

    /// Connects to the port at `address`, which hands messages with `tag` over. `failed` is called if the peer fails.
    ///
    /// # Errors
    /// Both ports have no transport in common.
    ///
    /// # Safety
    /// The address must be one of [`UcxPort::address`] in a process with the same version of UCX, which does not check
    /// it.
    pub unsafe fn connect(&self, address: &[u8], tag: u64, failed: Failed) -> Result<UcxPeer, String> {
        // SAFETY: this function has the same requirement.
        let peer = unsafe { self.shared.connect(address, tag, failed) };
        peer.map(|peer| UcxPeer { tag, peer, shared: self.shared.clone() })
    }
}

impl Drop for UcxPort {
    fn drop(&mut self) {
        self.shared.call(|state| state.ended = true);
        // The port's own thread may drop the last handle: it then ends by itself.
        let is_another = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_another) {
            // A thread that has panicked leaves the worker as it is.
            let _ = thread.join();
        }
    }
}

/// The messages with a tag. Dropping it drops what still comes with the tag.
pub struct Inbox {
    tag: u64,
    shared: Arc<PortShared>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.call(|state| state.inboxes.remove(&self.tag));
    }
}

/// A peer. Dropping it ends its endpoint with all that is in flight to it.
pub struct UcxPeer {
    tag: u64,
    peer: Arc<PeerShared>,
    shared: Arc<PortShared>,
}

impl UcxPeer {
    /// Sends the message whose bytes are `parts`, one after another, behind those that were sent before. Waits while
    /// too much is in flight.
    ///
    /// # Errors
    /// The reason why the peer has failed.
    ///
    /// # Panics
    /// If the message is longer than [`MESSAGE_BYTES_MAX`].
    pub fn send(&self, parts: &[&[u8]]) -> Result<(), String> {
        let full = |state: &mut PeerState| state.failed.is_none() && state.in_flight_bytes > IN_FLIGHT_BYTES_MAX;
        let waited = self.peer.changed.wait_while(lock(&self.peer.state), full);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.answer(parts)
    }

    /// As [`send`](Self::send), without waiting: for a [`Taken`], whose thread ends the wait of others.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Panics
    /// As [`send`](Self::send).
    pub fn answer(&self, parts: &[&[u8]]) -> Result<(), String> {
        let bytes = parts.concat();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", bytes.len());
        let mut state = lock(&self.peer.state);
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        if state.in_flight_bytes == 0 {
            state.progressed = Instant::now();
        }
        state.in_flight_bytes += bytes.len();
        drop(state);
        self.shared.send(&self.peer, self.tag, bytes)
    }

    /// Ends the peer for this reason, unless it has failed: what is in flight to it ends, and nobody waits for it.
    pub fn end(&self, why: &str) {
        self.peer.fail(why.to_owned());
        self.shared.call(|_| ());
    }

    /// Why the peer has failed, if it has.
    pub fn failed(&self) -> Option<String> {
        lock(&self.peer.state).failed.clone()
    }
}

impl Drop for UcxPeer {
    fn drop(&mut self) {
        self.end("this side has ended the connection");
    }
}

impl PortShared {
    /// Makes a worker in `context`.
    fn begin(library: &'static UcxLibrary, context: *mut c_void, patience: Duration) -> Result<PortShared, String> {
        let params = WorkerParams::serialized();
        let mut worker = std::ptr::null_mut();
        // SAFETY: the context is open, the parameters outlive the call, and `worker` is room for the pointer.
        let made = unsafe { (library.worker_create)(context, &raw const params, &raw mut worker) };
        library.check("make a worker", made)?;
        let described = PortShared::describe(library, worker);
        if described.is_err() {
            // SAFETY: the worker was made just now, and has no endpoints.
            unsafe { (library.worker_destroy)(worker) };
        }
        let (address, descriptor) = described?;
        let state = UcxPortState {
            context: UcxHandle(context),
            worker: UcxHandle(worker),
            inboxes: HashMap::new(),
            endpoints: HashMap::new(),
            closing: Vec::new(),
            next: 0,
            asleep: false,
            ended: false,
        };
        let (state, waiting, receiving) = (Mutex::new(state), AtomicUsize::new(0), Arc::default());
        Ok(PortShared { library, address, descriptor, state, waiting, receiving, failures: Arc::default(), patience })
    }

    /// The address and the descriptor of a worker.
    fn describe(library: &UcxLibrary, worker: *mut c_void) -> Result<(Vec<u8>, c_int), String> {
        let (mut address, mut bytes, mut descriptor) = (std::ptr::null_mut(), 0, -1);
        // SAFETY: the worker is open, and `descriptor` is room for an integer.
        let found = unsafe { (library.worker_efd)(worker, &raw mut descriptor) };
        library.check("wake a thread here", found)?;
        // SAFETY: the worker is open, and both are room for what is returned.
        let told = unsafe { (library.worker_address)(worker, &raw mut address, &raw mut bytes) };
        library.check("tell its address", told)?;
        // SAFETY: `ucp_worker_get_address` has returned `bytes` bytes, which live until they are released.
        let copy = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: the address is of this worker, and is not used from here on.
        unsafe { (library.release_address)(worker, address) };
        Ok((copy, descriptor))
    }

    /// Runs `call` under the lock, and wakes the port's thread.
    fn call<T>(&self, call: impl FnOnce(&mut UcxPortState) -> T) -> T {
        self.waiting.fetch_add(1, SeqCst);
        let mut state = lock(&self.state);
        self.waiting.fetch_sub(1, SeqCst);
        let result = call(&mut state);
        if state.asleep {
            state.asleep = false;
            // SAFETY: the worker lives as long as this; see `run`. A signal that fails makes the thread look later.
            unsafe { (self.library.signal)(state.worker.0) };
        }
        result
    }

    /// # Safety
    /// That of [`UcxPort::connect`].
    unsafe fn connect(&self, address: &[u8], tag: u64, failed: Failed) -> Result<Arc<PeerShared>, String> {
        self.call(|state| {
            if state.ended {
                return Err("this process's port for UCX has ended".into());
            }
            let number = state.next;
            let peer = Arc::new(PeerShared {
                number,
                library: self.library,
                state: Mutex::new(PeerState { in_flight_bytes: 0, progressed: Instant::now(), failed: None }),
                changed: Condvar::new(),
                failures: self.failures.clone(),
            });
            let params = EndpointParams::of(address, endpoint_failed, Arc::as_ptr(&peer).cast());
            let mut handle = std::ptr::null_mut();
            // SAFETY: the worker is open; the parameters and the address outlive the call, and the address is a port's
            // by this function's requirement; the handler's argument lives until the endpoint is closed, since the port
            // keeps the peer until then.
            let made = unsafe { (self.library.endpoint_create)(state.worker.0, &raw const params, &raw mut handle) };
            self.library.check(&format!("connect to a peer (tag {tag:x})"), made)?;
            state.next += 1;
            state.endpoints.insert(number, OpenEndpoint { handle: UcxHandle(handle), peer: peer.clone(), failed });
            Ok(peer)
        })
    }

    fn send(&self, peer: &Arc<PeerShared>, tag: u64, bytes: Vec<u8>) -> Result<(), String> {
        let length = bytes.len();
        let message = Box::new(SendInFlight { bytes, peer: peer.clone() });
        let status = self.call(|state| {
            let Some(endpoint) = state.endpoints.get(&peer.number) else { return Begun::Failed(OK) };
            let (start, message) = (message.bytes.as_ptr(), Box::into_raw(message));
            let params = RequestParams::sending(sent, message.cast());
            // SAFETY: the endpoint is open; the bytes stay as they are until the callback frees them with the box, and
            // the parameters outlive the call.
            let begun = Begun::of(unsafe {
                (self.library.send)(endpoint.handle.0, start.cast(), length, tag, &raw const params)
            });
            if !matches!(begun, Begun::Pending) {
                // SAFETY: the callback is not called, so that the box is this function's again.
                drop(unsafe { Box::from_raw(message) });
            }
            begun
        });
        match status {
            Begun::Pending => return Ok(()),
            Begun::Done => {
                peer.sent(length, OK);
                return Ok(());
            }
            // There is no endpoint any more.
            Begun::Failed(OK) => peer.sent(length, OK),
            Begun::Failed(status) => peer.sent(length, status),
        }
        Err(lock(&peer.state).failed.clone().unwrap_or_else(|| "its connection has ended".into()))
    }

    /// Serves until the port ends, and then frees the worker.
    fn run(&self) {
        let mut looked = Instant::now();
        loop {
            // A thread that waits for the lock may have waited for long.
            while self.waiting.load(SeqCst) > 0 {
                std::thread::yield_now();
            }
            let mut state = lock(&self.state);
            if state.ended {
                return self.end(state);
            }
            state.asleep = false;
            // SAFETY: the worker is open until `end`.
            let mut is_busy = unsafe { (self.library.progress)(state.worker.0) } > 0;
            is_busy |= self.receive_all(&mut state);
            if looked.elapsed() >= LOOK_EVERY.min(self.patience) {
                looked = Instant::now();
                state.endpoints.values().for_each(|endpoint| endpoint.peer.check_patience(self.patience));
            }
            let told = self.close_failed(&mut state);
            let arrived = state.arrived();
            if !is_busy && told.is_empty() && arrived.is_empty() {
                // SAFETY: the worker is open until `end`.
                state.asleep = unsafe { (self.library.arm)(state.worker.0) } != BUSY;
            }
            let asleep = state.asleep;
            drop(state);
            for (failed, why) in told {
                failed(&why);
            }
            for (taken, bytes) in arrived {
                taken(bytes);
            }
            if asleep {
                self.sleep();
            }
        }
    }

    fn sleep(&self) {
        // SAFETY: the descriptor is the worker's, which is open until `end`, on this thread.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
        // An interruption is an early look.
        let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout));
    }

    /// Begins to receive the messages that have come. Returns whether there were some.
    fn receive_all(&self, state: &mut UcxPortState) -> bool {
        let mut any = false;
        loop {
            let mut info = MessageInfo::default();
            // SAFETY: the worker is open, and `info` is room for the description. A mask of 0 takes every tag, and the
            // message is taken out.
            let message = unsafe { (self.library.probe)(state.worker.0, 0, 0, 1, &raw mut info) };
            if message.is_null() {
                return any;
            }
            any = true;
            self.receive(state, message, &info);
        }
    }

    fn receive(&self, state: &mut UcxPortState, message: *mut c_void, info: &MessageInfo) {
        // A message that nobody expects, or that no peer of GT's sends, is received into nothing: UCX then drops it.
        let wanted = state.inboxes.contains_key(&info.tag) && info.length <= MESSAGE_BYTES_MAX;
        let length = if wanted { info.length } else { 0 };
        let message_bytes = Mutex::new((vec![0; length], None));
        let arrival = Arc::new(IncomingMessage { received: message_bytes, receiving: self.receiving.clone() });
        let start = lock(&arrival.received).0.as_mut_ptr();
        let argument = Arc::into_raw(arrival.clone());
        let params = RequestParams::receiving(received, argument.cast());
        // SAFETY: the message was taken out just now; the arrival has `length` bytes, which nobody uses until there is
        // a result, and lives until the callback, which has a count of it.
        let begun = Begun::of(unsafe {
            (self.library.receive)(state.worker.0, start.cast(), length, message, &raw const params)
        });
        let status = match begun {
            Begun::Pending => {
                self.receiving.fetch_add(1, SeqCst);
                None
            }
            Begun::Done => Some(OK),
            Begun::Failed(status) => Some(status),
        };
        if status.is_some() {
            lock(&arrival.received).1 = status;
            // SAFETY: the callback is not called, so that its count is this function's again.
            drop(unsafe { Arc::from_raw(argument) });
        }
        if let Some(inbox) = state.inboxes.get_mut(&info.tag).filter(|_| wanted) {
            inbox.coming.push_back(arrival);
        }
    }

    /// Closes the endpoints of peers that have failed. Returns who is to be told why.
    fn close_failed(&self, state: &mut UcxPortState) -> Vec<(Failed, String)> {
        state.closing.retain(|(_, closing)| !*lock(&closing.0));
        let failures = std::mem::take(&mut *lock(&self.failures));
        let ended: Vec<_> = failures.iter().filter_map(|number| state.endpoints.remove(number)).collect();
        let close = |OpenEndpoint { handle, peer, failed }: OpenEndpoint| {
            self.close(state, handle, &peer);
            let why = lock(&peer.state).failed.clone().unwrap_or_default();
            (failed, why)
        };
        ended.into_iter().map(close).collect()
    }

    fn close(&self, state: &mut UcxPortState, handle: UcxHandle, peer: &Arc<PeerShared>) {
        let closing = Arc::new(Closing::default());
        let argument = Arc::into_raw(closing.clone());
        let params = RequestParams::closing(closed, argument.cast());
        // SAFETY: the endpoint is open, was removed from the list of those that are used, and the parameters outlive
        // the call.
        let begun = Begun::of(unsafe { (self.library.endpoint_close)(handle.0, &raw const params) });
        if matches!(begun, Begun::Pending) {
            state.closing.push((peer.clone(), closing));
        } else {
            // SAFETY: the callback is not called, so that its count is this function's again.
            drop(unsafe { Arc::from_raw(argument) });
        }
    }

    /// Closes all endpoints and frees the worker.
    fn end(&self, mut state: MutexGuard<'_, UcxPortState>) {
        let open: Vec<OpenEndpoint> = state.endpoints.drain().map(|(_, endpoint)| endpoint).collect();
        for OpenEndpoint { handle, peer, .. } in open {
            peer.fail("this process's port for UCX has ended".into());
            self.close(&mut state, handle, &peer);
        }
        let begun = Instant::now();
        // A worker that is destroyed while it receives uses memory that it has freed.
        while self.receiving.load(SeqCst) > 0 || state.closing.iter().any(|(_, closing)| !*lock(&closing.0)) {
            if begun.elapsed() > END_PATIENCE {
                // UCX still uses them: the process keeps the worker, the messages, and the peers of these endpoints.
                std::mem::forget(std::mem::take(&mut state.closing));
                return;
            }
            // SAFETY: the worker is open.
            unsafe { (self.library.progress)(state.worker.0) };
        }
        // SAFETY: all endpoints are closed, no message is being received, `ended` keeps others from being made, and
        // nobody uses the worker or its context from here on: `call` signals only a sleeping thread, and this one has
        // ended.
        unsafe {
            (self.library.worker_destroy)(state.worker.0);
            (self.library.cleanup)(state.context.0);
        }
        state.asleep = false;
    }
}

impl UcxPortState {
    /// The messages that have come, of each inbox in their order. One whose receipt has failed ends those behind it.
    fn arrived(&mut self) -> Vec<(Taken, Vec<u8>)> {
        let mut arrived = Vec::new();
        for inbox in self.inboxes.values_mut() {
            while inbox.coming.front().is_some_and(|arrival| lock(&arrival.received).1 == Some(OK)) {
                if let Some(arrival) = inbox.coming.pop_front() {
                    arrived.push((inbox.taken.clone(), std::mem::take(&mut lock(&arrival.received).0)));
                }
            }
        }
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Two ports, unless this machine has no UCX, which the test then says.
    fn ports_with(patience: Duration) -> Option<[UcxPort; 2]> {
        match UcxPort::library() {
            Ok(_) => Some([0, 1].map(|_| UcxPort::open(Transports::Any, patience).unwrap())),
            Err(why) if std::env::var_os("GT_UCX_LIBRARY").is_some() => panic!("{why}"),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    fn ports() -> Option<[UcxPort; 2]> {
        ports_with(PATIENCE)
    }

    /// The messages that come to a port with a tag.
    fn inbox(port: &UcxPort, tag: u64) -> (Inbox, Receiver<Vec<u8>>) {
        let (came, coming) = channel();
        let came = Mutex::new(came);
        (port.expect(tag, Arc::new(move |bytes| drop(lock(&came).send(bytes)))), coming)
    }

    /// A peer, and why it has failed.
    fn peer(from: &UcxPort, to: &UcxPort, tag: u64) -> (UcxPeer, Receiver<String>) {
        let (tells, told) = channel();
        let failed = Box::new(move |why: &str| drop(tells.send(why.to_owned())));
        // SAFETY: the address is that of a port of this process.
        (unsafe { from.connect(to.address(), tag, failed) }.unwrap(), told)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn messages_of_all_sizes_come_in_their_order_and_strangers_are_dropped() {
        let Some([one, other]) = ports() else { return };
        let (_inbox, coming) = inbox(&other, 7);
        let (known, _) = peer(&one, &other, 7);
        let (stranger, _) = peer(&one, &other, 8);
        // Large ones take another way than small ones, and more are in flight than one end keeps.
        let message = |number: usize| vec![number as u8; [0, 1, 300, 9_000, 70_000, MESSAGE_BYTES_MAX][number % 6]];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..120 {
                    stranger.send(&[&[9; 100]]).unwrap();
                    let bytes = message(number);
                    let (start, rest) = bytes.split_at(bytes.len() / 3);
                    known.send(&[start, rest]).unwrap();
                }
            });
            for number in 0..120 {
                assert_eq!(coming.recv_timeout(PATIENCE).unwrap(), message(number), "message {number}");
            }
        });
        assert_eq!(known.failed(), None);
        assert!(coming.try_recv().is_err(), "nothing more came");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_peer_whose_port_ends_fails_and_nobody_waits_for_it() {
        let Some([one, other]) = ports() else { return };
        let (_inbox, coming) = inbox(&other, 7);
        let (peer, told) = peer(&one, &other, 7);
        peer.send(&[b"there"]).unwrap();
        assert_eq!(coming.recv_timeout(PATIENCE).unwrap(), b"there");
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let begun = Instant::now();
                loop {
                    if let Err(why) = peer.send(&[&[0; MESSAGE_BYTES_MAX]]) {
                        return why;
                    }
                    assert!(begun.elapsed() < PATIENCE, "the peer has not failed");
                }
            });
            drop(other);
            let why = sending.join().unwrap();
            assert!(why.starts_with("UCX says: "), "{why}");
            assert_eq!(told.recv_timeout(PATIENCE).unwrap(), why);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_peer_at_which_nothing_arrives_fails_after_a_while() {
        let Some([one, other]) = ports_with(Duration::from_millis(300)) else { return };
        // The other port's thread takes nothing more, as if the process were stopped.
        let (goes_on, may_go_on) = channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let _inbox = other.expect(7, Arc::new(move |_| assert!(lock(&may_go_on).recv().is_err())));
        let (peer, told) = peer(&one, &other, 7);
        let failed = std::iter::repeat_with(|| peer.send(&[&[0; MESSAGE_BYTES_MAX]])).find_map(Result::err).unwrap();
        assert_eq!(failed, "nothing that is in flight by UCX has arrived for 0.3 s");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), failed);
        drop(goes_on);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_peer_that_this_side_ends_keeps_nobody_waiting() {
        let Some([one, other]) = ports() else { return };
        let (peer, told) = peer(&one, &other, 7);
        std::thread::scope(|scope| {
            // Nobody expects these, so they are dropped there.
            let sending = scope.spawn(|| std::iter::repeat_with(|| peer.send(&[&[0; 9000]])).find(Result::is_err));
            std::thread::sleep(Duration::from_millis(20));
            peer.end("a test");
            assert_eq!(sending.join().unwrap().unwrap(), Err("a test".into()));
        });
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "a test");
        drop(one);
        assert_eq!(peer.send(&[b"x"]), Err("a test".into()));
    }
}
