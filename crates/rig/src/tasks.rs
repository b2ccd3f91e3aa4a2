//! The machine's threads and their run times.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Smaller increases are ignored.
const LEAST: Duration = Duration::from_micros(50);
/// PF_KTHREAD in the flags of `/proc/PID/stat`: a kernel thread.
const OF_THE_KERNEL: u64 = 0x0020_0000;

/// Run time of each thread since its start, by thread ID.
#[derive(Debug)]
pub(crate) struct Tasks(HashMap<u32, Duration>);

/// Run times on one processor between two instants.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grown {
    /// All programs together, including NAPI threads.
    pub(crate) all: Duration,
    /// Threads of other processes, longest run time first: thread ID, name, time.
    pub(crate) others: Vec<(u32, String, Duration)>,
}

/// Fields from `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct Stat<'a> {
    name: &'a str,
    of_the_kernel: bool,
    processor: usize,
}

impl Tasks {
    /// Reads the threads that this process can see; `None` if the kernel does not count their time.
    pub(crate) fn read() -> Option<Tasks> {
        ran("/proc/thread-self".as_ref())?;
        let mut tasks = HashMap::new();
        each(|thread, folder| {
            if let Some(time) = ran(folder) {
                tasks.insert(thread, time);
            }
        });
        Some(Tasks(tasks))
    }

    /// Returns the run times on `processor` since [`Tasks::read`]. A thread counts for the processor where it ran last.
    /// Threads that both started and ended in this time do not count.
    pub(crate) fn grown(&self, processor: usize) -> Grown {
        let mut grown = Grown::default();
        let own = Path::new("/proc/self/task");
        each(|thread, folder| {
            let before = self.0.get(&thread).copied().unwrap_or_default();
            let Some(more) = ran(folder).map(|now| now.saturating_sub(before)).filter(|more| *more >= LEAST) else {
                return;
            };
            let text = fs::read_to_string(folder.join("stat")).unwrap_or_default();
            let Some(stat) = stat(&text) else { return };
            let napi = stat.name.starts_with("napi/");
            if stat.processor != processor || (stat.of_the_kernel && !napi) {
                return;
            }
            grown.all += more;
            if !napi && !own.join(thread.to_string()).exists() {
                grown.others.push((thread, stat.name.to_owned(), more));
            }
        });
        grown.others.sort_by_key(|(_, _, time)| std::cmp::Reverse(*time));
        grown
    }
}

/// Calls `look` with the ID and the folder of each thread on the machine.
fn each(mut look: impl FnMut(u32, &Path)) {
    let numbered = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|e| Some((e.file_name().to_str()?.parse::<u32>().ok()?, e.path()))).collect::<Vec<_>>()
    };
    for (_, process) in numbered(Path::new("/proc")) {
        for (thread, folder) in numbered(&process.join("task")) {
            look(thread, &folder);
        }
    }
}

/// Returns the run time of the thread with this folder.
fn ran(folder: &Path) -> Option<Duration> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn stat(text: &str) -> Option<Stat<'_>> {
    // The name may contain spaces and parentheses.
    let (head, rest) = text.rsplit_once(") ")?;
    let (_, name) = head.split_once(" (")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let flags: u64 = fields.get(6)?.parse().ok()?;
    Some(Stat { name, of_the_kernel: flags & OF_THE_KERNEL != 0, processor: fields.get(36)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_thread() {
        let fields = |flags: u64| {
            let mut all = vec!["0".to_owned(); 50];
            (all[0], all[6], all[36]) = ("S".into(), flags.to_string(), "3".into());
            format!("417 (a) b (c) {}\n", all.join(" "))
        };
        assert_eq!(stat(&fields(0x40_0040)), Some(Stat { name: "a) b (c", of_the_kernel: false, processor: 3 }));
        assert!(stat(&fields(0x20_8040)).is_some_and(|s| s.of_the_kernel));
        assert_eq!((stat("417 (a) S 1"), stat("")), (None, None));
    }

    #[test]
    fn what_runs_is_seen_where_it_runs() {
        let processor = *drophammer_port::priority::usable().last().expect("this runs somewhere");
        let Some(before) = Tasks::read() else { return };
        let time = Duration::from_millis(50);
        // Keeps the thread alive until it has been looked up.
        let (done, is_done) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            drophammer_port::priority::pin(processor).expect("a processor of ours");
            let ran = || crate::own_times().map_or(time, |times| times.ran);
            while ran() < time {}
            done.send(()).expect("the test waits");
            let _ = ended.recv();
        });
        is_done.recv().expect("it ran");
        let grown = before.grown(processor);
        drop(end);
        thread.join().expect("it only counts");
        // The kernel has not yet accounted for up to a tick of the run time.
        assert!(grown.all + Duration::from_millis(15) >= time, "{grown:?}");
    }
}
