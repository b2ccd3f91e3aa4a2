//! Writes a run as it progresses.

use crate::regular::open_regular;
use crate::{LATEST, LOCK, RECORDS, StoreError, utc_compact};
use drophammer_model::record::Record;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// The lock of a run folder, which allows one writer. The kernel holds it (flock), so it is released when the process
/// ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    fn take(dir: &Path) -> Result<Lock, StoreError> {
        let path = dir.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| StoreError::io("create", &path, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(dir.to_owned())),
            Err(TryLockError::Error(e)) => Err(StoreError::io("lock", &path, &e)),
        }
    }

    /// True if a writer holds the lock of `dir`; false if not, or if unknown.
    pub(crate) fn is_held(dir: &Path) -> bool {
        let Ok(file) = open_regular(&dir.join(LOCK)) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

/// The output for records: a file, or in tests a disk that fills up.
trait Sink: Write + Send {
    fn sync(&self) -> io::Result<()>;
    fn cut_to(&mut self, len: u64) -> io::Result<()>;
}

impl Sink for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
    fn cut_to(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}

/// Writes one run. Holds the folder's lock for its whole lifetime.
pub struct RunWriter {
    dir: PathBuf,
    path: PathBuf,
    sink: Box<dyn Sink>,
    /// Length of all complete lines in bytes.
    good: u64,
    /// Why the writer accepts no more records.
    closed: Option<String>,
    _lock: Lock,
}

impl std::fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunWriter").field("dir", &self.dir).field("bytes", &self.good).finish_non_exhaustive()
    }
}

/// Reduces a text to characters that are safe in the name of a folder: letters, digits, `-`, `_` and `.` (not first).
fn plain_name(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = text.chars().take(80).map(keep).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "run".into() } else { name.into() }
}

impl RunWriter {
    /// Creates the folder `parent/<suite>-<UTC date>-<UTC time>` (with a number appended if it exists) and makes
    /// `parent/latest` point to it.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a folder or file cannot be created.
    pub fn create(parent: &Path, suite: &str) -> Result<RunWriter, StoreError> {
        fs::create_dir_all(parent).map_err(|e| StoreError::io("create", parent, &e))?;
        let stem = format!("{}-{}", plain_name(suite), utc_compact(SystemTime::now()));
        for n in 1..1000 {
            let name = if n == 1 { stem.clone() } else { format!("{stem}-{n}") };
            let dir = parent.join(&name);
            match fs::create_dir(&dir) {
                Ok(()) => {
                    let writer = RunWriter::open_new(dir)?;
                    point_latest(parent, &name);
                    return Ok(writer);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(StoreError::io("create", &dir, &e)),
            }
        }
        Err(StoreError::Exists(parent.join(stem)))
    }

    /// Creates the run in exactly this folder, which must be empty or must not exist.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the folder is not empty, [`StoreError::Locked`], [`StoreError::Io`].
    pub fn create_exact(dir: &Path) -> Result<RunWriter, StoreError> {
        fs::create_dir_all(dir).map_err(|e| StoreError::io("create", dir, &e))?;
        let mut entries = fs::read_dir(dir).map_err(|e| StoreError::io("read", dir, &e))?;
        if entries.next().is_some() {
            // If a writer is active, "locked" is the more useful error.
            let error = if Lock::is_held(dir) { StoreError::Locked } else { StoreError::Exists };
            return Err(error(dir.into()));
        }
        RunWriter::open_new(dir.to_owned())
    }

    /// Continues the run in this folder. Keeps the records at the positions in `keep`, which are in order, and moves
    /// the others to a separate file, `cut-off-1.jsonl` or the next free number.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while another writer holds the lock; [`StoreError::NoRun`] if there are fewer records;
    /// [`StoreError::Io`].
    pub fn resume(dir: &Path, keep: &[Range<usize>]) -> Result<RunWriter, StoreError> {
        let lock = Lock::take(dir)?;
        let path = dir.join(RECORDS);
        let bytes = fs::read(&path).map_err(|e| StoreError::io("read", &path, &e))?;
        // A last line without a line feed is not a record.
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let whole = lines.iter().filter(|line| line.ends_with(b"\n")).count();
        let wanted = keep.last().map_or(0, |last| last.end);
        if whole < wanted {
            let why = format!("it has fewer than {wanted} records");
            return Err(StoreError::NoRun { path: dir.into(), why });
        }
        let is_kept = |at: usize| keep.iter().any(|range| range.contains(&at));
        let part = |kept: bool| -> Vec<u8> {
            let lines = lines.iter().enumerate().filter(|(at, _)| is_kept(*at) == kept);
            lines.flat_map(|(_, line)| line.iter().copied()).collect()
        };
        let (good, rest) = (part(true), part(false));
        if !rest.is_empty() {
            put_aside(dir, &rest)?;
            replace(&path, &good)?;
        }
        let file = OpenOptions::new().append(true).open(&path).map_err(|e| StoreError::io("open", &path, &e))?;
        let good = good.len() as u64;
        Ok(RunWriter { dir: dir.to_owned(), path, sink: Box::new(file), good, closed: None, _lock: lock })
    }

    fn open_new(dir: PathBuf) -> Result<RunWriter, StoreError> {
        let lock = Lock::take(&dir)?;
        let path = dir.join(RECORDS);
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(|e| {
            if e.kind() == io::ErrorKind::AlreadyExists {
                StoreError::Exists(dir.clone())
            } else {
                StoreError::io("create", &path, &e)
            }
        })?;
        Ok(RunWriter { dir, path, sink: Box::new(file), good: 0, closed: None, _lock: lock })
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends one record as one line. Trials and notes are handed to the operating system, so they survive a killed
    /// process. Start, DUT, test and end records are written to disk, so they survive a power cut.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the write fails: the partial line is removed, and a later write may succeed;
    /// [`StoreError::Closed`] if the partial line could not be removed; [`StoreError::Unreadable`] for a record that could
    /// not be read back (a number that is not finite).
    pub fn write(&mut self, record: &Record) -> Result<(), StoreError> {
        if let Some(why) = &self.closed {
            return Err(StoreError::Closed { path: self.path.clone(), why: why.clone() });
        }
        let mut line = serde_json::to_vec(record).map_err(|e| StoreError::Unreadable(e.to_string()))?;
        // JSON has no NaN. It would become null and make the whole run unreadable.
        serde_json::from_slice::<Record>(&line).map_err(|e| StoreError::Unreadable(e.to_string()))?;
        line.push(b'\n');
        if let Err(error) = self.sink.write_all(&line) {
            if let Err(second) = self.sink.cut_to(self.good) {
                self.closed = Some(format!("{error}; then {second}"));
            }
            return Err(StoreError::io("write", &self.path, &error));
        }
        self.good += line.len() as u64;
        if matches!(record, Record::Started(_) | Record::Dut(_) | Record::Test(_) | Record::Ended(_)) {
            self.sink.sync().map_err(|e| StoreError::io("sync", &self.path, &e))?;
        }
        Ok(())
    }

    /// Stores a text file in the run folder, such as the suite or a DUT's configuration or log. Replaces an existing file,
    /// creates missing folders, and returns the path of the file.
    ///
    /// # Errors
    /// [`StoreError::Outside`] for a path that is absolute, empty, contains `..`, or names the records or the lock;
    /// [`StoreError::Io`].
    pub fn save_text(&self, relative: &str, text: &str) -> Result<PathBuf, StoreError> {
        let asked = Path::new(relative);
        let inside = asked.components().all(|c| matches!(c, Component::Normal(_)));
        let own = [RECORDS, LOCK].iter().any(|n| asked == Path::new(n));
        if relative.is_empty() || relative.ends_with('/') || relative.contains('\0') || !inside || own {
            return Err(StoreError::Outside(relative.into()));
        }
        let path = self.dir.join(asked);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| StoreError::io("create", folder, &e))?;
            // A symbolic link in the folder must not lead outside the folder, either.
            let real = |p: &Path| fs::canonicalize(p).map_err(|e| StoreError::io("read", p, &e));
            if !real(folder)?.starts_with(real(&self.dir)?) || path.is_symlink() {
                return Err(StoreError::Outside(relative.into()));
            }
        }
        fs::write(&path, text).map_err(|e| StoreError::io("write", &path, &e))?;
        Ok(path)
    }
}

/// Moves records that will be measured again to a separate file.
fn put_aside(dir: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    for n in 1..1000 {
        let path = dir.join(format!("cut-off-{n}.jsonl"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                let kept = file.write_all(bytes).and_then(|()| file.sync_all());
                return kept.map_err(|e| StoreError::io("write", &path, &e));
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(StoreError::io("create", &path, &e)),
        }
    }
    Err(StoreError::Exists(dir.to_owned()))
}

/// Replaces a file so that it has either the old or the new content at any time.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.and_then(|()| fs::rename(&new, path)).map_err(|e| StoreError::io("write", &new, &e))
}

/// Makes `parent/latest` point to `name`. The link is only a convenience: if links are not supported, or if something
/// else is called `latest`, the run continues without it.
fn point_latest(parent: &Path, name: &str) {
    let link = parent.join(LATEST);
    if link.exists() && !link.is_symlink() {
        return;
    }
    // The link is created under another name and then renamed, so that it exists at any time.
    let beside = parent.join(format!(".{LATEST}-{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    if std::os::unix::fs::symlink(name, &beside).is_ok() && fs::rename(&beside, &link).is_err() {
        let _ = fs::remove_file(&beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunReader;
    use crate::reader::tests::{note, started};
    use drophammer_model::record::Record;
    use std::sync::{Arc, Mutex};

    /// A disk with limited space. Like a real disk, it accepts part of a write that exceeds the limit.
    struct SmallDisk {
        file: File,
        room: Arc<Mutex<u64>>,
        cuttable: bool,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut room = self.room.lock().unwrap();
            if *room == 0 {
                return Err(io::Error::from_raw_os_error(28));
            }
            let n = bytes.len().min(*room as usize);
            *room -= n as u64;
            self.file.write(&bytes[..n])
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for SmallDisk {
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn cut_to(&mut self, len: u64) -> io::Result<()> {
            if self.cuttable { self.file.set_len(len) } else { Err(io::Error::other("no")) }
        }
    }

    /// A writer that has written the start of a run, on a disk with 20 bytes left.
    fn on_small_disk(dir: &Path, cuttable: bool) -> (RunWriter, Arc<Mutex<u64>>) {
        let mut writer = RunWriter::create_exact(dir).unwrap();
        writer.write(&Record::Started(Box::new(started()))).unwrap();
        let file = OpenOptions::new().append(true).open(dir.join(RECORDS)).unwrap();
        let room = Arc::new(Mutex::new(20));
        writer.sink = Box::new(SmallDisk { file, room: room.clone(), cuttable });
        (writer, room)
    }

    #[test]
    fn a_full_disk_is_reported_and_leaves_whole_lines_only() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, room) = on_small_disk(folder.path(), true);
        let error = writer.write(&note("lost")).unwrap_err().to_string();
        assert!(error.contains(RECORDS) && error.contains("disk is full") && !error.contains('\n'), "{error}");
        *room.lock().unwrap() = 1_000_000;
        writer.write(&note("after space was made")).unwrap();
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!(run.notes.len(), 1);
        assert_eq!(run.notes[0].text, "after space was made");
        assert!(run.warnings.is_empty(), "{:?}", run.warnings);
    }

    #[test]
    fn a_partial_line_that_stays_closes_the_writer_and_spares_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, room) = on_small_disk(folder.path(), false);
        writer.write(&note("lost")).unwrap_err();
        *room.lock().unwrap() = 1_000_000;
        assert!(matches!(writer.write(&note("too late")), Err(StoreError::Closed { .. })));
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!((run.notes.len(), run.warnings.len()), (0, 1));
    }

    #[test]
    fn a_run_continues_after_the_kept_records() {
        let folder = tempfile::tempdir().unwrap();
        let resume = |end| RunWriter::resume(folder.path(), std::slice::from_ref(&(0..end)));
        let mut writer = RunWriter::create_exact(folder.path()).unwrap();
        writer.write(&Record::Started(Box::new(started()))).unwrap();
        writer.write(&note("kept")).unwrap();
        writer.write(&note("measured again")).unwrap();
        assert!(matches!(resume(1), Err(StoreError::Locked(_))));
        drop(writer);
        // Killed in mid-write.
        let mut file = OpenOptions::new().append(true).open(folder.path().join(RECORDS)).unwrap();
        file.write_all(b"{\"half").unwrap();
        assert_eq!(RunReader::records(folder.path()).unwrap().len(), 3);
        assert!(matches!(resume(4), Err(StoreError::NoRun { .. })));
        for n in 1..=2 {
            let mut writer = resume(2).unwrap();
            writer.write(&note("after")).unwrap();
            drop(writer);
            let run = RunReader::open(folder.path()).unwrap();
            assert_eq!(run.notes.iter().map(|note| &*note.text).collect::<Vec<_>>(), ["kept", "after"]);
            let aside = fs::read_to_string(folder.path().join(format!("cut-off-{n}.jsonl"))).unwrap();
            assert_eq!(aside.lines().count(), if n == 1 { 2 } else { 1 }, "{aside}");
        }
        // If all records are kept, there is no such file.
        drop(resume(3).unwrap());
        assert!(!folder.path().join("cut-off-3.jsonl").exists());
    }

    #[test]
    fn two_writers_cannot_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("one");
        let writer = RunWriter::create_exact(&dir).unwrap();
        assert!(matches!(RunWriter::create_exact(&dir), Err(StoreError::Locked(_))));
        drop(writer);
        let error = RunWriter::create_exact(&dir).unwrap_err();
        assert!(matches!(&error, StoreError::Exists(d) if *d == dir), "{error}");
    }

    #[test]
    fn runs_of_one_second_get_different_folders_and_latest_is_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let runs: Vec<_> = (0..3).map(|_| RunWriter::create(folder.path(), "../quick look").unwrap()).collect();
        let mut dirs: Vec<_> = runs.iter().map(|r| r.dir().to_owned()).collect();
        assert!(dirs.iter().all(|d| d.parent() == Some(folder.path())));
        let newest = dirs[2].clone();
        dirs.dedup();
        assert_eq!(dirs.len(), 3);
        assert_eq!(folder.path().join(fs::read_link(folder.path().join(LATEST)).unwrap()), newest);
    }

    #[test]
    fn texts_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        let writer = RunWriter::create_exact(&folder.path().join("run")).unwrap();
        let path = writer.save_text("duts/frr/frr.conf", "router bgp 1\n").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "router bgp 1\n");
        std::os::unix::fs::symlink(folder.path(), writer.dir().join("out")).unwrap();
        for bad in ["", "../x", "/etc/x", "a/../../x", "duts/", RECORDS, "out/x", "run.lock"] {
            assert!(matches!(writer.save_text(bad, ""), Err(StoreError::Outside(_))), "{bad}");
        }
    }

    #[test]
    fn a_file_in_the_way_is_reported_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = RunWriter::create(&file.join("runs"), "s").unwrap_err().to_string();
        assert!(error.contains("choose another folder") && !error.contains('\n'), "{error}");
    }
}
