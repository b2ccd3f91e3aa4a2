#![no_main]

// Not of the library: the crate whose test replays that knows nothing of stored runs.
#[path = "../src/run_folder.rs"]
mod run_folder;

libfuzzer_sys::fuzz_target!(|data: &[u8]| run_folder::run(data));
