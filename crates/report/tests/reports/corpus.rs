//! Malicious run folders: replays the corpus of the fuzz target `run_folder` (see `fuzz/`), and tries random changes.

#[path = "../../../../fuzz/src/corpus.rs"]
mod inputs;
#[path = "../../../../fuzz/src/run_folder.rs"]
mod run_folder;

use proptest::prelude::*;

#[test]
fn run_folder() {
    inputs::replay("run_folder", run_folder::run);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_change_of_a_stored_run_brings_the_reader_or_the_report_down(changes in prop::collection::vec(any::<[u8; 5]>(), 1..6)) {
        run_folder::run(&changes.concat());
    }

    #[test]
    fn no_file_of_any_bytes_does(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        run_folder::run(&[&[run_folder::WHOLE], &bytes[..]].concat());
    }
}
