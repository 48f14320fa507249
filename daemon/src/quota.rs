//! What each user may have: as configured, and as changed since.

use gt_protocol::{Quota, QuotaChange, QuotaSettings};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Users for whom something can be set at a time: more are refused, so that nobody fills the daemon's memory.
pub const USERS_MAX: usize = 4096;

/// QuotaSettings as a configuration says them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// For all users.
    pub default: QuotaSettings,
    /// For some users alone, by number. What is not set here is as for all.
    pub users: BTreeMap<u32, QuotaSettings>,
}

impl QuotaConfig {
    fn own(&self, uid: u32) -> QuotaSettings {
        self.users.get(&uid).copied().unwrap_or_default()
    }
}

/// The limits in force. What was set since the start is stronger than what is configured, and what is for one user
/// stronger than what is for all.
#[derive(Clone, Debug, Default)]
pub struct QuotaTable {
    configured: QuotaConfig,
    set: QuotaConfig,
}

impl QuotaTable {
    /// As configured.
    pub fn new(configured: QuotaConfig) -> QuotaTable {
        QuotaTable { configured, set: QuotaConfig::default() }
    }

    /// Another configuration. What was set since the start stays.
    pub fn configure(&mut self, configured: QuotaConfig) {
        self.configured = configured;
    }

    /// What is for user `uid` alone.
    pub fn own(&self, uid: u32) -> QuotaSettings {
        self.set.own(uid).or(self.configured.own(uid))
    }

    /// What is in force for user `uid`.
    pub fn quota(&self, uid: u32) -> Quota {
        self.own(uid).or(self.for_all()).into()
    }

    /// What is in force for those who have nothing of their own.
    pub fn default_quota(&self) -> Quota {
        self.for_all().into()
    }

    fn for_all(&self) -> QuotaSettings {
        self.set.default.or(self.configured.default)
    }

    /// Makes a change for user `uid`, or for all users who have nothing of their own.
    ///
    /// # Errors
    /// What is wrong with it, for the user; nothing has changed then.
    pub fn set(&mut self, uid: Option<u32>, change: &QuotaChange) -> Result<(), String> {
        let old = uid.map_or(self.set.default, |uid| self.set.own(uid));
        let new = old.changed(change);
        if let Some(complaint) = new.complaint() {
            return Err(complaint);
        }
        match uid {
            None => self.set.default = new,
            Some(uid) if new == QuotaSettings::default() => {
                self.set.users.remove(&uid);
            }
            Some(uid) if self.set.users.len() >= USERS_MAX && !self.set.users.contains_key(&uid) => {
                return Err(format!(
                    "{USERS_MAX} users have limits of their own already: write them in the configuration"
                ));
            }
            Some(uid) => {
                self.set.users.insert(uid, new);
            }
        }
        Ok(())
    }

    /// Those who have something of their own.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.configured.users.keys().chain(self.set.users.keys()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::Setting::{self, Default as Unset, To};

    fn weight(weight: Setting<f64>) -> QuotaChange {
        QuotaChange { weight: Some(weight), ..QuotaChange::default() }
    }

    #[test]
    fn what_is_set_beats_what_is_configured_and_the_user_beats_all() {
        let configured = QuotaConfig {
            default: QuotaSettings { weight: Some(2.0), sessions: Some(7), ..QuotaSettings::default() },
            users: BTreeMap::from([(1, QuotaSettings { weight: Some(3.0), ..QuotaSettings::default() })]),
        };
        let mut quotas = QuotaTable::new(configured);
        assert_eq!((quotas.quota(1).weight, quotas.quota(2).weight), (3.0, 2.0));
        quotas.set(None, &weight(To(5.0))).unwrap();
        assert_eq!((quotas.quota(1).weight, quotas.quota(2).weight), (3.0, 5.0));
        quotas.set(Some(1), &weight(To(4.0))).unwrap();
        assert_eq!((quotas.quota(1).weight, quotas.quota(1).sessions), (4.0, 7));
        quotas.configure(QuotaConfig::default());
        assert_eq!((quotas.quota(1).weight, quotas.quota(2).weight), (4.0, 5.0));
        quotas.set(Some(1), &weight(Unset)).unwrap();
        quotas.set(None, &weight(Unset)).unwrap();
        assert_eq!(quotas.quota(1), Quota::default());
        assert_eq!(quotas.users().count(), 0);
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let mut quotas = QuotaTable::default();
        for wrong in [0.0, -1.0, 1e9, f64::NAN] {
            assert!(quotas.set(Some(1), &weight(To(wrong))).unwrap_err().contains("a weight is"), "{wrong}");
        }
        assert_eq!(quotas.quota(1), Quota::default());
    }

    #[test]
    fn limits_are_read_from_a_document() {
        let table: QuotaConfig =
            serde_json::from_str(r#"{"default": {"memory_bytes": 5}, "users": {"7": {"weight": 2.5}}}"#).unwrap();
        let quotas = QuotaTable::new(table);
        assert_eq!((quotas.quota(7).memory_bytes, quotas.quota(7).weight), (5, 2.5));
        assert!(serde_json::from_str::<QuotaConfig>(r#"{"default": {"memroy": 5}}"#).is_err());
    }
}
