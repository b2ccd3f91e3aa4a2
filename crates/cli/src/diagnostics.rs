//! Prints errors in a uniform style: `error: ` and the cause, the place if there is one, and `help: ` with the remedy.

use crate::output::{err, is_colored};
use drophammer_model::visible::masked;
use drophammer_server::runs::Wrong;
use drophammer_suite::{SuiteError, SuiteErrors};
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, NamedSource, SourceSpan};
use std::fmt;

#[derive(Debug)]
struct Shown<'a> {
    error: &'a SuiteError,
    source: NamedSource<String>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.error.file, self.error.line, self.error.column, self.error.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.error.help.is_empty()).then(|| Box::new(&self.error.help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        let span = SourceSpan::new(self.error.span.start.into(), self.error.span.len());
        Some(Box::new(std::iter::once(miette::LabeledSpan::new_with_span(None, span))))
    }
}

/// Prints every error with its line and remedy to standard error.
pub fn print(errors: &SuiteErrors) {
    let color = is_colored(&std::io::stderr());
    let mut theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    theme.characters.error = "error:".into();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(110).with_context_lines(1);
    for error in &errors.errors {
        let shown = Shown { error, source: NamedSource::new(error.file.clone(), masked(errors.source_of(error))) };
        let mut text = String::new();
        match handler.render_report(&mut text, &shown) {
            Ok(()) => err!("{}", text.trim_start()),
            Err(_) => err!("error: {shown}\n  help: {}", error.help),
        }
    }
    let more = if errors.omitted > 0 { format!(" (and {} more)", errors.omitted) } else { String::new() };
    let s = if errors.errors.len() == 1 { "" } else { "s" };
    err!("{} error{s}{more}; nothing was started", errors.errors.len());
}

/// Moves the remedy of a message, which follows the last semicolon of its first line, to a separate line.
pub fn with_help(text: &str) -> String {
    let (first, more) = text.split_once('\n').map_or((text, None), |(first, more)| (first, Some(more)));
    match first.rsplit_once("; ") {
        Some((cause, remedy)) if !text.contains("\n  help: ") => {
            let more = more.map_or(String::new(), |more| format!("\n{more}"));
            format!("{cause}\n  help: {remedy}{more}")
        }
        _ => text.to_owned(),
    }
}

/// Reads errors from what a command has printed on standard error.
pub fn said(text: &str) -> Vec<Wrong> {
    let mut all: Vec<(String, Option<String>)> = Vec::new();
    let mut is_error = false;
    for line in text.lines() {
        if let Some(cause) = line.strip_prefix("error: ") {
            all.push((cause.to_owned(), None));
            is_error = true;
        } else if let Some((cause, help)) = all.last_mut().filter(|_| is_error && line.starts_with(' ')) {
            if let Some(remedy) = line.strip_prefix("  help: ").filter(|_| help.is_none()) {
                *help = Some(remedy.to_owned());
            } else if !line.starts_with("  usage: ") {
                *cause += &format!("\n{line}");
            }
        } else {
            is_error = false;
        }
    }
    let wrong = |(message, remedy): (String, Option<String>)| match remedy {
        Some(_) => Wrong { message, remedy, place: None },
        None => Wrong::of(&message),
    };
    let errors: Vec<Wrong> = all.into_iter().map(wrong).collect();
    let other = (errors.is_empty() && !text.is_empty()).then(|| Wrong { message: text.into(), ..Wrong::default() });
    errors.into_iter().chain(other).collect()
}

/// Formats an error of the command-line parser in the style of all other errors.
pub fn of_command_line(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let line = if let Some(tip) = line.strip_prefix("  tip: ") {
            format!("  help: {tip}")
        } else if let Some(values) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            format!("  help: {values}")
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            format!("  usage: {usage}")
        } else if line.starts_with("For more information") {
            "  help: `--help` explains all arguments".into()
        } else {
            with_help(line)
        };
        shown += &line;
        shown.push('\n');
    }
    shown.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_read_again() {
        let printed = [
            "warning: --time 1 s is too short".to_owned(),
            "  which is not part of an error".into(),
            format!("error: {}", with_help("`config` of `d`: it is a command; start without it")),
            of_command_line(
                "error: invalid value 'x'\n\nUsage: drophammer run\n\nFor more information, try '--help'.\n",
            ),
            "error: a; b\nerror: c; d".into(),
            "2 errors; nothing was started".into(),
        ];
        let wrong = |message: &str, remedy: &str| Wrong {
            message: message.into(),
            remedy: Some(remedy.into()),
            ..Wrong::default()
        };
        let expected = [
            wrong("`config` of `d`: it is a command", "start without it"),
            wrong("invalid value 'x'", "`--help` explains all arguments"),
            wrong("a", "b"),
            wrong("c", "d"),
        ];
        assert_eq!(said(&printed.join("\n")), expected);
        assert_eq!(said("thread panicked; oh"), [Wrong { message: "thread panicked; oh".into(), ..Wrong::default() }]);
        assert_eq!(said(""), []);
    }

    #[test]
    fn all_errors_have_cause_and_help_in_the_same_places() {
        for (text, shown) in [
            ("eth1 is down; set it up", "eth1 is down\n  help: set it up"),
            ("a; b; use c", "a; b\n  help: use c"),
            ("a\n  help: b; c", "a\n  help: b; c"),
            ("no remedy", "no remedy"),
        ] {
            assert_eq!(with_help(text), shown);
        }
        let parser = "error: unexpected argument '--frob' found\n\n  tip: a similar argument exists: '--for'\n\n\
                      Usage: drophammer blast [FROM]\n\nFor more information, try '--help'.\n";
        let shown = "error: unexpected argument '--frob' found\n  help: a similar argument exists: '--for'\n  \
                     usage: drophammer blast [FROM]\n  help: `--help` explains all arguments";
        assert_eq!(of_command_line(parser), shown);
        let value = "error: invalid value 'x' for '--dscp <DSCP>': x is not a DSCP; write 0 to 63\n\nFor more information, try '--help'.\n";
        assert!(of_command_line(value).contains("x is not a DSCP\n  help: write 0 to 63\n"));
    }
}
