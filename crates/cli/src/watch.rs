//! `drophammer watch` and `drophammer stop`: a run in another process.

use crate::args::WatchArgs;
use crate::detach::CONSOLE;
use crate::output::{err, is_closed, out};
use crate::running::{FILE, Found, State, look};
use crate::{Ended, Exit, Failure};
use drophammer_model::visible::visible;
use drophammer_store::open_regular;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Time between two checks. The command waits for a line in one file or the release of a lock on another, and the
/// kernel cannot wake a process for both. A check takes some tens of microseconds on a processor that the run may need.
const LOOK: Duration = Duration::from_millis(200);

/// Number of bytes of a run's output to read at a time.
const AT_ONCE: u64 = 64 << 10;
/// Maximum number of bytes of the output of a run to search for its last lines.
const MOST: u64 = 16 << 20;

/// `drophammer watch`.
pub fn watch(args: &WatchArgs) -> Ended {
    let (dir, found) = find(&args.folder)?;
    if !found.console && matches!(found.state, State::Running(_)) {
        err!("the run prints on the terminal that started it; only its end is shown here");
    }
    let ended = Console::open(&dir, &found, args.lines).and_then(|console| follow(&dir, console));
    let code = match ended {
        Ok(code) => code,
        Err(e) => return broken(&dir, &e),
    };
    err!("{}", how(code));
    // If the run was killed, or the exit code is one of a newer program, it counts as failed.
    Ok(code.and_then(|code| Exit::of(code.into())).unwrap_or(Exit::Failed))
}

/// `drophammer stop`.
pub fn stop(folder: &Path) -> Ended {
    let (dir, found) = find(folder)?;
    stop_run(&dir, found).unwrap_or_else(|e| broken(&dir, &e))
}

fn stop_run(dir: &Path, mut found: Found) -> io::Result<Ended> {
    let console = Console::open(dir, &found, 0)?;
    loop {
        match &found.state {
            State::Ended(code) => {
                out!("nothing to stop: {}", how(*code));
                return Ok(Ok(Exit::Good));
            }
            State::Running(Some(process)) => {
                if let Err(e) = process.interrupt() {
                    return Ok(Err(Failure::environment(e)));
                }
                err!("asked process {} to stop; waiting for its report", process.pid());
                break;
            }
            // The run is just starting.
            State::Running(None) => sleep(LOOK),
        }
        found = look(dir)?;
    }
    out!("{}", how(follow(dir, console)?));
    Ok(Ok(Exit::Good))
}

/// The real path of the folder of a run, so that a link to it may change meanwhile, and the state of its process.
fn find(folder: &Path) -> Result<(PathBuf, Found), Failure> {
    let name = folder.display();
    let dir = folder.canonicalize().map_err(|e| Failure::usage(format!("cannot read folder `{name}`: {e}")))?;
    let found = look(&dir).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::usage(format!(
            "there is no {FILE} in `{name}`; name the folder of a run, as `drophammer run` prints it"
        )),
        _ => unwatchable(&dir, &e),
    })?;
    Ok((dir, found))
}

/// Stops watching after an error. A closed output is not a failure, and the run continues.
fn broken(dir: &Path, error: &io::Error) -> Ended {
    if is_closed(error) { Ok(Exit::Good) } else { Err(unwatchable(dir, error)) }
}

fn unwatchable(dir: &Path, error: &io::Error) -> Failure {
    Failure::environment(format!("the run in `{}` cannot be watched: {error}", dir.display()))
}

/// Describes how a run ended.
fn how(code: Option<u8>) -> String {
    match code {
        Some(code) => format!("the run has ended with exit code {code}"),
        None => "the run was killed, or the machine went down; `drophammer report` writes its report, `drophammer run --resume` \
                 continues it"
            .into(),
    }
}

/// Prints the output of a run until it ends. Returns its exit code.
fn follow(dir: &Path, mut console: Option<Console>) -> io::Result<Option<u8>> {
    loop {
        // Check first, then read: a run that has ended has printed everything.
        let found = look(dir)?;
        if let Some(console) = &mut console {
            console.print(&mut io::stdout().lock())?;
        }
        match found.state {
            State::Running(_) => sleep(LOOK),
            State::Ended(code) => {
                if let Some(mut console) = console {
                    console.print_rest(&mut io::stdout().lock())?;
                }
                return Ok(code);
            }
        }
    }
}

/// The output of a run, in a file in its folder.
#[derive(Debug)]
struct Console {
    file: File,
    /// Bytes that were read but not printed yet.
    pending: Vec<u8>,
}

impl Console {
    /// The output of a run, if it is in a file, starting with its last `lines` lines.
    fn open(dir: &Path, found: &Found, lines: usize) -> io::Result<Option<Console>> {
        if !found.console {
            return Ok(None);
        }
        let mut file = match open_regular(&dir.join(CONSOLE)) {
            Ok(file) => file,
            // The file has been removed, but we can still wait for the run to end.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let pending = last_lines(&mut file, lines)?;
        Ok(Some(Console { file, pending }))
    }

    /// Prints the lines that were added since the last call.
    fn print(&mut self, to: &mut impl Write) -> io::Result<()> {
        loop {
            let added = (&self.file).take(AT_ONCE).read_to_end(&mut self.pending)?;
            let last = self.pending.iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
            // Break a longer line.
            let broken = (self.pending.len() as u64 > AT_ONCE).then_some(self.pending.len());
            if let Some(end) = last.or(broken) {
                let lines: Vec<u8> = self.pending.drain(..end).collect();
                for line in lines.split_inclusive(|byte| *byte == b'\n') {
                    show(line, to)?;
                }
            }
            if added == 0 {
                return to.flush();
            }
        }
    }

    /// Prints an incomplete last line.
    fn print_rest(&mut self, to: &mut impl Write) -> io::Result<()> {
        if !self.pending.is_empty() {
            show(&std::mem::take(&mut self.pending), to)?;
        }
        to.flush()
    }
}

/// The last `lines` whole lines of a file and the text after them, within its last [`MOST`] bytes. The next read
/// continues at the end of the file.
fn last_lines(file: &mut File, lines: usize) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut back = AT_ONCE;
    loop {
        let start = length.saturating_sub(back);
        file.seek(SeekFrom::Start(start))?;
        let mut read = Vec::new();
        (&*file).take(length - start).read_to_end(&mut read)?;
        let mut ends = read.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
        // This is the end of the line before the first line to show.
        if let Some(end) = ends.nth(lines) {
            read.drain(..=end);
            return Ok(read);
        }
        if start == 0 || back >= MOST {
            return Ok(read);
        }
        back *= 4;
    }
}

/// Prints a line with control characters made visible, because the folder may come from another source.
fn show(line: &[u8], to: &mut impl Write) -> io::Result<()> {
    let text = String::from_utf8_lossy(line);
    writeln!(to, "{}", visible(text.trim_end_matches('\n'), &['\t']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Held;
    use std::fs;

    fn printed(console: &mut Console) -> String {
        let mut text = Vec::new();
        console.print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_last_lines_and_then_each_as_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CONSOLE);
        let held = Held::take(folder.path(), true).unwrap();
        let found = look(folder.path()).unwrap();
        fs::write(&path, "one\ntwo\nthree\nfo").unwrap();
        let open = |lines| Console::open(folder.path(), &found, lines).unwrap().unwrap();
        for (lines, text) in
            [(0, ""), (1, "three\n"), (2, "two\nthree\n"), (3, "one\ntwo\nthree\n"), (9, "one\ntwo\nthree\n")]
        {
            assert_eq!(printed(&mut open(lines)), text, "{lines}");
        }
        let mut console = open(1);
        let mut run = File::options().append(true).open(&path).unwrap();
        assert_eq!(printed(&mut console), "three\n");
        run.write_all(b"ur\nfive \x1b[31m\xff\n").unwrap();
        assert_eq!(printed(&mut console), "four\nfive \\u{1b}[31m\u{fffd}\n");
        assert_eq!(printed(&mut console), "");
        run.write_all(b"cut").unwrap();
        assert_eq!(printed(&mut console), "");
        let mut rest = Vec::new();
        console.print_rest(&mut rest).unwrap();
        assert_eq!(rest, b"cut\n");
        drop(held);
    }

    #[test]
    fn of_a_long_output_only_the_end_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CONSOLE);
        let held = Held::take(folder.path(), true).unwrap();
        let found = look(folder.path()).unwrap();
        // A hole of one tebibyte that contains no line.
        let mut run = File::options().create(true).append(true).open(&path).unwrap();
        run.set_len(1 << 40).unwrap();
        let lines: String = (0..20_000).map(|i| format!("line {i:06}\n")).collect();
        write!(run, "\n{lines}").unwrap();
        let mut console = Console::open(folder.path(), &found, 15_000).unwrap().unwrap();
        let shown = printed(&mut console);
        assert!(shown.starts_with("line 005000\n") && shown.ends_with("line 019999\n"), "{} bytes", shown.len());
        // Add a line that is longer than what is read at a time.
        let long = "x".repeat(3 * AT_ONCE as usize);
        writeln!(run, "{long}").unwrap();
        assert_eq!(printed(&mut console).replace('\n', ""), long);
        drop(held);
    }

    #[test]
    fn a_run_on_a_terminal_has_no_console_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        Held::take(folder.path(), false).unwrap().end(Exit::Interrupted);
        let found = look(folder.path()).unwrap();
        assert!(Console::open(folder.path(), &found, 20).unwrap().is_none());
        assert_eq!(follow(folder.path(), None).unwrap(), Some(130));
    }
}
