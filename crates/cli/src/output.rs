//! Standard output and standard error of every command.
//!
//! If a reader closes its end of the pipe (`| head`), or the terminal is closed, all later output is discarded, and the
//! command ends with its normal exit code. A run continues, because its results are in its folder; `blast` stores no
//! results, so it stops its traffic. Output that cannot be written for another reason, such as a full disk, ends the
//! command.

use crate::Exit;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// Prints a line to standard output.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::standard_output(format_args!($($text)*)) };
}

/// Prints a line to standard error.
macro_rules! err {
    ($($text:tt)*) => { $crate::output::standard_error(format_args!($($text)*)) };
}

pub(crate) use {err, out};

/// Prints `text` and a line feed to standard output. Ends the program if that fails for another reason than that nobody
/// reads it.
pub fn standard_output(text: Arguments<'_>) {
    if let Err(e) = line(&mut io::stdout().lock(), text)
        && !is_closed(&e)
    {
        standard_error(format_args!("error: cannot write to standard output: {e}"));
        std::process::exit(Exit::Store as i32);
    }
}

/// Prints `text` and a line feed to standard error. Ignores failures, because they cannot be reported anywhere.
pub fn standard_error(text: Arguments<'_>) {
    let _ = line(&mut io::stderr().lock(), text);
}

fn line(to: &mut impl Write, text: Arguments<'_>) -> io::Result<()> {
    writeln!(to, "{text}").and_then(|()| to.flush())
}

/// Prints `text` and a line feed to standard output, for a command that ends when nobody reads it.
pub fn say(text: impl std::fmt::Display) -> io::Result<()> {
    line(&mut io::stdout().lock(), format_args!("{text}"))
}

/// True if output to this terminal may be coloured.
pub fn is_colored(terminal: &impl IsTerminal) -> bool {
    terminal.is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Formats the right-aligned cells of a line.
pub fn cells(cells: &[String], width: usize) -> String {
    cells.iter().map(|cell| format!("{cell:>width$}")).collect()
}

/// Converts a time to seconds with three decimal places.
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// True if an error on standard output means that it has no reader: the pipe was closed, or the terminal has hung up.
pub fn is_closed(error: &io::Error) -> bool {
    let hung_up = || error.raw_os_error() == Some(nix::libc::EIO) && !is_in_file();
    error.kind() == ErrorKind::BrokenPipe || hung_up()
}

/// True if standard output goes into a file, for which EIO is a disk error.
fn is_in_file() -> bool {
    let copy = io::stdout().as_fd().try_clone_to_owned();
    copy.and_then(|copy| File::from(copy).metadata()).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that fails with this error number.
    struct Failing(i32);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(self.0))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_missing_reader_is_no_error() {
        let closed = |number| is_closed(&line(&mut Failing(number), format_args!("text")).unwrap_err());
        assert!(closed(nix::libc::EPIPE) && !closed(nix::libc::ENOSPC));
        // This error occurs on a terminal that has hung up, but also on a broken disk.
        assert_eq!(closed(nix::libc::EIO), !is_in_file());
        let mut written = Vec::new();
        line(&mut written, format_args!("{}-{}", 1, 2)).unwrap();
        assert_eq!(written, b"1-2\n");
    }
}
