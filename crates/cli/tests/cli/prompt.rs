//! The question of `init`, on a pseudo-terminal.

use crate::common::on_terminal;
use std::io::{Read, Write};
use std::process::Stdio;

#[test]
fn the_question_of_init_is_asked_on_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.yaml");
    let command = format!("'{}' init --out '{}'", env!("CARGO_BIN_EXE_drophammer"), file.display());
    let Some(mut script) = on_terminal(&command) else { return };
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // `lo` does not lead to a router; then Ctrl-D.
    script.stdin.take().unwrap().write_all(b"lo\n\x04").unwrap();
    let mut said = String::new();
    script.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(2), "{said}");
    let is_asked = said.contains("`lo` is not in the list") && said.matches("> ").count() == 2;
    assert!(is_asked || said.contains("fewer than two interfaces"), "{said}");
    assert!(said.contains("--ports eth1,eth2") && !file.exists(), "{said}");
}
