//! The way of a group's bytes to a process of another machine: over the lasting link with it, or by UCX.
//!
//! The link is made in any case. Over its connections, both processes learn each other's UCX address and a tag that
//! nobody guesses, and it tells that the other process has ended. Each direction is decided apart, before its first
//! frame: this process sends a trial by UCX, and if the other answers over the link, all that follows goes by UCX;
//! otherwise it goes over the link. So the frames of one direction keep their order, whatever the other one does.
//!
//! A connection of UCX's that fails is not resumed, as its bytes are not kept: the link ends with it, and the groups of
//! the other process are told that it is lost.

use super::endpoint::UcxOffer;
use super::link_speed::{self, MeasuredLink};
use gt_bridge::frame_assembly::{LENT_BYTES_MAX, LENT_HEAD_BYTES, LINK_FRAME_BYTES_MAX};
use gt_bridge::lasting_link::{LastingLink, LentRange, LinkEnd};
use gt_collectives::network::RankStream;
use gt_collectives::ucx::{Inbox, MESSAGE_BYTES_MAX, Taken, UcxPeer, UcxPort};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a trial by UCX may take, and the answer to a probe.
const TRIAL_PATIENCE: Duration = Duration::from_secs(5);
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of a stream in one frame, over the link and by UCX.
const LINK_PIECE_BYTES_MAX: usize = 64 << 10;
const UCX_PIECE_BYTES_MAX: usize = 256 << 10;

/// Fewer bytes are copied to be sent, rather than lent until the other process has them.
const LENT_BYTES_MIN: usize = 128 << 10;

/// Bytes of a frame's header: its kind, a group's number, or that of a probe, and two ranks.
pub const HEADER_BYTES: usize = LENT_HEAD_BYTES;
/// The kind of a frame with a notice. Smaller ones are those of the streams.
pub const NOTICE: u8 = RankStream::ALL.len() as u8;
/// The kinds of frames about the path itself: bytes that fill it, a probe that is answered on the path, a trial that is
/// answered over the link, and the answer to both.
const FILLER: u8 = NOTICE + 1;
const PROBE: u8 = NOTICE + 2;
const TRIAL: u8 = NOTICE + 3;
const ANSWER: u8 = NOTICE + 4;
/// The number of a trial. Those of probes are greater.
const TRIAL_NUMBER: u64 = 0;

/// The way to a process.
#[derive(Default)]
pub struct DataPath {
    link: OnceLock<LastingLink>,
    /// This process's side of UCX, and the tag that the other process sends with.
    own: OnceLock<(Arc<UcxPort>, UcxOffer)>,
    inbox: OnceLock<Inbox>,
    state: Mutex<PathState>,
    changed: Condvar,
    /// Whether its speed was measured, or is being measured.
    measured: AtomicBool,
}

#[derive(Default)]
struct PathState {
    /// The offer of the other process, once it has made one; none inside if it has no UCX.
    offered: Option<Option<UcxOffer>>,
    /// True while a thread decides.
    deciding: bool,
    decided: Option<PathChoice>,
    /// The number of the last answer that has come, if any has.
    answered: Option<u64>,
    /// The number of the last probe.
    probes: u64,
    ended: bool,
}

/// The decision for a direction.
#[derive(Clone)]
pub enum PathChoice {
    /// Over the link, with the reason if UCX was wanted.
    Link(Option<String>),
    /// By UCX.
    Ucx(Arc<UcxPeer>),
}

fn header(kind: u8, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = kind;
    header[1..9].copy_from_slice(&number.to_le_bytes());
    header
}

impl DataPath {
    /// A path that goes by UCX if `own` is this process's port and the other process has one as well.
    pub fn new(own: Option<(Arc<UcxPort>, UcxOffer)>) -> Arc<DataPath> {
        let path = DataPath::default();
        if let Some(own) = own {
            // The cell was made just now.
            let _ = path.own.set(own);
        }
        Arc::new(path)
    }

    /// Hands messages of UCX to `taken`, before the other process can learn of this path.
    pub fn expect(&self, taken: Taken) {
        if let Some((port, offer)) = self.own.get() {
            // This is called once.
            let _ = self.inbox.set(port.expect(offer.tag, taken));
        }
    }

    /// Sets the link.
    pub fn begin(&self, link: &LastingLink) {
        // This is called once.
        let _ = self.link.set(link.clone());
    }

    /// Ends the link, whose path then ends as well.
    pub fn end_link(&self, end: LinkEnd) {
        self.link.wait().end(end);
    }

    /// The offer that this process makes to the other one.
    pub fn offer(&self) -> Option<UcxOffer> {
        self.own.get().map(|(_, offer)| offer.clone())
    }

    fn lock(&self) -> MutexGuard<'_, PathState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the other process offers. A connection that resumes the link says it again.
    pub fn offered(&self, offer: Option<UcxOffer>) {
        self.lock().offered.get_or_insert(offer);
        self.changed.notify_all();
    }

    /// Notes that the link has ended.
    pub fn end(&self, why: &str) {
        let mut state = self.lock();
        state.ended = true;
        let decided = state.decided.clone();
        drop(state);
        self.changed.notify_all();
        if let Some(PathChoice::Ucx(peer)) = decided {
            peer.end(why);
        }
    }

    /// Takes a frame about the path itself. Returns whether it is one.
    pub fn take(&self, frame: &[u8; HEADER_BYTES]) -> bool {
        let number = u64::from_le_bytes(std::array::from_fn(|i| frame[1 + i]));
        match frame[0] {
            FILLER => {}
            PROBE => {
                let way = self.lock().decided.clone();
                self.answer(number, way);
            }
            TRIAL => self.answer(number, None),
            ANSWER => {
                self.lock().answered = Some(number);
                self.changed.notify_all();
            }
            _ => return false,
        }
        true
    }

    /// Answers without waiting, since this is on the thread that takes what ends the wait.
    fn answer(&self, number: u64, way: Option<PathChoice>) {
        let answer = header(ANSWER, number);
        // A path that has ended answers nothing: the other side learns it from the link.
        let _ = match way {
            Some(PathChoice::Ucx(peer)) => peer.answer(&[&answer]).is_ok(),
            // A trial may come while the link is being started.
            _ => self.link.wait().answer(&[&answer]).is_ok(),
        };
    }

    /// The decision for this direction. The first caller makes it, and waits for a connection of the link to that end.
    pub fn way(self: &Arc<Self>) -> PathChoice {
        let mut state = self.lock();
        while state.deciding {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(way) = &state.decided {
            return way.clone();
        }
        state.deciding = true;
        drop(state);
        let way = match self.own.get() {
            None => PathChoice::Link(None),
            Some((port, _)) => self.try_ucx(port).map_or_else(|why| PathChoice::Link(Some(why)), PathChoice::Ucx),
        };
        let mut state = self.lock();
        (state.deciding, state.decided) = (false, Some(way.clone()));
        let ended = state.ended;
        drop(state);
        self.changed.notify_all();
        // Either may have ended between the trial and this decision.
        if let PathChoice::Ucx(peer) = &way {
            match peer.failed() {
                Some(why) => self.end_link(ucx_failed(&why)),
                None if ended => peer.end("the link has ended"),
                None => {}
            }
        }
        way
    }

    fn try_ucx(self: &Arc<Self>, port: &UcxPort) -> Result<Arc<UcxPeer>, String> {
        let state = self.lock();
        let unknown = |state: &mut PathState| state.offered.is_none() && !state.ended;
        let state = self.changed.wait_while(state, unknown).unwrap_or_else(PoisonError::into_inner);
        let offer = state.offered.clone().ok_or("the link has ended")?;
        drop(state);
        let UcxOffer { version, address, tag } = offer.ok_or("the other process has no UCX")?;
        let (own_version, _) = UcxPort::library()?;
        if version != own_version {
            return Err(format!("the other process has UCX {version}, this one has {own_version}"));
        }
        let address = address_of(&address).ok_or("the other process's UCX address is none")?;
        // A peer that fails during its trial is not used; afterwards, the link ends with it.
        let path = Arc::downgrade(self);
        let failed = Box::new(move |why: &str| {
            let Some(path) = path.upgrade() else { return };
            let state = path.lock();
            let in_use = matches!(state.decided, Some(PathChoice::Ucx(_)));
            drop(state);
            path.changed.notify_all();
            if in_use {
                path.end_link(ucx_failed(why));
            }
        });
        // SAFETY: the address came by TLS from a process with the certificate that the daemon has named, which runs GT
        // and has the same UCX; an invited node is trusted not to make one up (docs/many-machines.md).
        let peer = unsafe { port.connect(&address, tag, failed) }?;
        peer.send(&[&header(TRIAL, TRIAL_NUMBER)])?;
        if self.wait_for(TRIAL_NUMBER, TRIAL_PATIENCE, Some(&peer)) {
            return Ok(Arc::new(peer));
        }
        let unanswered = || format!("nothing came of a trial for {} s", TRIAL_PATIENCE.as_secs());
        Err(peer.failed().unwrap_or_else(unanswered))
    }

    /// Waits for an answer to what was sent over the link, or to this peer of UCX's. Returns whether it came.
    fn wait_for(&self, number: u64, patience: Duration, peer: Option<&UcxPeer>) -> bool {
        let has_failed = || peer.is_some_and(|peer| peer.failed().is_some());
        let missing =
            |state: &mut PathState| !state.ended && state.answered.is_none_or(|last| last < number) && !has_failed();
        let waited = self.changed.wait_timeout_while(self.lock(), patience, missing);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.answered.is_some_and(|last| last >= number)
    }

    /// Sends a frame of `kind`, in pieces if it is long.
    ///
    /// # Errors
    /// The reason why nothing reaches the other process any more.
    pub fn send(&self, way: &PathChoice, header: &[u8], parts: &[&[u8]]) -> Result<(), String> {
        const { assert!(LINK_PIECE_BYTES_MAX + HEADER_BYTES <= LINK_FRAME_BYTES_MAX) };
        const { assert!(UCX_PIECE_BYTES_MAX + HEADER_BYTES <= MESSAGE_BYTES_MAX) };
        let piece_bytes_max = match way {
            PathChoice::Link(_) => LINK_PIECE_BYTES_MAX,
            PathChoice::Ucx(_) => UCX_PIECE_BYTES_MAX,
        };
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let send = |pieces: &[&[u8]]| {
            let parts: Vec<&[u8]> = std::iter::once(header).chain(pieces.iter().copied()).collect();
            match way {
                PathChoice::Ucx(peer) => peer.send(&parts),
                PathChoice::Link(_) => self.link.wait().send(&parts).map_err(|end| end.to_string()),
            }
        };
        if bytes <= piece_bytes_max {
            return send(parts);
        }
        parts.iter().flat_map(|part| part.chunks(piece_bytes_max)).try_for_each(|piece| send(&[piece]))
    }

    /// Sends bytes of a stream, from where they lie if they are many and go over the link.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// That of [`LastingLink::lend`], if a loan is returned; otherwise the bytes can be read during the call.
    pub unsafe fn lend(
        &self,
        way: &PathChoice,
        header: &[u8; HEADER_BYTES],
        bytes: *const [u8],
    ) -> Result<Option<LentRange>, String> {
        if matches!(way, PathChoice::Link(_)) && (LENT_BYTES_MIN..=LENT_BYTES_MAX).contains(&bytes.len()) {
            // SAFETY: the contract is that of this function.
            return unsafe { self.link.wait().lend(header, bytes) }.map(Some).map_err(|end| end.to_string());
        }
        // SAFETY: by the contract of this function the bytes can be read.
        self.send(way, header, &[unsafe { &*bytes }]).map(|()| None)
    }

    /// Measures the path, unless that was done before.
    pub fn measure(self: &Arc<Self>) -> Option<MeasuredLink> {
        if self.measured.swap(true, Relaxed) {
            return None;
        }
        let way = self.way();
        let filler = vec![0; LINK_PIECE_BYTES_MAX];
        link_speed::measure(|bytes| {
            let begun = Instant::now();
            let mut left = bytes;
            while left > 0 {
                let piece = left.min(filler.len());
                self.send(&way, &header(FILLER, 0), &[&filler[..piece]]).ok()?;
                left -= piece;
            }
            let number = {
                let mut state = self.lock();
                state.probes += 1;
                state.probes
            };
            self.send(&way, &header(PROBE, number), &[]).ok()?;
            let peer = match &way {
                PathChoice::Ucx(peer) => Some(&**peer),
                PathChoice::Link(_) => None,
            };
            self.wait_for(number, PROBE_PATIENCE, peer).then(|| begun.elapsed())
        })
    }
}

fn ucx_failed(why: &str) -> LinkEnd {
    LinkEnd::Lost(format!("its connection by UCX failed: {why}"))
}

/// The bytes that these digits stand for.
fn address_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(digit).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

/// The digits that stand for an address.
pub fn digits_of(address: &[u8]) -> String {
    address.iter().map(|byte| format!("{byte:02x}")).collect()
}
