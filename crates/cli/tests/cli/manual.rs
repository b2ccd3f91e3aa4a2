//! The examples of the manual, tested with the command itself.

use crate::common::pages::{example, examples, pages, root, suites};
use crate::common::{commands, good, run, text};
use std::collections::HashSet;

/// Targets of links within the project, except pictures: a path, `#` and a place in that page, or one of them.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.match_indices("](");
    let targets = ends.filter_map(|(i, _)| {
        let picture = text[..i].rfind('[').is_some_and(|open| text[..open].ends_with('!'));
        (!picture).then(|| text[i + 2..].split(')').next()).flatten()
    });
    targets.filter(|target| !target.contains("://"))
}

/// Paths of links.
fn links(text: &str) -> Vec<&str> {
    targets(text).filter(|t| !t.starts_with('#')).map(|t| t.split('#').next().unwrap()).collect()
}

/// Places in a page that a link can name: headings, with names as on GitHub, and marks.
fn places(text: &str) -> HashSet<String> {
    let lines = text.split("```").step_by(2).flat_map(str::lines);
    let headings = lines.filter_map(|line| line.strip_prefix('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    });
    let marks = text.match_indices("<a ").filter_map(|(i, _)| text[i..].split('"').nth(1)).map(str::to_owned);
    headings.chain(marks).collect()
}

#[test]
fn suites_of_the_manual_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("suite.yaml");
    let mut external = false;
    for (page, text) in pages() {
        for suite in suites(&text) {
            std::fs::write(&file, suite).unwrap();
            let output = run(&["check", file.to_str().unwrap()]);
            assert!(output.status.success(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
            external |= page == "README.md" && suite.contains("kind: external");
        }
    }
    assert!(external, "README.md has no suite for a router of one's own");
    // An invalid suite is refused; otherwise the check above would prove nothing.
    std::fs::write(&file, "suite: x\nduts: [{name: a, kind: no-such}]\n").unwrap();
    assert_eq!(run(&["check", file.to_str().unwrap()]).status.code(), Some(2));
}

#[test]
fn suites_of_the_project_are_accepted() {
    let in_folder = |folder: &str| std::fs::read_dir(root().join(folder)).unwrap().map(|s| s.unwrap().path());
    let all = in_folder("suites").chain(in_folder("suites/differences"));
    let suites: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "yaml")).collect();
    assert!(suites.iter().any(|suite| suite.ends_with("differences/rules.yaml")));
    for suite in suites {
        good(&run(&["check", suite.to_str().unwrap()]));
    }
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let folder = root().join(&page);
        let folder = folder.parent().unwrap();
        broken.extend(links(&text).into_iter().filter(|l| !folder.join(l).exists()).map(|l| format!("{page}: {l}")));
        for (path, place) in targets(&text).filter_map(|target| target.split_once('#')) {
            let other = (!path.is_empty()).then(|| std::fs::read_to_string(folder.join(path)).unwrap_or_default());
            if !places(other.as_ref().unwrap_or(&text)).contains(place) {
                broken.push(format!("{page}: {path}#{place}"));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    assert_eq!(links("[a](b.md) ![c](d.png) [e](https://f) [g](h.md#i) [j](#k)"), ["b.md", "h.md"]);
    let page = "# A\n\n## The tester's `end`\n\n<a id=\"here\"></a>Text\n\n```sh\n# not\n```\n";
    assert_eq!(places(page), ["a", "the-testers-end", "here"].map(str::to_owned).into());
}

#[test]
fn whatever_can_be_listed_has_a_page() {
    for (what, folder) in [("tests", "tests"), ("duts", "duts"), ("backends", "backends")] {
        let text = text(&run(&["list", what]).stdout);
        let names: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with(' ')).collect();
        assert!(names.len() > 1, "{text}");
        for name in names {
            let page = format!("{folder}/{name}.md");
            assert!(root().join("docs").join(&page).exists(), "docs/{page} is missing");
        }
    }
}

/// The first sentence after the title of a page.
fn first_sentence(text: &str) -> String {
    let words: Vec<&str> = text
        .lines()
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty())
        .flat_map(str::split_whitespace)
        .collect();
    let words = words.join(" ");
    words.split_inclusive(". ").next().unwrap_or_default().trim().trim_end_matches('.').to_owned()
}

/// The index with an entry for each page of docs/, without entries for deleted pages. A missing entry is added after the entries of the same folder. A
/// page directly in docs/ gets a row in the table, with its first sentence.
fn with_all_pages(old: &str, pages: &[(String, String)]) -> String {
    let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
    let of_row = |line: &str| Some(line.strip_prefix("| [")?.split_once("](")?.1.split_once(')')?.0.to_owned());
    let exists = |target: &str| pages.iter().any(|(page, _)| page == target);
    lines.retain(|line| of_row(line).is_none_or(|page| page.contains('/') || exists(&page)));
    for (page, text) in pages {
        if lines.iter().any(|line| links(line).contains(&page.as_str())) {
            continue;
        }
        match page.split_once('/') {
            None => {
                let place = lines.iter().rposition(|line| of_row(line).is_some()).expect("the index has a table");
                lines.insert(place + 1, format!("| [{page}]({page}) | {} |", first_sentence(text)));
            }
            Some((folder, file)) => {
                let link = format!("[{}]({page})", file.trim_end_matches(".md"));
                let last =
                    lines.iter().rposition(|line| links(line).iter().any(|l| l.starts_with(&format!("{folder}/"))));
                match last {
                    Some(place) => {
                        let end = lines[place].trim_end_matches(['.', ',']).len();
                        lines[place].insert_str(end, &format!(", {link}"));
                    }
                    None => lines.extend([String::new(), format!("**{folder}:** {link}.")]),
                }
            }
        }
    }
    lines.join("\n") + "\n"
}

/// DROPHAMMER_WRITE_INDEX=1 writes docs/README.md instead of comparing it.
#[test]
fn the_index_names_all_pages() {
    let file = root().join("docs/README.md");
    let old = std::fs::read_to_string(&file).unwrap();
    let mut all: Vec<(String, String)> = pages()
        .into_iter()
        .filter_map(|(page, text)| Some((page.strip_prefix("docs/")?.to_owned(), text)))
        .filter(|(page, _)| page != "README.md")
        .collect();
    all.sort();
    let new = with_all_pages(&old, &all);
    if std::env::var_os("DROPHAMMER_WRITE_INDEX").is_some() {
        std::fs::write(&file, &new).unwrap();
        return;
    }
    let missing: Vec<&str> = new.lines().filter(|line| !old.lines().any(|l| l == *line)).collect();
    assert!(
        new == old,
        "docs/README.md does not name all pages, or names pages that are gone; remedy: \
         DROPHAMMER_WRITE_INDEX=1 cargo test -p drophammer-cli --test cli manual::the_index, then read what it wrote:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_index_is_completed_and_kept_in_order() {
    let old = "# Documentation\n\n| page | content |\n|---|---|\n| [a.md](a.md) | by hand |\n| [gone.md](gone.md) | x |\n\n\
               **Tests**: [one](tests/one.md).\n";
    let page = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let pages = [
        page("a.md", "# A\n\nOther words.\n"),
        page("b.md", "# B\n\nWhat B\nis. More.\n"),
        page("guides/first.md", "# First\n"),
        page("tests/one.md", "# One\n"),
        page("tests/two.md", "# Two\n"),
    ];
    let new = "# Documentation\n\n| page | content |\n|---|---|\n| [a.md](a.md) | by hand |\n| [b.md](b.md) | What B is |\n\n\
               **Tests**: [one](tests/one.md), [two](tests/two.md).\n\n**guides:** [first](guides/first.md).\n";
    assert_eq!(with_all_pages(old, &pages), new);
    assert_eq!(with_all_pages(new, &pages), new);
}

#[test]
fn every_example_is_a_command_of_the_program() {
    let of_page = |(page, text): (String, String)| -> Vec<(String, Vec<String>)> {
        examples(&text).into_iter().map(|words| (page.clone(), words)).collect()
    };
    let mut examples: Vec<(String, Vec<String>)> = pages().into_iter().flat_map(of_page).collect();
    let help = |command: &[&str]| text(&run(&[command, &["--help"]].concat()).stdout);
    for command in commands().iter().filter(|command| *command != "help") {
        let said = help(&[command.as_str()]);
        assert!(said.contains("Example"), "`drophammer {command} --help` has no example");
        examples.extend(said.lines().filter_map(example).map(|words| (format!("help of {command}"), words)));
    }
    examples.extend(help(&[]).lines().filter_map(example).map(|words| ("help".to_owned(), words)));
    assert!(examples.len() > 60, "{} examples", examples.len());
    for (page, words) in &examples {
        // `--help` does nothing else, and an unknown word before it is an error.
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let output = run(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: drophammer {}: {said}", words.join(" "));
    }
    assert_eq!(run(&["run", "x.yaml", "--no-such", "--help"]).status.code(), Some(2));
}
