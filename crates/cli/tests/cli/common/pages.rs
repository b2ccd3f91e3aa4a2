//! The pages of the manual, and the suites and command lines in them.

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

/// The arguments of an example command line. `sudo`, the folder of the program, the description and the redirection of the output are
/// removed.
pub fn example(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let line = line.strip_prefix("target/release/").unwrap_or(line).strip_prefix("drophammer ")?;
    let said = ["   ", " # ", " > ", " | "].iter().filter_map(|mark| line.find(mark)).min();
    let words = line[..said.unwrap_or(line.len())].split_whitespace();
    Some(words.map(|word| word.trim_matches('\'').to_owned()).collect())
}

/// The example command lines of a page, in order.
pub fn examples(text: &str) -> Vec<Vec<String>> {
    text.split("```").skip(1).step_by(2).flat_map(whole_lines).filter_map(|line| example(&line)).collect()
}

/// The lines of a block. A backslash at the end of a line joins it to the next line.
fn whole_lines(block: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part.trim_end(), true));
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => *last = format!("{last} {}", part.trim_start()),
            None => lines.push(part.to_owned()),
        }
        goes_on = more;
    }
    lines
}
