#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drophammer_fuzz::bfd::run(data));
