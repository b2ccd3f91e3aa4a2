//! The Python module, tested from Python against this program.

use crate::common::{drophammer, text};
use std::path::Path;
use std::process::Command;

#[test]
fn the_module_passes_its_own_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("python3")
        .args(["-W", "error", "-m", "unittest", "discover", "python/tests"])
        .env("DROPHAMMER", drophammer().get_program())
        // Nothing is written into the checkout.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(root)
        .output()
        .expect("python3 starts; `scripts/setup test` installs it");
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("OK"), "{said}");
}
