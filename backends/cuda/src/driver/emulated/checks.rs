//! The checks of an emulated device, made while it runs kernels.

/// The variable that chooses the checks: `addresses` or `races`.
pub const CHECKS_VARIABLE: &str = "GT_EMULATED_CHECKS";
/// The variable with the seed that shuffles blocks and threads.
pub const SEED_VARIABLE: &str = "GT_EMULATED_SEED";

/// The checks of an emulated device, beside those that cost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmulatedChecks {
    /// No further checks.
    #[default]
    None,
    /// AddressSanitizer finds accesses outside of a tensor, of a shared or local array, and to freed memory;
    /// UndefinedBehaviorSanitizer misaligned accesses and indices out of bounds. The process must have preloaded
    /// AddressSanitizer's runtime, `libasan`, and ends at the first finding.
    Addresses,
    /// Data races between threads of a launch, and reads of shared memory that no thread of the block has written: the
    /// wait for the launch panics.
    Races,
}

impl EmulatedChecks {
    /// The option of g++ that both the compiler and the linker need.
    pub(super) const ADDRESS_SANITIZERS: &str = "-fsanitize=address,alignment,bounds";

    /// The checks that the environment asks for.
    ///
    /// # Panics
    /// If [`CHECKS_VARIABLE`] names no checks.
    pub fn asked() -> EmulatedChecks {
        match std::env::var(CHECKS_VARIABLE).as_deref() {
            Err(_) | Ok("") => EmulatedChecks::None,
            Ok("addresses") => EmulatedChecks::Addresses,
            Ok("races") => EmulatedChecks::Races,
            Ok(other) => panic!("{CHECKS_VARIABLE}={other} names no checks: it is addresses, races, or not set"),
        }
    }

    /// Options of g++ for kernels.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            EmulatedChecks::None => &[],
            // Calls, where every access would get the code of a check, take a third of the time to compile.
            EmulatedChecks::Addresses => &[
                EmulatedChecks::ADDRESS_SANITIZERS,
                "-fno-sanitize-recover=all",
                "-fno-omit-frame-pointer",
                "-g1",
                "--param=asan-instrumentation-with-call-threshold=100",
            ],
            EmulatedChecks::Races => &["-fsanitize=thread", "--param=tsan-distinguish-volatile=1", "-g1"],
        }
    }
}

/// The seed that the environment asks for, 0 if none.
///
/// # Panics
/// If [`SEED_VARIABLE`] is no number.
pub fn seed_asked() -> u64 {
    let text = std::env::var(SEED_VARIABLE).unwrap_or_default();
    if text.is_empty() {
        return 0;
    }
    text.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text} is no number"))
}
