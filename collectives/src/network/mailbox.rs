//! The bytes that have come for one rank of a group and were not read yet.
//!
//! A rank that knows what comes next gives room for it beforehand: the thread that receives the bytes then reads them
//! to where they belong.

use crate::error::{CollectiveError, Result};
use crate::operation::Operation;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A waiting rank looks at its patience at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The streams from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankStream {
    /// The bytes of operations of all ranks.
    Collective,
    /// The headings and the bytes of messages that the sender sends.
    Offer,
    /// The headings of messages that the sender wants to receive.
    Want,
}

impl RankStream {
    /// All channels, by number.
    pub const ALL: [RankStream; 3] = [RankStream::Collective, RankStream::Offer, RankStream::Want];
}

/// A rank's message to the others about the group itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupNotice {
    /// The rank that tells it has left: it sends nothing more.
    Left,
    /// This rank has aborted the group.
    Aborted(usize),
    /// This rank has died, or cannot be reached.
    Died(usize),
    /// This rank has waited in vain for so long.
    TimedOut(usize, Duration),
    /// This rank has left, and another still needed it.
    Missed(usize),
}

impl GroupNotice {
    /// The notice as bytes.
    pub fn encode(self) -> [u8; 17] {
        let (kind, rank, nanoseconds) = match self {
            GroupNotice::Left => (0, 0, 0),
            GroupNotice::Aborted(by) => (1, by, 0),
            GroupNotice::Died(rank) => (2, rank, 0),
            GroupNotice::TimedOut(by, waited) => (3, by, waited.as_nanos() as u64),
            GroupNotice::Missed(rank) => (4, rank, 0),
        };
        let mut bytes = [0; 17];
        bytes[0] = kind;
        bytes[1..9].copy_from_slice(&(rank as u64).to_le_bytes());
        bytes[9..].copy_from_slice(&nanoseconds.to_le_bytes());
        bytes
    }

    /// The notice in bytes that [`encode`](GroupNotice::encode) gave.
    pub fn decode(bytes: &[u8]) -> Option<GroupNotice> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let rank = word(1) as usize;
        Some(match bytes[0] {
            0 => GroupNotice::Left,
            1 => GroupNotice::Aborted(rank),
            2 => GroupNotice::Died(rank),
            3 => GroupNotice::TimedOut(rank, Duration::from_nanos(word(9))),
            4 => GroupNotice::Missed(rank),
            _ => return None,
        })
    }

    /// The error of a call of `operation` on rank `rank` in a group that is broken for this reason.
    fn error(self, from: usize, operation: Operation, rank: usize) -> CollectiveError {
        match self {
            GroupNotice::Left => CollectiveError::Left { operation, rank, peer: from },
            GroupNotice::Missed(peer) => CollectiveError::Left { operation, rank, peer },
            GroupNotice::Aborted(by) => CollectiveError::Aborted { operation, rank, by },
            GroupNotice::Died(peer) => CollectiveError::Died { operation, rank, peer },
            GroupNotice::TimedOut(by, waited) => CollectiveError::TimedOut { operation, rank, by, waited },
        }
    }
}

/// The bytes of one stream.
#[derive(Default)]
struct Stream {
    /// Bytes that came before there was room for them, in the pieces in which they came: each with the number of its
    /// first bytes that are not the stream's, or were taken.
    pieces: VecDeque<(Vec<u8>, usize)>,
    /// The rooms for the next bytes, in their order.
    rooms: VecDeque<Room>,
    /// Whether somebody is reading to the first room.
    is_filling: bool,
    /// How many rooms there were, and how many of them are full.
    given: u64,
    filled: u64,
}

/// Memory of the rank that the mailbox may write.
struct Room {
    to: *mut u8,
    left: usize,
}

// SAFETY: by the contract of `Mailbox::give_room`, any thread may write the room while the mailbox has it.
unsafe impl Send for Room {}

impl Stream {
    /// Notes that so many bytes were written to the first room.
    fn advance(&mut self, bytes: usize) {
        let Some(room) = self.rooms.front_mut() else { return };
        room.to = room.to.wrapping_add(bytes);
        room.left -= bytes;
        while self.rooms.front().is_some_and(|room| room.left == 0) {
            self.rooms.pop_front();
            self.filled += 1;
        }
    }

    /// Moves bytes that have come to the rooms.
    fn fill(&mut self) {
        while !self.is_filling
            && let (Some((piece, taken)), Some(room)) = (self.pieces.front_mut(), self.rooms.front())
        {
            let rest = &piece[*taken..];
            let count = rest.len().min(room.left);
            // SAFETY: by the contract of `Mailbox::give_room` the room can be written for `left` bytes, of which
            // `count` is not more, and nobody else accesses it: the lock is held, and nobody is filling the room.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), room.to, count) };
            *taken += count;
            if *taken == piece.len() {
                self.pieces.pop_front();
            }
            self.advance(count);
        }
    }
}

#[derive(Default)]
struct Sender {
    streams: [Stream; RankStream::ALL.len()],
    /// Whether it sends nothing more.
    gone: Option<GroupNotice>,
}

#[derive(Default)]
struct Contents {
    senders: Vec<Sender>,
    /// Why the group is broken.
    broken: Option<GroupNotice>,
    /// Whether the rank waits until nobody is filling a room.
    is_withdrawing: bool,
}

/// The bytes that have come for a rank. Any thread delivers, one reads.
#[derive(Default)]
pub struct Mailbox {
    contents: Mutex<Contents>,
    came: Condvar,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes of a stream of rank `from`: those of `bytes` from `start` on.
    pub fn deliver(&self, from: usize, channel: RankStream, bytes: Vec<u8>, start: usize) {
        if bytes.len() <= start {
            return;
        }
        let mut contents = self.lock();
        let stream = &mut contents.sender(from).streams[channel as usize];
        stream.pieces.push_back((bytes, start));
        let before = stream.filled;
        stream.fill();
        if stream.filled > before {
            self.came.notify_all();
        }
    }

    /// Lets `read` read the next bytes of a stream of rank `from`, of which there are at most `bytes_max`, to where
    /// they belong, and returns how many it has read. None if the rank has given no room for them: then they are to be
    /// [delivered](Self::deliver).
    ///
    /// # Panics
    /// If `read` returns more bytes than it was given room for.
    pub fn fill_room(
        &self,
        from: usize,
        channel: RankStream,
        bytes_max: usize,
        read: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<usize> {
        let mut contents = self.lock();
        let stream = &mut contents.sender(from).streams[channel as usize];
        let room = stream.rooms.front().filter(|_| stream.pieces.is_empty() && !stream.is_filling)?;
        let (to, bytes) = (room.to, room.left.min(bytes_max));
        stream.is_filling = true;
        drop(contents);
        // SAFETY: by the contract of `give_room` the room can be written for `left` bytes until it is full or was
        // withdrawn, and `withdraw` waits while `is_filling`, which keeps everybody else from it.
        let count = read(unsafe { std::slice::from_raw_parts_mut(to, bytes) });
        assert!(count <= bytes, "{count} bytes in a room of {bytes}");
        let mut contents = self.lock();
        let stream = &mut contents.sender(from).streams[channel as usize];
        stream.is_filling = false;
        let before = stream.filled;
        stream.advance(count);
        let is_full = stream.filled > before;
        let notify = is_full || std::mem::take(&mut contents.is_withdrawing);
        drop(contents);
        if notify {
            self.came.notify_all();
        }
        Some(count)
    }

    /// Notes what rank `from` tells about the group. The first reason why the group is broken stays.
    pub fn notice(&self, from: usize, notice: GroupNotice) {
        let mut contents = self.lock();
        match notice {
            GroupNotice::Left => drop(contents.sender(from).gone.get_or_insert(GroupNotice::Left)),
            _ => drop(contents.broken.get_or_insert(notice)),
        }
        drop(contents);
        self.came.notify_all();
    }

    /// Notes that nothing more comes from rank `from`, which has died or cannot be reached.
    pub fn lost(&self, from: usize) {
        self.lock().sender(from).gone.get_or_insert(GroupNotice::Died(from));
        self.came.notify_all();
    }

    /// Why the group is broken, or a rank that has died, if so.
    pub fn trouble(&self) -> Option<GroupNotice> {
        self.lock().trouble()
    }

    /// Waits until the group is broken or a rank has died, for at most `patience`.
    pub(super) fn wait_for_trouble(&self, patience: Duration) {
        let contents = self.lock();
        let waited = self.came.wait_timeout_while(contents, patience, |contents| contents.trouble().is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The error of a call of `operation` on rank `rank`, if the group is broken.
    pub(super) fn check(&self, operation: Operation, rank: usize) -> Result<()> {
        self.trouble().map_or(Ok(()), |notice| Err(notice.error(rank, operation, rank)))
    }

    /// Gives room for the next bytes of a stream of rank `from`, behind the rooms that were given before. Returns the
    /// number of the room, for [`wait_full`](Self::wait_full).
    ///
    /// # Safety
    /// The room can be written, and nobody else accesses it, until `wait_full` has returned without an error for this
    /// room, or [`withdraw`](Self::withdraw) has returned.
    pub(super) unsafe fn give_room(&self, (from, channel): (usize, RankStream), room: *mut [u8]) -> u64 {
        let mut contents = self.lock();
        let stream = &mut contents.sender(from).streams[channel as usize];
        stream.given += 1;
        match room.len() {
            0 if stream.rooms.is_empty() => stream.filled += 1,
            left => stream.rooms.push_back(Room { to: room.cast(), left }),
        }
        stream.fill();
        stream.given
    }

    /// Whether [`wait_full`](Self::wait_full) would return at once.
    pub(super) fn is_full(&self, stream: (usize, RankStream), room: u64) -> bool {
        self.lock().outcome(stream, room).is_some()
    }

    /// Waits until a room is full, for at most `patience`.
    ///
    /// # Errors
    /// The group is broken, the sender is gone, or the patience is over. The caller tells the other ranks.
    pub(super) fn wait_full(
        &self,
        stream: (usize, RankStream),
        room: u64,
        (operation, rank): (Operation, usize),
        patience: Duration,
    ) -> Result<()> {
        let begun = Instant::now();
        let mut contents = self.lock();
        loop {
            if let Some(outcome) = contents.outcome(stream, room) {
                return outcome.map_err(|notice| notice.error(stream.0, operation, rank));
            }
            let waited = begun.elapsed();
            if waited >= patience {
                return Err(CollectiveError::TimedOut { operation, rank, by: rank, waited: patience });
            }
            let nap = LOOK_EVERY.min(patience - waited);
            contents = self.came.wait_timeout(contents, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes all rooms back that are not full. What was to come there is lost: the group is broken.
    pub(super) fn withdraw(&self) {
        let mut contents = self.lock();
        while contents.streams().any(|stream| stream.is_filling) {
            contents.is_withdrawing = true;
            contents = self.came.wait_timeout(contents, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        for stream in contents.streams() {
            stream.rooms.clear();
            stream.filled = stream.given;
        }
    }
}

impl Contents {
    /// Whether a room is full, or why it will not be; none while it may still be filled.
    fn outcome(
        &mut self,
        (from, channel): (usize, RankStream),
        room: u64,
    ) -> Option<std::result::Result<(), GroupNotice>> {
        let broken = self.broken;
        let sender = self.sender(from);
        if sender.streams[channel as usize].filled >= room {
            return Some(Ok(()));
        }
        broken.or(sender.gone).map(Err)
    }

    fn trouble(&self) -> Option<GroupNotice> {
        let died = || self.senders.iter().filter_map(|sender| sender.gone).find(|gone| *gone != GroupNotice::Left);
        self.broken.or_else(died)
    }

    fn streams(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.senders.iter_mut().flat_map(|sender| &mut sender.streams)
    }

    fn sender(&mut self, rank: usize) -> &mut Sender {
        if rank >= self.senders.len() {
            self.senders.resize_with(rank + 1, Sender::default);
        }
        &mut self.senders[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (Operation, usize) = (Operation::Barrier, 0);

    /// Reads the bytes of a stream that have come.
    fn read(mailbox: &Mailbox, stream: (usize, RankStream), to: &mut [u8]) -> Result<()> {
        // SAFETY: `to` is borrowed until this returns, and by then the room is full or withdrawn.
        let room = unsafe { mailbox.give_room(stream, to) };
        assert_eq!(
            mailbox.is_full(stream, room),
            !matches!(mailbox.wait_full(stream, room, HERE, Duration::ZERO), Err(CollectiveError::TimedOut { .. }))
        );
        mailbox.wait_full(stream, room, HERE, Duration::ZERO).inspect_err(|_| mailbox.withdraw())
    }

    #[test]
    fn a_stream_is_read_however_its_pieces_came() {
        let mailbox = Mailbox::default();
        mailbox.deliver(1, RankStream::Collective, vec![0, 1, 2, 3], 1);
        mailbox.deliver(1, RankStream::Collective, vec![7], 1);
        mailbox.deliver(1, RankStream::Want, vec![9], 0);
        mailbox.deliver(1, RankStream::Collective, vec![4, 5], 0);
        let mut bytes = [0; 4];
        read(&mailbox, (1, RankStream::Collective), &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
        // Bytes that came before their sender left are still read.
        mailbox.notice(1, GroupNotice::Left);
        read(&mailbox, (1, RankStream::Collective), &mut bytes[..1]).unwrap();
        assert_eq!(bytes[0], 5);
        let error = read(&mailbox, (1, RankStream::Collective), &mut bytes).unwrap_err();
        assert_eq!(error, CollectiveError::Left { operation: Operation::Barrier, rank: 0, peer: 1 });
        assert!(mailbox.trouble().is_none(), "a rank that has left breaks nothing by that");
    }

    #[test]
    fn bytes_are_read_to_the_rooms_that_were_given_for_them() {
        let mailbox = Mailbox::default();
        let stream = (1, RankStream::Collective);
        let fill = |bytes: &[u8]| {
            mailbox.fill_room(1, RankStream::Collective, bytes.len(), |room| {
                room.copy_from_slice(&bytes[..room.len()]);
                room.len()
            })
        };
        assert_eq!(fill(&[1]), None, "there is no room");
        mailbox.deliver(1, RankStream::Collective, vec![1], 0);
        let (mut first, mut none, mut second) = ([0; 3], [0; 0], [0; 2]);
        // SAFETY: the rooms are read after they are full or withdrawn.
        let rooms = unsafe {
            [
                mailbox.give_room(stream, first.as_mut_slice()),
                mailbox.give_room(stream, none.as_mut_slice()),
                mailbox.give_room(stream, second.as_mut_slice()),
            ]
        };
        let is_full = |room: u64| mailbox.wait_full(stream, room, HERE, Duration::ZERO).is_ok();
        assert_eq!((fill(&[2]), is_full(rooms[0])), (Some(1), false));
        // No more than the room holds.
        assert_eq!((fill(&[3, 4]), is_full(rooms[0]), is_full(rooms[1])), (Some(1), true, true));
        mailbox.deliver(1, RankStream::Collective, vec![0, 4, 5, 6], 1);
        assert!(is_full(rooms[2]));
        assert_eq!((first, second), ([1, 2, 3], [4, 5]));
        assert_eq!(fill(&[7]), None, "a byte came before");
        read(&mailbox, stream, &mut first[..1]).unwrap();
        assert_eq!(first[0], 6);
        // SAFETY: the room is withdrawn below.
        unsafe { mailbox.give_room(stream, second.as_mut_slice()) };
        mailbox.withdraw();
        assert_eq!(fill(&[7]), None);
        assert!(read(&mailbox, stream, &mut first).is_err());
        assert_eq!(fill(&[7]), None, "a read in vain withdraws its room");
    }

    #[test]
    fn patience_ends_and_notices_survive_their_bytes() {
        let mailbox = Mailbox::default();
        let error = read(&mailbox, (1, RankStream::Offer), &mut [0]).unwrap_err();
        assert!(matches!(error, CollectiveError::TimedOut { by: 0, .. }));
        let waited = Duration::from_secs(7);
        for notice in [
            GroupNotice::Left,
            GroupNotice::Aborted(3),
            GroupNotice::Died(70),
            GroupNotice::TimedOut(2, waited),
            GroupNotice::Missed(1),
        ] {
            assert_eq!(GroupNotice::decode(&notice.encode()), Some(notice));
        }
        assert_eq!(GroupNotice::decode(&[9; 17]), None);
        assert_eq!(GroupNotice::decode(&[0; 3]), None);
    }
}
