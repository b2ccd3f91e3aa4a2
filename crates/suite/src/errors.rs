//! The errors of a suite file, each with its position and a remedy.

use super::keys::with_stars;
use drophammer_model::suite::{Mask, Secret};
use std::fmt;
use std::ops::Range;

/// Maximum number of errors that are reported; a file with more errors usually has one cause, not a hundred.
const MOST_ERRORS: usize = 100;
/// Maximum number of errors that are counted.
const MOST_NOTED: usize = 1000;
/// Longest quotation from the file in a message, in characters.
const MOST_QUOTED: usize = 60;
/// Longest part of a line that the plain rendering shows, in characters.
const MOST_SNIPPET: usize = 120;

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteError {
    /// What is wrong.
    pub message: String,
    /// How to correct it.
    pub help: String,
    /// File: the suite, as named to [`crate::read::read`], or a file that it includes.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Bytes of the file that the error refers to: within the text, on character boundaries, possibly empty.
    pub span: Range<usize>,
}

/// A text and the name of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name, as shown in errors.
    pub file: String,
    /// Text.
    pub text: String,
}

/// All errors of a suite in order of position, those of the suite before those of included files; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteErrors {
    /// The errors, at most 100.
    pub errors: Vec<SuiteError>,
    /// Number of errors left out (counting stops at 1000 errors).
    pub omitted: usize,
    /// The text of the suite with stars in place of keys of BGP sessions. The spans of its errors refer to this text.
    pub source: String,
    /// The files that the suite includes.
    pub included: Vec<Source>,
}

impl SuiteErrors {
    /// Hides keys of BGP sessions wherever errors show them. `others` are keys that appear in no text literally.
    fn hide_secrets(&mut self, others: &[String]) {
        let mut texts = vec![self.source.as_str()];
        texts.extend(self.included.iter().map(|source| source.text.as_str()));
        let (mut shown, secrets) = with_stars(&texts, others);
        for (source, text) in self.included.iter_mut().zip(shown.drain(1..)) {
            source.text = text;
        }
        self.source = shown.remove(0);
        let mask = Mask::of(secrets.iter().map(String::as_str));
        let hide = |text: &mut String| {
            for secret in &secrets {
                *text = text.replace(&quote(secret), &quote(Secret::HIDDEN));
            }
            *text = mask.message(text);
        };
        for error in &mut self.errors {
            hide(&mut error.message);
            hide(&mut error.help);
        }
    }

    /// The text to which the span of `error` refers.
    pub fn source_of(&self, error: &SuiteError) -> &str {
        let included = self.included.iter().find(|source| source.file == error.file);
        included.map_or(self.source.as_str(), |source| source.text.as_str())
    }
}

impl std::error::Error for SuiteErrors {}

impl fmt::Display for SuiteErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            error.render(self.source_of(error), f)?;
        }
        if self.omitted > 0 {
            writeln!(f, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl SuiteError {
    /// Prints `file:line:column: message`, the line with a caret below it, and the help.
    fn render(&self, source: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        let line_start = source[..self.span.start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = source[line_start..].find('\n').map_or(source.len(), |i| line_start + i);
        // Cuts a wide line so that the error is visible.
        let before = self.column.saturating_sub(1);
        let skipped = before.saturating_sub(MOST_SNIPPET / 2);
        let shown: String = source[line_start..line_end]
            .trim_end_matches('\r')
            .chars()
            .skip(skipped)
            .take(MOST_SNIPPET)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let meant = source[self.span.start..self.span.end.min(line_end).max(self.span.start)].trim_end();
        let room = MOST_SNIPPET.saturating_sub(before - skipped).max(1);
        let carets = meant.chars().count().clamp(1, room);
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "  {number} | {shown}")?;
        writeln!(f, "  {margin} | {}{}", " ".repeat(before - skipped), "^".repeat(carets))?;
        writeln!(f, "  {margin} = help: {}", self.help)
    }
}

/// The texts of a suite. Positions are counted through all texts, so that a range of bytes identifies both the file and
/// the position in it.
#[derive(Debug)]
pub(crate) struct Sources {
    suite: Source,
    included: Vec<Included>,
    /// Start position of the next text.
    next: usize,
    /// Keys of BGP sessions, with variables replaced; includes keys from the environment and other files.
    pub secrets: Vec<String>,
}

/// The text of an included file.
#[derive(Debug)]
struct Included {
    start: usize,
    /// Path, relative to the folder of the suite.
    path: String,
    source: Source,
}

impl Sources {
    /// A suite that includes nothing yet.
    pub fn of(file: &str, text: &str) -> Sources {
        let suite = Source { file: file.to_owned(), text: text.to_owned() };
        // The end of a text counts as a position.
        Sources { suite, included: Vec::new(), next: text.len() + 1, secrets: Vec::new() }
    }

    /// Adds an included file; returns its start position.
    pub fn add(&mut self, path: String, source: Source) -> usize {
        let start = self.next;
        self.next += source.text.len() + 1;
        self.included.push(Included { start, path, source });
        start
    }

    /// The text of the suite, then path and text of each included file.
    pub fn texts(&self) -> (&str, Vec<(&str, &str)>) {
        let included = self.included.iter().map(|included| (included.path.as_str(), included.source.text.as_str()));
        (self.suite.text.as_str(), included.collect())
    }

    /// The text that contains a position, and its start.
    fn holding(&self, at: usize) -> (usize, &Source) {
        let found = self.included.iter().rev().find(|included| included.start <= at);
        found.map_or((0, &self.suite), |included| (included.start, &included.source))
    }
}

/// The errors that readers find, with positions that are not yet converted to lines.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<(Range<usize>, String, String)>);

impl Problems {
    /// Adds an error. Removes control characters, because the messages may quote the file.
    pub fn add(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        if self.0.len() >= MOST_NOTED {
            return;
        }
        let clean = |text: String| text.replace(char::is_control, " ");
        self.0.push((span.clone(), clean(message.into()), clean(help.into())));
    }

    /// Adds an error and returns `None`, for a reader that then has nothing to return.
    pub fn refuse<T>(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Option<T> {
        self.add(span, message, help);
        None
    }

    /// Adds the errors of a text whose positions begin at `start`.
    pub fn add_all(&mut self, others: Problems, start: usize) {
        for (span, message, help) in others.0 {
            self.add(&(span.start + start..span.end + start), message, help);
        }
    }

    /// Number of errors so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first message with its help, for texts that are not in a file.
    pub fn first(&self) -> Option<String> {
        self.0.first().map(|(_, message, help)| format!("{message} ({help})"))
    }

    /// `value` if there are no errors, otherwise all errors with lines and columns.
    pub fn finish<T>(mut self, value: Option<T>, sources: Sources) -> Result<T, SuiteErrors> {
        match value {
            Some(value) if self.0.is_empty() => return Ok(value),
            None if self.0.is_empty() => {
                self.add(
                    &(0..0),
                    "this suite cannot be read",
                    "this is a bug in Drophammer: no reader reported an error",
                );
            }
            _ => {}
        }
        // A value can be wrong for several tests (`defaults:`, aliases), but one error is enough.
        self.0.sort_by(|a, b| (a.0.start, a.0.end, &a.1).cmp(&(b.0.start, b.0.end, &b.1)));
        self.0.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
        let omitted = self.0.len().saturating_sub(MOST_ERRORS);
        self.0.truncate(MOST_ERRORS);
        let errors = self
            .0
            .into_iter()
            .map(|(span, message, help)| {
                let (start, Source { file, text }) = sources.holding(span.start);
                let span = within(text, span.start - start..span.end.saturating_sub(start));
                let line_start = text[..span.start].rfind('\n').map_or(0, |i| i + 1);
                SuiteError {
                    message,
                    help,
                    file: file.clone(),
                    line: text[..span.start].matches('\n').count() + 1,
                    column: text[line_start..span.start].chars().count() + 1,
                    span,
                }
            })
            .collect();
        let mut errors = SuiteErrors {
            errors,
            omitted,
            source: sources.suite.text,
            included: sources.included.into_iter().map(|included| included.source).collect(),
        };
        errors.hide_secrets(&sources.secrets);
        Err(errors)
    }
}

/// Moves `span` to character boundaries of `source`.
fn within(source: &str, span: Range<usize>) -> Range<usize> {
    let start = source.floor_char_boundary(span.start.min(source.len()));
    let end = source.ceil_char_boundary(span.end.clamp(start, source.len()));
    start..end
}

/// A text of the file in backticks, shortened if it is long.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((cut, _)) => format!("`{}…`", &text[..cut]),
        None => format!("`{text}`"),
    }
}

/// Joins words: `a`, `b` and `c`.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match words.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Help for an unknown word: the most similar known word, and all known words.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    let all = format!("known: {}", list(known.iter().copied()));
    match nearest(word, &known) {
        Some(near) => format!("did you mean `{near}`? {all}"),
        None => all,
    }
}

/// The known word with the smallest edit distance, if this distance is at most a third of the word's length.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().replace('-', "_").chars().take(64).collect();
    let (best, distance) = known
        .iter()
        .map(|k| (*k, distance(&word, &k.to_lowercase().replace('-', "_").chars().collect::<Vec<_>>())))
        .min_by_key(|(_, d)| *d)?;
    (distance <= (word.len() / 3).max(1)).then_some(best)
}

/// Edit distance: insertions, deletions, substitutions and swaps of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        // rows[0] is the row before the previous one, rows[1] the previous one, rows[2] the one being computed.
        rows[2][0] = i;
        for j in 1..=b.len() {
            let substituted = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substituted.min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[0][j - 2] + 1);
            }
            rows[2][j] = best;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let known = ["throughput", "latency", "frame_loss_rate"];
        assert_eq!(nearest("thruoghput", &known), Some("throughput"));
        assert_eq!(nearest("Frame-Loss-Rate", &known), Some("frame_loss_rate"));
        assert_eq!(nearest("ping", &known), None);
        assert_eq!(nearest("", &[]), None);
    }

    #[test]
    fn distances_are_those_counted_by_hand() {
        let d = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(d("kitten", "sitting"), 3);
        assert_eq!(d("ab", "ba"), 1);
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("abc", ""), 3);
    }

    #[test]
    fn places_count_through_all_texts() {
        let mut sources = Sources::of("s.yaml", "ab\n");
        let source = |file: &str, text: &str| Source { file: file.into(), text: text.into() };
        let first = sources.add("a.yaml".into(), source("x/a.yaml", "1\n23"));
        let second = sources.add("b.yaml".into(), source("x/b.yaml", ""));
        assert_eq!((first, second), (4, 9));
        let mut problems = Problems::default();
        for (at, message) in [(second, "nothing"), (first + 4, "end"), (first + 2, "inside"), (3, "suite")] {
            problems.add(&(at..at), message, "help");
        }
        let errors = problems.finish::<()>(None, sources).unwrap_err();
        let found: Vec<_> =
            errors.errors.iter().map(|e| (e.message.as_str(), e.file.as_str(), e.line, e.column)).collect();
        let expected = [
            ("suite", "s.yaml", 2, 1),
            ("inside", "x/a.yaml", 2, 1),
            ("end", "x/a.yaml", 2, 3),
            ("nothing", "x/b.yaml", 1, 1),
        ];
        assert_eq!(found, expected);
        assert_eq!((errors.source_of(&errors.errors[1]), errors.source_of(&errors.errors[0])), ("1\n23", "ab\n"));
        assert!(errors.to_string().contains("\n  2 | 23\n"), "{errors}");
    }

    #[test]
    fn spans_off_the_text_or_inside_a_character_are_moved() {
        assert_eq!(within("aäb", 2..2), 1..3);
        assert_eq!(within("ab", 7..9), 2..2);
    }
}
