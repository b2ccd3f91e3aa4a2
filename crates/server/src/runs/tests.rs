//! Runs without processes.

use super::follow::{Begin, Follower};
use super::*;
use axum::extract::{self, State};
use axum::http::HeaderMap;
use futures_util::StreamExt;
use proptest::prelude::*;
use std::fs::{self, File};
use std::io::Write;
use std::time::Instant;
use tempfile::TempDir;

/// A run whose record a test writes.
struct Fake {
    folder: TempDir,
    code: Mutex<Option<u8>>,
}

impl Fake {
    fn with(record: &str) -> Arc<Fake> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("run.jsonl"), record).unwrap();
        Arc::new(Fake { folder, code: Mutex::default() })
    }

    fn write(&self, text: &str) {
        let mut record = File::options().append(true).open(self.folder.path().join("run.jsonl")).unwrap();
        record.write_all(text.as_bytes()).unwrap();
    }

    fn begin(self: &Arc<Fake>, after: u64) -> Begin {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Follower::begin(self.clone(), after, place).unwrap()
    }

    /// All that a client receives after this event until the end.
    fn received(self: &Arc<Fake>, after: u64) -> String {
        let Begin::At(follower) = self.begin(after) else { panic!("no event {after}") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let parts: Vec<_> = runtime.block_on(follower.events().collect());
        let bytes: Vec<u8> = parts.into_iter().flat_map(|part| part.unwrap().to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }
}

impl Run for Fake {
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn stop(&self) -> Result<(), String> {
        *self.code.lock().unwrap() = Some(130);
        Ok(())
    }

    fn ended(&self) -> Option<End> {
        self.code.lock().unwrap().map(|code| End { code: Some(code), meaning: "over".into() })
    }
}

/// What a client makes of a stream: (id, event, data).
fn parsed(stream: &str) -> Vec<(u64, String, String)> {
    let events = stream.split("\n\n").filter(|event| event.starts_with("id: "));
    let field = |event: &str, name: &str| {
        let mut lines = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = lines.next().unwrap().to_owned();
        assert_eq!(lines.next(), None, "{event}");
        value
    };
    events.map(|event| (field(event, "id").parse().unwrap(), field(event, "event"), field(event, "data"))).collect()
}

#[test]
fn each_line_is_an_event_and_the_last_id_resumes() {
    let long = format!("{{\"record\":\"dut\",\"x\":\"{}\"}}", "y".repeat(200_000));
    let run = Fake::with(&format!("{{\"record\":\"started\"}}\n{long}\n{{\"Record\":1}}\n{{\"record\":\"ended\"}}\n"));
    *run.code.lock().unwrap() = Some(7);
    let all = parsed(&run.received(0));
    let shown: Vec<_> = all.iter().map(|(id, event, data)| (*id, event.as_str(), data.len())).collect();
    let exit = r#"{"code":7,"meaning":"over"}"#;
    assert_eq!(
        shown,
        [(1, "started", 20), (2, "dut", long.len()), (3, "message", 12), (4, "ended", 18), (5, "exit", exit.len())]
    );
    assert_eq!((&all[1].2, all[4].2.as_str()), (&long, exit));
    for after in 0..5 {
        assert_eq!(parsed(&run.received(after)), all[after as usize..], "{after}");
    }
    assert!(matches!(run.begin(5), Begin::Over));
    assert!(matches!(run.begin(6), Begin::Unknown(4)));
}

#[test]
fn a_line_is_sent_when_it_is_whole_and_the_end_when_the_run_has_ended() {
    let run = Fake::with("{\"record\":\"started\"}\n{\"record\":\"tri");
    assert!(matches!(run.begin(2), Begin::Unknown(1)), "the run lasts, so that there may be an event 2 soon");
    let Begin::At(follower) = run.begin(0) else { panic!() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut events = Box::pin(follower.events());
        let mut next = async || String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
        assert_eq!(next().await, "retry: 1000\n\n");
        assert_eq!(next().await, "id: 1\nevent: started\ndata: {\"record\":\"started\"}\n\n");
        run.write("al\"}\n{\"cut");
        assert_eq!(next().await, "id: 2\nevent: trial\ndata: {\"record\":\"trial\"}\n\n");
        run.stop().unwrap();
        assert_eq!(next().await, "id: 3\nevent: exit\ndata: {\"code\":130,\"meaning\":\"over\"}\n\n");
        assert!(events.next().await.is_none());
    });
}

#[test]
fn a_run_that_says_nothing_sends_comments() {
    let run = Fake::with("{\"record\":\"started\"}\n");
    let Begin::At(mut follower) = run.begin(0) else { panic!() };
    assert_eq!(follower.heartbeat, Duration::from_secs(15));
    follower.heartbeat = Duration::from_millis(300);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut events = Box::pin(follower.events());
        let mut next = async || String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
        assert_eq!(next().await, "retry: 1000\n\n");
        let begin = Instant::now();
        assert_eq!(next().await, "id: 1\nevent: started\ndata: {\"record\":\"started\"}\n\n");
        for comments in 1..=2_u32 {
            // Parsers of event streams ignore lines that begin with a colon.
            assert_eq!(next().await, ":\n\n");
            assert!(begin.elapsed() >= Duration::from_millis(300) * comments, "{comments} in {:?}", begin.elapsed());
        }
        run.write("{\"record\":\"trial\"}\n");
        assert_eq!(next().await, "id: 2\nevent: trial\ndata: {\"record\":\"trial\"}\n\n");
    });
}

#[test]
fn at_most_64_clients_follow_and_one_that_goes_makes_room() {
    let runs = Runs::new(Box::new(Fakes(Mutex::default())), true);
    let id = runs.shared.start("x", &[]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let follow = async || {
            let answer = rest::follow(State(runs.shared.clone()), extract::Path(id.clone()), HeaderMap::new()).await;
            (answer.status().as_u16(), answer)
        };
        let mut all = Vec::new();
        for n in 0..64 {
            let (status, answer) = follow().await;
            assert_eq!(status, 200, "{n}");
            all.push(answer);
        }
        assert_eq!((follow().await.0, follow().await.0), (503, 503));
        drop(all.pop());
        let (status, _answer) = follow().await;
        assert_eq!((status, follow().await.0), (200, 503));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_the_record_holds_events_are_its_lines(lines in prop::collection::vec("[^\\n\\r]{0,40}", 0..20), after in 0u64..25) {
        let run = Fake::with(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        run.stop().unwrap();
        let count = lines.len() as u64;
        match run.begin(after) {
            Begin::At(_) => {
                let events = parsed(&run.received(after));
                prop_assert_eq!(events.len() as u64, count - after + 1);
                for ((id, _, data), line) in events.iter().zip(&lines[after as usize..]) {
                    prop_assert_eq!(data, &lines[*id as usize - 1]);
                    prop_assert_eq!(data, line);
                }
            }
            Begin::Over => prop_assert_eq!(after, count + 1),
            Begin::Unknown(known) => prop_assert!(known == count && after > count + 1),
        }
    }
}

/// Starts fakes, and refuses a suite that is an exit code.
struct Fakes(Mutex<Vec<Arc<Fake>>>);

impl Starter for Fakes {
    fn start(&self, suite: &str, _: &[String]) -> Result<Arc<dyn Run>, Refused> {
        if let Ok(code) = suite.parse() {
            return Err(Refused { code, errors: vec![Wrong::of("refused")] });
        }
        let run = Fake::with("");
        self.0.lock().unwrap().push(run.clone());
        Ok(run)
    }
}

#[test]
fn one_run_at_a_time_and_none_after_the_end() {
    let runs = Runs::new(Box::new(Fakes(Mutex::default())), true);
    let code = |suite: &str| runs.shared.start(suite, &[]).map_err(|failure| failure.code);
    for (suite, expected) in [("2", 400), ("3", 409), ("4", 500), ("1", 500)] {
        assert_eq!(code(suite), Err(expected), "{suite}");
    }
    let first = code("x").unwrap();
    let refused = runs.shared.start("x", &[]).unwrap_err();
    assert_eq!((refused.code, refused.errors[0].message.contains(&first)), (409, true), "{refused:?}");
    runs.shared.find(&first).unwrap().stop().unwrap();
    let second = code("x").unwrap();
    assert_eq!(runs.shared.find("none").err().unwrap().code, 404);
    runs.end();
    assert_eq!(runs.shared.find(&second).unwrap().ended().unwrap().code, Some(130));
    assert_eq!(code("x"), Err(503));
}

#[test]
fn files_outside_of_the_folder_are_not_sent() {
    let run = Fake::with("record");
    let (folder, outside) = (run.folder(), tempfile::NamedTempFile::new().unwrap());
    fs::create_dir(folder.join("duts")).unwrap();
    for name in ["report.html", "duts/frr.conf", ".hidden"] {
        fs::write(folder.join(name), "text").unwrap();
    }
    let symlink = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    symlink(outside.path(), "link");
    symlink(&folder.join("report.html"), "own");
    symlink(Path::new("/dev/zero"), "zero");
    for good in ["report.html", "duts/frr.conf", "own", "run.jsonl"] {
        assert!(files::open(folder, good).is_ok(), "{good}");
    }
    let name = outside.path().display().to_string();
    let wrong = [
        "",
        ".",
        "..",
        "../x",
        "duts/../report.html",
        "/etc/passwd",
        "link",
        "zero",
        "duts",
        "none",
        ".hidden",
        "a\0b",
        &name,
    ];
    for path in wrong {
        assert_eq!(files::open(folder, path).err().map(|failure| failure.code), Some(404), "{path}");
    }
}
