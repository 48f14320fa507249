//! The versions of the protocol, and how two sides agree on one.
//!
//! A version covers the messages, the rings and the instructions in them. A field with a default, a message that is
//! only sent to those who asked for it, and an instruction that older clients do not send need no new version. What an
//! older side would misunderstand does: then [`PROTOCOL_VERSION`] grows by one, and the daemon goes on speaking the
//! version before, so that an upgrade of the daemon breaks no environment that was installed before.
//!
//! A hello has the oldest and the newest version that its sender speaks. The welcome has the version that both sides
//! use from then on, the newest that both speak.

use serde_json::Value;

/// The newest version that this build speaks. Version 2: notices, interrupts, records of sessions, and hellos with a
/// range. Version 3: reductions that convert their operand, Fourier transforms, indices that count from the end, bits
/// read as another dtype, products of half precisions in float32, alignments of labels with time steps (connectionist
/// temporal classification), silu and hardswish, steps of a long short-term memory, gradients of attention that are
/// given its result, products and quotients of complex numbers, and signals that lay tensors out on a mesh of workers.
pub const PROTOCOL_VERSION: u32 = 3;
/// The oldest version that this build speaks.
pub const PROTOCOL_VERSION_MIN: u32 = 1;
/// The first version with notices.
pub const NOTICES_SINCE: u32 = 2;
/// The first version in which a client can interrupt its steps.
pub const INTERRUPTS_SINCE: u32 = 2;

/// The first version in which a reduction can convert its operand to another dtype, and a scan of integers does.
pub const CONVERTING_REDUCTIONS_SINCE: u32 = 3;
/// The first version with Fourier transforms.
pub const FOURIER_TRANSFORMS_SINCE: u32 = 3;

/// The first version with gathers and scatters whose negative indices count from the end.
pub const WRAPPED_INDICES_SINCE: u32 = 3;

/// The first version with products of half precisions in float32.
pub const WIDE_PRODUCTS_SINCE: u32 = 3;

/// The first version with the forward variables of connectionist temporal classification.
pub const LABEL_ALIGNMENTS_SINCE: u32 = 3;

/// The first version in which bits can be read as another dtype.
pub const BITCASTS_SINCE: u32 = 3;

/// The first version in which the gradient of attention can have the result of attention as an operand.
pub const ATTENTION_RESULTS_SINCE: u32 = 3;

/// The first version in which an affine map is one instruction.
pub const AFFINE_MAPS_SINCE: u32 = 3;

/// The first version in which silu and hardswish are one instruction.
pub const ACTIVATIONS_SINCE: u32 = 3;

/// The first version in which a step of a long short-term memory is one instruction, and so is its gradient.
pub const LSTM_CELLS_SINCE: u32 = 3;

/// The first version in which a product of complex numbers is one instruction, and a quotient.
pub const COMPLEX_PRODUCTS_SINCE: u32 = 3;

/// The first version in which a signal can request layouts on a mesh of workers.
pub const MESHES_SINCE: u32 = 3;

/// The versions that one side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest.
    pub min: u32,
    /// The newest.
    pub max: u32,
}

impl VersionRange {
    /// The versions that this build speaks.
    pub const OWN: VersionRange = VersionRange { min: PROTOCOL_VERSION_MIN, max: PROTOCOL_VERSION };

    /// The versions in the fields of a hello. Version 1 had one field, the only version of its sender.
    pub fn new(min: u32, max: Option<u32>) -> VersionRange {
        VersionRange { min, max: max.unwrap_or(min).max(min) }
    }

    /// The versions in a hello, welcome or refusal of any version.
    pub fn of_message(bytes: &[u8]) -> Option<VersionRange> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let field = |name: &str| u32::try_from(value.get(name)?.as_u64()?).ok();
        Some(VersionRange::new(field("protocol_version")?, field("protocol_version_max")))
    }

    /// The newest version of both sides, if there is one.
    pub fn common(self, other: VersionRange) -> Option<u32> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

/// Says that the versions of a client and a daemon have nothing in common, and which side to upgrade.
pub fn mismatch_text(client: VersionRange, daemon: VersionRange) -> String {
    let next = if client.min > daemon.max {
        "upgrade the daemon (gtd) to the version of this gt"
    } else {
        "upgrade this gt to the version of the daemon"
    };
    format!("the daemon speaks protocol {daemon}, this gt speaks {client}: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_use_the_newest_version_that_they_share() {
        let range = |min, max| VersionRange { min, max };
        for (one, other, common) in [
            (range(1, 2), range(1, 1), Some(1)),
            (range(1, 2), range(2, 3), Some(2)),
            (range(1, 4), range(2, 3), Some(3)),
            (range(1, 2), range(3, 4), None),
        ] {
            assert_eq!((one.common(other), other.common(one)), (common, common), "{one} and {other}");
        }
        assert_eq!(VersionRange::new(1, None), range(1, 1));
        assert_eq!(VersionRange::new(3, Some(2)), range(3, 3));
    }

    #[test]
    fn a_mismatch_says_which_side_to_upgrade() {
        let (old, new) = (VersionRange::new(1, Some(2)), VersionRange::new(3, Some(4)));
        assert!(
            mismatch_text(new, old)
                .ends_with("this gt speaks 3 to 4: upgrade the daemon (gtd) to the version of this gt")
        );
        assert!(
            mismatch_text(old, new).ends_with("this gt speaks 1 to 2: upgrade this gt to the version of the daemon")
        );
    }
}
