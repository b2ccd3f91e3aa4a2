//! Logs of the user's commands, which may print secrets.

use drophammer_model::suite::Mask;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Maximum number of bytes that we read, or keep when rewriting a log.
const MOST: u64 = 16 << 20;

/// Reads the last 16 MiB of a log, starting at the beginning of a line.
pub(super) fn read(log: &Path) -> io::Result<String> {
    last(log, MOST).map(|(text, _)| text)
}

/// Hides secrets in a log.
pub(super) fn mask(mask: &Mask, log: &Path) -> io::Result<()> {
    let Some((text, whole)) = to_mask(mask, log, MOST)? else { return Ok(()) };
    if whole && mask.leaves(&text) {
        return Ok(());
    }
    // Do not make a new file: processes that outlive the command continue to write to this one.
    let mut file = OpenOptions::new().append(true).open(log)?;
    file.set_len(0)?;
    file.write_all(mask.text(&text).as_bytes())
}

/// Hides secrets in a log permanently. Processes that still have the old file open then write to a file without a name.
pub(super) fn close(mask: &Mask, log: &Path) -> io::Result<()> {
    let Some((text, _)) = to_mask(mask, log, MOST)? else { return Ok(()) };
    let new = log.with_extension("masked");
    fs::write(&new, mask.text(&text).as_bytes())?;
    fs::rename(&new, log)
}

/// Like [`last`], but `None` if there is no log, or if there is no secret to hide.
fn to_mask(mask: &Mask, log: &Path, most: u64) -> io::Result<Option<(String, bool)>> {
    if mask.is_empty() {
        return Ok(None);
    }
    match last(log, most) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Returns the last `most` bytes of a log without an incomplete first line, and whether they are the whole log.
fn last(log: &Path, most: u64) -> io::Result<(String, bool)> {
    let mut file = File::open(log)?;
    let left_out = file.metadata()?.len().saturating_sub(most);
    file.seek(SeekFrom::Start(left_out))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let begin = match left_out {
        0 => 0,
        _ => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1),
    };
    Ok((String::from_utf8_lossy(&bytes[begin..]).into_owned(), left_out == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::time::Duration;

    #[test]
    fn a_command_that_prints_the_key_leaves_none_in_its_log() {
        let secrets = Mask::of(["sesame"]);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("setup.log");
        mask(&secrets, &log).unwrap();
        close(&secrets, &log).unwrap();
        assert!(!log.exists());
        fs::write(&log, b"+ neighbor password sesame \xff\n").unwrap();
        mask(&Mask::default(), &log).unwrap();
        close(&Mask::default(), &log).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"+ neighbor password sesame \xff\n");
        mask(&secrets, &log).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "+ neighbor password <secret> \u{fffd}\n");
    }

    #[test]
    fn the_last_lines_of_a_long_log_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("setup.log");
        fs::write(&log, "sesame\ntwo\nthree\n").unwrap();
        let read = |most| last(&log, most).unwrap();
        assert_eq!(read(17), ("sesame\ntwo\nthree\n".into(), true));
        assert_eq!(read(16), ("two\nthree\n".into(), false));
        assert_eq!(read(9), ("three\n".into(), false));
        assert_eq!(read(0), (String::new(), false));
    }

    #[test]
    fn what_a_process_prints_after_its_command_is_masked_too() {
        let secrets = Mask::of(["sesame"]);
        let folder = tempfile::tempdir().unwrap();
        let [log, go, done] = ["setup.log", "go", "done"].map(|name| folder.path().join(name));
        for pipe in [&go, &done] {
            mkfifo(pipe, Mode::S_IRWXU).unwrap();
        }
        let next = format!("read word < {}; echo $word sesame; echo > {}", go.display(), done.display());
        let command = format!("echo begun sesame; ({next}; {next}) &");
        let status = process::shell(&command, "test", &[], &log, Duration::from_secs(10), &|| false).unwrap();
        assert!(status.success());
        let told = || fs::read_to_string(&log).unwrap();
        // Opening a pipe blocks until its other end is opened.
        let goes_on = |word: &str| {
            fs::write(&go, word).unwrap();
            fs::read_to_string(&done).unwrap();
        };
        mask(&secrets, &log).unwrap();
        assert_eq!(told(), "begun <secret>\n");
        goes_on("late\n");
        assert_eq!(told(), "begun <secret>\nlate sesame\n");
        close(&secrets, &log).unwrap();
        assert_eq!(told(), "begun <secret>\nlate <secret>\n");
        goes_on("later\n");
        assert_eq!(told(), "begun <secret>\nlate <secret>\n");
        assert!(!log.with_extension("masked").exists());
    }
}
