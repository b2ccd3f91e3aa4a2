//! Malicious messages: replays the corpus of the fuzz target `grpc` (see `fuzz/`), and tries random bytes and changes.

#[path = "../../../fuzz/src/grpc.rs"]
mod grpc;

use proptest::prelude::*;
use std::path::PathBuf;

/// The corpus, by name.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/grpc");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = files.map(|file| (file.display().to_string(), std::fs::read(&file).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn every_input_of_the_corpus() {
    let all = corpus();
    assert!(all.len() >= 10, "{} files", all.len());
    for (name, data) in all {
        let done = std::panic::catch_unwind(|| grpc::run(&data));
        assert!(done.is_ok(), "{name} fails; the reason stands above");
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        grpc::run(&bytes);
    }

    #[test]
    fn changed_messages(file in any::<prop::sample::Index>(), changes in prop::collection::vec(any::<(u16, u8)>(), 1..6)) {
        let all = corpus();
        let mut data = file.get(&all).1.clone();
        for (at, by) in changes {
            let at = usize::from(at) % data.len();
            data[at] = by;
        }
        grpc::run(&data);
    }
}
