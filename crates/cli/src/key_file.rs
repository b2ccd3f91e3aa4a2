//! Keys of BGP sessions and OSPF interfaces from files and the environment. Reads at most a few kilobytes, and never waits forever.

use drophammer_port::wait;
use drophammer_store::read_regular;
use drophammer_suite::include::Refusal;
use drophammer_suite::keys::KeyPlace;
use nix::libc::O_NONBLOCK;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of bytes of a file with a key; a key has at most 80.
const MOST: u64 = 4096;
/// Time limit for a program at the other end of a pipe, which may ask its user for a password.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key that a suite names, with the end of its line.
pub fn of_suite(place: &KeyPlace) -> Result<String, Refusal> {
    match place {
        KeyPlace::File(path) => {
            let refuse = |why: &dyn std::fmt::Display, help: &str| {
                Err(Refusal::new(format!("cannot read the key in `{}`: {why}", path.display()), help))
            };
            match read_regular(path, MOST).map(String::from_utf8) {
                Ok(Ok(text)) => Ok(text),
                Ok(Err(_)) => refuse(&"it is not text in UTF-8", "write only the key into it, on one line"),
                Err(e) => refuse(&e, "name a small file that this user can read, relative to the folder of the suite"),
            }
        }
        KeyPlace::Env(name) => std::env::var(name).map_err(|e| match e {
            std::env::VarError::NotPresent => Refusal::new(
                format!("there is no environment variable `{name}`"),
                format!("set it for this command: `{name}=… drophammer …` (`sudo` needs --preserve-env={name})"),
            ),
            std::env::VarError::NotUnicode(_) => {
                Refusal::new(format!("the environment variable `{name}` is not text"), "set it to the key")
            }
        }),
    }
}

/// Returns the key of 1 to `longest` bytes in the file or pipe that `option` names, without the end of its line.
pub fn one_line(option: &str, path: &Path, longest: usize) -> Result<Vec<u8>, String> {
    line(option, path, 1..=longest, |_| Ok(()))
}

/// Like [`one_line`], with a key of so many bytes in a file to which only its owner has access.
pub fn private_line(option: &str, path: &Path, lengths: RangeInclusive<usize>) -> Result<Vec<u8>, String> {
    line(option, path, lengths, |metadata| {
        let others = metadata.permissions().mode() & 0o077 != 0;
        let text = || format!("others have access to it; run `chmod 600 {}`", path.display());
        if others { Err(io::Error::new(ErrorKind::PermissionDenied, text())) } else { Ok(()) }
    })
}

fn line(
    option: &str,
    path: &Path,
    lengths: RangeInclusive<usize>,
    check: impl Fn(&Metadata) -> io::Result<()>,
) -> Result<Vec<u8>, String> {
    let name = path.display();
    // It may be a pipe, such as `<(pass show bgp)` of a shell.
    let text = read_if(path, PATIENCE, check).map_err(|e| format!("{option}: cannot read `{name}`: {e}"))?;
    let key = text.trim_end_matches(['\r', '\n']);
    if !lengths.contains(&key.len()) || key.contains('\n') {
        let (shortest, longest) = lengths.into_inner();
        return Err(format!("{option}: `{name}` must be one line of {shortest} to {longest} bytes"));
    }
    Ok(key.as_bytes().to_vec())
}

/// The text of a file that passes `check`, or of a pipe whose other end may be opened later. The error is
/// [`ErrorKind::TimedOut`] if no data arrives.
fn read_if(path: &Path, patience: Duration, check: impl Fn(&Metadata) -> io::Result<()>) -> io::Result<String> {
    // Opening a pipe that has no other end would block.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    // A path may soon name another file.
    check(&file.metadata()?)?;
    // A named pipe looks ended until its other end is opened. An unnamed pipe was made with both ends.
    let mut begun = fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:["));
    let (deadline, mut bytes) = (Instant::now() + patience, Vec::new());
    let mut most = (&file).take(MOST);
    loop {
        match most.read_to_end(&mut bytes) {
            Ok(_) if begun || !bytes.is_empty() => break,
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("no data arrived within {patience:?}")));
        }
        // This is also true if the other end was opened and closed.
        begun |= wait::until_readable(&[file.as_fd()], left)?;
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::{Pid, gettid, mkfifo};
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    fn any(path: &Path) -> io::Result<String> {
        read_if(path, PATIENCE, |_| Ok(()))
    }

    #[test]
    fn a_suite_names_small_ordinary_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("key"), "sesame\n").unwrap();
        fs::write(path("large"), "x".repeat(5000)).unwrap();
        fs::write(path("bytes"), [0xff]).unwrap();
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        let read = |name: &str| of_suite(&KeyPlace::File(path(name))).map_err(|refusal| refusal.message);
        assert_eq!(read("key").as_deref(), Ok("sesame\n"));
        for (name, why) in [
            ("large", "larger than 4 KiB"),
            ("bytes", "not text"),
            ("pipe", "not a regular file"),
            ("/dev/zero", "not a regular file"),
            (".", "not a regular file"),
            ("none", "No such file"),
        ] {
            let message = read(name).unwrap_err();
            assert!(message.contains(why) && message.contains("cannot read the key in `/"), "{name}: {message}");
        }
        let none = of_suite(&KeyPlace::Env("DROPHAMMER_NO_SUCH_KEY".into())).unwrap_err();
        assert!(none.message.contains("`DROPHAMMER_NO_SUCH_KEY`") && none.help.contains("preserve-env"), "{none:?}");
    }

    #[test]
    fn a_pipe_is_read_and_one_without_another_end_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let late = read_if(&pipe, Duration::from_millis(1), |_| Ok(())).unwrap_err();
        assert_eq!((late.kind(), late.to_string().as_str()), (ErrorKind::TimedOut, "no data arrived within 1ms"));
        // A pipe as a shell passes it for `<(pass show bgp)`, even if `pass` prints nothing.
        for said in ["sesame\n", ""] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(said.as_bytes()).unwrap();
            drop(writer);
            assert_eq!(any(Path::new(&format!("/proc/self/fd/{}", reader.as_raw_fd()))).unwrap(), said);
        }
        let empty = folder.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert_eq!(any(&empty).unwrap(), "");
        assert_eq!(any(Path::new("/dev/zero")).unwrap().len(), 4096);
    }

    /// Waits until the thread sleeps with the pipe open; false if that does not happen.
    fn waits_for(pipe: &Path, thread: Pid) -> bool {
        let (pipe, begun) = (pipe.canonicalize().unwrap(), Instant::now());
        let is_open = || {
            let mut all = fs::read_dir("/proc/self/fd").unwrap().flatten();
            all.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == pipe))
        };
        let sleeps = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
        };
        while begun.elapsed() < Duration::from_secs(10) {
            if is_open() && sleeps() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn the_other_end_of_a_pipe_may_be_opened_later() {
        for said in ["sesame\n", ""] {
            let folder = tempfile::tempdir().unwrap();
            let pipe = folder.path().join("pipe");
            mkfifo(&pipe, Mode::S_IRWXU).unwrap();
            let reader = gettid();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let waited = waits_for(&pipe, reader);
                    let open = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&pipe);
                    waited && open.and_then(|mut writer| writer.write_all(said.as_bytes())).is_ok()
                });
                assert_eq!(any(&pipe).unwrap(), said);
                assert!(writer.join().unwrap(), "the reader waits for its writer");
            });
        }
    }
}
