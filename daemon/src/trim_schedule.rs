//! The times at which a daemon returns the heap of freed tensors' records to the system.
//!
//! An idle daemon does so after some seconds without work. One that is never idle does so when many records have been
//! freed, since one busy session would otherwise keep the memory of all that have gone. Records that come and go at one
//! level are no reason: their memory is used again.

use std::time::{Duration, Instant};

/// The heap is trimmed if there are so many records fewer than at some time since the last trim. Each takes some
/// hundred bytes, with the worker's record and the tensor itself: a daemon that is never idle keeps at most some 20 MB
/// of freed records.
const RECORDS_FREED_MIN: u64 = 1 << 15;
/// The least time from one trim to the next while there is work.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Counts records to tell when so many have been freed that the heap is worth trimming.
#[derive(Debug, Default)]
pub struct TrimSchedule {
    /// The most records at one time since the heap was last trimmed.
    most: u64,
    /// No trim while there is work before this time.
    not_before: Option<Instant>,
}

impl TrimSchedule {
    /// Notes the present number of records. True if the heap is to be trimmed although there is work.
    pub fn is_due(&mut self, records: u64, now: Instant) -> bool {
        self.most = self.most.max(records);
        self.most - records >= RECORDS_FREED_MIN && self.not_before.is_none_or(|time| now >= time)
    }

    /// Notes that the heap was trimmed with this number of records.
    pub fn trimmed(&mut self, records: u64, now: Instant) {
        (self.most, self.not_before) = (records, Some(now + TRIM_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_when_many_records_are_gone_but_not_often() {
        let start = Instant::now();
        let mut schedule = TrimSchedule::default();
        assert!(!schedule.is_due(RECORDS_FREED_MIN, start));
        assert!(!schedule.is_due(1, start));
        assert!(schedule.is_due(0, start));
        schedule.trimmed(0, start);
        assert!(!schedule.is_due(0, start));
        // Records that come and go at one level stay.
        let later = start + TRIM_EVERY;
        assert!(!schedule.is_due(5 * RECORDS_FREED_MIN, later));
        assert!(!schedule.is_due(4 * RECORDS_FREED_MIN + 1, later));
        assert!(!schedule.is_due(2 * RECORDS_FREED_MIN, later - Duration::from_millis(1)));
        assert!(schedule.is_due(2 * RECORDS_FREED_MIN, later));
    }
}
