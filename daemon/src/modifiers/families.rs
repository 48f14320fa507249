//! Independent work: what keeps one worker busy though it has nothing to do with each other goes to different ones.
//!
//! Tensors that are computed from each other are a *family*. What is made of nothing, as an upload, belongs to none:
//! whoever needs it elsewhere has a copy. A family whose worker is kept busy by others as well moves to one that has
//! less to do, with what it uses, once all it has computed took many times as long as the way there. What it computes
//! stays with it, as results lie where operands do. A family that meets tensors elsewhere, or is divided, has no home
//! any more, and is left alone.
//!
//! Only estimates count, not clocks: the same program is placed in the same way again.

use super::collectives::{bring, settle};
use super::sharding::{Given, Plan};
use super::{Output, Sharding};
use crate::table::{Tensor, TensorTable, WorkerTensor};
use crate::worker::step::Step;
use gt_ops::{Class, Instruction, Meta, Placement, Workers};

/// A family has computed for so many times the time that its tensors take on their way, before it moves.
const MOVE_PAYS: f64 = 8.0;
/// What moving a tensor costs besides its bytes, nanoseconds.
const MOVE_NS: f64 = 20_000.0;
/// Work counts half after so much of all workers' estimated time, nanoseconds.
const HALVED_AFTER_NS: u64 = 100_000_000;

/// How a tensor belongs to families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kin {
    /// Made of nothing, and not used yet.
    #[default]
    None,
    /// Made of nothing, and used by one family.
    User(u32),
    /// Made of nothing, and used by several.
    Users,
    /// Computed in a family.
    Member(u32),
    /// On several workers, or computed from what a signal has placed.
    Placed,
    /// Asked by a signal to lie like this, or a new value of such a tensor.
    Asked(Placement),
}

#[derive(Clone, Copy, Debug)]
struct Family {
    /// Itself, or one that it has become part of.
    parent: u32,
    /// Where all of it is.
    home: Option<usize>,
    /// What it has computed since it was moved, estimated nanoseconds; and what counts of all, as of a time.
    work_ns: u64,
    recent_ns: u64,
    halvings: u64,
    /// What it has used that was made of nothing.
    sources: u32,
    source_bytes: u64,
}

/// The families of one session.
#[derive(Debug, Default)]
pub struct Families(Vec<Family>);

/// How busy workers are with what is computed whole on one of them.
#[derive(Debug)]
pub struct Loads {
    workers: Workers,
    /// By number.
    recent_ns: Vec<u64>,
    since_ns: u64,
    halvings: u64,
}

impl Loads {
    /// Of `workers` that have done nothing.
    pub fn new(workers: Workers) -> Loads {
        let numbers = workers.iter().last().map_or(0, |last| last + 1);
        Loads { workers, recent_ns: vec![0; numbers], since_ns: 0, halvings: 0 }
    }

    fn add(&mut self, worker: usize, cost_ns: u64) {
        if let Some(recent_ns) = self.recent_ns.get_mut(worker) {
            *recent_ns += cost_ns;
        }
        self.since_ns += cost_ns;
        while self.since_ns >= HALVED_AFTER_NS {
            self.since_ns -= HALVED_AFTER_NS;
            self.halvings += 1;
            self.recent_ns.iter_mut().for_each(|recent_ns| *recent_ns /= 2);
        }
    }
}

/// What an instruction on whole tensors needs to know of its family.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The instruction, estimated nanoseconds.
    pub cost_ns: u64,
    /// Its operands.
    pub operands: u32,
    /// Bytes of them.
    pub operand_bytes: u64,
}

impl Families {
    /// How many there are, with those that have become parts of others.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A new one.
    pub fn begin(&mut self, home: Option<usize>) -> u32 {
        let parent = self.0.len() as u32;
        let (work_ns, recent_ns, halvings, sources, source_bytes) = (0, 0, 0, 0, 0);
        self.0.push(Family { parent, home, work_ns, recent_ns, halvings, sources, source_bytes });
        parent
    }

    /// The one that a family has become part of.
    pub fn root(&mut self, mut family: u32) -> u32 {
        loop {
            let parent = self.0[family as usize].parent;
            if parent == family {
                return family;
            }
            // So that the next way is shorter.
            let next = self.0[parent as usize].parent;
            self.0[family as usize].parent = next;
            family = next;
        }
    }

    /// Makes one of two.
    pub fn join(&mut self, one: u32, other: u32) -> u32 {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return one;
        }
        let joined = self.0[other as usize];
        self.0[other as usize].parent = one;
        let family = &mut self.0[one as usize];
        if family.home != joined.home {
            family.home = None;
        }
        let (late, early) = (family.halvings.max(joined.halvings), family.halvings.min(joined.halvings));
        let age = |ns: u64, halvings: u64| if halvings < late { ns >> (late - early).min(63) } else { ns };
        family.recent_ns = age(family.recent_ns, family.halvings) + age(joined.recent_ns, joined.halvings);
        family.halvings = late;
        family.work_ns += joined.work_ns;
        family.sources += joined.sources;
        family.source_bytes += joined.source_bytes;
        one
    }

    /// It has a source more.
    pub fn uses(&mut self, family: u32, bytes: u64) {
        let family = &mut self.0[family as usize];
        family.sources += 1;
        family.source_bytes += bytes;
    }

    /// It lies in several places, and stays as it is.
    pub fn scatter(&mut self, family: u32) {
        let root = self.root(family);
        self.0[root as usize].home = None;
    }

    /// Where the next instruction of a family, which is a root, is to be done. Nowhere in particular if there is no
    /// answer.
    pub fn works(&mut self, family: u32, work: Work, bytes_per_ns: f64, loads: &mut Loads) -> Option<usize> {
        let family = &mut self.0[family as usize];
        let home = family.home.filter(|home| loads.workers.contains(*home))?;
        family.recent_ns >>= (loads.halvings - family.halvings).min(63);
        family.halvings = loads.halvings;
        let way_ns = MOVE_NS * (family.sources + work.operands) as f64
            + (family.source_bytes + work.operand_bytes) as f64 / bytes_per_ns;
        let mut at = home;
        if family.work_ns as f64 >= MOVE_PAYS * way_ns {
            let busy_ns = loads.recent_ns[home];
            let loaded = loads.workers.iter().map(|worker| (loads.recent_ns[worker], worker));
            let (least_ns, idle) = loaded.min().unwrap_or((0, home));
            // The busier of the two then.
            let after_ns = (least_ns + family.recent_ns).max(busy_ns.saturating_sub(family.recent_ns));
            if after_ns <= busy_ns / 10 * 9 {
                loads.recent_ns[home] -= family.recent_ns.min(busy_ns);
                loads.recent_ns[idle] += family.recent_ns;
                (family.home, family.work_ns) = (Some(idle), 0);
                at = idle;
            }
        }
        family.work_ns += work.cost_ns;
        let before = loads.halvings;
        loads.add(at, work.cost_ns);
        family.recent_ns = (family.recent_ns + work.cost_ns) >> (loads.halvings - before).min(63);
        family.halvings = loads.halvings;
        Some(at)
    }

    /// Forgets all families but those that `kins` name, which are told their new names.
    pub fn renumber<'a>(&mut self, kins: impl Iterator<Item = &'a mut Kin>) {
        let mut kept: Vec<Family> = Vec::new();
        let mut names = vec![u32::MAX; self.0.len()];
        for kin in kins {
            let (Kin::Member(family) | Kin::User(family)) = kin else { continue };
            let root = self.root(*family);
            let name = &mut names[root as usize];
            if *name == u32::MAX {
                *name = kept.len() as u32;
                kept.push(Family { parent: *name, ..self.0[root as usize] });
            }
            *family = *name;
        }
        self.0 = kept;
    }
}

impl Sharding {
    /// Where an instruction's family is at home: all of what it is computed from is to be there, and so is the result.
    pub(super) fn home(
        &mut self,
        asked: &Instruction,
        given: &[Given],
        is_placed: bool,
        step: &Step,
        tensors: &mut TensorTable,
    ) -> Option<usize> {
        if matches!(self.costs.shard_bytes_min, None | Some(0)) {
            return None;
        }
        let made = WorkerTensor::from_id(asked.out);
        let mut work = Work { cost_ns: step.cost_ns, operands: 0, operand_bytes: 0 };
        let mut family = None;
        let mut common = None;
        let mut placed = is_placed;
        // Single numbers are for everybody.
        for tensor in given.iter().filter_map(Given::tensor).filter(|tensor| tensor.meta.shape.numel() > 1) {
            if let Kin::Member(own) = tensor.kin {
                let families = tensors.families();
                family = Some(families.join(family.unwrap_or(own), own));
            }
            placed |= matches!(tensor.kin, Kin::Placed | Kin::Asked(_)) || tensor.placement.sole().is_none();
            common = if work.operands == 0 { tensor.placement.sole() } else { common };
            common = common.filter(|_| common == tensor.placement.sole());
            work.operands += 1;
            work.operand_bytes += tensor.bytes;
        }
        if placed {
            family.into_iter().for_each(|family| tensors.families().scatter(family));
            let made = tensors.get_at_mut(made)?;
            if !matches!(made.kin, Kin::Asked(_)) {
                made.kin = Kin::Placed;
            }
            return None;
        }
        if work.operands == 0 || family.is_none() && asked.op.row().class == Class::Movement {
            return None;
        }
        let family = family.unwrap_or_else(|| tensors.begin_family(common));
        for given in given.iter().filter_map(Given::tensor).filter(|tensor| tensor.meta.shape.numel() > 1) {
            let Some(Tensor { kin, bytes, .. }) = tensors.get_at(given.at).copied() else { continue };
            let kin = match kin {
                Kin::None => Kin::User(family),
                Kin::User(other) if tensors.families().root(other) != family => Kin::Users,
                _ => continue,
            };
            tensors.families().uses(family, bytes);
            tensors.get_at_mut(given.at)?.kin = kin;
        }
        tensors.get_at_mut(made)?.kin = Kin::Member(family);
        tensors.families().works(family, work, self.costs.link_bytes_per_ns, &mut self.loads)
    }

    /// Pushes an instruction of a family with what it lacks at home: what nobody else uses moves there.
    pub(super) fn at_home(
        &mut self,
        asked: &Instruction,
        given: &[Given],
        meta: &Meta,
        home: usize,
        step: &Step,
        out: &mut Output<'_>,
    ) {
        for tensor in given.iter().filter_map(Given::tensor) {
            let Some(tensor) = out.tensors().get(tensor.id).copied() else { continue };
            if tensor.meta.shape.numel() > 1 && matches!(tensor.kin, Kin::Member(_) | Kin::User(_)) {
                let at = bring(&tensor, &Placement::on(home), step, out);
                settle(tensor.id, at, step, out);
            }
        }
        let plan = Plan { workers: Workers::one(home), split: None };
        self.carry_out(asked, given, meta, &plan, None, step, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work { cost_ns: 100_000, operands: 2, operand_bytes: 1 << 16 };

    fn step(families: &mut Families, family: u32, loads: &mut Loads) -> Option<usize> {
        let root = families.root(family);
        families.works(root, WORK, 4.0, loads)
    }

    #[test]
    fn one_family_stays_and_a_second_moves_once_that_pays() {
        let (mut families, mut loads) = (Families::default(), Loads::new(Workers::first_of(3)));
        let first = families.begin(Some(0));
        assert!((0..100).all(|_| step(&mut families, first, &mut loads) == Some(0)));
        let second = families.begin(Some(0));
        let places: Vec<_> =
            (0..200).map(|_| [first, second].map(|family| step(&mut families, family, &mut loads))).collect();
        let stayed = places.iter().take_while(|places| **places == [Some(0); 2]).count();
        // The second has to be a tenth of what the worker did lately; the first has computed enough to move.
        assert!((6..50).contains(&stayed), "{stayed}");
        assert_ne!(places[stayed][0], places[stayed][1]);
        assert!(places[stayed..].iter().all(|later| *later == places[stayed]));
    }

    #[test]
    fn many_families_are_spread_evenly_and_then_stay() {
        let (mut families, mut loads) = (Families::default(), Loads::new(Workers::first_of(2)));
        let all: Vec<u32> = (0..4).map(|_| families.begin(Some(0))).collect();
        let mut round = || all.iter().map(|family| step(&mut families, *family, &mut loads)).collect::<Vec<_>>();
        let settled = (0..400).map(|_| round()).last().unwrap();
        assert_eq!(settled.iter().filter(|place| **place == Some(1)).count(), 2);
        assert!((0..400).all(|_| round() == settled));
    }

    #[test]
    fn a_family_moves_to_workers_of_the_session_alone() {
        let (mut families, mut loads) = (Families::default(), Loads::new(Workers::from_bits(0b101)));
        let all: Vec<u32> = (0..2).map(|_| families.begin(Some(0))).collect();
        let round = |_| all.iter().map(|family| step(&mut families, *family, &mut loads)).collect::<Vec<_>>();
        let mut settled = (0..400).map(round).last().unwrap();
        settled.sort();
        assert_eq!(settled, [Some(0), Some(2)]);
        let left = families.begin(Some(1));
        assert_eq!(step(&mut families, left, &mut loads), None);
    }

    #[test]
    fn a_family_that_meets_another_elsewhere_is_left_alone() {
        let (mut families, mut loads) = (Families::default(), Loads::new(Workers::first_of(2)));
        let (here, near, there) = (families.begin(Some(0)), families.begin(Some(0)), families.begin(Some(1)));
        families.join(here, near);
        assert_eq!(step(&mut families, near, &mut loads), Some(0));
        families.join(there, near);
        assert_eq!(families.root(here), families.root(there));
        assert_eq!(step(&mut families, here, &mut loads), None);
    }

    #[test]
    fn families_nobody_is_of_are_forgotten() {
        let mut families = Families::default();
        let all: Vec<u32> = (0..100).map(|_| families.begin(Some(0))).collect();
        let joined = families.join(all[3], all[7]);
        families.scatter(all[8]);
        let mut kins = [Kin::Member(all[3]), Kin::None, Kin::User(all[7]), Kin::Users, Kin::Member(all[8])];
        families.renumber(kins.iter_mut());
        assert_eq!(kins, [Kin::Member(0), Kin::None, Kin::User(0), Kin::Users, Kin::Member(1)]);
        assert_eq!((families.len(), families.0[1].home, joined), (2, None, all[3]));
    }
}
