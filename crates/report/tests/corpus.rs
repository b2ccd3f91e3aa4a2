//! Malicious run folders: replays the corpus of the fuzz target `run_folder` (see `fuzz/`), and tries random changes.

#[path = "../../../fuzz/src/run_folder.rs"]
mod run_folder;

use proptest::prelude::*;
use std::path::PathBuf;

#[test]
fn run_folder() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/run_folder");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 10, "{} files in {}", files.len(), folder.display());
    for file in files {
        let data = std::fs::read(&file).unwrap();
        let done = std::panic::catch_unwind(|| run_folder::run(&data));
        assert!(done.is_ok(), "{} fails; the reason stands above", file.display());
    }
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
