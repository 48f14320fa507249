//! Signals: what a session's named contexts ask of the placement of results.

use gt_ops::placement::RequestedPlacement;
use std::collections::HashMap;

/// The signals of one session. There are at most [`gt_ops::wire::SIGNALS_MAX`].
#[derive(Debug, Default)]
pub struct Signals {
    requested: HashMap<u32, RequestedPlacement>,
    current: u32,
}

impl Signals {
    /// What `signal` asks for from now on.
    pub fn define(&mut self, signal: u32, requested: RequestedPlacement) {
        self.requested.insert(signal, requested);
    }

    /// The instructions from now on are under `signal`; 0 is none.
    pub fn enter(&mut self, signal: u32) {
        self.current = signal;
    }

    /// What is asked for the next instruction's result.
    pub fn requested(&self) -> Option<RequestedPlacement> {
        if self.current == 0 { None } else { self.requested.get(&self.current).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modifiers::{Costs, Pipeline, Sharding};
    use crate::table::{Content, TensorTable};
    use crate::worker::step::{SessionSlot, Step};
    use gt_ops::placement::{Placement, RequestedLayout, Workers};
    use gt_ops::wire::Command;
    use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Scalar, Shape, TensorId};

    #[test]
    fn what_was_not_defined_asks_for_nothing_and_a_definition_can_change() {
        let mut signals = Signals::default();
        let requested = |layout| RequestedPlacement { workers: Workers::NONE, layout };
        assert_eq!(signals.requested(), None);
        signals.enter(3);
        assert_eq!(signals.requested(), None);
        signals.define(3, requested(RequestedLayout::Replicated));
        assert_eq!(signals.requested(), Some(requested(RequestedLayout::Replicated)));
        signals.define(3, requested(RequestedLayout::Any));
        assert_eq!(signals.requested(), Some(requested(RequestedLayout::Any)));
        signals.enter(0);
        assert_eq!(signals.requested(), None);
    }

    const WORKERS: Workers = Workers::first_of(4);

    /// A session whose tensors are all of one shape, and the modifier that divides its instructions.
    struct Session {
        pipeline: Pipeline,
        tensors: TensorTable,
        meta: Meta,
        last: TensorId,
    }

    impl Session {
        fn new(link_bytes_per_ns: f64) -> Session {
            let costs = Costs { shard_bytes_min: Some(1 << 30), link_bytes_per_ns };
            let meta = Meta::new(Shape::new(&[64, 256]).unwrap(), DType::F32);
            let pipeline = Pipeline::new(vec![Box::new(Sharding::new(WORKERS, costs))]);
            Session { pipeline, tensors: TensorTable::new(0), meta, last: 0 }
        }

        fn does(
            &mut self,
            op: Op,
            operands: &[TensorId],
            attrs: Attrs,
            requested: Option<RequestedPlacement>,
        ) -> TensorId {
            self.last += 1;
            let made = self.tensors.insert(self.last, self.meta, Content::Defined);
            let tensors = operands.iter().map(|id| Operand::Tensor(self.tensors.get(*id).unwrap().at.id()));
            let number = (op == Op::Full).then_some(Operand::Scalar(Scalar::Int(0)));
            let operands: Vec<Operand> = tensors.chain(number).collect();
            let inputs = Inputs::from_slice(&operands);
            let step = Step {
                owner: SessionSlot { session: 1, slot: 0 },
                workers: Workers::one(0),
                divided: false,
                requested,
                origin: self.last,
                token: 0,
                operands: [0; 2],
                command: Command::Op(Instruction { op, out: made.id(), inputs, last_use: 0, attrs, tf32: false }),
                out: Some(self.meta),
                fused_ns: None,
                cost_ns: 1000,
                expected_ns: 1000,
                bytes: 64,
            };
            self.pipeline.process(step, &mut self.tensors, &mut Vec::new());
            self.last
        }

        /// A tensor that a signal places.
        fn full(&mut self, workers: Workers, layout: RequestedLayout) -> TensorId {
            let attrs = Attrs::Create { shape: self.meta.shape, dtype: self.meta.dtype };
            self.does(Op::Full, &[], attrs, Some(RequestedPlacement { workers, layout }))
        }

        fn place(&self, id: TensorId) -> Placement {
            self.tensors.get(id).unwrap().placement
        }
    }

    #[test]
    fn what_is_updated_stays_where_a_signal_put_it() {
        // However long moving takes.
        for link_bytes_per_ns in [0.01, 1.0, 100.0] {
            let mut session = Session::new(link_bytes_per_ns);
            let columns = Placement::sharded(WORKERS, 1, 1, &session.meta.shape);
            let mut parameter = session.full(WORKERS, RequestedLayout::Sharded { axis: 1 });
            let gradient = session.full(WORKERS, RequestedLayout::Sharded { axis: 0 });
            let root = session.does(Op::Sqrt, &[gradient], Attrs::None, None);
            for _ in 0..3 {
                // Both others lie along rows: two against one.
                parameter = session.does(Op::Addcmul, &[parameter, gradient, root], Attrs::None, None);
                assert_eq!(session.place(parameter), columns);
                parameter = session.does(Op::Neg, &[parameter], Attrs::None, None);
                assert_eq!(session.place(parameter), columns);
            }
            // Until another signal asks for something else.
            let requested = RequestedPlacement { workers: Workers::one(2), layout: RequestedLayout::Replicated };
            let moved = session.does(Op::Sub, &[parameter, gradient], Attrs::None, Some(requested));
            let updated = session.does(Op::Sub, &[moved, gradient], Attrs::None, None);
            assert_eq!([moved, updated].map(|id| session.place(id)), [Placement::on(2); 2]);
        }
    }

    #[test]
    fn what_was_copied_to_others_is_updated_where_a_signal_put_it_alone() {
        let mut session = Session::new(1.0);
        let parameter = session.full(Workers::one(1), RequestedLayout::Replicated);
        let everywhere = RequestedPlacement { workers: WORKERS, layout: RequestedLayout::Replicated };
        let gradient = session.does(Op::Neg, &[parameter], Attrs::None, Some(everywhere));
        assert_eq!(session.place(gradient), Placement::Replicated { workers: WORKERS });
        let updated = session.does(Op::Sub, &[parameter, gradient], Attrs::None, None);
        assert_eq!(session.place(updated), Placement::on(1));
    }
}
