//! The workers that a session may use: all of its daemon's, or those of the devices that it is pinned to.

use gt_protocol::address::VISIBLE_DEVICES_ENV;
use gt_protocol::{DeviceSet, SessionGrant};

/// The workers of a session, which a program numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleWorkers {
    /// The number of workers.
    pub count: usize,
    /// The devices to which the session is pinned, and the number of the daemon's devices; none if it may use all.
    pub pinned: Option<(DeviceSet, u32)>,
}

impl VisibleWorkers {
    /// The workers of a session that was granted, `count` of them.
    pub fn new(count: usize, grant: &SessionGrant) -> VisibleWorkers {
        VisibleWorkers { count, pinned: grant.devices.map(|devices| (devices, grant.daemon_devices)) }
    }

    /// Says which workers there are, and why not more; none if the session may use all.
    pub(crate) fn pinned_text(&self) -> Option<String> {
        let (devices, all) = self.pinned?;
        let workers = match self.count {
            1 => "worker 0".to_owned(),
            count => format!("workers 0 to {}", count - 1),
        };
        let (its, are) = if self.count == 1 { ("device", "is") } else { ("devices", "are") };
        Some(format!(
            "this session may use {its} {devices} of the daemon's {all}, which {are} its {workers}: gt.connect(devices=…) \
             and {VISIBLE_DEVICES_ENV} choose among the devices that gtctl limits shows for its user"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_session_says_which_devices_it_has() {
        let all = VisibleWorkers { count: 4, pinned: None };
        assert_eq!(all.pinned_text(), None);
        let two = VisibleWorkers { count: 2, pinned: Some((DeviceSet::from_bits(0b1100), 4)) };
        let text = two.pinned_text().unwrap();
        let start = "this session may use devices 2-3 of the daemon's 4, which are its workers 0 to 1: ";
        assert!(text.starts_with(start), "{text}");
        let one = VisibleWorkers { count: 1, pinned: Some((DeviceSet::from_bits(0b1000), 4)) };
        let text = one.pinned_text().unwrap();
        assert!(text.starts_with("this session may use device 3 of the daemon's 4, which is its worker 0: "), "{text}");
    }
}
