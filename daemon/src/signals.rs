//! The signals of a session: named contexts that request a placement for results, or plans of what repeats.

use gt_ops::placement::RequestedPlacement;
use std::collections::HashMap;

/// The signals of one session and the active one. There are at most [`gt_ops::wire::SIGNALS_MAX`].
#[derive(Debug, Default)]
pub struct Signals {
    defined: HashMap<u32, (RequestedPlacement, Option<bool>)>,
    current: u32,
}

impl Signals {
    /// Sets the placement that `signal` requests, and whether the instructions under it are planned.
    pub fn define(&mut self, signal: u32, requested: RequestedPlacement, compile: Option<bool>) {
        self.defined.insert(signal, (requested, compile));
    }

    /// Makes `signal` active for the instructions that follow; 0 is no signal.
    pub fn enter(&mut self, signal: u32) {
        self.current = signal;
    }

    /// The placement that the active signal requests; none if no signal is active or the active one is not defined.
    pub fn requested(&self) -> Option<RequestedPlacement> {
        if self.current == 0 { None } else { self.defined.get(&self.current).map(|(requested, _)| *requested) }
    }

    /// Whether the active signal asks for plans or forbids them; none if it says neither, or no signal is active.
    #[inline]
    pub fn compile(&self) -> Option<bool> {
        if self.current == 0 { None } else { self.defined.get(&self.current)?.1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::Workers;
    use gt_ops::placement::RequestedLayout;

    #[test]
    fn an_undefined_signal_requests_nothing_and_a_definition_can_change() {
        let mut signals = Signals::default();
        let requested = |layout| RequestedPlacement { workers: Workers::NONE, layout };
        assert_eq!(signals.requested(), None);
        signals.enter(3);
        assert_eq!(signals.requested(), None);
        signals.define(3, requested(RequestedLayout::Replicated), Some(false));
        assert_eq!(
            (signals.requested(), signals.compile()),
            (Some(requested(RequestedLayout::Replicated)), Some(false))
        );
        signals.define(3, requested(RequestedLayout::Any), None);
        assert_eq!((signals.requested(), signals.compile()), (Some(requested(RequestedLayout::Any)), None));
        signals.enter(0);
        assert_eq!(signals.requested(), None);
    }
}
