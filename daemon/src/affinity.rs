//! Dataflow components of a session's tensors, and the worker that each component computes on.
//!
//! Tensors connected by data flow form a *component* (disjoint sets: union-find with path halving, Tarjan and van
//! Leeuwen 1984). Leaves, such as uploads, belong to no component; a worker that needs one gets a copy. A component
//! whose worker is also busy with others moves to a less loaded worker, together with the leaves that it uses, once it
//! has computed for many times as long as the move takes. Results stay on the worker of their operands. A component
//! whose tensors lie on several workers, or are sharded, has no home worker and stays as it is.
//!
//! All decisions are made with the estimated times of instructions, not with measured ones, so a slow run of a program
//! does not change its placement.

use gt_ops::{Placement, Workers};

/// A component moves once its work since the last move is estimated at this many times the cost of the move.
const MOVE_PAYOFF_FACTOR: f64 = 8.0;
/// The fixed cost of moving one tensor, nanoseconds; its bytes come on top.
const MOVE_NS: f64 = 20_000.0;
/// Recent work is halved whenever all workers together have done this much, estimated nanoseconds.
const HALVED_AFTER_NS: u64 = 100_000_000;

/// The relation of a tensor to the components of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// A leaf that no component has used yet.
    #[default]
    None,
    /// A leaf used by one component.
    LeafOf(u32),
    /// A leaf used by several components.
    SharedLeaf,
    /// Computed within a component.
    Member(u32),
    /// On several workers, or computed from a tensor that a signal has placed.
    Placed,
    /// Placed where a signal asked, or a new value of such a tensor.
    Requested(Placement),
}

#[derive(Clone, Copy, Debug)]
struct Component {
    /// The parent in the union-find forest; a root is its own parent.
    parent: u32,
    /// The one worker that has all of its tensors; none if they lie on several.
    home: Option<usize>,
    /// Estimated work since the last move, nanoseconds.
    work_ns: u64,
    /// The component's part of the home worker's recent work in [`WorkerLoads`], nanoseconds.
    recent_ns: u64,
    /// The number of halvings that `recent_ns` includes.
    halvings: u64,
    /// Leaves that it has used, and their bytes.
    leaves: u32,
    leaf_bytes: u64,
}

/// The components of one session.
#[derive(Debug, Default)]
pub struct Components(Vec<Component>);

/// The recent estimated work of each worker: the instructions that [`Components::schedule`] gave it.
#[derive(Debug)]
pub struct WorkerLoads {
    workers: Workers,
    /// By worker number.
    recent_ns: Vec<u64>,
    since_halving_ns: u64,
    halvings: u64,
}

impl WorkerLoads {
    /// The workers of the session.
    pub fn workers(&self) -> Workers {
        self.workers
    }

    /// The loads of `workers`, none of which has done any work.
    pub fn new(workers: Workers) -> WorkerLoads {
        let numbers = workers.iter().last().map_or(0, |last| last + 1);
        WorkerLoads { workers, recent_ns: vec![0; numbers], since_halving_ns: 0, halvings: 0 }
    }

    fn add(&mut self, worker: usize, cost_ns: u64) {
        if let Some(recent_ns) = self.recent_ns.get_mut(worker) {
            *recent_ns += cost_ns;
        }
        self.since_halving_ns += cost_ns;
        while self.since_halving_ns >= HALVED_AFTER_NS {
            self.since_halving_ns -= HALVED_AFTER_NS;
            self.halvings += 1;
            self.recent_ns.iter_mut().for_each(|recent_ns| *recent_ns /= 2);
        }
    }
}

/// The estimated cost of an instruction on unsharded tensors.
#[derive(Clone, Copy, Debug)]
pub struct InstructionWork {
    /// Estimated time of the instruction, nanoseconds.
    pub cost_ns: u64,
    /// Tensor operands of more than one element.
    pub operands: u32,
    /// Bytes of those operands.
    pub operand_bytes: u64,
}

impl Components {
    /// Nodes of the forest: roots, and components that were merged into others.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no components.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an empty component with the home worker `home`.
    pub fn add(&mut self, home: Option<usize>) -> u32 {
        let parent = self.0.len() as u32;
        let (work_ns, recent_ns, halvings, leaves, leaf_bytes) = (0, 0, 0, 0, 0);
        self.0.push(Component { parent, home, work_ns, recent_ns, halvings, leaves, leaf_bytes });
        parent
    }

    /// The root of a component, with path halving.
    pub fn find(&mut self, mut component: u32) -> u32 {
        loop {
            let parent = self.0[component as usize].parent;
            if parent == component {
                return component;
            }
            let grandparent = self.0[parent as usize].parent;
            self.0[component as usize].parent = grandparent;
            component = grandparent;
        }
    }

    /// Merges two components. Returns the root.
    pub fn union(&mut self, one: u32, other: u32) -> u32 {
        let (one, other) = (self.find(one), self.find(other));
        if one == other {
            return one;
        }
        let merged = self.0[other as usize];
        self.0[other as usize].parent = one;
        let root = &mut self.0[one as usize];
        if root.home != merged.home {
            root.home = None;
        }
        let (late, early) = (root.halvings.max(merged.halvings), root.halvings.min(merged.halvings));
        let age = |ns: u64, halvings: u64| if halvings < late { ns >> (late - early).min(63) } else { ns };
        root.recent_ns = age(root.recent_ns, root.halvings) + age(merged.recent_ns, merged.halvings);
        root.halvings = late;
        root.work_ns += merged.work_ns;
        root.leaves += merged.leaves;
        root.leaf_bytes += merged.leaf_bytes;
        one
    }

    /// Counts one more leaf of `bytes` that the component uses.
    pub fn add_leaf(&mut self, component: u32, bytes: u64) {
        let component = &mut self.0[component as usize];
        component.leaves += 1;
        component.leaf_bytes += bytes;
    }

    /// Takes the home worker away: the tensors lie on several workers.
    pub fn clear_home(&mut self, component: u32) {
        let root = self.find(component);
        self.0[root as usize].home = None;
    }

    /// The worker for the next instruction of the component `root`; none if the component has no home. Counts the
    /// instruction, and moves the home to the least loaded worker where that pays.
    pub fn schedule(
        &mut self,
        root: u32,
        work: InstructionWork,
        bytes_per_ns: f64,
        loads: &mut WorkerLoads,
    ) -> Option<usize> {
        let component = &mut self.0[root as usize];
        let home = component.home.filter(|home| loads.workers.contains(*home))?;
        component.recent_ns >>= (loads.halvings - component.halvings).min(63);
        component.halvings = loads.halvings;
        let move_ns = MOVE_NS * (component.leaves + work.operands) as f64
            + (component.leaf_bytes + work.operand_bytes) as f64 / bytes_per_ns;
        let mut at = home;
        if component.work_ns as f64 >= MOVE_PAYOFF_FACTOR * move_ns {
            let home_ns = loads.recent_ns[home];
            let loaded = loads.workers.iter().map(|worker| (loads.recent_ns[worker], worker));
            let (least_ns, idle) = loaded.min().unwrap_or((0, home));
            // The load of the busier of the two workers after the move.
            let after_ns = (least_ns + component.recent_ns).max(home_ns.saturating_sub(component.recent_ns));
            if after_ns <= home_ns / 10 * 9 {
                loads.recent_ns[home] -= component.recent_ns.min(home_ns);
                loads.recent_ns[idle] += component.recent_ns;
                (component.home, component.work_ns) = (Some(idle), 0);
                at = idle;
            }
        }
        component.work_ns += work.cost_ns;
        let before = loads.halvings;
        loads.add(at, work.cost_ns);
        component.recent_ns = (component.recent_ns + work.cost_ns) >> (loads.halvings - before).min(63);
        component.halvings = loads.halvings;
        Some(at)
    }

    /// Drops all components but those named by `memberships`, and renumbers these in place.
    pub fn compact<'a>(&mut self, memberships: impl Iterator<Item = &'a mut Membership>) {
        let mut kept: Vec<Component> = Vec::new();
        let mut numbers = vec![u32::MAX; self.0.len()];
        for membership in memberships {
            let (Membership::Member(component) | Membership::LeafOf(component)) = membership else { continue };
            let root = self.find(*component);
            let number = &mut numbers[root as usize];
            if *number == u32::MAX {
                *number = kept.len() as u32;
                kept.push(Component { parent: *number, ..self.0[root as usize] });
            }
            *component = *number;
        }
        self.0 = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: InstructionWork = InstructionWork { cost_ns: 100_000, operands: 2, operand_bytes: 1 << 16 };

    fn step(components: &mut Components, component: u32, loads: &mut WorkerLoads) -> Option<usize> {
        let root = components.find(component);
        components.schedule(root, WORK, 4.0, loads)
    }

    #[test]
    fn one_component_stays_and_a_second_moves_once_that_pays() {
        let (mut components, mut loads) = (Components::default(), WorkerLoads::new(Workers::first_of(3)));
        let first = components.add(Some(0));
        assert!((0..100).all(|_| step(&mut components, first, &mut loads) == Some(0)));
        let second = components.add(Some(0));
        let places: Vec<_> =
            (0..200).map(|_| [first, second].map(|component| step(&mut components, component, &mut loads))).collect();
        let stayed = places.iter().take_while(|places| **places == [Some(0); 2]).count();
        // A component moves once the second has done a tenth of the worker's recent work; either of the two may be the
        // one that moves.
        assert!((6..50).contains(&stayed), "{stayed}");
        assert_ne!(places[stayed][0], places[stayed][1]);
        assert!(places[stayed..].iter().all(|later| *later == places[stayed]));
    }

    #[test]
    fn many_components_are_spread_evenly_and_then_stay() {
        let (mut components, mut loads) = (Components::default(), WorkerLoads::new(Workers::first_of(2)));
        let all: Vec<u32> = (0..4).map(|_| components.add(Some(0))).collect();
        let mut round =
            || all.iter().map(|component| step(&mut components, *component, &mut loads)).collect::<Vec<_>>();
        let settled = (0..400).map(|_| round()).last().unwrap();
        assert_eq!(settled.iter().filter(|place| **place == Some(1)).count(), 2);
        assert!((0..400).all(|_| round() == settled));
    }

    #[test]
    fn a_component_moves_to_workers_of_the_session_alone() {
        let (mut components, mut loads) = (Components::default(), WorkerLoads::new(Workers::from_bits(0b101)));
        let all: Vec<u32> = (0..2).map(|_| components.add(Some(0))).collect();
        let round = |_| all.iter().map(|component| step(&mut components, *component, &mut loads)).collect::<Vec<_>>();
        let mut settled = (0..400).map(round).last().unwrap();
        settled.sort();
        assert_eq!(settled, [Some(0), Some(2)]);
        let left = components.add(Some(1));
        assert_eq!(step(&mut components, left, &mut loads), None);
    }

    #[test]
    fn a_component_that_meets_another_elsewhere_is_left_alone() {
        let (mut components, mut loads) = (Components::default(), WorkerLoads::new(Workers::first_of(2)));
        let (here, near, there) = (components.add(Some(0)), components.add(Some(0)), components.add(Some(1)));
        components.union(here, near);
        assert_eq!(step(&mut components, near, &mut loads), Some(0));
        components.union(there, near);
        assert_eq!(components.find(here), components.find(there));
        assert_eq!(step(&mut components, here, &mut loads), None);
    }

    #[test]
    fn components_without_tensors_are_forgotten() {
        let mut components = Components::default();
        let all: Vec<u32> = (0..100).map(|_| components.add(Some(0))).collect();
        let merged = components.union(all[3], all[7]);
        components.clear_home(all[8]);
        let mut memberships = [
            Membership::Member(all[3]),
            Membership::None,
            Membership::LeafOf(all[7]),
            Membership::SharedLeaf,
            Membership::Member(all[8]),
        ];
        components.compact(memberships.iter_mut());
        assert_eq!(
            memberships,
            [
                Membership::Member(0),
                Membership::None,
                Membership::LeafOf(0),
                Membership::SharedLeaf,
                Membership::Member(1)
            ]
        );
        assert_eq!((components.len(), components.0[1].home, merged), (2, None, all[3]));
    }
}
