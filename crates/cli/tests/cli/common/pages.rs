//! The pages of the manual, and the suites in them.

use std::path::{Path, PathBuf};

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README, ARCHITECTURE and all of docs/, as (path within the project, text), in order.
pub fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md"].iter().map(|p| root().join(p)).collect();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    let name = |p: &Path| p.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    pages.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

/// The suites among the YAML blocks of a page.
pub fn suites(text: &str) -> Vec<&str> {
    let blocks = text.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    blocks.filter(|b| b.starts_with("suite:")).collect()
}
