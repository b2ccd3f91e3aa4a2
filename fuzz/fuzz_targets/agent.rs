#![no_main]

// Not of the library: the crate whose test replays that knows nothing of agents.
#[path = "../src/agent.rs"]
mod agent;

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent::run(data));
