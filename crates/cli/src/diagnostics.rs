//! Errors of a suite file, with their place underlined.

use crate::output::err;
use drophammer_model::suite::{SuiteError, SuiteErrors};
use drophammer_model::visible::masked;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, NamedSource, SourceSpan};
use std::fmt;
use std::io::IsTerminal;

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
    let theme = if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(110).with_context_lines(1);
    for error in &errors.errors {
        let shown = Shown { error, source: NamedSource::new(error.file.clone(), masked(errors.source_of(error))) };
        let mut text = String::new();
        match handler.render_report(&mut text, &shown) {
            Ok(()) => err!("{text}"),
            Err(_) => err!("{shown}\n  help: {}", error.help),
        }
    }
    let more = if errors.omitted > 0 { format!(" (and {} more)", errors.omitted) } else { String::new() };
    let s = if errors.errors.len() == 1 { "" } else { "s" };
    err!("{} error{s}{more}; nothing was started", errors.errors.len());
}
