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
//! `Slots` with one acknowledgement each. In the stream, a frame is its length in four bytes and its bytes.
//!
//! Many bytes are not copied to be kept: the caller *lends* them, and leaves them as they are until the other side has
//! acknowledged them, which it does as soon as the last has come. They are no frame, so that their receiver can have
//! each part read to where it belongs; in the stream, they are their number with [`LENT_BIT`], a head and the bytes.

use crate::frame::{DATA_BYTES_MAX, DataHead, Frame, push_data_header, push_slots, slots_in};
use crate::machine_port::MachineConnection;
use crate::stream::{FramePart, Incoming, StreamError};
use gt_shm::Slot;
use std::collections::VecDeque;
use std::net::Shutdown;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of a frame.
pub const LINK_FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of a frame's length before it.
const LENGTH_BYTES: usize = 4;
/// Bytes of the head of lent bytes, which tells their receiver where they belong.
pub const LENT_HEAD_BYTES: usize = 13;
/// The most bytes that are lent at one time.
pub const LENT_BYTES_MAX: usize = LENT_BIT as usize - 1;
/// The bit of a length that says that it is of lent bytes.
const LENT_BIT: u32 = 1 << 31;
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
/// Up to so many bytes are copied together to be sent; more are sent from where they lie.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// The capacity of a piece of small frames.
const PIECE_BYTES_MIN: usize = 4 << 10;
/// The wait between the first attempts to dial or to probe, which doubles up to [`REDIAL_MAX`].
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);

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
    /// The position from which on the writer reads bytes; none while it reads none.
    writing_from: Option<u64>,
    /// How many threads wait until fewer bytes are not acknowledged.
    senders: usize,
    /// The positions for whose acknowledgement threads wait that want lent bytes back.
    lenders: Vec<u64>,
    connection: Option<Arc<crate::channel::TcpChannel>>,
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
            senders: 0,
            lenders: Vec::new(),
            connection: None,
            attached: first.map(|connection| (connection, 0)),
            reading: false,
            connections: 0,
            closing: false,
            ended: None,
        };
        let link = LastingLink(Arc::new(Shared {
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            settled: Condvar::new(),
            returned: Condvar::new(),
        }));
        let (reader, writer) = (link.clone(), link.clone());
        std::thread::Builder::new().name("gt-link-in".into()).spawn(move || {
            let end = reader.read(role, taker);
            ended(reader.end(end));
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
        self.push(state, parts)
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
        self.push(self.lock(), parts)
    }

    fn push(&self, mut state: MutexGuard<'_, LinkState>, parts: &[&[u8]]) -> Result<(), LinkEnd> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= LINK_FRAME_BYTES_MAX, "a frame of {bytes} bytes");
        if let Some(end) = &state.ended {
            return Err(end.clone());
        }
        state.unacknowledged.push(bytes, parts);
        self.0.changed.notify_all();
        Ok(())
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
        state.unacknowledged.push_lent(head, bytes);
        self.0.changed.notify_all();
        Ok(LentRange { end: state.end_position() })
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

    fn read(&self, mut role: LinkRole, mut taker: impl FrameTaker) -> LinkEnd {
        let mut frames = FrameAssembly::default();
        loop {
            let mut connection = match self.next_connection(&mut role) {
                Ok(connection) => connection,
                Err(end) => return end,
            };
            let why = match self.read_from(&mut connection.incoming, &mut frames, &mut taker) {
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
            let _ = connection.channel.shutdown(Shutdown::Both);
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

    /// Reads from a connection until it breaks. Returns why it broke.
    fn read_from(
        &self,
        incoming: &mut Incoming,
        frames: &mut FrameAssembly,
        taker: &mut impl FrameTaker,
    ) -> Result<Broke, LinkEnd> {
        loop {
            let slots = match incoming.next_part() {
                Ok(FramePart::Data(DataHead { segment: 0, offset, bytes })) => {
                    let received = self.lock().received;
                    if offset != received {
                        return Err(LinkEnd::Broken(format!("byte {offset} instead of {received}")));
                    }
                    if let Err(error) = self.read_data(incoming, bytes, frames, taker)? {
                        return broke(error);
                    }
                    continue;
                }
                Ok(FramePart::Whole(Frame::Slots(slots))) => slots,
                Ok(_) => return Err(LinkEnd::Broken("another frame".into())),
                Err(error) => return broke(error),
            };
            for [word, position, ..] in slots_in(slots) {
                match word {
                    ACKNOWLEDGEMENT => self.acknowledge(position)?,
                    FAREWELL => return Err(LinkEnd::ClosedThere),
                    GIVEN_UP => return Ok(Broke::GivenUp),
                    _ => return Err(LinkEnd::Broken(format!("slot {word}"))),
                }
            }
        }
    }

    /// Reads the next `left` bytes of the stream, or until the connection breaks.
    fn read_data(
        &self,
        incoming: &mut Incoming,
        mut left: usize,
        frames: &mut FrameAssembly,
        taker: &mut impl FrameTaker,
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
        let is_due = last.unwrap_or_else(|| state.received - state.told >= ACKNOWLEDGE_BYTES);
        state.is_asked |= is_due;
        if is_due {
            self.0.changed.notify_all();
        }
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
        let mut out = Vec::with_capacity(COPIED_BYTES_MAX + 1024);
        let mut slices = Vec::new();
        let mut spoke = Instant::now();
        loop {
            let mut state = self.lock();
            if state.writing_from.take().is_some() {
                self.wake_lenders(&state);
            }
            let (connection, farewell) = loop {
                if state.ended.is_some() {
                    return;
                }
                let Some(connection) = state.connection.clone() else {
                    state = self.wait(state, BEAT_EVERY);
                    continue;
                };
                let left = state.end_position() - state.sent;
                let due = spoke.elapsed() >= BEAT_EVERY || state.is_asked;
                if left > 0 || due || state.closing {
                    break (connection, left == 0 && state.closing);
                }
                state = self.wait(state, BEAT_EVERY.saturating_sub(spoke.elapsed()));
            };
            out.clear();
            push_slots(&mut out, &[slot(ACKNOWLEDGEMENT, state.received)]);
            (state.told, state.is_asked) = (state.received, false);
            let position = state.sent;
            let bytes_max = if state.unacknowledged.lent_pieces > 0 { DATA_BYTES_MAX } else { BLOCK_BYTES_MAX };
            let count = state.unacknowledged.take(bytes_max, &mut slices);
            state.writing_from = Some(position);
            state.sent += count as u64;
            if count > 0 {
                push_data_header(&mut out, 0, position, count);
            }
            if count <= COPIED_BYTES_MAX {
                slices.drain(..).for_each(|(piece, range)| out.extend_from_slice(&piece.bytes()[range]));
            }
            drop(state);
            spoke = Instant::now();
            if farewell {
                push_slots(&mut out, &[slot(FAREWELL, 0)]);
            }
            let parts: Vec<&[u8]> = std::iter::once(&out[..])
                .chain(slices.iter().map(|(piece, range)| &piece.bytes()[range.clone()]))
                .collect();
            let written = connection.write_all_parts(&parts);
            slices.clear();
            if written.is_err() {
                // The reader notices, and takes the next connection.
                let _ = connection.shutdown(Shutdown::Both);
                let mut state = self.lock();
                state.writing_from = None;
                self.wake_lenders(&state);
                if state.connection.as_ref().is_some_and(|present| Arc::ptr_eq(present, &connection)) {
                    drop(self.wait(state, BEAT_EVERY));
                }
            } else if farewell {
                let mut state = self.lock();
                state.writing_from = None;
                state.ended.get_or_insert(LinkEnd::ClosedHere);
                self.wake_all();
                let _ = connection.shutdown(Shutdown::Write);
                return;
            }
        }
    }
}

fn slot(kind: u64, position: u64) -> Slot {
    let mut slot = Slot::default();
    (slot[0], slot[1]) = (kind, position);
    slot
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

/// Bytes of a stream, one after another.
#[derive(Clone)]
enum StreamPiece {
    /// Copied.
    Kept(Arc<Vec<u8>>),
    /// Lent by the caller of [`LastingLink::lend`].
    Lent(*const [u8]),
}

// SAFETY: by the contract of `LastingLink::lend`, any thread may read lent bytes while they are in a link.
unsafe impl Send for StreamPiece {}

impl StreamPiece {
    fn bytes(&self) -> &[u8] {
        match self {
            StreamPiece::Kept(bytes) => bytes,
            // SAFETY: by the contract of `LastingLink::lend`, lent bytes can be read and nobody writes them until they
            // are returned: until they are acknowledged and the writer is behind them, or no piece is lent any more.
            StreamPiece::Lent(bytes) => unsafe { &**bytes },
        }
    }

    fn len(&self) -> usize {
        match self {
            StreamPiece::Kept(bytes) => bytes.len(),
            StreamPiece::Lent(bytes) => bytes.len(),
        }
    }
}

/// Bytes of a stream that are not acknowledged, in pieces that are sent from where they lie.
#[derive(Default)]
struct Unacknowledged {
    pieces: VecDeque<StreamPiece>,
    /// Bytes of the first piece that are acknowledged.
    settled: usize,
    /// Bytes of all pieces that are not.
    len: usize,
    /// Bytes of all pieces that were copied.
    kept: usize,
    lent_pieces: usize,
    /// The next byte to send: its piece, and its offset there.
    next: (usize, usize),
}

impl Unacknowledged {
    /// Adds a frame of `bytes` bytes.
    fn push(&mut self, bytes: usize, parts: &[&[u8]]) {
        self.push_kept(LENGTH_BYTES + bytes, |piece| {
            piece.extend_from_slice(&(bytes as u32).to_le_bytes());
            parts.iter().for_each(|part| piece.extend_from_slice(part));
        });
    }

    fn push_kept(&mut self, whole: usize, append: impl FnOnce(&mut Vec<u8>)) {
        self.len += whole;
        self.kept += whole;
        // A piece that is being sent is shared, and has to stay as it is.
        let last = match self.pieces.back_mut() {
            Some(StreamPiece::Kept(last)) => Arc::get_mut(last),
            _ => None,
        };
        match last.filter(|last| last.len() + whole <= last.capacity()) {
            Some(last) => append(last),
            None => {
                let mut piece = Vec::with_capacity(whole.max(PIECE_BYTES_MIN));
                append(&mut piece);
                self.pieces.push_back(StreamPiece::Kept(Arc::new(piece)));
            }
        }
    }

    /// Adds lent bytes.
    fn push_lent(&mut self, head: &[u8; LENT_HEAD_BYTES], bytes: *const [u8]) {
        self.push_kept(LENGTH_BYTES + LENT_HEAD_BYTES, |piece| {
            piece.extend_from_slice(&(bytes.len() as u32 | LENT_BIT).to_le_bytes());
            piece.extend_from_slice(head);
        });
        if bytes.len() > 0 {
            self.len += bytes.len();
            self.lent_pieces += 1;
            self.pieces.push_back(StreamPiece::Lent(bytes));
        }
    }

    /// Copies all lent bytes.
    fn keep_lent(&mut self) {
        for piece in self.pieces.iter_mut().filter(|piece| matches!(piece, StreamPiece::Lent(_))) {
            let bytes = piece.bytes().to_vec();
            self.kept += bytes.len();
            *piece = StreamPiece::Kept(Arc::new(bytes));
        }
        self.lent_pieces = 0;
    }

    /// Forgets the oldest `bytes` bytes.
    fn settle(&mut self, bytes: usize) {
        self.len -= bytes;
        self.settled += bytes;
        while let Some(first) = self.pieces.front().filter(|first| first.len() <= self.settled) {
            self.settled -= first.len();
            match self.pieces.pop_front() {
                Some(StreamPiece::Kept(first)) => self.kept -= first.len(),
                Some(StreamPiece::Lent(_)) => self.lent_pieces -= 1,
                None => {}
            }
            self.next = self.next.0.checked_sub(1).map_or((0, 0), |piece| (piece, self.next.1));
        }
    }

    /// Makes the oldest byte the next one to send.
    fn rewind(&mut self) {
        self.next = (0, self.settled);
    }

    /// Takes at most `bytes_max` bytes to be sent, as ranges of pieces; returns their number.
    fn take(&mut self, bytes_max: usize, slices: &mut Vec<(StreamPiece, Range<usize>)>) -> usize {
        let mut count = 0;
        while let Some(piece) = self.pieces.get(self.next.0) {
            let start = self.next.1;
            let end = piece.len().min(start + bytes_max - count);
            if start < end {
                slices.push((piece.clone(), start..end));
                (count, self.next.1) = (count + end - start, end);
            }
            // The last piece may still grow.
            if end < piece.len() || self.next.0 + 1 == self.pieces.len() {
                break;
            }
            self.next = (self.next.0 + 1, 0);
        }
        count
    }
}

/// The frames of the stream, whose bytes come in blocks.
#[derive(Default)]
pub struct FrameAssembly {
    /// The bytes of the frame's length that have come, and of the head of lent bytes.
    head: Vec<u8>,
    /// The bytes of the frame that have come.
    frame: Vec<u8>,
    /// Whether the frame was returned.
    is_whole: bool,
    /// The lent bytes that are still to come.
    lent: usize,
}

impl FrameAssembly {
    /// The next frame, whose last bytes are taken from the beginning of `bytes`; none if these do not complete it, or
    /// if [lent bytes](Self::lent) are next.
    ///
    /// # Errors
    /// The frame is longer than [`LINK_FRAME_BYTES_MAX`].
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<&mut Vec<u8>>, String> {
        if self.lent > 0 {
            return Ok(None);
        }
        loop {
            if std::mem::take(&mut self.is_whole) {
                self.head.clear();
                self.frame.clear();
            }
            let take = |to: &mut Vec<u8>, length: usize, bytes: &mut &[u8]| {
                let (taken, rest) = bytes.split_at(bytes.len().min(length - to.len()));
                to.extend_from_slice(taken);
                *bytes = rest;
            };
            if self.head.len() < LENGTH_BYTES {
                take(&mut self.head, LENGTH_BYTES, bytes);
            }
            let Some(length) = self.head.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
            let length = u32::from_le_bytes(*length);
            if length & LENT_BIT == 0 {
                let length = length as usize;
                if length > LINK_FRAME_BYTES_MAX {
                    return Err(format!("a frame of {length} bytes"));
                }
                self.frame.reserve(length - self.frame.len());
                take(&mut self.frame, length, bytes);
                self.is_whole = self.frame.len() == length;
                return Ok(self.is_whole.then_some(&mut self.frame));
            }
            let whole = LENGTH_BYTES + LENT_HEAD_BYTES;
            take(&mut self.head, whole, bytes);
            if self.head.len() < whole {
                return Ok(None);
            }
            self.is_whole = true;
            self.lent = (length & !LENT_BIT) as usize;
            if self.lent > 0 {
                return Ok(None);
            }
        }
    }

    /// The head of the lent bytes that are next in the stream, and the number of those that are still to come; none if
    /// a frame is next.
    pub fn lent(&self) -> Option<([u8; LENT_HEAD_BYTES], usize)> {
        let head = self.head.get(LENGTH_BYTES..)?.first_chunk()?;
        (self.lent > 0).then_some((*head, self.lent))
    }

    /// Notes that lent bytes have come.
    ///
    /// # Panics
    /// If they are more than those that are still to come.
    pub fn note_lent(&mut self, bytes: usize) {
        assert!(bytes <= self.lent, "{bytes} bytes of {}", self.lent);
        self.lent -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_port::{MachinePort, dial};
    use crate::tls::Certificate;
    use gt_protocol::address::Fingerprint;
    use std::path::PathBuf;
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
        let ((one, came, one_ended), (other, came_back, other_ended)) = pair(&folder, GRACE);
        std::thread::scope(|scope| {
            let send = |link: &LastingLink| {
                (0..FRAMES).for_each(|number| link.send(&[&frame(number)[..3], &frame(number)[3..]]).unwrap());
            };
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
        });
        assert!(one.counts().resumed >= FRAMES / 50, "{:?}", one.counts());
        assert!(came.try_recv().is_err() && came_back.try_recv().is_err(), "nothing more came");
        other.close(GRACE);
        assert_eq!(other_ended.recv_timeout(GRACE).unwrap(), LinkEnd::ClosedHere);
        assert_eq!(one_ended.recv_timeout(GRACE).unwrap(), LinkEnd::ClosedThere);
        assert_eq!(one.send(&[&[1]]), Err(LinkEnd::ClosedThere));
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
        let [one, other] = ["one", "other"].map(|name| Certificate::own(&folder.0.join(name)).unwrap());
        for plain in [false, true] {
            let port = MachinePort::bind("127.0.0.1:0".parse().unwrap(), &one).unwrap();
            let (address, expected) = (port.address(), one.fingerprint());
            let (complete, came) = channel();
            let taker = LentTaker { bytes: Vec::new(), whole: 0, complete };
            let options = || LinkOptions { name: "the other".into(), grace: GRACE };
            let role = LinkRole::Awaits(Box::new(|| None));
            let takes = LastingLink::start(options(), role, None, taker, |_| ()).unwrap();
            let link = takes.clone();
            port.start(move |connection, received: u64| {
                // The other side sees how this ends.
                let _ = link.attach(connection, received, |connection, received| {
                    connection.reply(&received)?;
                    if plain { connection.end_encryption() } else { Ok(()) }
                });
            })
            .unwrap();
            let own = other.clone();
            let dials = move |received: u64| {
                let to = ("127.0.0.1", address.port());
                let (mut connection, received) = dial::<_, u64>(to, expected, &own, &received)
                    .map_err(|error| DialFailure::Retry(error.to_string()))?;
                if plain {
                    connection.end_encryption().map_err(|error| DialFailure::Retry(error.to_string()))?;
                }
                Ok((connection, received))
            };
            let role = LinkRole::Dials(Box::new(dials));
            let lends = LastingLink::start(options(), role, None, |_: &mut Vec<u8>| Ok(()), |_| ()).unwrap();
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
                assert!(lends.settle(loan, Duration::ZERO));
            }
        }
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

    #[test]
    fn bytes_are_kept_until_they_are_acknowledged_and_sent_again_after_a_break() {
        let mut kept = Unacknowledged::default();
        let large = vec![9; 2 * BLOCK_BYTES_MAX];
        kept.push(1, &[&[7]]);
        kept.push(large.len(), &[&large]);
        let whole = 2 * LENGTH_BYTES + 1 + large.len();
        let send = |kept: &mut Unacknowledged, bytes_max: usize| {
            let mut slices = Vec::new();
            let count = kept.take(bytes_max, &mut slices);
            let bytes: Vec<u8> =
                slices.iter().flat_map(|(piece, range)| piece.bytes()[range.clone()].to_vec()).collect();
            assert_eq!((bytes.len(), bytes.len() <= bytes_max), (count, true));
            (bytes, slices)
        };
        let (first, sending) = send(&mut kept, 8);
        assert_eq!(first, [1, 0, 0, 0, 7, 0, 0, 2]);
        // Bytes that are on their way stay as they are, whatever comes behind them.
        kept.push(1, &[&[8]]);
        assert_eq!(sending.iter().map(|(_, range)| range.len()).sum::<usize>(), 8);
        drop(sending);
        let rest: usize =
            std::iter::from_fn(|| Some(send(&mut kept, BLOCK_BYTES_MAX).0.len()).filter(|n| *n > 0)).sum();
        assert_eq!(first.len() + rest, whole + LENGTH_BYTES + 1);
        kept.settle(6);
        kept.rewind();
        assert_eq!(send(&mut kept, 4).0, [0, 2, 0, 9]);
        kept.settle(4);
        kept.rewind();
        let left = kept.len;
        kept.settle(left);
        assert_eq!((kept.len, kept.pieces.len()), (0, 0));
        kept.push(2, &[&[1], &[2]]);
        assert_eq!(send(&mut kept, 100).0, [2, 0, 0, 0, 1, 2]);
        // Lent bytes count as none that were copied, until they are taken back.
        let before = kept.kept;
        kept.push_lent(&[6; LENT_HEAD_BYTES], &raw const *large);
        let head = LENGTH_BYTES + LENT_HEAD_BYTES;
        assert_eq!((kept.kept - before, kept.len, kept.lent_pieces), (head, 6 + head + large.len(), 1));
        assert_eq!(send(&mut kept, head + 1).0[head - 1..], [6, 9]);
        kept.keep_lent();
        assert_eq!((kept.kept - before, kept.lent_pieces), (head + large.len(), 0));
        kept.settle(6 + head + 1);
        assert_eq!(send(&mut kept, usize::MAX / 2).0.len(), large.len() - 1);
        kept.settle(large.len() - 1);
        assert_eq!((kept.len, kept.kept, kept.pieces.len()), (0, 0, 0));
    }

    #[test]
    fn a_frame_is_the_same_however_its_bytes_come() {
        let mut frames = FrameAssembly::default();
        let bytes = [&[2, 0, 0, 0, 7, 8], &[0, 0, 0, 0][..], &[1, 0, 0, 0, 9]].concat();
        let mut found = Vec::new();
        for byte in bytes {
            let mut rest = &[byte][..];
            while let Some(frame) = frames.next(&mut rest).unwrap() {
                found.push(frame.clone());
            }
        }
        assert_eq!(found, [vec![7, 8], vec![], vec![9]]);
        let mut rest = &i32::MAX.to_le_bytes()[..];
        assert!(frames.next(&mut rest).unwrap_err().starts_with("a frame of 2147483647 bytes"));
    }

    #[test]
    fn lent_bytes_are_left_to_their_reader() {
        let mut frames = FrameAssembly::default();
        let none = [&[0, 0, 0, 0x80][..], &[4; LENT_HEAD_BYTES], &[3, 0, 0, 0x80], &[5; LENT_HEAD_BYTES]].concat();
        for byte in &none {
            assert_eq!(frames.lent(), None);
            assert_eq!(frames.next(&mut std::slice::from_ref(byte)).unwrap(), None);
        }
        assert_eq!(frames.lent(), Some(([5; LENT_HEAD_BYTES], 3)));
        let mut rest = &[1, 2][..];
        assert!(frames.next(&mut rest).unwrap().is_none() && rest.len() == 2, "they are no frame");
        frames.note_lent(1);
        assert_eq!(frames.lent(), Some(([5; LENT_HEAD_BYTES], 2)));
        frames.note_lent(2);
        assert_eq!(frames.lent(), None);
        assert_eq!(frames.next(&mut &[1, 0, 0, 0, 9][..]).unwrap(), Some(&mut vec![9]));
    }
}
