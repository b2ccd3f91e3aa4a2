#![no_main]

// Not of the library: the crate whose test replays that knows nothing of the API.
#[path = "../src/otg.rs"]
mod otg;

libfuzzer_sys::fuzz_target!(|data: &[u8]| otg::run(data));
