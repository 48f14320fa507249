//! Counter-based random numbers: the same program gives the same numbers on any worker and any backend.
//!
//! Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The key is
//! the session's seed; the counter's upper half is the random instruction's stream number, its lower half the block
//! number.
//! Element `i` of a tensor is word `i % 4` of block `i / 4` (or, for 64-bit words, word `i % 2` of block `i / 2`).

/// The four 32-bit words of block `block` of `stream`.
#[inline(always)]
pub fn block(seed: u64, stream: u64, block: u64) -> [u32; 4] {
    let mut c = [block as u32, (block >> 32) as u32, stream as u32, (stream >> 32) as u32];
    let mut k = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let p0 = 0xD251_1F53u64 * c[0] as u64;
        let p1 = 0xCD9E_8D57u64 * c[2] as u64;
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// A word as a float in [0, 1) with 24 bits.
#[inline(always)]
pub fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// Two words as a float in [0, 1) with 53 bits.
#[inline(always)]
pub fn unit_f64(low: u32, high: u32) -> f64 {
    (((high as u64) << 32 | low as u64) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_known_answers_of_random123() {
        assert_eq!(block(0, 0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(block(u64::MAX, u64::MAX, u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
