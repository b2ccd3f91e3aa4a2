//! The examples of the manual, tested with the command itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn drophammer(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drophammer")).args(arguments).current_dir(root()).output().unwrap()
}

/// README, ARCHITECTURE and all of docs/, as (path within the project, text).
fn pages() -> Vec<(String, String)> {
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
    let name = |p: &Path| p.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    pages.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

/// The suites among the YAML blocks of a page.
fn suites(text: &str) -> Vec<&str> {
    let blocks = text.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    blocks.filter(|b| b.starts_with("suite:")).collect()
}

/// Targets of links, without those of pictures.
fn links(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](");
    let targets = ends.filter_map(|(i, _)| {
        let picture = text[..i].rfind('[').is_some_and(|open| text[..open].ends_with('!'));
        (!picture).then(|| text[i + 2..].split(')').next()).flatten()
    });
    targets.filter(|t| !t.contains("://") && !t.starts_with('#')).map(|t| t.split('#').next().unwrap()).collect()
}

#[test]
fn suites_of_the_manual_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("suite.yaml");
    let mut external = false;
    for (page, text) in pages() {
        for suite in suites(&text) {
            std::fs::write(&file, suite).unwrap();
            let output = drophammer(&["check", file.to_str().unwrap()]);
            assert!(output.status.success(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
            external |= page == "README.md" && suite.contains("kind: external");
        }
    }
    assert!(external, "README.md has no suite for a router of one's own");
    // A suite with a mistake is refused; otherwise the check above would prove nothing.
    std::fs::write(&file, "suite: x\nduts: [{name: a, kind: no-such}]\n").unwrap();
    assert_eq!(drophammer(&["check", file.to_str().unwrap()]).status.code(), Some(2));
}

#[test]
fn suites_of_the_project_are_accepted() {
    let in_folder = |folder: &str| std::fs::read_dir(root().join(folder)).unwrap().map(|s| s.unwrap().path());
    let all = in_folder("suites").chain(in_folder("suites/differences"));
    let suites: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "yaml")).collect();
    assert!(suites.iter().any(|suite| suite.ends_with("differences/rules.yaml")));
    for suite in suites {
        let output = drophammer(&["check", suite.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let folder = root().join(&page);
        let folder = folder.parent().unwrap();
        broken.extend(links(&text).into_iter().filter(|l| !folder.join(l).exists()).map(|l| format!("{page}: {l}")));
    }
    assert_eq!(broken, Vec::<String>::new());
    assert_eq!(links("[a](b.md) ![c](d.png) [e](https://f) [g](h.md#i) [j](#k)"), ["b.md", "h.md"]);
}

#[test]
fn whatever_can_be_listed_has_a_page_and_the_index_names_all_pages() {
    let index = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
    let named = links(&index);
    for (what, folder) in [("tests", "tests"), ("duts", "duts"), ("backends", "backends")] {
        let output = drophammer(&["list", what]);
        let text = String::from_utf8(output.stdout).unwrap();
        let names: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with(' ')).collect();
        assert!(names.len() > 1, "{text}");
        for name in names {
            let page = format!("{folder}/{name}.md");
            assert!(root().join("docs").join(&page).exists(), "docs/{page} is missing");
        }
    }
    for (page, _) in pages().iter().filter(|(p, _)| p.starts_with("docs/") && p != "docs/README.md") {
        let page = page.strip_prefix("docs/").unwrap();
        assert!(named.contains(&page), "docs/README.md does not name {page}");
    }
}

/// The arguments of an example command line: without `sudo`, the folder, its description, and the redirection of its output.
fn example(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let line = line.strip_prefix("target/release/").unwrap_or(line).strip_prefix("drophammer ")?;
    let said = ["   ", " # ", " > ", " | "].iter().filter_map(|mark| line.find(mark)).min();
    let words = line[..said.unwrap_or(line.len())].split_whitespace();
    Some(words.map(|word| word.trim_matches('\'').to_owned()).collect())
}

#[test]
fn every_example_is_a_command_of_the_program() {
    let mut examples: Vec<(String, Vec<String>)> = Vec::new();
    for (page, text) in pages() {
        let blocks = text.split("```").skip(1).step_by(2);
        examples.extend(blocks.flat_map(str::lines).filter_map(example).map(|words| (page.clone(), words)));
    }
    let help = |command: &[&str]| String::from_utf8(drophammer(&[command, &["--help"]].concat()).stdout).unwrap();
    let all = help(&[]);
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // The description of a command may continue on a second line.
    let first = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let commands: Vec<&str> = commands.filter(first).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"run") && commands.contains(&"blast"), "{commands:?}");
    for command in commands.iter().filter(|command| **command != "help") {
        let said = help(&[command]);
        assert!(said.contains("Example"), "`drophammer {command} --help` has no example");
        examples.extend(said.lines().filter_map(example).map(|words| (format!("help of {command}"), words)));
    }
    examples.extend(all.lines().filter_map(example).map(|words| ("help".to_owned(), words)));
    assert!(examples.len() > 60, "{} examples", examples.len());
    for (page, words) in &examples {
        // With `--help` nothing is done, and an unknown word is reported as an error before it.
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let output = drophammer(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: drophammer {}: {said}", words.join(" "));
    }
    assert_eq!(drophammer(&["run", "x.yaml", "--no-such", "--help"]).status.code(), Some(2));
    // Commands that only print are also run, if they name no file except those of the project.
    let of_the_project = |word: &String| !word.contains('.') || root().join(word).exists();
    let prints = |words: &[String]| matches!(words[0].as_str(), "list" | "schema" | "check" | "plan" | "completions");
    let done = examples.iter().filter(|(_, words)| prints(words) && words.iter().all(of_the_project));
    let mut count = 0;
    for (page, words) in done {
        let output = drophammer(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{page}: {}: {said}", words.join(" "));
        count += 1;
    }
    assert!(count > 5, "{count} examples that only print");
}
