//! Finds the line whose indentation makes a text invalid YAML. A YAML parser reports only the position where it gives
//! up, in its own terms.

use super::errors::quote;
use std::ops::Range;

/// What is wrong with the indentation of a line.
pub(super) struct Misplaced {
    pub span: Range<usize>,
    pub message: String,
    pub help: String,
}

/// A list or map that is open at the end of some lines.
#[derive(Clone, Copy)]
struct Level {
    column: usize,
    is_list: bool,
}

/// A line of a text.
struct Line<'t> {
    /// Position of its first byte.
    start: usize,
    indent: usize,
    /// The text after the indentation.
    content: &'t str,
}

/// Finds the wrong indentation at or near byte `at`, where the parser gave up. `None` if something else is wrong.
pub(super) fn find(text: &str, at: usize) -> Option<Misplaced> {
    let lines = lines(text);
    let here = lines.iter().rposition(|line| line.start <= at)?;
    // In a multi-line value, the parser fails on the line before the tab.
    let next = (here + 1..lines.len()).find(|i| !is_blank(&lines[*i]));
    let mut close = [Some(here), next].into_iter().flatten().map(|i| &lines[i]);
    let close = close.find(|line| line.content.starts_with('\t'));
    // A line above may be the cause. But a line that begins with spaces may be the text of a block, where tabs are
    // allowed.
    let above = || lines[..here].iter().find(|line| line.indent == 0 && line.content.starts_with('\t'));
    if let Some(line) = close.or_else(above) {
        let tab = line.start + line.indent;
        let tabs = line.content.len() - line.content.trim_start_matches(['\t', ' ']).len();
        return Some(Misplaced {
            span: tab..tab + tabs,
            message: "this is not YAML: a tab indents this line".into(),
            help: "write spaces instead; YAML indents with spaces, never with tabs".into(),
        });
    }
    unfit(&lines[..=here])
}

/// Finds a line with a leading dash in a multi-line value, because YAML takes the dash as part of the value.
pub(super) fn swallowed_dash(text: &str, value: Range<usize>) -> Option<Misplaced> {
    // Returns early for nearly all values, because a file can contain very many.
    let more = text.get(value.clone())?.find('\n')? + value.start + 1;
    let rest = lines(&text[more..value.end]);
    let line = rest.iter().find(|line| line.content.starts_with("- "))?;
    let start = more + line.start + line.indent;
    let above = text[value.start..more].trim_end();
    let first = text[..value.start].rfind('\n').map_or(0, |end| end + 1);
    let column = list_column(&text[first..more]);
    Some(Misplaced {
        span: start..start + line.content.trim_end().len(),
        message: format!(
            "this line is indented by {} spaces, so it belongs to the text {} above it",
            line.indent,
            quote(above)
        ),
        help: match column {
            Some(column) => format!(
                "indent it by {column} spaces to make it the next item of the list above; quote the text if it is one"
            ),
            None => "indent it like the list that it belongs to; quote the text if it is one".into(),
        },
    })
}

/// The indentation of a list whose item begins this text.
fn list_column(text: &str) -> Option<usize> {
    let line = lines(text).into_iter().next()?;
    line.content.starts_with("- ").then_some(line.indent)
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut next = 0;
    let mut all = Vec::new();
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches(' ');
        all.push(Line { start: next, indent: line.len() - content.len(), content: content.trim_end() });
        next += line.len();
    }
    all
}

fn is_blank(line: &Line<'_>) -> bool {
    line.content.is_empty() || line.content.starts_with('#')
}

/// Reports the last line if no list or map above it has the same indentation.
fn unfit(lines: &[Line<'_>]) -> Option<Misplaced> {
    let (last, above) = lines.split_last()?;
    let mut levels: Vec<Level> = Vec::new();
    let mut opens = true;
    for line in above.iter().filter(|line| !is_blank(line)) {
        levels.retain(|level| level.column < line.indent || (level.column == line.indent && !level.is_list));
        let (mut column, mut content) = (line.indent, line.content);
        while let Some(item) =
            content.strip_prefix("- ").or_else(|| content.strip_prefix('-').filter(|rest| rest.is_empty()))
        {
            levels.push(Level { column, is_list: true });
            let rest = item.trim_start_matches(' ');
            column += content.len() - rest.len();
            content = rest;
        }
        let content = content.split(" #").next().unwrap_or_default().trim_end();
        opens = content.is_empty() || content.ends_with([':', '|', '>', '[', '{', ',']) || content.ends_with("|-");
        let is_key = content.contains(": ") || content.ends_with(':');
        if is_key
            && !content.starts_with(['{', '[', '"', '\''])
            && !levels.iter().any(|level| level.column == column && !level.is_list)
        {
            levels.push(Level { column, is_list: false });
        }
    }
    let is_item = last.content.starts_with("- ") || last.content == "-";
    let fits = |level: &Level| level.column == last.indent && (!level.is_list || is_item);
    let deepest = levels.iter().map(|level| level.column).max()?;
    if levels.iter().any(fits) || (opens && last.indent > deepest) || last.content.starts_with([']', '}']) {
        return None;
    }
    let mut columns: Vec<usize> =
        levels.iter().filter(|level| !level.is_list || is_item).map(|level| level.column).collect();
    columns.sort_unstable();
    columns.dedup();
    let start = last.start + last.indent;
    let (last_column, others) = columns.split_last()?;
    let columns = match others {
        [] => last_column.to_string(),
        others => format!("{} or {last_column}", others.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    Some(Misplaced {
        span: start..start + last.content.len().max(1),
        message: format!(
            "this is not YAML: this line is indented by {} spaces, as no {} above it is",
            last.indent,
            if is_item { "item" } else { "key" }
        ),
        help: format!("indent it by {columns} spaces, like the lines above that it belongs to"),
    })
}

#[cfg(test)]
mod tests {
    use crate::errors::{Problems, Sources};
    use crate::raw;

    /// Line, column and text of the first error.
    fn error(text: &str) -> (usize, usize, String) {
        let mut problems = Problems::default();
        assert!(raw::parse(text, &mut problems).is_none(), "{text}");
        let errors = problems.finish::<()>(None, Sources::of("s.yaml", text)).unwrap_err();
        assert_eq!(errors.errors.len(), 1, "{errors}");
        let first = &errors.errors[0];
        (first.line, first.column, format!("{} / {}", first.message, first.help))
    }

    #[test]
    fn tabs_are_named_and_the_caret_is_on_their_line() {
        for (text, line, column) in [
            ("duts:\n\t- {name: a}\ntests: [t]\n", 2, 1),
            ("duts:\n  - name: a\n\tkind: linux\n", 3, 1),
            ("duts:\n  - name: a\n  \tkind: linux\n", 3, 3),
            ("\tsuite: good\nprofile: quick\n", 1, 1),
        ] {
            let (found, at, words) = error(text);
            assert_eq!((found, at), (line, column), "{text}: {words}");
            assert!(words.contains("a tab indents this line / write spaces"), "{words}");
        }
    }

    #[test]
    fn a_line_that_is_indented_wrongly_is_named() {
        for (text, place, spaces, help) in [
            ("ports:\n  - {name: p1}\n   - {name: p2}\n", (3, 4), 3, "by 0 or 2 spaces"),
            ("duts:\n  - name: a\n     kind: linux\n", (3, 6), 5, "by 0 or 4 spaces"),
            ("duts:\n  - name: a\n   kind: linux\n", (3, 4), 3, "by 0 or 4 spaces"),
            ("duts:\n  - {name: a}\n  tests:\n", (3, 3), 2, "by 0 spaces"),
            ("a:\n  - test: x\n    trial: 1 s\n      confirm: 3\n", (4, 7), 6, "by 0 or 4 spaces"),
        ] {
            let (line, column, words) = error(text);
            assert_eq!((line, column), place, "{text}: {words}");
            assert!(words.contains(&format!("indented by {spaces} spaces")) && words.contains(help), "{text}: {words}");
        }
        // With another cause, the message of the parser stays.
        let (.., words) = error("title: a: b\n");
        assert!(words.contains("quote text that holds"), "{words}");
    }

    #[test]
    fn an_item_that_belongs_to_the_text_above_is_named() {
        let (line, column, words) = error("tests:\n  - throughput\n    - latency\n");
        assert_eq!((line, column), (3, 5));
        assert!(
            words.contains("belongs to the text `throughput` above it") && words.contains("indent it by 2 spaces"),
            "{words}"
        );
        let mut problems = Problems::default();
        assert!(raw::parse("title: a text\n  that goes on\n", &mut problems).is_some());
    }
}
