//! A stream of frames between two machines that outlasts its connections.
//!
//! Each side numbers the bytes that it sends, keeps them until the other has acknowledged them, and sends those that
//! were not received again over the next connection: every frame arrives exactly once and in order. One side dials, at
//! first and whenever the connection breaks; the other is handed new connections by [`LastingLink::attach`]. A link
//! that has had no connection for its grace period is lost for good.
//!
//! Both sides acknowledge at least once every [`BEAT_EVERY`], also when nothing is to be acknowledged: a connection
//! over which nothing comes for [`SILENCE_MAX`] is half open, and replaced.
//!
//! Over a connection travel the frames of [`mod@crate::frame`]: `Data` whose offset is the position in the stream, and
//! `Slots` with one acknowledgement each. [`mod@crate::frame_assembly`] tells the frames of the stream apart.
//!
//! Two threads of a link read and write. To wake them takes longer than a small message, so a thread that sends one
//! writes it itself if nobody else is writing, and a thread that waits for one looks for it itself for a while
//! ([`wait_for`](LastingLink::wait_for)): meanwhile, the reader's thread stays away from the connection.
//!
//! Bytes that the network does not take at once are left to the writer's thread, or, of a small loan, to the threads
//! that look, each of which sends more whenever it finds room: two sides that send to each other take turns, and none
//! waits for the other to read.
//!
//! Many bytes are not copied to be kept: the caller *lends* them, and leaves them as they are until the other side has
//! acknowledged them, which it does as soon as the last has come. They are no frame, so that their receiver can have
//! each part read to where it belongs.

use crate::channel::TcpChannel;
use crate::frame::{DATA_BYTES_MAX, DataHead, Frame, push_slots, slots_in};
use crate::frame_assembly::{FrameAssembly, LENGTH_BYTES, LENT_BYTES_MAX, LENT_HEAD_BYTES, LINK_FRAME_BYTES_MAX};
use crate::link_write::{LinkWrite, WriteRoom, slot};
use crate::machine_port::MachineConnection;
use crate::stream::{FramePart, Incoming, StreamError};
use crate::unacknowledged::Unacknowledged;
use gt_shm::Spin;
use gt_shm::spin::pause;
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The longest time without an acknowledgement to the other side.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// A connection over which nothing comes for this long is replaced.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Received bytes that are acknowledged at once.
const ACKNOWLEDGE_BYTES: u64 = 1 << 20;
/// [`LastingLink::send`] waits while more bytes than this are not acknowledged: as many as are on their way in a fast
/// network, and so few that they stay in the processor's cache until they are sent.
const UNACKNOWLEDGED_BYTES_MAX: usize = 8 << 20;
/// The most bytes that are sent at one time, while none are lent; otherwise as many as a frame can have.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// A frame of up to so many bytes is written by the thread that sends it, if nobody is writing: to wake up the writer
/// would take longer. A piece of 64 KiB with its headers is one.
const WRITTEN_AT_ONCE_BYTES_MAX: usize = BLOCK_BYTES_MAX + 64;
/// A loan of up to so many bytes that is the only one, sent without encryption, is written by the thread that lends it
/// and by those that look for the answer. Several are on their way where much is sent, whose lender has other work.
const WRITTEN_BY_LOOKERS_BYTES_MAX: usize = 512 << 10;
/// The wait between the first attempts to dial or to probe, which doubles up to [`REDIAL_MAX`].
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);
/// How long the reader's thread leaves the connection to a thread that has found bytes.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The first word of a slot: an acknowledgement of the bytes that its second word counts.
const ACKNOWLEDGEMENT: u64 = 1;
/// The first word of a slot: the other side has closed the link.
const FAREWELL: u64 = 2;
/// The first word of a slot: the other side has ended the link, though bytes may be left.
const GIVEN_UP: u64 = 3;
/// How long the end of a link waits until the other side can be told.
const TELL_PATIENCE: Duration = Duration::from_millis(100);

/// The end of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkEnd {
    /// This side has closed it.
    #[error("this side has closed the link")]
    ClosedHere,
    /// The other side has closed it.
    #[error("the other side has closed the link")]
    ClosedThere,
    /// There was no connection for the grace period, or it cannot come back.
    #[error("it could not be reached: {0}")]
    Lost(String),
    /// The other side refuses to go on.
    #[error("{0}")]
    Refused(String),
    /// The other side has sent something that makes no sense.
    #[error("what it sent makes no sense: {0}")]
    Broken(String),
}

/// The failure of an attempt to dial.
#[derive(Debug)]
pub enum DialFailure {
    /// The next attempt may succeed.
    Retry(String),
    /// The other side refuses, or has ended: no attempt will succeed.
    Final(LinkEnd),
}

/// Dials for a link: is given how many bytes of the stream this side has received, and returns a connection and how
/// many the other side has.
pub type Dial = Box<dyn FnMut(u64) -> Result<(MachineConnection, u64), DialFailure> + Send>;

/// Tells, while there is no connection, that none will come back: the reason.
pub type Probe = Box<dyn FnMut() -> Option<String> + Send>;

/// How a link gets its next connection.
pub enum LinkRole {
    /// This side dials.
    Dials(Dial),
    /// The other side dials. `Probe` is asked meanwhile, soon at first and then once a second.
    Awaits(Probe),
}

/// The properties of a link.
pub struct LinkOptions {
    /// The other side's name, for the log.
    pub name: String,
    /// How long the link lasts without a connection.
    pub grace: Duration,
}

/// Takes the frames of a link, in order, on its reader's thread. An error ends the link.
pub trait FrameTaker: Send + 'static {
    /// Takes a frame, whose bytes it may take away.
    ///
    /// # Errors
    /// The frame makes no sense.
    fn take(&mut self, frame: &mut Vec<u8>) -> Result<(), String>;

    /// Reads some of the bytes that were lent with this head. It is called until all are read, perhaps with a pause,
    /// and over several connections.
    ///
    /// # Errors
    /// The head makes no sense.
    fn take_lent(&mut self, _head: &[u8; LENT_HEAD_BYTES], _from: &mut LentSource<'_>) -> Result<(), String> {
        Err("lent bytes".into())
    }
}

impl<F: FnMut(&mut Vec<u8>) -> Result<(), String> + Send + 'static> FrameTaker for F {
    fn take(&mut self, frame: &mut Vec<u8>) -> Result<(), String> {
        self(frame)
    }
}

/// Lent bytes that are to be read.
pub struct LentSource<'a> {
    incoming: &'a mut Incoming,
    left: usize,
    read: usize,
    failure: Option<StreamError>,
}

impl LentSource<'_> {
    /// How many bytes can be read now, at most.
    pub fn left(&self) -> usize {
        self.left - self.read
    }

    /// Reads the next bytes to the beginning of `to`, as many as have come, and returns their number.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let to_len = to.len().min(self.left());
        if self.failure.is_some() || to_len == 0 {
            return 0;
        }
        match self.incoming.try_read(&mut to[..to_len]) {
            Ok(count) => {
                self.read += count;
                count
            }
            Err(error) => {
                self.failure = Some(error);
                0
            }
        }
    }
}

/// Bytes that a link sends from where they lie.
#[must_use = "the bytes must be left as they are until they are returned"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentRange {
    /// The position of the stream behind them.
    end: u64,
}

impl LentRange {
    /// The loan as a number.
    pub fn number(self) -> u64 {
        self.end
    }

    /// The loan with this number.
    pub fn numbered(number: u64) -> LentRange {
        LentRange { end: number }
    }
}

/// The counts of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Bytes of frames sent, once each.
    pub sent_bytes: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Connections after the first.
    pub resumed: u64,
}

/// One side of a link; a copy is the same side.
#[derive(Clone)]
pub struct LastingLink(Arc<Shared>);

struct Shared {
    options: LinkOptions,
    state: Mutex<LinkState>,
    /// Wakes the link's own threads, and those that wait for its end.
    changed: Condvar,
    /// Wakes threads that wait until fewer bytes are not acknowledged.
    settled: Condvar,
    /// Wakes threads that wait for lent bytes.
    returned: Condvar,
    /// The reading side, which the reader's thread shares with threads that [wait for](LastingLink::wait_for) bytes.
    /// None after the end of the link.
    reading: Mutex<Option<LinkReading>>,
    lookers: Mutex<Lookers>,
    /// Wakes the reader's thread when nobody looks any more.
    left_alone: Condvar,
    /// Whether bytes may be left that threads which look shall write.
    left_to_lookers: AtomicBool,
}

/// The reading side of a link, which the thread that has its lock reads from.
struct LinkReading {
    /// The present connection.
    incoming: Option<Incoming>,
    frames: FrameAssembly,
    taker: Box<dyn FrameTaker>,
    /// Why nothing more comes over the present connection, if a thread that has looked found that.
    over: Option<Result<Broke, LinkEnd>>,
    /// When bytes came last.
    heard: Instant,
}

/// The threads that look for bytes.
#[derive(Default)]
struct Lookers {
    count: usize,
    /// Until when the reader's thread leaves the connection to others, as one has just found bytes.
    until: Option<Instant>,
    /// The threads that have looked in vain, and sleep.
    asleep: usize,
    /// Whether the reader's thread waits to be left alone with the connection.
    is_waited_for: bool,
}

struct LinkState {
    /// The bytes from stream position `acknowledged` on.
    unacknowledged: Unacknowledged,
    acknowledged: u64,
    /// The position up to which bytes were sent over this connection.
    sent: u64,
    /// The bytes of the other side's stream that were received.
    received: u64,
    /// The last acknowledgement sent over this connection.
    told: u64,
    /// Whether the other side waits for an acknowledgement.
    is_asked: bool,
    /// The position from which on bytes are read to be written; none if nothing is being written.
    writing_from: Option<u64>,
    /// A write of which the network has taken only a part so far, if no thread is at it.
    interrupted: Option<LinkWrite>,
    /// The room of the thread that writes next.
    room: WriteRoom,
    /// When the last write began.
    spoke: Instant,
    /// How many threads wait until fewer bytes are not acknowledged.
    senders: usize,
    /// The positions for whose acknowledgement threads wait that want lent bytes back.
    lenders: Vec<u64>,
    connection: Option<Arc<TcpChannel>>,
    /// A connection that the reader has still to take, and the bytes that the other side has received.
    attached: Option<(MachineConnection, u64)>,
    /// True while the reader reads from a connection.
    reading: bool,
    connections: u64,
    closing: bool,
    ended: Option<LinkEnd>,
}

impl LinkState {
    fn end_position(&self) -> u64 {
        self.acknowledged + self.unacknowledged.len as u64
    }

    /// Whether the link reads the bytes of a loan no more.
    fn is_returned(&self, loan: LentRange) -> bool {
        (self.acknowledged >= loan.end || self.ended.is_some()) && self.writing_from.is_none_or(|from| from >= loan.end)
    }
}

impl LastingLink {
    /// A link with its two threads. `first` is the first connection, if there is one already, and the bytes that the
    /// other side has received. `taker` gets each frame; `ended` is called at the end.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        options: LinkOptions,
        role: LinkRole,
        first: Option<MachineConnection>,
        taker: impl FrameTaker,
        ended: impl FnOnce(LinkEnd) + Send + 'static,
    ) -> std::io::Result<LastingLink> {
        let state = LinkState {
            unacknowledged: Unacknowledged::default(),
            acknowledged: 0,
            sent: 0,
            received: 0,
            told: 0,
            is_asked: false,
            writing_from: None,
            interrupted: None,
            room: WriteRoom::default(),
            spoke: Instant::now(),
            senders: 0,
            lenders: Vec::new(),
            connection: None,
            attached: first.map(|connection| (connection, 0)),
            reading: false,
            connections: 0,
            closing: false,
            ended: None,
        };
        let reading = LinkReading {
            incoming: None,
            frames: FrameAssembly::default(),
            taker: Box::new(taker),
            over: None,
            heard: Instant::now(),
        };
        let link = LastingLink(Arc::new(Shared {
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            settled: Condvar::new(),
            returned: Condvar::new(),
            reading: Mutex::new(Some(reading)),
            lookers: Mutex::default(),
            left_alone: Condvar::new(),
            left_to_lookers: AtomicBool::new(false),
        }));
        let (reader, writer) = (link.clone(), link.clone());
        std::thread::Builder::new().name("gt-link-in".into()).spawn(move || {
            let end = reader.read(role);
            let end = reader.end(end);
            let reading = reader.lock_reading().take();
            drop(reading);
            ended(end);
        })?;
        std::thread::Builder::new().name("gt-link-out".into()).spawn(move || writer.write())?;
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, LinkState>, timeout: Duration) -> MutexGuard<'a, LinkState> {
        self.0.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends the frame whose bytes are `parts`, one after another. Waits while too much is not acknowledged.
    ///
    /// # Errors
    /// The link has ended.
    ///
    /// # Panics
    /// If the frame is longer than [`LINK_FRAME_BYTES_MAX`].
    pub fn send(&self, parts: &[&[u8]]) -> Result<(), LinkEnd> {
        let mut state = self.lock();
        while state.ended.is_none() && state.unacknowledged.kept > UNACKNOWLEDGED_BYTES_MAX {
            state.senders += 1;
            state = self.0.settled.wait_timeout(state, BEAT_EVERY).unwrap_or_else(PoisonError::into_inner).0;
            state.senders -= 1;
        }
        let (state, bytes) = self.push(state, parts)?;
        let is_alone = state.writing_from.is_none() && state.end_position() - state.sent == bytes as u64;
        match state.connection.clone().filter(|_| is_alone && bytes <= WRITTEN_AT_ONCE_BYTES_MAX) {
            Some(connection) => {
                let state = self.write_block(state, &connection, bytes, false);
                self.wake_writer(&state);
            }
            None => self.0.changed.notify_all(),
        }
        Ok(())
    }

    /// As [`send`](Self::send), without waiting: for the reader's thread, which takes the acknowledgements, and for
    /// bytes that are limited otherwise.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Panics
    /// As [`send`](Self::send).
    pub fn answer(&self, parts: &[&[u8]]) -> Result<(), LinkEnd> {
        drop(self.push(self.lock(), parts)?);
        self.0.changed.notify_all();
        Ok(())
    }

    /// Wakes the writer if something was left to it while this thread was writing.
    fn wake_writer(&self, state: &LinkState) {
        if state.end_position() > state.sent || state.interrupted.is_some() || state.is_asked || state.closing {
            self.0.changed.notify_all();
        }
    }

    /// Adds a frame to the stream. Returns how many bytes it takes there.
    fn push<'a>(
        &self,
        mut state: MutexGuard<'a, LinkState>,
        parts: &[&[u8]],
    ) -> Result<(MutexGuard<'a, LinkState>, usize), LinkEnd> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= LINK_FRAME_BYTES_MAX, "a frame of {bytes} bytes");
        if let Some(end) = &state.ended {
            return Err(end.clone());
        }
        state.unacknowledged.push(bytes, parts);
        Ok((state, LENGTH_BYTES + bytes))
    }

    /// Sends `bytes` from where they lie, with a head for their receiver's [`FrameTaker::take_lent`].
    ///
    /// # Errors
    /// The link has ended. The bytes were not lent.
    ///
    /// # Panics
    /// If there are more than [`LENT_BYTES_MAX`] bytes.
    ///
    /// # Safety
    /// The bytes can be read, and nobody writes them, until [`settle`](Self::settle) or [`take_back`](Self::take_back)
    /// has returned for this loan.
    pub unsafe fn lend(&self, head: &[u8; LENT_HEAD_BYTES], bytes: *const [u8]) -> Result<LentRange, LinkEnd> {
        assert!(bytes.len() <= LENT_BYTES_MAX, "{} lent bytes", bytes.len());
        let mut state = self.lock();
        if let Some(end) = &state.ended {
            return Err(end.clone());
        }
        let is_alone = state.unacknowledged.lent_pieces == 0;
        // SAFETY: the contract is that of this function: `is_returned` tells that the bytes are acknowledged and nobody
        // writes them to the network, and `take_back` keeps them only while nobody does.
        unsafe { state.unacknowledged.push_lent(head, bytes) };
        let loan = LentRange { end: state.end_position() };
        let is_for_lookers = is_alone
            && bytes.len() <= WRITTEN_BY_LOOKERS_BYTES_MAX
            && state.connection.as_ref().is_some_and(|connection| !connection.is_encrypted());
        if is_for_lookers {
            self.0.left_to_lookers.store(true, Relaxed);
            self.write_more(state);
        } else {
            self.0.changed.notify_all();
        }
        Ok(loan)
    }

    /// Whether the other side has the bytes of a loan, or the link has ended, and this side reads them no more.
    pub fn is_settled(&self, loan: LentRange) -> bool {
        self.lock().is_returned(loan)
    }

    /// Waits until the other side has the bytes of a loan, or the link has ended, for at most `timeout`. Returns
    /// whether this side reads them no more.
    pub fn settle(&self, loan: LentRange, timeout: Duration) -> bool {
        self.wait_for_return((loan.end, timeout), |state| state.is_returned(loan)).is_returned(loan)
    }

    /// Copies the bytes of a loan that the other side does not have yet, so that this side reads the lent ones no more.
    pub fn take_back(&self, loan: LentRange) {
        let can_copy = |state: &LinkState| state.is_returned(loan) || state.writing_from.is_none();
        let mut state = loop {
            let state = self.wait_for_return((0, BEAT_EVERY), can_copy);
            if can_copy(&state) {
                break state;
            }
        };
        if !state.is_returned(loan) {
            state.unacknowledged.keep_lent();
        }
    }

    /// Waits until `is_done`, which is not before `position` is acknowledged or the link has ended, for at most
    /// `timeout`.
    fn wait_for_return(
        &self,
        (position, timeout): (u64, Duration),
        is_done: impl Fn(&LinkState) -> bool,
    ) -> MutexGuard<'_, LinkState> {
        let begun = Instant::now();
        let mut state = self.lock();
        if !is_done(&state) {
            self.wake_writer(&state);
        }
        while !is_done(&state) {
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            state.lenders.push(position);
            state = self.0.returned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            if let Some(own) = state.lenders.iter().position(|other| *other == position) {
                state.lenders.swap_remove(own);
            }
        }
        state
    }

    /// Wakes the threads that want lent bytes back, if some may have them.
    fn wake_lenders(&self, state: &LinkState) {
        let may_have = |position: &u64| *position <= state.acknowledged || state.ended.is_some();
        if state.lenders.iter().any(may_have) {
            self.0.returned.notify_all();
        }
    }

    /// Wakes all threads, after the link has ended.
    fn wake_all(&self) {
        self.0.changed.notify_all();
        self.0.settled.notify_all();
        self.0.returned.notify_all();
    }

    /// Replaces the connection. `reply` tells the other side how many bytes this one has received. `received` are those
    /// that the other side has.
    ///
    /// # Errors
    /// The link has ended, or the reply could not be sent.
    pub fn attach(
        &self,
        mut connection: MachineConnection,
        received: u64,
        reply: impl FnOnce(&mut MachineConnection, u64) -> std::io::Result<()>,
    ) -> Result<(), LinkEnd> {
        let mut state = self.lock();
        state.attached = None;
        while state.reading && state.ended.is_none() {
            if let Some(connection) = &state.connection {
                let _ = connection.shutdown(Shutdown::Both);
            }
            state = self.wait(state, BEAT_EVERY);
        }
        if let Some(end) = &state.ended {
            return Err(end.clone());
        }
        reply(&mut connection, state.received).map_err(|error| LinkEnd::Lost(error.to_string()))?;
        state.attached = Some((connection, received));
        self.0.changed.notify_all();
        Ok(())
    }

    /// Whether `other` is the same side of the same link.
    pub fn is_same(&self, other: &LastingLink) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether there is a connection.
    pub fn is_up(&self) -> bool {
        self.lock().connection.is_some()
    }

    /// The end of the link, if it has ended.
    pub fn ended(&self) -> Option<LinkEnd> {
        self.lock().ended.clone()
    }

    /// The counts of the link.
    pub fn counts(&self) -> LinkCounts {
        let state = self.lock();
        LinkCounts {
            sent_bytes: state.end_position(),
            received_bytes: state.received,
            resumed: state.connections.saturating_sub(1),
        }
    }

    /// Sends the bytes that are left, says farewell, and ends the link, within `patience`.
    pub fn close(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        state.closing = true;
        self.0.changed.notify_all();
        while state.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        drop(state);
        self.end(LinkEnd::ClosedHere);
    }

    /// Ends the link for `why`, unless it has ended already. Returns how it has ended.
    ///
    /// The other side is told, if nothing is being written: one that dials would learn it from the answer to its next
    /// attempt, but one that awaits connections only after its grace period.
    pub fn end(&self, why: LinkEnd) -> LinkEnd {
        let mut state = self.lock();
        let end = state.ended.get_or_insert(why).clone();
        if let Some(connection) = state.connection.take() {
            if state.writing_from.is_none() && connection.tcp().set_write_timeout(Some(TELL_PATIENCE)).is_ok() {
                let mut out = Vec::new();
                push_slots(&mut out, &[slot(GIVEN_UP, 0)]);
                // A connection that is broken tells nothing.
                let _ = connection.write_all(&out);
            }
            let _ = connection.shutdown(Shutdown::Both);
        }
        if state.interrupted.take().is_some() {
            state.writing_from = None;
        }
        state.attached = None;
        self.wake_all();
        end
    }

    /// Breaks the present connection, as a reset does. The link goes on with the next one.
    pub fn break_connection(&self) {
        if let Some(connection) = &self.lock().connection {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn read(&self, mut role: LinkRole) -> LinkEnd {
        loop {
            let MachineConnection { channel, incoming, .. } = match self.next_connection(&mut role) {
                Ok(connection) => connection,
                Err(end) => return end,
            };
            if let Some(reading) = &mut *self.lock_reading() {
                (reading.incoming, reading.over, reading.heard) = (Some(incoming), None, Instant::now());
            }
            let why = self.read_from(&channel);
            if let Some(reading) = &mut *self.lock_reading() {
                reading.incoming = None;
            }
            let why = match why {
                Ok(Broke::Itself(why)) => why,
                // The answer to the next attempt to dial says why.
                Ok(Broke::GivenUp) if matches!(role, LinkRole::Dials(_)) => GIVEN_UP_THERE.into(),
                Ok(Broke::GivenUp) => return LinkEnd::Lost(GIVEN_UP_THERE.into()),
                Err(end) => return end,
            };
            let mut state = self.lock();
            state.connection = None;
            state.reading = false;
            self.0.changed.notify_all();
            if let Some(end) = &state.ended {
                return end.clone();
            }
            drop(state);
            let _ = channel.shutdown(Shutdown::Both);
            let (name, grace) = (&self.0.options.name, self.0.options.grace);
            tracing::info!(
                target: "gtd::nodes",
                "the connection with {name} broke ({why}); nothing is lost if it is resumed within {grace:?}"
            );
        }
    }

    /// Waits for the next connection, and makes it the present one.
    fn next_connection(&self, role: &mut LinkRole) -> Result<MachineConnection, LinkEnd> {
        let deadline = Instant::now() + self.0.options.grace;
        let mut nap = REDIAL_MIN;
        let mut why = "no connection came".to_owned();
        let mut state = self.lock();
        loop {
            if let Some(end) = &state.ended {
                return Err(end.clone());
            }
            if let Some((connection, received)) = state.attached.take() {
                if !(state.acknowledged..=state.end_position()).contains(&received) {
                    return Err(LinkEnd::Broken(format!("it has received {received} bytes of the stream")));
                }
                let settled = (received - state.acknowledged) as usize;
                state.unacknowledged.settle(settled);
                state.unacknowledged.rewind();
                (state.acknowledged, state.sent, state.told) = (received, received, state.received);
                state.is_asked = false;
                state.connection = Some(connection.channel.clone());
                (state.reading, state.connections) = (true, state.connections + 1);
                connection
                    .channel
                    .set_read_timeout(Some(SILENCE_MAX))
                    .map_err(|error| LinkEnd::Lost(error.to_string()))?;
                self.0.changed.notify_all();
                self.0.settled.notify_all();
                self.wake_lenders(&state);
                return Ok(connection);
            }
            if Instant::now() >= deadline {
                return Err(LinkEnd::Lost(format!("{why} for {} s", self.0.options.grace.as_secs())));
            }
            match role {
                LinkRole::Awaits(probe) => {
                    state = self.wait(state, nap);
                    nap = (nap * 2).min(REDIAL_MAX);
                    if state.attached.is_none() && state.ended.is_none() {
                        drop(state);
                        if let Some(gone) = probe() {
                            return Err(LinkEnd::Lost(gone));
                        }
                        state = self.lock();
                    }
                }
                LinkRole::Dials(dial) => {
                    let received = state.received;
                    drop(state);
                    let dialled = dial(received);
                    state = self.lock();
                    match dialled {
                        Ok(connection) => state.attached = Some(connection),
                        Err(DialFailure::Final(end)) => return Err(end),
                        Err(DialFailure::Retry(error)) => {
                            why = error;
                            state = self.wait(state, nap);
                            nap = (nap * 2).min(REDIAL_MAX);
                        }
                    }
                }
            }
        }
    }

    fn lock_reading(&self) -> MutexGuard<'_, Option<LinkReading>> {
        self.0.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_lookers(&self) -> MutexGuard<'_, Lookers> {
        self.0.lookers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from a connection until it breaks, whenever no other thread looks for bytes. Returns why it broke.
    fn read_from(&self, channel: &TcpChannel) -> Result<Broke, LinkEnd> {
        loop {
            self.wait_to_be_left_alone();
            let mut reading = match self.0.reading.try_lock() {
                Ok(reading) => reading,
                Err(TryLockError::Poisoned(reading)) => reading.into_inner(),
                // A thread looks, and takes what has come.
                Err(TryLockError::WouldBlock) => continue,
            };
            let Some(shared) = &mut *reading else { return broke(StreamError::Ended) };
            if let Some(over) = shared.over.take() {
                return over;
            }
            match self.read_part(shared) {
                Ok(true) => {
                    if self.lock().is_asked {
                        self.0.changed.notify_all();
                    }
                    continue;
                }
                Ok(false) if shared.heard.elapsed() >= SILENCE_MAX => return broke(StreamError::TimedOut),
                Ok(false) => {}
                Err(over) => return over,
            }
            let patience = SILENCE_MAX.saturating_sub(shared.heard.elapsed());
            drop(reading);
            // If this fails, reading does so as well.
            let _ = channel.wait_readable(1, patience);
        }
    }

    /// Waits while other threads look for bytes, or have just found some and may look again.
    fn wait_to_be_left_alone(&self) {
        let mut lookers = self.lock_lookers();
        lookers.is_waited_for = true;
        while lookers.count > 0 || lookers.until.is_some_and(|until| Instant::now() < until) {
            lookers = self.0.left_alone.wait_timeout(lookers, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        lookers.is_waited_for = false;
    }

    /// Waits until `is_done`, which bytes of these links bring about. At first this thread looks for them itself, for a
    /// while that `spin` decides, so that it need not be woken, and takes the frames. Then it calls `sleep`, and the
    /// readers' threads go on.
    pub fn wait_for<'a>(
        links: impl Iterator<Item = &'a LastingLink>,
        spin: &mut Spin,
        is_done: impl Fn() -> bool,
        sleep: impl FnOnce(),
    ) {
        if is_done() {
            return links.for_each(LastingLink::leave_to_writer);
        }
        let mut links: Vec<(&LastingLink, Option<MutexGuard<'a, _>>)> = links.map(|link| (link, None)).collect();
        if links.is_empty() {
            return sleep();
        }
        links.iter().for_each(|(link, _)| link.lock_lookers().count += 1);
        let mut begun = Instant::now();
        let found = loop {
            let mut any = false;
            for (link, reading) in &mut links {
                // The reader's thread may be reading just now.
                *reading = reading.take().or_else(|| link.0.reading.try_lock().ok());
                if let Some(reading) = reading.as_mut().and_then(|reading| reading.as_mut()) {
                    any |= link.look_once(reading);
                }
                any |= link.0.left_to_lookers.load(Relaxed) && link.write_more(link.lock());
            }
            if is_done() {
                break true;
            }
            if any {
                begun = Instant::now();
                continue;
            }
            let spun = begun.elapsed();
            if spun >= spin.look() {
                break false;
            }
            pause(spun);
        };
        if found {
            spin.found()
        } else {
            spin.found_nothing()
        }
        for (link, reading) in &mut links {
            drop(reading.take());
            link.leave_alone(usize::from(!found));
            link.leave_to_writer();
        }
        if !found {
            sleep();
            links.iter().for_each(|(link, _)| link.lock_lookers().asleep -= 1);
        }
    }

    /// Reads the next part of what comes, for a thread that looks. Returns whether something has come.
    fn look_once(&self, reading: &mut LinkReading) -> bool {
        if reading.over.is_some() {
            return false;
        }
        let read = self.read_part(reading);
        if matches!(read, Ok(false)) {
            return false;
        }
        let state = self.lock();
        match read {
            Err(over) => {
                // The reader's thread may wait for bytes.
                let _ = state.connection.as_ref().map(|connection| connection.shutdown(Shutdown::Read));
                reading.over = Some(over);
            }
            // An acknowledgement alone never waits for the other side to read.
            Ok(_) if state.is_asked && state.writing_from.is_none() && state.ended.is_none() => {
                if let Some(connection) = state.connection.clone() {
                    let state = self.write_block(state, &connection, 0, false);
                    self.wake_writer(&state);
                }
            }
            Ok(_) => {}
        }
        true
    }

    /// Writes as much of what is left as the network takes without waiting. Returns whether it has taken anything.
    fn write_more<'a>(&'a self, mut state: MutexGuard<'a, LinkState>) -> bool {
        let mut any = false;
        loop {
            let write = match state.interrupted.take() {
                Some(write) => write,
                None => {
                    let present = state.connection.clone().filter(|_| state.writing_from.is_none());
                    let is_left = state.end_position() > state.sent;
                    let Some(connection) = present.filter(|connection| is_left && !connection.is_encrypted()) else {
                        // Another thread is at it, or nothing is left.
                        self.0.left_to_lookers.store(false, Relaxed);
                        return any;
                    };
                    self.begin_write(&mut state, &connection, DATA_BYTES_MAX, false)
                }
            };
            let before = write.done();
            state = self.go_on(state, write, false);
            match &state.interrupted {
                Some(write) => return any || write.done() > before,
                None => any = true,
            }
        }
    }

    /// Leaves to the writer's thread what lookers have not written.
    fn leave_to_writer(&self) {
        if self.0.left_to_lookers.load(Relaxed) {
            self.wake_writer(&self.lock());
        }
    }

    /// Ends a look. The reader's thread goes on: soon, or at once if threads sleep until it has read something, this
    /// one among them if `sleepers` is 1.
    fn leave_alone(&self, sleepers: usize) {
        let mut lookers = self.lock_lookers();
        lookers.count -= 1;
        lookers.asleep += sleepers;
        lookers.until = (lookers.asleep == 0).then(|| Instant::now() + LOOK_AGAIN);
        if lookers.asleep > 0 && lookers.is_waited_for && lookers.count == 0 {
            self.0.left_alone.notify_all();
        }
    }

    /// Reads the next part of what comes over the present connection, if something has come. Returns whether it has, or
    /// why nothing more comes.
    fn read_part(&self, reading: &mut LinkReading) -> Result<bool, Result<Broke, LinkEnd>> {
        let LinkReading { incoming: Some(incoming), frames, taker, heard, .. } = reading else { return Ok(false) };
        if !incoming.look().map_err(broke)? {
            return Ok(false);
        }
        *heard = Instant::now();
        let slots = match incoming.next_part() {
            Ok(FramePart::Data(DataHead { segment: 0, offset, bytes })) => {
                let received = self.lock().received;
                if offset != received {
                    return Err(Err(LinkEnd::Broken(format!("byte {offset} instead of {received}"))));
                }
                return match self.read_data(incoming, bytes, frames, taker.as_mut()) {
                    Ok(Ok(())) => Ok(true),
                    Ok(Err(error)) => Err(broke(error)),
                    Err(end) => Err(Err(end)),
                };
            }
            Ok(FramePart::Whole(Frame::Slots(slots))) => slots,
            Ok(_) => return Err(Err(LinkEnd::Broken("another frame".into()))),
            Err(error) => return Err(broke(error)),
        };
        for [word, position, ..] in slots_in(slots) {
            match word {
                ACKNOWLEDGEMENT => self.acknowledge(position).map_err(Err)?,
                FAREWELL => return Err(Err(LinkEnd::ClosedThere)),
                GIVEN_UP => return Err(Ok(Broke::GivenUp)),
                _ => return Err(Err(LinkEnd::Broken(format!("slot {word}")))),
            }
        }
        Ok(true)
    }

    /// Reads the next `left` bytes of the stream, or until the connection breaks.
    fn read_data(
        &self,
        incoming: &mut Incoming,
        mut left: usize,
        frames: &mut FrameAssembly,
        taker: &mut dyn FrameTaker,
    ) -> Result<Result<(), StreamError>, LinkEnd> {
        while left > 0 {
            let Some((head, lent)) = frames.lent() else {
                let bytes = match incoming.some(left) {
                    Ok(bytes) => bytes,
                    Err(error) => return Ok(Err(error)),
                };
                let mut rest = bytes;
                while let Some(frame) = frames.next(&mut rest).map_err(LinkEnd::Broken)? {
                    taker.take(frame).map_err(LinkEnd::Broken)?;
                }
                let read = bytes.len() - rest.len();
                incoming.consume(read);
                left -= read;
                self.note_received(read, None);
                continue;
            };
            let mut source = LentSource { left: left.min(lent), incoming, read: 0, failure: None };
            taker.take_lent(&head, &mut source).map_err(LinkEnd::Broken)?;
            let (read, failure) = (source.read, source.failure);
            frames.note_lent(read);
            left -= read;
            self.note_received(read, Some(read > 0 && frames.lent().is_none()));
            let waited = match failure {
                Some(error) => Err(error),
                None if read == 0 => incoming.wait(left, SILENCE_MAX),
                None => Ok(()),
            };
            if let Err(error) = waited {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Notes bytes that were received: copied ones, of which the other side keeps as many as are not acknowledged, or
    /// lent ones, which are acknowledged after the `last`.
    fn note_received(&self, bytes: usize, last: Option<bool>) {
        let mut state = self.lock();
        state.received += bytes as u64;
        state.is_asked |= last.unwrap_or_else(|| state.received - state.told >= ACKNOWLEDGE_BYTES);
    }

    fn acknowledge(&self, position: u64) -> Result<(), LinkEnd> {
        let mut state = self.lock();
        if !(state.acknowledged..=state.sent).contains(&position) {
            return Err(LinkEnd::Broken(format!("it acknowledges byte {position}")));
        }
        let settled = (position - state.acknowledged) as usize;
        state.unacknowledged.settle(settled);
        state.acknowledged = position;
        if state.senders > 0 {
            self.0.settled.notify_all();
        }
        self.wake_lenders(&state);
        Ok(())
    }

    /// Sends over the present connection, until the link ends.
    fn write(&self) {
        let mut state = self.lock();
        while state.ended.is_none() {
            if let Some(write) = state.interrupted.take() {
                state = self.go_on(state, write, true);
                continue;
            }
            let present = state.connection.clone().filter(|_| state.writing_from.is_none());
            let Some(connection) = present else {
                state = self.wait(state, BEAT_EVERY);
                continue;
            };
            let left = state.end_position() - state.sent;
            let is_due = state.spoke.elapsed() >= BEAT_EVERY || state.is_asked;
            if left == 0 && !is_due && !state.closing {
                let next_beat = BEAT_EVERY.saturating_sub(state.spoke.elapsed());
                state = self.wait(state, next_beat);
                continue;
            }
            let is_farewell = left == 0 && state.closing;
            let bytes_max = if state.unacknowledged.lent_pieces > 0 { DATA_BYTES_MAX } else { BLOCK_BYTES_MAX };
            state = self.write_block(state, &connection, bytes_max, is_farewell);
        }
    }

    /// Sends an acknowledgement and at most `bytes_max` of the next bytes, and perhaps a farewell, which ends the link.
    /// Nobody else may be writing.
    fn write_block<'a>(
        &'a self,
        mut state: MutexGuard<'a, LinkState>,
        connection: &Arc<TcpChannel>,
        bytes_max: usize,
        is_farewell: bool,
    ) -> MutexGuard<'a, LinkState> {
        let write = self.begin_write(&mut state, connection, bytes_max, is_farewell);
        self.go_on(state, write, true)
    }

    /// Takes what [`write_block`](Self::write_block) sends.
    fn begin_write(
        &self,
        state: &mut LinkState,
        connection: &Arc<TcpChannel>,
        bytes_max: usize,
        is_farewell: bool,
    ) -> LinkWrite {
        let mut write = LinkWrite::new(connection, std::mem::take(&mut state.room));
        write.push_slot(ACKNOWLEDGEMENT, state.received);
        (state.told, state.is_asked) = (state.received, false);
        let position = state.sent;
        (state.writing_from, state.spoke) = (Some(position), Instant::now());
        state.sent += write.push_data(position, &mut state.unacknowledged, bytes_max) as u64;
        if is_farewell {
            write.push_slot(FAREWELL, 0);
            write.is_last = true;
        }
        write
    }

    /// Goes on with a write: to its end if this thread `waits` for room, otherwise as far as the network takes it now,
    /// and it is then [interrupted](LinkState::interrupted).
    fn go_on<'a>(
        &'a self,
        state: MutexGuard<'a, LinkState>,
        mut write: LinkWrite,
        waits: bool,
    ) -> MutexGuard<'a, LinkState> {
        drop(state);
        let written = write.go_on(waits);
        let mut state = self.lock();
        if matches!(written, Ok(false)) && state.ended.is_none() {
            state.interrupted = Some(write);
            self.0.left_to_lookers.store(true, Relaxed);
            return state;
        }
        let (connection, is_last, room) = write.finish();
        (state.writing_from, state.room) = (None, room);
        self.wake_lenders(&state);
        if written.is_err() {
            // The reader notices, and takes the next connection.
            let _ = connection.shutdown(Shutdown::Both);
            if state.connection.as_ref().is_some_and(|present| Arc::ptr_eq(present, &connection)) {
                state.connection = None;
            }
        } else if is_last && state.ended.is_none() {
            state.ended = Some(LinkEnd::ClosedHere);
            self.wake_all();
            let _ = connection.shutdown(Shutdown::Write);
        }
        state
    }
}

/// Why nothing more comes over a connection.
enum Broke {
    /// It broke, for this reason.
    Itself(String),
    /// The other side has ended the link.
    GivenUp,
}

const GIVEN_UP_THERE: &str = "the other side has given the link up";

/// Why a connection broke, or the end of the link if it makes no sense what came.
fn broke(error: StreamError) -> Result<Broke, LinkEnd> {
    match error {
        StreamError::TimedOut => Ok(Broke::Itself(format!("nothing came for {} s", SILENCE_MAX.as_secs()))),
        StreamError::Ended | StreamError::Io(_) => Ok(Broke::Itself(error.to_string())),
        error => Err(LinkEnd::Broken(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_port::{MachinePort, dial};
    use crate::tls::Certificate;
    use gt_protocol::address::Fingerprint;
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc::{Receiver, channel};

    const GRACE: Duration = Duration::from_secs(20);

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(std::env::temp_dir().join(format!("gt-link-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// One side of a link, the frames that came, and how it ended.
    type Side = (LastingLink, Receiver<Vec<u8>>, Receiver<LinkEnd>);

    fn side(role: LinkRole, grace: Duration) -> Side {
        let ((frames, came), (ends, ended)) = (channel(), channel());
        let options = LinkOptions { name: "the other".into(), grace };
        let taken = move |frame: &mut Vec<u8>| frames.send(std::mem::take(frame)).map_err(|error| error.to_string());
        let link = LastingLink::start(options, role, None, taken, move |end| drop(ends.send(end))).unwrap();
        (link, came, ended)
    }

    fn awaiting(grace: Duration) -> Side {
        side(LinkRole::Awaits(Box::new(|| None)), grace)
    }

    /// Two sides; the first awaits connections, the second dials.
    fn pair(folder: &Folder, grace: Duration) -> (Side, Side) {
        let [one, other] = ["one", "other"].map(|name| Certificate::own(&folder.0.join(name)).unwrap());
        let port = MachinePort::bind("127.0.0.1:0".parse().unwrap(), &one).unwrap();
        let (address, peer) = (port.address(), other.fingerprint());
        let awaits = awaiting(grace);
        let link = awaits.0.clone();
        port.start(move |connection, received: u64| {
            assert_eq!(connection.peer, peer, "each side knows the other's certificate");
            // The other side sees how this ends.
            let _ = link.attach(connection, received, |connection, received| connection.reply(&received));
        })
        .unwrap();
        let expected = one.fingerprint();
        let dials = side(
            LinkRole::Dials(Box::new(move |received| {
                dial::<_, u64>(("127.0.0.1", address.port()), expected, &other, &received)
                    .map_err(|error| DialFailure::Retry(error.to_string()))
            })),
            grace,
        );
        (awaits, dials)
    }

    /// Frame `number`, whose length depends on it.
    fn frame(number: u64) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(8 + (number * 7919 % 20_011) as usize, number as u8);
        bytes
    }

    #[test]
    fn frames_arrive_once_and_in_order_however_often_the_connection_breaks() {
        const FRAMES: u64 = 3000;
        let folder = Folder::new("breaks");
        let done = AtomicBool::new(false);
        let ((one, came, one_ended), (other, came_back, other_ended)) = pair(&folder, GRACE);
        std::thread::scope(|scope| {
            let send = |link: &LastingLink| {
                (0..FRAMES).for_each(|number| link.send(&[&frame(number)[..3], &frame(number)[3..]]).unwrap());
            };
            // Both sides' frames are taken by the reader or by this thread.
            let (looks, done) = ((one.clone(), other.clone()), &done);
            scope.spawn(move || {
                let mut spin = Spin::new(Duration::from_micros(50), 4);
                while !done.load(Relaxed) {
                    let until = Instant::now() + Duration::from_micros(200);
                    let is_over = || Instant::now() > until;
                    LastingLink::wait_for([&looks.0, &looks.1].into_iter(), &mut spin, is_over, || ());
                }
            });
            let (one_sends, other_sends) = (one.clone(), other.clone());
            scope.spawn(move || send(&one_sends));
            scope.spawn(move || send(&other_sends));
            for number in 0..FRAMES {
                assert_eq!(came.recv_timeout(GRACE).unwrap(), frame(number));
                assert_eq!(came_back.recv_timeout(GRACE).unwrap(), frame(number));
                if number % 50 == 0 {
                    let resumed = || [&one, &other].map(|link| link.counts().resumed);
                    let breaking = if number % 100 == 0 { &one } else { &other };
                    let (before, begun) = (resumed(), Instant::now());
                    let mut breaks = 0;
                    while resumed().iter().zip(before).any(|(now, before)| *now == before) {
                        assert!(begun.elapsed() < GRACE, "{:?}", one.counts());
                        // A side may still be at a connection that the other one has given up: it breaks the next, too.
                        if begun.elapsed() >= breaks * Duration::from_millis(100) {
                            breaking.break_connection();
                            breaks += 1;
                        }
                        std::thread::yield_now();
                    }
                }
            }
            done.store(true, Relaxed);
        });
        assert!(one.counts().resumed >= FRAMES / 50, "{:?}", one.counts());
        assert!(came.try_recv().is_err() && came_back.try_recv().is_err(), "nothing more came");
        other.close(GRACE);
        assert_eq!(other_ended.recv_timeout(GRACE).unwrap(), LinkEnd::ClosedHere);
        assert_eq!(one_ended.recv_timeout(GRACE).unwrap(), LinkEnd::ClosedThere);
        assert_eq!(one.send(&[&[1]]), Err(LinkEnd::ClosedThere));
    }

    #[test]
    fn a_thread_that_looks_takes_what_comes_and_leaves_the_rest_to_the_reader() {
        let folder = Folder::new("looks");
        let ((one, came, _), (other, _, _)) = pair(&folder, GRACE);
        other.send(&[b"first"]).unwrap();
        assert_eq!(came.recv_timeout(GRACE).unwrap(), b"first");
        let (looks, frames) = (std::cell::Cell::new(0), std::cell::RefCell::new(Vec::new()));
        let mut spin = Spin::new(GRACE, 0);
        let is_done = || {
            // Nobody else reads by the second look.
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                other.send(&[b"second"]).unwrap();
                other.send(&[&[7; 100_000]]).unwrap();
            }
            frames.borrow_mut().extend(came.try_iter());
            frames.borrow().len() == 2
        };
        LastingLink::wait_for([&one].into_iter(), &mut spin, is_done, || panic!("nothing came"));
        assert_eq!(frames.into_inner(), [b"second".to_vec(), vec![7; 100_000]]);
        // The reader goes on, and while this thread sleeps.
        other.send(&[b"third"]).unwrap();
        assert_eq!(came.recv_timeout(GRACE).unwrap(), b"third");
        let sleep = || {
            other.send(&[b"fourth"]).unwrap();
            assert_eq!(came.recv_timeout(GRACE).unwrap(), b"fourth");
        };
        LastingLink::wait_for([&one].into_iter(), &mut Spin::new(Duration::ZERO, 0), || false, sleep);
    }

    #[test]
    fn a_side_that_awaits_connections_is_told_when_the_other_ends_the_link() {
        let folder = Folder::new("given-up");
        let ((one, came, one_ended), (other, _, other_ended)) = pair(&folder, 100 * GRACE);
        other.send(&[b"hello"]).unwrap();
        assert_eq!(came.recv_timeout(GRACE).unwrap(), b"hello");
        let failed = LinkEnd::Lost("a test".into());
        // The writer may be at an acknowledgement, with which the end does not interfere.
        while other.lock().writing_from.is_some() {
            std::thread::yield_now();
        }
        assert_eq!(other.end(failed.clone()), failed);
        assert_eq!(other_ended.recv_timeout(GRACE).unwrap(), failed);
        assert_eq!(one_ended.recv_timeout(GRACE).unwrap(), LinkEnd::Lost(GIVEN_UP_THERE.into()));
        assert!(one.send(&[&[1]]).is_err());
    }

    /// Keeps the bytes that were lent, behind their heads, and sends each on when it is complete.
    struct LentTaker {
        bytes: Vec<u8>,
        whole: usize,
        complete: std::sync::mpsc::Sender<Vec<u8>>,
    }

    impl FrameTaker for LentTaker {
        fn take(&mut self, frame: &mut Vec<u8>) -> Result<(), String> {
            self.complete.send(std::mem::take(frame)).map_err(|error| error.to_string())
        }

        fn take_lent(&mut self, head: &[u8; LENT_HEAD_BYTES], from: &mut LentSource<'_>) -> Result<(), String> {
            if self.bytes.is_empty() {
                self.bytes.extend(head);
                self.whole = LENT_HEAD_BYTES + u64::from_le_bytes(*head.first_chunk().unwrap()) as usize;
            }
            // It takes as much as it wants.
            let mut room = vec![0; 70_001];
            let count = from.read(&mut room);
            self.bytes.extend(&room[..count]);
            if self.bytes.len() == self.whole {
                let bytes = std::mem::take(&mut self.bytes);
                self.complete.send(bytes).map_err(|error| error.to_string())?;
            }
            Ok(())
        }
    }

    #[test]
    fn lent_bytes_arrive_once_and_in_order_with_frames_however_often_the_connection_breaks() {
        const LOANS: u64 = 40;
        let folder = Folder::new("lent");
        for plain in [false, true] {
            let [(takes, came), (lends, _frames)] = lending_pair(&folder, plain);
            let bytes = |number: u64| -> Vec<u8> {
                let length = 1 + number * 300_007 % 2_000_003;
                (0..length).map(|i| (i * 31 + number) as u8).collect()
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..LOANS {
                        let lent = bytes(number);
                        let mut head = [number as u8; LENT_HEAD_BYTES];
                        head[..8].copy_from_slice(&(lent.len() as u64).to_le_bytes());
                        // SAFETY: the bytes live until the loan is settled or taken back.
                        let loan = unsafe { lends.lend(&head, &raw const *lent) }.unwrap();
                        lends.send(&[&number.to_le_bytes()]).unwrap();
                        if number % 4 == 3 {
                            lends.take_back(loan);
                        } else {
                            assert!(lends.settle(loan, GRACE));
                        }
                    }
                });
                for number in 0..LOANS {
                    let whole = came.recv_timeout(GRACE).unwrap();
                    assert_eq!(whole[8..LENT_HEAD_BYTES], [number as u8; LENT_HEAD_BYTES - 8]);
                    assert!(whole[LENT_HEAD_BYTES..] == bytes(number), "loan {number}");
                    assert_eq!(came.recv_timeout(GRACE).unwrap(), number.to_le_bytes());
                    if number % 3 == 0 {
                        [&takes, &lends][number as usize % 2].break_connection();
                    }
                }
            });
            assert!(lends.counts().resumed > 3, "{:?}", lends.counts());
            // Bytes that are lent when a link ends are given back.
            let lent = bytes(7);
            takes.end(LinkEnd::ClosedHere);
            // SAFETY: the bytes live until the loan is settled.
            let loan = unsafe { lends.lend(&[0; LENT_HEAD_BYTES], &raw const *lent) };
            lends.end(LinkEnd::ClosedHere);
            if let Ok(loan) = loan {
                assert!(lends.settle(loan, GRACE));
            }
        }
    }

    /// Two sides that take lent bytes; the first awaits connections, the second dials. They are `plain`, without
    /// encryption, or not.
    fn lending_pair(folder: &Folder, plain: bool) -> [(LastingLink, Receiver<Vec<u8>>); 2] {
        let [one, other] = ["one", "other"].map(|name| Certificate::own(&folder.0.join(name)).unwrap());
        let port = MachinePort::bind("127.0.0.1:0".parse().unwrap(), &one).unwrap();
        let (address, expected) = (port.address(), one.fingerprint());
        let side = |role: LinkRole| {
            let (complete, came) = channel();
            let options = LinkOptions { name: "the other".into(), grace: GRACE };
            let taker = LentTaker { bytes: Vec::new(), whole: 0, complete };
            (LastingLink::start(options, role, None, taker, |_| ()).unwrap(), came)
        };
        let awaits = side(LinkRole::Awaits(Box::new(|| None)));
        let link = awaits.0.clone();
        port.start(move |connection, received: u64| {
            // The other side sees how this ends.
            let _ = link.attach(connection, received, |connection, received| {
                connection.reply(&received)?;
                if plain { connection.end_encryption() } else { Ok(()) }
            });
        })
        .unwrap();
        let dials = side(LinkRole::Dials(Box::new(move |received| {
            let retry = |error: &dyn std::fmt::Display| DialFailure::Retry(error.to_string());
            let dialled = dial::<_, u64>(("127.0.0.1", address.port()), expected, &other, &received);
            let (mut connection, received) = dialled.map_err(|error| retry(&error))?;
            if plain {
                connection.end_encryption().map_err(|error| retry(&error))?;
            }
            Ok((connection, received))
        })));
        [awaits, dials]
    }

    #[test]
    fn sides_that_lend_to_each_other_write_and_read_by_turns_and_lose_nothing_when_a_connection_breaks() {
        const LOANS: u8 = 60;
        let folder = Folder::new("by-turns");
        let sides = lending_pair(&folder, true);
        let links = [&sides[0].0, &sides[1].0].map(LastingLink::clone);
        std::thread::scope(|scope| {
            for (number, (_, came)) in sides.into_iter().enumerate() {
                let link = &links[number];
                scope.spawn(move || {
                    // More than a connection takes at once, whose other side does not read yet.
                    let mut lent = vec![0; WRITTEN_BY_LOOKERS_BYTES_MAX];
                    let mut head = [0; LENT_HEAD_BYTES];
                    head[..8].copy_from_slice(&(lent.len() as u64).to_le_bytes());
                    let mut spin = Spin::new(Duration::from_millis(1), 4);
                    for loan in 0..LOANS {
                        lent.fill(2 * loan + number as u8);
                        // SAFETY: the bytes live, and are not written, until the loan is settled below.
                        let lent = unsafe { link.lend(&head, &raw const *lent) }.unwrap();
                        let arrived = std::cell::RefCell::new(None);
                        let has_come = || {
                            arrived.borrow().is_some()
                                || came.try_recv().is_ok_and(|whole| {
                                    *arrived.borrow_mut() = Some(whole);
                                    true
                                })
                        };
                        let mut slept = None;
                        let sleep = || slept = came.recv_timeout(GRACE).ok();
                        LastingLink::wait_for([link].into_iter(), &mut spin, has_come, sleep);
                        let whole = slept.or(arrived.into_inner()).expect("the other side's loan came");
                        let theirs = 2 * loan + 1 - number as u8;
                        assert!(whole[LENT_HEAD_BYTES..].iter().all(|byte| *byte == theirs), "loan {loan}");
                        if loan % 20 == 19 && number == 0 {
                            link.break_connection();
                        }
                        assert!(link.settle(lent, GRACE));
                    }
                });
            }
        });
        let counts = links.map(|link| link.counts());
        assert!(counts[0].resumed > 0, "{counts:?}");
        assert_eq!(counts[0].sent_bytes, counts[1].received_bytes);
    }

    #[test]
    fn a_link_without_a_connection_is_lost_after_its_grace_period() {
        let (link, _came, ended) = awaiting(Duration::from_millis(1));
        let told = ended.recv_timeout(GRACE).unwrap();
        assert!(matches!(&told, LinkEnd::Lost(why) if why.starts_with("no connection came for")), "{told}");
        assert_eq!(link.ended(), Some(told));
        let gone: Probe = Box::new(|| Some("its process has ended".into()));
        let (_, _came, ended) = side(LinkRole::Awaits(gone), GRACE);
        assert_eq!(ended.recv_timeout(GRACE).unwrap(), LinkEnd::Lost("its process has ended".into()));
        let refuses: Dial = Box::new(|_| Err(DialFailure::Final(LinkEnd::Refused("given up".into()))));
        let (_, _came, ended) = side(LinkRole::Dials(refuses), GRACE);
        assert_eq!(ended.recv_timeout(GRACE).unwrap(), LinkEnd::Refused("given up".into()));
    }

    #[test]
    fn a_peer_that_lies_about_what_it_has_received_ends_the_link() {
        let folder = Folder::new("lies");
        let [one, other] = ["one", "other"].map(|name| Certificate::own(&folder.0.join(name)).unwrap());
        let port = MachinePort::bind("127.0.0.1:0".parse().unwrap(), &one).unwrap();
        let address = port.address();
        let (link, _came, ended) = awaiting(GRACE);
        port.start(move |connection, received: u64| {
            // The link ends, which the test sees.
            let _ = link.attach(connection, received, |connection, received| connection.reply(&received));
        })
        .unwrap();
        let to = ("127.0.0.1", address.port());
        let _connection = dial::<_, u64>(to, one.fingerprint(), &other, &7u64).unwrap();
        let told = ended.recv_timeout(GRACE).unwrap();
        assert!(matches!(&told, LinkEnd::Broken(why) if why == "it has received 7 bytes of the stream"), "{told}");
        let wrong = dial::<_, u64>(to, Fingerprint([0; 32]), &other, &0u64).map(drop).unwrap_err().to_string();
        assert!(wrong.contains("has another certificate than the address says"), "{wrong}");
    }
}
