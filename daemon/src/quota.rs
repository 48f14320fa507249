//! The quotas of all users: as configured, and as changed since.

use gt_protocol::{Quota, QuotaChange, QuotaSettings};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most users who can have settings besides the configured ones; the limit bounds the daemon's memory.
pub const USERS_MAX: usize = 4096;

/// The quotas in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// The default quota.
    pub default: QuotaSettings,
    /// The quotas of some users, by user id. Fields that are not set are those of the default.
    pub users: BTreeMap<u32, QuotaSettings>,
}

impl QuotaConfig {
    fn own(&self, uid: u32) -> QuotaSettings {
        self.users.get(&uid).copied().unwrap_or_default()
    }
}

/// The quotas in force. A later change takes precedence over the configuration, and a user's own settings over the
/// default.
#[derive(Clone, Debug, Default)]
pub struct QuotaTable {
    configured: QuotaConfig,
    set: QuotaConfig,
}

impl QuotaTable {
    /// The configured quotas.
    pub fn new(configured: QuotaConfig) -> QuotaTable {
        QuotaTable { configured, set: QuotaConfig::default() }
    }

    /// Replaces the configuration. Later changes stay.
    pub fn configure(&mut self, configured: QuotaConfig) {
        self.configured = configured;
    }

    /// The settings of user `uid`, without the default's.
    pub fn own(&self, uid: u32) -> QuotaSettings {
        self.set.own(uid).or(self.configured.own(uid))
    }

    /// The quota of user `uid`.
    pub fn quota(&self, uid: u32) -> Quota {
        self.own(uid).or(self.default_settings()).into()
    }

    /// The quota of users without settings of their own.
    pub fn default_quota(&self) -> Quota {
        self.default_settings().into()
    }

    fn default_settings(&self) -> QuotaSettings {
        self.set.default.or(self.configured.default)
    }

    /// Changes the settings of user `uid`, or the default.
    ///
    /// # Errors
    /// An invalid change, as a sentence for the user; nothing has changed then.
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

    /// The users with settings of their own.
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
    fn a_change_beats_the_configuration_and_a_users_own_quota_the_default() {
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
