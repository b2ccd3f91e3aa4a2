//! The stored inputs of a fuzz target, for the tests that replay them.

use std::path::Path;

/// The inputs with the names of their files.
pub fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut inputs: Vec<_> = files.map(|file| (file.display().to_string(), std::fs::read(&file).unwrap())).collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "{} files in {}", inputs.len(), folder.display());
    inputs
}

/// Calls the body of the target with each input.
pub fn replay(target: &str, body: fn(&[u8])) {
    for (file, data) in inputs(target) {
        let done = std::panic::catch_unwind(|| body(&data));
        assert!(done.is_ok(), "{file} fails; the reason stands above");
    }
}
