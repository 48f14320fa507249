//! In whose name memory is held, and how much may be.

use crate::ExecError;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// One scope of memory, alone or among others of a group, on all devices of one process together.
#[derive(Debug)]
pub struct Account {
    id: u64,
    held: AtomicUsize,
    peak: AtomicUsize,
    limit: AtomicUsize,
    group: OnceLock<Arc<Account>>,
}

/// The limit that an allocation would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// The device's limit.
    Device,
    /// The limit of the one [`Account`] that is charged.
    Usage,
    /// The limit of the group that the account is in.
    Group,
}

impl Account {
    /// An account without a limit. Accounts of one number are one scope's: what the one held, the other may see.
    pub fn new(id: u64) -> Account {
        let (held, peak, limit) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Account { id, held, peak, limit, group: OnceLock::new() }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Puts it into a group, once and before it holds anything.
    pub fn join(&self, group: Arc<Account>) {
        let _ = self.group.set(group);
    }

    /// The group that it is in.
    pub fn group(&self) -> Option<&Arc<Account>> {
        self.group.get()
    }

    /// It may hold so many bytes from now on; 0 for no limit. What it holds stays.
    pub fn set_limit(&self, bytes: u64) {
        let bytes = if bytes == 0 { usize::MAX } else { usize::try_from(bytes).unwrap_or(usize::MAX) };
        self.limit.store(bytes, Relaxed);
    }

    /// Bytes that it may hold; 0 if there is no limit.
    pub fn limit(&self) -> u64 {
        match self.limit.load(Relaxed) {
            usize::MAX => 0,
            bytes => bytes as u64,
        }
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// The most bytes that it held at one time, since it was made or [`reset_peak`](Account::reset_peak) was called.
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Lets the peak begin at what it holds now.
    pub fn reset_peak(&self) {
        self.peak.store(self.held(), Relaxed);
    }

    /// Holds `bytes` more, of which `requested` were asked for.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`] past its limit or its group's; nothing has changed then.
    #[inline]
    pub fn take(&self, bytes: usize, requested: usize) -> Result<(), ExecError> {
        let held = self.add(bytes, requested, LimitScope::Usage)?;
        if let Some(group) = self.group.get() {
            group.add(bytes, requested, LimitScope::Group).inspect_err(|_| self.subtract(bytes))?;
        }
        if held > self.peak.load(Relaxed) {
            self.peak.fetch_max(held, Relaxed);
        }
        Ok(())
    }

    /// Holds `bytes` less.
    #[inline]
    pub fn give(&self, bytes: usize) {
        self.subtract(bytes);
        if let Some(group) = self.group.get() {
            group.subtract(bytes);
        }
    }

    /// What it holds then.
    #[inline]
    fn add(&self, bytes: usize, requested: usize, scope: LimitScope) -> Result<usize, ExecError> {
        let held = self.held.fetch_add(bytes, Relaxed);
        let limit = self.limit.load(Relaxed);
        if let Some(total) = held.checked_add(bytes).filter(|total| *total <= limit) {
            return Ok(total);
        }
        self.subtract(bytes);
        Err(ExecError::OutOfMemory { requested, held, limit, scope })
    }

    #[inline]
    fn subtract(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_the_most_that_was_held_since_it_was_asked_for() {
        let group = Arc::new(Account::new(9));
        let account = Account::new(1);
        account.join(group.clone());
        group.set_limit(100);
        account.take(70, 70).unwrap();
        account.give(50);
        account.take(30, 30).unwrap();
        assert!(account.take(60, 60).is_err(), "what was refused was never held");
        assert_eq!((account.held(), account.peak()), (50, 70));
        account.reset_peak();
        account.give(40);
        assert_eq!((account.held(), account.peak()), (10, 50));
    }

    #[test]
    fn an_account_and_its_group_have_limits_and_give_back() {
        let group = Arc::new(Account::new(9));
        let (one, two) = (Account::new(1), Account::new(2));
        one.join(group.clone());
        two.join(group.clone());
        one.set_limit(100);
        group.set_limit(150);
        one.take(90, 90).unwrap();
        let scope = LimitScope::Usage;
        assert_eq!(one.take(20, 17), Err(ExecError::OutOfMemory { requested: 17, held: 90, limit: 100, scope }));
        let scope = LimitScope::Group;
        assert_eq!(two.take(70, 70), Err(ExecError::OutOfMemory { requested: 70, held: 90, limit: 150, scope }));
        assert_eq!((one.held(), two.held(), group.held()), (90, 0, 90));
        one.give(50);
        two.take(70, 70).unwrap();
        assert_eq!((one.held(), two.held(), group.held()), (40, 70, 110));
        // Less than is held may be allowed: what is held stays, and no more comes.
        one.set_limit(10);
        assert!(one.take(1, 1).is_err());
        one.set_limit(0);
        one.take(1, 1).unwrap();
    }
}
