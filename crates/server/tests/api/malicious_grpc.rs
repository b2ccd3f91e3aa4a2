//! Malicious messages: replays the corpus of the fuzz target `grpc` (see `fuzz/`), and tries random bytes and changes.

#[path = "../../../../fuzz/src/grpc.rs"]
mod grpc;

use crate::corpus::{inputs, replay};
use proptest::prelude::*;

#[test]
fn every_input_of_the_corpus() {
    replay("grpc", grpc::run);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        grpc::run(&bytes);
    }

    #[test]
    fn changed_messages(file in any::<prop::sample::Index>(), changes in prop::collection::vec(any::<(u16, u8)>(), 1..6)) {
        let all = inputs("grpc");
        let mut data = file.get(&all).1.clone();
        for (at, by) in changes {
            let at = usize::from(at) % data.len();
            data[at] = by;
        }
        grpc::run(&data);
    }
}
