#![no_main]

// Not of the library: the crate whose test replays that knows nothing of the API.
#[path = "../src/grpc.rs"]
mod grpc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| grpc::run(data));
