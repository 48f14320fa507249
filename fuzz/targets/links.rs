#![no_main]

#[expect(dead_code, reason = "one target needs one of them")]
#[path = "../bodies.rs"]
mod bodies;
#[expect(dead_code, reason = "the storm needs the rest")]
#[path = "../../daemon/tests/storm/streams.rs"]
mod streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::links(bytes));
