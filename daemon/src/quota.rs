//! The quotas of all users: as configured, and as changed since.

use gt_protocol::{Quota, QuotaChange, QuotaSettings};
use std::collections::BTreeMap;

/// The most users who can have settings besides the configured ones; the limit bounds the daemon's memory.
pub const USERS_MAX: usize = 4096;

/// The quotas in a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaConfig {
    /// The default quota.
    pub default: QuotaSettings,
    /// The quotas of the members of some groups, by group id. Of a user's groups, the first that sets a field counts.
    pub groups: Vec<(u32, QuotaSettings)>,
    /// The quotas of some users, by user id. Fields that are not set are those of the user's groups, then those of the
    /// default.
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
    /// The groups of users who have connected.
    groups_of: BTreeMap<u32, Vec<u32>>,
}

impl QuotaTable {
    /// The configured quotas.
    pub fn new(configured: QuotaConfig) -> QuotaTable {
        QuotaTable { configured, ..QuotaTable::default() }
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
        self.own(uid).or(self.settings_of_groups(uid)).or(self.default_settings()).into()
    }

    fn settings_of_groups(&self, uid: u32) -> QuotaSettings {
        let groups = self.groups_of.get(&uid).map_or(&[][..], Vec::as_slice);
        let of_user = self.configured.groups.iter().filter(|(group, _)| groups.contains(group));
        of_user.fold(QuotaSettings::default(), |settings, (_, next)| settings.or(*next))
    }

    /// True if a group has a quota.
    pub fn has_groups(&self) -> bool {
        !self.configured.groups.is_empty()
    }

    /// Notes the groups of user `uid`, which the kernel tells when the user connects.
    pub fn set_groups(&mut self, uid: u32, groups: Vec<u32>) {
        self.groups_of.insert(uid, groups);
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
            groups: Vec::new(),
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
    fn members_of_a_group_have_its_quota_unless_their_own_says_otherwise() {
        let sessions = |sessions| QuotaSettings { sessions: Some(sessions), ..QuotaSettings::default() };
        let second = QuotaSettings { weight: Some(4.0), ..sessions(5) };
        let configured = QuotaConfig {
            default: QuotaSettings { queued: Some(9), ..sessions(1) },
            groups: vec![(100, sessions(3)), (200, second)],
            users: BTreeMap::from([(2, sessions(7))]),
        };
        let mut quotas = QuotaTable::new(configured);
        let of = |quotas: &QuotaTable, uid| {
            let quota = quotas.quota(uid);
            (quota.sessions, quota.weight, quota.queued)
        };
        assert_eq!(of(&quotas, 1), (1, 1.0, 9));
        quotas.set_groups(1, vec![200, 300, 100]);
        quotas.set_groups(2, vec![200]);
        assert_eq!(of(&quotas, 1), (3, 4.0, 9), "of two groups, the first in the file counts");
        assert_eq!(of(&quotas, 2), (7, 4.0, 9));
        quotas.configure(QuotaConfig::default());
        assert_eq!(quotas.quota(1), Quota::default());
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let mut quotas = QuotaTable::default();
        for wrong in [0.0, -1.0, 1e9, f64::NAN] {
            assert!(quotas.set(Some(1), &weight(To(wrong))).unwrap_err().contains("a weight is"), "{wrong}");
        }
        assert_eq!(quotas.quota(1), Quota::default());
    }
}
