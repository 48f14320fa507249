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

use crate::frame::{Frame, push_data_header, push_slots, slots_in};
use crate::machine_port::MachineConnection;
use crate::stream::StreamError;
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
/// The longest time without an acknowledgement to the other side.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// A connection over which nothing comes for this long is replaced.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Received bytes that are acknowledged at once.
const ACKNOWLEDGE_BYTES: u64 = 1 << 20;
/// [`LastingLink::send`] waits while more bytes than this are not acknowledged: as many as are on their way in a fast
/// network, and so few that they stay in the processor's cache until they are sent.
const UNACKNOWLEDGED_BYTES_MAX: usize = 8 << 20;
/// The most bytes that are sent at one time.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Up to so many bytes are copied together to be sent; more are sent from where they lie.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// The capacity of a piece of small frames.
const PIECE_BYTES_MIN: usize = 4 << 10;
/// The wait between the first attempts to dial, which doubles up to [`REDIAL_MAX`].
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);

/// The first word of a slot: an acknowledgement of the bytes that its second word counts.
const ACKNOWLEDGEMENT: u64 = 1;
/// The first word of a slot: the other side has closed the link.
const FAREWELL: u64 = 2;

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
    /// The other side dials. `Probe` is asked once a second meanwhile.
    Awaits(Probe),
}

/// The properties of a link.
pub struct LinkOptions {
    /// The other side's name, for the log.
    pub name: String,
    /// How long the link lasts without a connection.
    pub grace: Duration,
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
    changed: Condvar,
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
}

impl LastingLink {
    /// A link with its two threads. `first` is the first connection, if there is one already, and the bytes that the
    /// other side has received. `taken` gets each frame in order, on the reader's thread, may take its bytes away, and
    /// may end the link with an error; `ended` is called at the end.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        options: LinkOptions,
        role: LinkRole,
        first: Option<MachineConnection>,
        taken: impl FnMut(&mut Vec<u8>) -> Result<(), String> + Send + 'static,
        ended: impl FnOnce(LinkEnd) + Send + 'static,
    ) -> std::io::Result<LastingLink> {
        let state = LinkState {
            unacknowledged: Unacknowledged::default(),
            acknowledged: 0,
            sent: 0,
            received: 0,
            told: 0,
            connection: None,
            attached: first.map(|connection| (connection, 0)),
            reading: false,
            connections: 0,
            closing: false,
            ended: None,
        };
        let link = LastingLink(Arc::new(Shared { options, state: Mutex::new(state), changed: Condvar::new() }));
        let (reader, writer) = (link.clone(), link.clone());
        std::thread::Builder::new().name("gt-link-in".into()).spawn(move || {
            let end = reader.read(role, taken);
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
        while state.ended.is_none() && state.unacknowledged.len > UNACKNOWLEDGED_BYTES_MAX {
            state = self.wait(state, BEAT_EVERY);
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

    /// Replaces the connection. `reply` tells the other side how many bytes this one has received. `received` are those
    /// that the other side has.
    ///
    /// # Errors
    /// The link has ended, or the reply could not be sent.
    pub fn attach(
        &self,
        connection: MachineConnection,
        received: u64,
        reply: impl FnOnce(&MachineConnection, u64) -> std::io::Result<()>,
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
        reply(&connection, state.received).map_err(|error| LinkEnd::Lost(error.to_string()))?;
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
    pub fn end(&self, why: LinkEnd) -> LinkEnd {
        let mut state = self.lock();
        let end = state.ended.get_or_insert(why).clone();
        if let Some(connection) = state.connection.take() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.attached = None;
        self.0.changed.notify_all();
        end
    }

    /// Breaks the present connection, as a reset does. The link goes on with the next one.
    pub fn break_connection(&self) {
        if let Some(connection) = &self.lock().connection {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn read(&self, mut role: LinkRole, mut taken: impl FnMut(&mut Vec<u8>) -> Result<(), String>) -> LinkEnd {
        let mut frames = FrameAssembly::default();
        loop {
            let mut connection = match self.next_connection(&mut role) {
                Ok(connection) => connection,
                Err(end) => return end,
            };
            let why = match self.read_from(&mut connection, &mut frames, &mut taken) {
                Ok(why) => why,
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
                state.connection = Some(connection.channel.clone());
                (state.reading, state.connections) = (true, state.connections + 1);
                connection
                    .channel
                    .set_read_timeout(Some(SILENCE_MAX))
                    .map_err(|error| LinkEnd::Lost(error.to_string()))?;
                self.0.changed.notify_all();
                return Ok(connection);
            }
            if Instant::now() >= deadline {
                return Err(LinkEnd::Lost(format!("{why} for {} s", self.0.options.grace.as_secs())));
            }
            match role {
                LinkRole::Awaits(probe) => {
                    state = self.wait(state, BEAT_EVERY);
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
        connection: &mut MachineConnection,
        frames: &mut FrameAssembly,
        taken: &mut impl FnMut(&mut Vec<u8>) -> Result<(), String>,
    ) -> Result<String, LinkEnd> {
        loop {
            let frame = match connection.incoming.next() {
                Ok(frame) => frame,
                Err(StreamError::TimedOut) => return Ok(format!("nothing came for {} s", SILENCE_MAX.as_secs())),
                Err(error @ (StreamError::Ended | StreamError::Io(_))) => return Ok(error.to_string()),
                Err(error) => return Err(LinkEnd::Broken(error.to_string())),
            };
            match frame {
                Frame::Data { segment: 0, offset, bytes } => {
                    let mut state = self.lock();
                    if offset != state.received {
                        return Err(LinkEnd::Broken(format!("byte {offset} instead of {}", state.received)));
                    }
                    state.received += bytes.len() as u64;
                    if state.received - state.told >= ACKNOWLEDGE_BYTES {
                        self.0.changed.notify_all();
                    }
                    drop(state);
                    let mut rest = bytes;
                    while let Some(frame) = frames.next(&mut rest).map_err(LinkEnd::Broken)? {
                        taken(frame).map_err(LinkEnd::Broken)?;
                    }
                }
                Frame::Slots(payload) => {
                    for [word, position, ..] in slots_in(payload) {
                        match word {
                            ACKNOWLEDGEMENT => self.acknowledge(position)?,
                            FAREWELL => return Err(LinkEnd::ClosedThere),
                            _ => return Err(LinkEnd::Broken(format!("slot {word}"))),
                        }
                    }
                }
                Frame::Data { .. } | Frame::Message(_) | Frame::Records(_) => {
                    return Err(LinkEnd::Broken("another frame".into()));
                }
            }
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
        if settled > 0 {
            self.0.changed.notify_all();
        }
        Ok(())
    }

    /// Sends over the present connection, until the link ends.
    fn write(&self) {
        let mut out = Vec::with_capacity(COPIED_BYTES_MAX + 1024);
        let mut slices = Vec::new();
        let mut spoke = Instant::now();
        loop {
            let mut state = self.lock();
            let (connection, farewell) = loop {
                if state.ended.is_some() {
                    return;
                }
                let Some(connection) = state.connection.clone() else {
                    state = self.wait(state, BEAT_EVERY);
                    continue;
                };
                let left = state.end_position() - state.sent;
                let due = spoke.elapsed() >= BEAT_EVERY || state.received - state.told >= ACKNOWLEDGE_BYTES;
                if left > 0 || due || state.closing {
                    break (connection, left == 0 && state.closing);
                }
                state = self.wait(state, BEAT_EVERY.saturating_sub(spoke.elapsed()));
            };
            out.clear();
            push_slots(&mut out, &[slot(ACKNOWLEDGEMENT, state.received)]);
            state.told = state.received;
            let position = state.sent;
            let count = state.unacknowledged.take(BLOCK_BYTES_MAX, &mut slices);
            state.sent += count as u64;
            if count > 0 {
                push_data_header(&mut out, 0, position, count);
            }
            if count <= COPIED_BYTES_MAX {
                slices.drain(..).for_each(|(piece, range)| out.extend_from_slice(&piece[range]));
            }
            drop(state);
            spoke = Instant::now();
            if farewell {
                push_slots(&mut out, &[slot(FAREWELL, 0)]);
            }
            let parts: Vec<&[u8]> =
                std::iter::once(&out[..]).chain(slices.iter().map(|(piece, range)| &piece[range.clone()])).collect();
            let written = connection.write_all_parts(&parts);
            slices.clear();
            if written.is_err() {
                // The reader notices, and takes the next connection.
                let _ = connection.shutdown(Shutdown::Both);
                let state = self.lock();
                if state.connection.as_ref().is_some_and(|present| Arc::ptr_eq(present, &connection)) {
                    drop(self.wait(state, BEAT_EVERY));
                }
            } else if farewell {
                let mut state = self.lock();
                state.ended.get_or_insert(LinkEnd::ClosedHere);
                self.0.changed.notify_all();
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

/// Bytes of a stream that are not acknowledged, in pieces that are sent from where they lie.
#[derive(Default)]
struct Unacknowledged {
    pieces: VecDeque<Arc<Vec<u8>>>,
    /// Bytes of the first piece that are acknowledged.
    settled: usize,
    /// Bytes of all pieces that are not.
    len: usize,
    /// The next byte to send: its piece, and its offset there.
    next: (usize, usize),
}

impl Unacknowledged {
    /// Adds a frame of `bytes` bytes.
    fn push(&mut self, bytes: usize, parts: &[&[u8]]) {
        let whole = LENGTH_BYTES + bytes;
        self.len += whole;
        let append = |piece: &mut Vec<u8>| {
            piece.extend_from_slice(&(bytes as u32).to_le_bytes());
            parts.iter().for_each(|part| piece.extend_from_slice(part));
        };
        // A piece that is being sent is shared, and has to stay as it is.
        let last = self.pieces.back_mut().and_then(Arc::get_mut);
        match last.filter(|last| last.len() + whole <= last.capacity()) {
            Some(last) => append(last),
            None => {
                let mut piece = Vec::with_capacity(whole.max(PIECE_BYTES_MIN));
                append(&mut piece);
                self.pieces.push_back(Arc::new(piece));
            }
        }
    }

    /// Forgets the oldest `bytes` bytes.
    fn settle(&mut self, bytes: usize) {
        self.len -= bytes;
        self.settled += bytes;
        while let Some(first) = self.pieces.front().filter(|first| first.len() <= self.settled) {
            self.settled -= first.len();
            self.pieces.pop_front();
            self.next = self.next.0.checked_sub(1).map_or((0, 0), |piece| (piece, self.next.1));
        }
    }

    /// Makes the oldest byte the next one to send.
    fn rewind(&mut self) {
        self.next = (0, self.settled);
    }

    /// Takes at most `bytes_max` bytes to be sent, as ranges of pieces; returns their number.
    fn take(&mut self, bytes_max: usize, slices: &mut Vec<(Arc<Vec<u8>>, Range<usize>)>) -> usize {
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
    /// The bytes of the frame's length that have come.
    head: Vec<u8>,
    /// The bytes of the frame that have come.
    frame: Vec<u8>,
    /// Whether the frame was returned.
    is_whole: bool,
}

impl FrameAssembly {
    /// The next frame, whose last bytes are taken from the beginning of `bytes`; none if these do not complete it.
    ///
    /// # Errors
    /// The frame is longer than [`LINK_FRAME_BYTES_MAX`].
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<&mut Vec<u8>>, String> {
        if std::mem::take(&mut self.is_whole) {
            self.head.clear();
            self.frame.clear();
        }
        let take = |to: &mut Vec<u8>, length: usize, bytes: &mut &[u8]| {
            let (taken, rest) = bytes.split_at(bytes.len().min(length - to.len()));
            to.extend_from_slice(taken);
            *bytes = rest;
        };
        take(&mut self.head, LENGTH_BYTES, bytes);
        let Some(length) = self.head.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LINK_FRAME_BYTES_MAX {
            return Err(format!("a frame of {length} bytes"));
        }
        self.frame.reserve(length - self.frame.len());
        take(&mut self.frame, length, bytes);
        self.is_whole = self.frame.len() == length;
        Ok(self.is_whole.then_some(&mut self.frame))
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
            let bytes: Vec<u8> = slices.iter().flat_map(|(piece, range)| piece[range.clone()].to_vec()).collect();
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
        let mut rest = &u32::MAX.to_le_bytes()[..];
        assert!(frames.next(&mut rest).unwrap_err().starts_with("a frame of 4294967295 bytes"));
    }
}
