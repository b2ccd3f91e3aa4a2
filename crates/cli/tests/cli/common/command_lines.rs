//! The command lines in the pages of the manual.

/// The arguments of an example command line: without `sudo`, the folder, its description, and the redirection of its output.
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
    text.split("```").skip(1).step_by(2).flat_map(str::lines).filter_map(example).collect()
}
