//! The tensors of one session: a table from the client's tensor ids to slots that are reused.

use crate::affinity::{Components, Membership};
use gt_ops::{Meta, Op, Placement, TensorId};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The id of a tensor at its workers: the slot in the lower half, in the upper half its generation, which counts how
/// often the slot was taken. No two tensors of a session have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerTensor(u64);

impl WorkerTensor {
    /// The tensor of generation `generation` in `slot`.
    pub fn new(slot: u32, generation: u32) -> WorkerTensor {
        WorkerTensor((generation as u64) << 32 | slot as u64)
    }
    /// From the tensor id in a command to a worker.
    pub fn from_id(id: TensorId) -> WorkerTensor {
        WorkerTensor(id)
    }
    /// The tensor id in commands to workers. Never 0: generations count from 1.
    pub fn id(self) -> TensorId {
        self.0
    }
    /// The index in the tables of the session and of its workers.
    pub fn slot(self) -> usize {
        self.0 as u32 as usize
    }
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A slot is retired at this generation, before the count would overflow.
const GENERATION_MAX: u32 = u32::MAX - 1;

/// Components without tensors are dropped once there are two components for each tensor and this many more.
const COMPONENTS_SPARE: usize = 64;

/// How much of a tensor's data is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it, or an instruction in flight computes it.
    Defined,
    /// This many bytes from the start; an upload in progress writes the others.
    Uploading(u64),
    /// None, since an instruction was refused. No worker has the tensor, and its use is an error.
    Refused(Refusal),
}

/// An instruction that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The id of the instruction's result.
    pub origin: TensorId,
    /// The instruction's op; none for an upload.
    pub op: Option<Op>,
    /// The reason.
    pub reason: RefusalReason,
}

/// Why an instruction was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The program was interrupted before a worker had it.
    Interrupted,
    /// Its user held as many tensors as allowed.
    TooManyTensors,
    /// By its estimate it would take this many seconds.
    TooLong(u32),
    /// Its result has this many MiB, more than the workers' memory limits together, and would take too long to write.
    TooLarge(u32),
}

/// A tensor as the dispatcher knows it.
#[derive(Clone, Copy, Debug)]
pub struct TensorEntry {
    /// Shape and dtype.
    pub meta: Meta,
    /// Bytes of its data.
    pub bytes: u64,
    /// The client's id, or a modifier's.
    pub id: TensorId,
    /// How much of its data is defined.
    pub content: Content,
    /// Its id at the workers that have some of it.
    pub at: WorkerTensor,
    /// The workers that have it, and how it is divided among them.
    pub placement: Placement,
    /// The next copy of this tensor in another placement, under a modifier's id; 0 if there is none.
    pub copy: TensorId,
    /// Its relation to the session's dataflow components.
    pub membership: Membership,
}

/// The tensors of one session.
pub struct TensorTable {
    /// The placement of new tensors until a modifier sets another.
    home: Placement,
    /// True once any tensor was on more than one worker.
    spread: bool,
    slots: SlotIndex,
    tensors: Vec<TensorEntry>,
    vacant: Vec<u32>,
    /// The largest generation among slots that were trimmed: new slots continue from it.
    trimmed_generation: u32,
    /// The dataflow components of the tensors.
    components: Components,
    /// The sum of all tensors' bytes. Wide, since views of enormous shapes cost nothing to make.
    bytes: u128,
}

impl TensorTable {
    /// An empty table, whose tensors are placed on `worker` until a modifier places them elsewhere.
    pub fn new(worker: usize) -> TensorTable {
        TensorTable {
            home: Placement::on(worker),
            spread: false,
            slots: SlotIndex::default(),
            tensors: Vec::new(),
            vacant: Vec::new(),
            trimmed_generation: 0,
            components: Components::default(),
            bytes: 0,
        }
    }

    /// The tensor with the client's id `id`.
    #[inline]
    pub fn get(&self, id: TensorId) -> Option<&TensorEntry> {
        self.slots.get(id).map(|slot| &self.tensors[slot as usize])
    }

    /// [`get`](Self::get), to record the progress of an upload.
    #[inline]
    pub fn get_mut(&mut self, id: TensorId) -> Option<&mut TensorEntry> {
        self.slots.get(id).map(|slot| &mut self.tensors[slot as usize])
    }

    /// The tensor with the id `at` at workers.
    #[inline]
    pub fn get_at(&self, at: WorkerTensor) -> Option<&TensorEntry> {
        self.tensors.get(at.slot()).filter(|tensor| tensor.at == at)
    }

    /// [`get_at`](Self::get_at), to change the entry.
    pub fn get_at_mut(&mut self, at: WorkerTensor) -> Option<&mut TensorEntry> {
        self.tensors.get_mut(at.slot()).filter(|tensor| tensor.at == at)
    }

    /// A tensor and its copies in other placements.
    pub fn copies<'a>(&'a self, tensor: &'a TensorEntry) -> impl Iterator<Item = &'a TensorEntry> {
        std::iter::successors(Some(tensor), |tensor| self.get(tensor.copy))
    }

    /// Records the placement of the tensor with the id `at` at workers.
    pub fn set_placement(&mut self, at: WorkerTensor, placement: Placement) {
        self.spread |= placement.workers().len() > 1;
        if let Some(tensor) = self.get_at_mut(at) {
            tensor.placement = placement;
        }
    }

    /// The dataflow components of the tensors.
    pub fn components(&mut self) -> &mut Components {
        &mut self.components
    }

    /// Adds a component with the home worker `home`. Returns its number.
    pub fn add_component(&mut self, home: Option<usize>) -> u32 {
        if self.components.len() >= 2 * self.tensors.len() + COMPONENTS_SPARE {
            self.components.compact(self.tensors.iter_mut().map(|tensor| &mut tensor.membership));
        }
        self.components.add(home)
    }

    /// True once any tensor was on more than one worker.
    pub fn is_spread(&self) -> bool {
        self.spread
    }

    /// Exchanges the slots of the tensors `id` and `other`: each id then names the other's data at the workers.
    pub fn swap(&mut self, id: TensorId, other: TensorId) {
        let (Some(first), Some(second)) = (self.slots.get(id), self.slots.get(other)) else { return };
        self.slots.set(id, second);
        self.slots.set(other, first);
        self.tensors[first as usize].id = other;
        self.tensors[second as usize].id = id;
        let TensorEntry { copy, membership, .. } = self.tensors[first as usize];
        let second = &mut self.tensors[second as usize];
        let copy = std::mem::replace(&mut second.copy, copy);
        let membership = std::mem::replace(&mut second.membership, membership);
        let first = &mut self.tensors[first as usize];
        (first.copy, first.membership) = (copy, membership);
    }

    /// Adds a tensor with the id `id`, which has never been used before.
    #[inline]
    pub fn insert(&mut self, id: TensorId, meta: Meta, content: Content) -> WorkerTensor {
        let bytes = meta.bytes() as u64;
        self.bytes += bytes as u128;
        let (placement, membership) = (self.home, Membership::None);
        let entry = |at| TensorEntry { meta, bytes, id, content, at, placement, copy: 0, membership };
        let (slot, at) = match self.vacant.pop() {
            Some(slot) => {
                let tensor = &mut self.tensors[slot as usize];
                let at = WorkerTensor::new(slot, tensor.at.generation() + 1);
                *tensor = entry(at);
                (slot, at)
            }
            None => {
                let slot = self.tensors.len() as u32;
                let at = WorkerTensor::new(slot, self.trimmed_generation + 1);
                self.tensors.push(entry(at));
                (slot, at)
            }
        };
        self.slots.insert(id, slot);
        at
    }

    /// Removes a tensor. Its slot is reused, so the command that frees it must reach the worker before the command of
    /// the next insertion.
    #[inline]
    pub fn remove(&mut self, id: TensorId) -> Option<TensorEntry> {
        let slot = self.slots.remove(id)?;
        let tensor = self.tensors[slot as usize];
        self.bytes -= tensor.bytes as u128;
        // A slot whose generations are used up is never taken again.
        if tensor.at.generation() < GENERATION_MAX {
            self.vacant.push(slot);
        }
        Some(tensor)
    }

    /// [`remove`](Self::remove) by the id at workers. Also returns the client's id.
    pub fn remove_at(&mut self, at: WorkerTensor) -> Option<(TensorId, TensorEntry)> {
        let id = self.tensors.get(at.slot()).filter(|tensor| tensor.at == at)?.id;
        self.remove(id).map(|tensor| (id, tensor))
    }

    /// Releases memory of freed tensors: vacant slots at the end of the table, and spare capacity of the maps.
    pub fn trim(&mut self) {
        self.vacant.sort_unstable();
        while self.vacant.last().is_some_and(|slot| *slot as usize + 1 == self.tensors.len()) {
            self.vacant.pop();
            let taken = self.tensors.pop().map_or(0, |tensor| tensor.at.generation());
            self.trimmed_generation = self.trimmed_generation.max(taken);
        }
        self.tensors.shrink_to_fit();
        self.vacant.shrink_to_fit();
        self.slots.trim();
    }

    /// All live tensors, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &TensorEntry> {
        self.slots.values().map(|slot| &self.tensors[slot as usize])
    }

    /// The number of live tensors.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if no tensor is live.
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Bytes of all live tensors; views count as if they were copies.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }
}

/// The number of ids that [`SlotIndex`] finds without a hash table, a power of two. Most tensors of a program are freed
/// before so many others are made.
const RECENT_IDS: usize = 1 << 10;
/// Marks an entry of [`SlotIndex::recent`] that holds no tensor.
const VACANT: u32 = u32::MAX;

/// The slots of a session's tensors by their ids. Ids only increase, so those of the last tensors are found in an array
/// at the remainder of the id, and move to a hash table when a later id takes their entry.
#[derive(Default)]
struct SlotIndex {
    /// Empty, or [`RECENT_IDS`] entries: an id with this remainder, and its slot or [`VACANT`].
    recent: Vec<(TensorId, u32)>,
    /// The entries of `recent` that hold a tensor.
    recent_len: usize,
    older: HashMap<TensorId, u32, KeyedState>,
}

impl SlotIndex {
    #[inline(always)]
    fn position(id: TensorId) -> usize {
        id as usize & (RECENT_IDS - 1)
    }

    #[inline]
    fn get(&self, id: TensorId) -> Option<u32> {
        match self.recent.get(Self::position(id)) {
            Some((recent, slot)) if *recent == id && *slot != VACANT => Some(*slot),
            _ if self.older.is_empty() => None,
            _ => self.older.get(&id).copied(),
        }
    }

    /// Adds an id that is not here.
    #[inline]
    fn insert(&mut self, id: TensorId, slot: u32) {
        if self.recent.is_empty() {
            self.recent.resize(RECENT_IDS, (0, VACANT));
        }
        let (earlier, moved) = std::mem::replace(&mut self.recent[Self::position(id)], (id, slot));
        if moved == VACANT {
            self.recent_len += 1;
        } else {
            self.older.insert(earlier, moved);
        }
    }

    /// Changes the slot of an id that is here.
    fn set(&mut self, id: TensorId, slot: u32) {
        match self.recent.get_mut(Self::position(id)) {
            Some((recent, held)) if *recent == id && *held != VACANT => *held = slot,
            _ => drop(self.older.insert(id, slot)),
        }
    }

    #[inline]
    fn remove(&mut self, id: TensorId) -> Option<u32> {
        match self.recent.get_mut(Self::position(id)) {
            Some((recent, slot)) if *recent == id && *slot != VACANT => {
                self.recent_len -= 1;
                Some(std::mem::replace(slot, VACANT))
            }
            _ => self.older.remove(&id),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.recent_len + self.older.len()
    }

    fn values(&self) -> impl Iterator<Item = u32> {
        let recent = self.recent.iter().map(|(_, slot)| *slot).filter(|slot| *slot != VACANT);
        recent.chain(self.older.values().copied())
    }

    fn trim(&mut self) {
        if self.recent_len == 0 {
            self.recent = Vec::new();
        }
        self.older.shrink_to_fit();
    }
}

/// Builds [`KeyedHasher`]s of one random key.
#[derive(Clone, Copy)]
pub struct KeyedState(u64);

impl Default for KeyedState {
    fn default() -> Self {
        KeyedState(RandomState::new().hash_one(0u64) | 1)
    }
}

impl BuildHasher for KeyedState {
    type Hasher = KeyedHasher;
    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: self.0, hash: 0 }
    }
}

/// Folded multiplication of an id by a secret key (as in wyhash): a client cannot choose ids that collide, and no
/// cryptographic hash is computed.
pub struct KeyedHasher {
    key: u64,
    hash: u64,
}

impl Hasher for KeyedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
    #[inline]
    fn write_u64(&mut self, id: u64) {
        let product = (id ^ self.key.rotate_left(32)) as u128 * self.key as u128;
        self.hash = product as u64 ^ (product >> 64) as u64;
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.hash ^ *byte as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::{DType, Shape};

    fn meta(n: usize) -> Meta {
        Meta::new(Shape::new(&[n]).unwrap(), DType::F32)
    }

    #[test]
    fn slots_are_reused_and_ids_are_not() {
        let mut table = TensorTable::new(0);
        let first = table.insert(1, meta(2), Content::Defined);
        table.insert(2, meta(3), Content::Defined);
        assert_eq!((table.len(), table.bytes()), (2, 20));
        assert!(table.remove(1).is_some());
        assert!(table.remove(1).is_none());
        assert_eq!((table.len(), table.bytes()), (1, 12));
        let third = table.insert(3, meta(4), Content::Defined);
        assert_eq!(first.slot(), third.slot());
        assert_ne!(first.id(), third.id());
        assert_eq!(table.get(3).unwrap().at, third);
        assert!(table.get(1).is_none());
    }

    #[test]
    fn tensors_are_found_by_their_ids_however_old_these_are() {
        let mut table = TensorTable::new(0);
        let far = RECENT_IDS as TensorId;
        // Some ids share an entry of the array, and the largest ones are a modifier's.
        let ids = [1, 2, 2 + far, 2 + 3 * far, 7 + 3 * far, 1 << 63, (1 << 63) + far];
        for (n, id) in ids.into_iter().enumerate() {
            table.insert(id, meta(n + 1), Content::Defined);
        }
        let sizes = |table: &TensorTable| ids.map(|id| table.get(id).map_or(0, |tensor| tensor.meta.shape.numel()));
        assert_eq!((sizes(&table), table.len()), ([1, 2, 3, 4, 5, 6, 7], 7));
        assert!([0, 3, far, 2 + 2 * far, u64::MAX].into_iter().all(|id| table.get(id).is_none()));
        table.swap(2, 2 + 3 * far);
        assert_eq!(sizes(&table), [1, 4, 3, 2, 5, 6, 7]);
        assert_eq!(table.get(2).unwrap().id, 2);
        for id in [2 + 3 * far, 2, 1 << 63] {
            assert!(table.remove(id).is_some());
            assert!(table.remove(id).is_none());
        }
        assert_eq!((sizes(&table), table.len()), ([1, 0, 3, 0, 5, 0, 7], 4));
        let mut left: Vec<_> = table.iter().map(|tensor| tensor.id).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2 + far, 7 + 3 * far, (1 << 63) + far]);
    }

    #[test]
    fn memory_is_released_and_ids_still_differ() {
        let mut table = TensorTable::new(0);
        let mut ids = std::collections::HashSet::new();
        for round in 0..4 {
            for id in 1..=1000 {
                assert!(ids.insert(table.insert(round * 1000 + id, meta(1), Content::Defined).id()));
            }
            let kept = round * 1000 + 10;
            for id in (1..=1000).map(|id| round * 1000 + id).filter(|id| *id != kept) {
                table.remove(id);
            }
            table.trim();
            assert!(table.tensors.capacity() < 100, "{}", table.tensors.capacity());
            assert!(table.get(kept).is_some());
        }
        assert_eq!(table.len(), 4);
    }
}
