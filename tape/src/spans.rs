//! Sets of times: sorted stretches of time that do not touch each other, and the operations of sets on them, each of
//! which takes linear time.

/// A set of times, nanoseconds: each stretch from its beginning to before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// The stretch from `begin_ns` to `end_ns`; nothing if it ends before it begins.
    pub fn one(begin_ns: u64, end_ns: u64) -> Spans {
        Spans::of(vec![(begin_ns, end_ns)])
    }

    /// The union of stretches in any order, which may overlap.
    pub fn of(mut stretches: Vec<(u64, u64)>) -> Spans {
        stretches.retain(|(begin, end)| begin < end);
        if !stretches.is_sorted() {
            stretches.sort_unstable();
        }
        stretches.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
        Spans(stretches)
    }

    /// The stretches, in order.
    pub fn stretches(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// The time that they take, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end - begin).sum()
    }

    /// The times of either.
    #[must_use]
    pub fn or(&self, other: &Spans) -> Spans {
        Spans::of([&self.0[..], &other.0[..]].concat())
    }

    /// The times of both.
    #[must_use]
    pub fn and(&self, other: &Spans) -> Spans {
        let (mut common, mut at) = (Vec::new(), 0);
        for (begin, end) in &self.0 {
            while other.0.get(at).is_some_and(|(_, ended)| ended <= begin) {
                at += 1;
            }
            // The last one that overlaps may reach into the next stretch.
            for (from, to) in other.0[at..].iter().take_while(|(from, _)| from < end) {
                common.push((*begin.max(from), *end.min(to)));
            }
        }
        Spans(common)
    }

    /// The times of these that are not of `other`.
    #[must_use]
    pub fn without(&self, other: &Spans) -> Spans {
        let (mut rest, mut at) = (Vec::new(), 0);
        for (begin, end) in &self.0 {
            while other.0.get(at).is_some_and(|(_, ended)| ended <= begin) {
                at += 1;
            }
            let mut from = *begin;
            for (begun, ended) in other.0[at..].iter().take_while(|(begun, _)| begun < end) {
                if from < *begun {
                    rest.push((from, *begun));
                }
                from = *ended;
            }
            if from < *end {
                rest.push((from, *end));
            }
        }
        Spans(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_touch_are_one() {
        assert_eq!(Spans::of(vec![(5, 9), (1, 3), (3, 4), (8, 8), (7, 12)]).stretches(), [(1, 4), (5, 12)]);
        assert_eq!(Spans::one(4, 2), Spans::default());
    }

    #[test]
    fn operations_are_those_of_sets() {
        // A linear congruential generator (Knuth, MMIX).
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let has = |spans: &Spans, time| spans.stretches().iter().any(|(begin, end)| (*begin..*end).contains(&time));
        for _ in 0..300 {
            let mut any = || {
                let count = next(6);
                Spans::of((0..count).map(|_| (next(40), next(9))).map(|(begin, len)| (begin, begin + len)).collect())
            };
            let (a, b) = (any(), any());
            for time in 0..60 {
                let (in_a, in_b) = (has(&a, time), has(&b, time));
                assert_eq!(has(&a.and(&b), time), in_a && in_b, "{a:?} {b:?} {time}");
                assert_eq!(has(&a.or(&b), time), in_a || in_b, "{a:?} {b:?} {time}");
                assert_eq!(has(&a.without(&b), time), in_a && !in_b, "{a:?} {b:?} {time}");
            }
            assert_eq!(a.and(&b).total_ns() + a.without(&b).total_ns(), a.total_ns());
        }
    }
}
