//! The tensors of one session: from the client's ids to places that are reused.

use crate::modifiers::families::{Families, Kin};
use gt_ops::{Meta, Placement, TensorId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Where a tensor is at its worker. Never names two tensors: the upper half counts how often the place (the lower
/// half) was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerTensor(u64);

impl WorkerTensor {
    /// The `generation`-th tensor at `place`.
    pub fn new(place: u32, generation: u32) -> WorkerTensor {
        WorkerTensor((generation as u64) << 32 | place as u64)
    }
    /// From an instruction of a worker's stream.
    pub fn from_id(id: TensorId) -> WorkerTensor {
        WorkerTensor(id)
    }
    /// As the worker's stream names it. Never 0: generations count from 1.
    pub fn id(self) -> TensorId {
        self.0
    }
    /// Its place.
    pub fn place(self) -> usize {
        self.0 as u32 as usize
    }
}

/// A place is not taken more often, so that counting on stays possible.
const GENERATIONS_MAX: u64 = u32::MAX as u64 - 1;

/// So many families may be kept whose tensors are gone, beside two for each tensor.
const FAMILIES_KEPT: usize = 64;

/// How much of a tensor is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All, or an instruction on its way makes it.
    Defined,
    /// An upload has brought this many bytes.
    Uploading(u64),
}

/// What the dispatcher knows of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Its shape and dtype.
    pub meta: Meta,
    /// Bytes of its data.
    pub bytes: u64,
    /// The client's name for it.
    pub id: TensorId,
    /// How much of it is there.
    pub content: Content,
    /// Its name at the workers that have some of it.
    pub at: WorkerTensor,
    /// Where it is.
    pub placement: Placement,
    /// The same tensor lying elsewhere as well, under a modifier's id; 0 if it does not.
    pub copy: TensorId,
    /// What it has to do with others.
    pub kin: Kin,
}

/// The tensors of one session.
pub struct TensorTable {
    /// Where tensors are unless somebody says otherwise.
    home: Placement,
    /// Whether any tensor was ever on more than one worker.
    spread: bool,
    places: HashMap<TensorId, u32, KeyedState>,
    tensors: Vec<Tensor>,
    vacant: Vec<u32>,
    /// How often places were taken that have been given back to the system: new ones count on from there.
    taken: u32,
    /// Which tensors were computed from each other.
    families: Families,
    /// Wide, as views of enormous shapes cost nothing to make.
    bytes: u128,
}

impl TensorTable {
    /// No tensors. Those to come are on `worker` unless somebody says otherwise.
    pub fn new(worker: usize) -> TensorTable {
        TensorTable {
            home: Placement::on(worker),
            spread: false,
            places: HashMap::default(),
            tensors: Vec::new(),
            vacant: Vec::new(),
            taken: 0,
            families: Families::default(),
            bytes: 0,
        }
    }

    /// The tensor that the client calls `id`.
    #[inline]
    pub fn get(&self, id: TensorId) -> Option<&Tensor> {
        self.places.get(&id).map(|place| &self.tensors[*place as usize])
    }

    /// The same, to note the progress of its upload.
    #[inline]
    pub fn get_mut(&mut self, id: TensorId) -> Option<&mut Tensor> {
        self.places.get(&id).map(|place| &mut self.tensors[*place as usize])
    }

    /// The tensor that workers call `at`.
    #[inline]
    pub fn get_at(&self, at: WorkerTensor) -> Option<&Tensor> {
        self.tensors.get(at.place()).filter(|tensor| tensor.at == at)
    }

    /// The same, to note where it is.
    pub fn get_at_mut(&mut self, at: WorkerTensor) -> Option<&mut Tensor> {
        self.tensors.get_mut(at.place()).filter(|tensor| tensor.at == at)
    }

    /// A tensor and its copies: all that lies somewhere.
    pub fn lying<'a>(&'a self, tensor: &'a Tensor) -> impl Iterator<Item = &'a Tensor> {
        std::iter::successors(Some(tensor), |tensor| self.get(tensor.copy))
    }

    /// Notes where the tensor is that workers call `at`.
    pub fn place(&mut self, at: WorkerTensor, placement: Placement) {
        self.spread |= placement.workers().len() > 1;
        if let Some(tensor) = self.get_at_mut(at) {
            tensor.placement = placement;
        }
    }

    /// The families of its tensors.
    pub fn families(&mut self) -> &mut Families {
        &mut self.families
    }

    /// A new family.
    pub fn begin_family(&mut self, home: Option<usize>) -> u32 {
        if self.families.len() >= 2 * self.tensors.len() + FAMILIES_KEPT {
            self.families.renumber(self.tensors.iter_mut().map(|tensor| &mut tensor.kin));
        }
        self.families.begin(home)
    }

    /// Whether any tensor was ever on more than one worker.
    pub fn is_spread(&self) -> bool {
        self.spread
    }

    /// Lets the tensor called `id` and the one called `other` change their places at the workers.
    pub fn swap(&mut self, id: TensorId, other: TensorId) {
        let (Some(&first), Some(&second)) = (self.places.get(&id), self.places.get(&other)) else { return };
        self.places.insert(id, second);
        self.places.insert(other, first);
        self.tensors[first as usize].id = other;
        self.tensors[second as usize].id = id;
        let Tensor { copy, kin, .. } = self.tensors[first as usize];
        let second = &mut self.tensors[second as usize];
        let copy = std::mem::replace(&mut second.copy, copy);
        let kin = std::mem::replace(&mut second.kin, kin);
        let first = &mut self.tensors[first as usize];
        (first.copy, first.kin) = (copy, kin);
    }

    /// A tensor that the client calls `id`, which it has never used before.
    #[inline]
    pub fn insert(&mut self, id: TensorId, meta: Meta, content: Content) -> WorkerTensor {
        let bytes = meta.bytes() as u64;
        self.bytes += bytes as u128;
        let (place, at) = match self.vacant.pop() {
            Some(place) => {
                let tensor = &mut self.tensors[place as usize];
                let at = WorkerTensor::new(place, (tensor.at.id() >> 32) as u32 + 1);
                *tensor = Tensor { meta, bytes, id, content, at, placement: self.home, copy: 0, kin: Kin::None };
                (place, at)
            }
            None => {
                let place = self.tensors.len() as u32;
                let at = WorkerTensor::new(place, self.taken + 1);
                self.tensors.push(Tensor {
                    meta,
                    bytes,
                    id,
                    content,
                    at,
                    placement: self.home,
                    copy: 0,
                    kin: Kin::None,
                });
                (place, at)
            }
        };
        self.places.insert(id, place);
        at
    }

    /// Forgets a tensor. Its place is used again, so the worker must be told before the next insertion reaches it.
    #[inline]
    pub fn remove(&mut self, id: TensorId) -> Option<Tensor> {
        let Entry::Occupied(entry) = self.places.entry(id) else { return None };
        let place = entry.remove();
        let tensor = self.tensors[place as usize];
        self.bytes -= tensor.bytes as u128;
        // A place whose generations are used up is left vacant for good.
        if tensor.at.id() >> 32 < GENERATIONS_MAX {
            self.vacant.push(place);
        }
        Some(tensor)
    }

    /// [`remove`](Self::remove) by the worker's name. Also says what the client called it.
    pub fn remove_at(&mut self, at: WorkerTensor) -> Option<(TensorId, Tensor)> {
        let id = self.tensors.get(at.place()).filter(|tensor| tensor.at == at)?.id;
        self.remove(id).map(|tensor| (id, tensor))
    }

    /// Gives memory back that tensors now freed have taken: the vacant places at the end, and room in the maps.
    pub fn trim(&mut self) {
        self.vacant.sort_unstable();
        while self.vacant.last().is_some_and(|place| *place as usize + 1 == self.tensors.len()) {
            self.vacant.pop();
            let taken = self.tensors.pop().map_or(0, |tensor| (tensor.at.id() >> 32) as u32);
            self.taken = self.taken.max(taken);
        }
        self.tensors.shrink_to_fit();
        self.vacant.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    /// All that live.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.places.values().map(|place| &self.tensors[*place as usize])
    }

    /// Tensors that live.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes in tensors that live, views counted as if they were copies.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }
}

/// Hashes an id with one multiplication by a secret, so that a client can neither choose ids that collide nor pay
/// for a cryptographic hash.
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

/// See [`KeyedState`].
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
    fn places_are_used_again_and_names_are_not() {
        let mut table = TensorTable::new(0);
        let first = table.insert(1, meta(2), Content::Defined);
        table.insert(2, meta(3), Content::Defined);
        assert_eq!((table.len(), table.bytes()), (2, 20));
        assert!(table.remove(1).is_some());
        assert!(table.remove(1).is_none());
        assert_eq!((table.len(), table.bytes()), (1, 12));
        let third = table.insert(3, meta(4), Content::Defined);
        assert_eq!(first.place(), third.place());
        assert_ne!(first.id(), third.id());
        assert_eq!(table.get(3).unwrap().at, third);
        assert!(table.get(1).is_none());
    }

    #[test]
    fn memory_is_given_back_and_names_still_differ() {
        let mut table = TensorTable::new(0);
        let mut names = std::collections::HashSet::new();
        for round in 0..4 {
            for id in 1..=1000 {
                assert!(names.insert(table.insert(round * 1000 + id, meta(1), Content::Defined).id()));
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
