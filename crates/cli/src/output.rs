//! Standard output and standard error of every command.
//!
//! If a reader closes its end of the pipe (`| head`), further output is discarded, and the command ends with its normal
//! exit code. A run goes on, because its results are in its folder; `blast`, which has none, ends its traffic. Output
//! that cannot be written for another reason, such as a full disk, ends the command.

use crate::Exit;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// Prints a line to standard output.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::standard_output(format_args!($($text)*)) };
}

/// Prints a line to standard error.
macro_rules! err {
    ($($text:tt)*) => { $crate::output::standard_error(format_args!($($text)*)) };
}

pub(crate) use {err, out};

/// Prints `text` and a line feed to standard output. Ends the program when that fails for another reason than a closed pipe.
pub fn standard_output(text: Arguments<'_>) {
    if let Err(e) = line(&mut io::stdout().lock(), text) {
        standard_error(format_args!("error: cannot write to standard output: {e}"));
        std::process::exit(Exit::Store as i32);
    }
}

/// Prints `text` and a line feed to standard error. A failure is ignored: it could not be reported anywhere.
pub fn standard_error(text: Arguments<'_>) {
    let _ = line(&mut io::stderr().lock(), text);
}

fn line(to: &mut impl Write, text: Arguments<'_>) -> io::Result<()> {
    match writeln!(to, "{text}").and_then(|()| to.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that fails with this error.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_closed_pipe_is_no_error() {
        let fails = |kind| line(&mut Failing(kind), format_args!("text")).err().map(|e| e.kind());
        assert_eq!(fails(ErrorKind::BrokenPipe), None);
        assert_eq!(fails(ErrorKind::StorageFull), Some(ErrorKind::StorageFull));
        let mut written = Vec::new();
        line(&mut written, format_args!("{}-{}", 1, 2)).unwrap();
        assert_eq!(written, b"1-2\n");
    }
}
