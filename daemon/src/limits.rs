//! What each user may have: as configured, and as changed since.

use gt_protocol::{Allowance, Limits, LimitsChange};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Users for whom something can be set at a time: more are refused, so that nobody fills the daemon's memory.
pub const USERS_MAX: usize = 4096;

/// Limits as a configuration says them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsTable {
    /// For all users.
    pub default: Limits,
    /// For some users alone, by number. What is not set here is as for all.
    pub users: BTreeMap<u32, Limits>,
}

impl LimitsTable {
    fn own(&self, uid: u32) -> Limits {
        self.users.get(&uid).copied().unwrap_or_default()
    }
}

/// The limits in force. What was set since the start is stronger than what is configured, and what is for one user
/// stronger than what is for all.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    configured: LimitsTable,
    set: LimitsTable,
}

impl Rules {
    /// As configured.
    pub fn new(configured: LimitsTable) -> Rules {
        Rules { configured, set: LimitsTable::default() }
    }

    /// Another configuration. What was set since the start stays.
    pub fn configure(&mut self, configured: LimitsTable) {
        self.configured = configured;
    }

    /// What is for user `uid` alone.
    pub fn own(&self, uid: u32) -> Limits {
        self.set.own(uid).or(self.configured.own(uid))
    }

    /// What is in force for user `uid`.
    pub fn allowed(&self, uid: u32) -> Allowance {
        self.own(uid).or(self.for_all()).into()
    }

    /// What is in force for those who have nothing of their own.
    pub fn allowed_by_default(&self) -> Allowance {
        self.for_all().into()
    }

    fn for_all(&self) -> Limits {
        self.set.default.or(self.configured.default)
    }

    /// Makes a change for user `uid`, or for all users who have nothing of their own.
    ///
    /// # Errors
    /// What is wrong with it, for the user; nothing has changed then.
    pub fn set(&mut self, uid: Option<u32>, change: &LimitsChange) -> Result<(), String> {
        let old = uid.map_or(self.set.default, |uid| self.set.own(uid));
        let new = old.changed(change);
        if let Some(complaint) = new.complaint() {
            return Err(complaint);
        }
        match uid {
            None => self.set.default = new,
            Some(uid) if new == Limits::default() => {
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

    fn weight(weight: Setting<f64>) -> LimitsChange {
        LimitsChange { weight: Some(weight), ..LimitsChange::default() }
    }

    #[test]
    fn what_is_set_beats_what_is_configured_and_the_user_beats_all() {
        let configured = LimitsTable {
            default: Limits { weight: Some(2.0), sessions: Some(7), ..Limits::default() },
            users: BTreeMap::from([(1, Limits { weight: Some(3.0), ..Limits::default() })]),
        };
        let mut rules = Rules::new(configured);
        assert_eq!((rules.allowed(1).weight, rules.allowed(2).weight), (3.0, 2.0));
        rules.set(None, &weight(To(5.0))).unwrap();
        assert_eq!((rules.allowed(1).weight, rules.allowed(2).weight), (3.0, 5.0));
        rules.set(Some(1), &weight(To(4.0))).unwrap();
        assert_eq!((rules.allowed(1).weight, rules.allowed(1).sessions), (4.0, 7));
        rules.configure(LimitsTable::default());
        assert_eq!((rules.allowed(1).weight, rules.allowed(2).weight), (4.0, 5.0));
        rules.set(Some(1), &weight(Unset)).unwrap();
        rules.set(None, &weight(Unset)).unwrap();
        assert_eq!(rules.allowed(1), Allowance::default());
        assert_eq!(rules.users().count(), 0);
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let mut rules = Rules::default();
        for wrong in [0.0, -1.0, 1e9, f64::NAN] {
            assert!(rules.set(Some(1), &weight(To(wrong))).unwrap_err().contains("a weight is"), "{wrong}");
        }
        assert_eq!(rules.allowed(1), Allowance::default());
    }

    #[test]
    fn limits_are_read_from_a_document() {
        let table: LimitsTable =
            serde_json::from_str(r#"{"default": {"memory_bytes": 5}, "users": {"7": {"weight": 2.5}}}"#).unwrap();
        let rules = Rules::new(table);
        assert_eq!((rules.allowed(7).memory_bytes, rules.allowed(7).weight), (5, 2.5));
        assert!(serde_json::from_str::<LimitsTable>(r#"{"default": {"memroy": 5}}"#).is_err());
    }
}
