//! Signals: what a session's named contexts ask of the placement of results.

use gt_ops::placement::Wish;
use std::collections::HashMap;

/// The signals of one session. There are at most [`gt_ops::wire::SIGNALS_MAX`].
#[derive(Debug, Default)]
pub struct Signals {
    wishes: HashMap<u32, Wish>,
    current: u32,
}

impl Signals {
    /// What `signal` asks for from now on.
    pub fn define(&mut self, signal: u32, wish: Wish) {
        self.wishes.insert(signal, wish);
    }

    /// The instructions from now on are under `signal`; 0 is none.
    pub fn enter(&mut self, signal: u32) {
        self.current = signal;
    }

    /// What is asked for the next instruction's result.
    pub fn wish(&self) -> Option<Wish> {
        if self.current == 0 { None } else { self.wishes.get(&self.current).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::placement::{Layout, Workers};

    #[test]
    fn what_was_not_defined_asks_for_nothing_and_a_definition_can_change() {
        let mut signals = Signals::default();
        let wish = |layout| Wish { workers: Workers::NONE, layout };
        assert_eq!(signals.wish(), None);
        signals.enter(3);
        assert_eq!(signals.wish(), None);
        signals.define(3, wish(Layout::Replicated));
        assert_eq!(signals.wish(), Some(wish(Layout::Replicated)));
        signals.define(3, wish(Layout::Any));
        assert_eq!(signals.wish(), Some(wish(Layout::Any)));
        signals.enter(0);
        assert_eq!(signals.wish(), None);
    }
}
