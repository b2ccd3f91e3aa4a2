//! `drophammer run`, `report` and `clean`.

use crate::Exit;
use crate::args::RunArgs;
use crate::baseline;
use crate::clock::secret;
use crate::detach::{self, Detached, command_line};
use crate::diagnostics::with_help;
use crate::live::{Rates, Waiting, of_record};
use crate::observer::{Watcher, stop_flag, tell};
use crate::output::{err, out};
use crate::progress::Display;
use crate::resume;
use crate::running::Held;
use crate::suite_file::{Kept, load, mask, refuse_impossible};
use drophammer_lab::{Lab, LabError, LabOptions};
use drophammer_model::capabilities::Need;
use drophammer_model::environment::Environment;
use drophammer_model::record::Record;
use drophammer_model::suite::Suite;
use drophammer_model::visible::{one_line, visible};
use drophammer_port::auto::AUTO;
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use drophammer_report::ending::Ending;
use drophammer_store::{RunReader, RunWriter};
use drophammer_testbed::kinds::is_virtual;
use drophammer_testbed::runner::Tally;
use drophammer_testbed::{Earlier, Refusal, Run, RunError, device, run_suite, xdp_router};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Version and commit.
pub const VERSION: &str = env!("DROPHAMMER_VERSION");
/// Default folder of runs.
pub const RUNS: &str = "drophammer-runs";

/// Prints an error and returns `exit`.
pub fn fail(exit: Exit, text: impl std::fmt::Display) -> Exit {
    err!("error: {}", with_help(&visible(&text.to_string(), &['\n'])));
    exit
}

/// The folder in which the folder of the run will be made, absolute: the lab covers some folders of the host, but not
/// this one.
///
/// # Errors
/// The error has been printed.
pub fn parent(out: Option<&Path>) -> Result<PathBuf, Exit> {
    let folder = out.map_or_else(|| PathBuf::from(RUNS), Path::to_path_buf);
    std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize()).map_err(|e| {
        fail(Exit::Store, format!("cannot create folder `{}`: {e}; choose another one with --out", folder.display()))
    })
}

/// The folder of an existing run, absolute.
///
/// # Errors
/// The error has been printed.
fn existing(dir: &Path) -> Result<PathBuf, Exit> {
    dir.canonicalize().map_err(|e| {
        fail(
            Exit::Usage,
            format!("cannot read folder `{}`: {e}; name the folder of a run with --resume", dir.display()),
        )
    })
}

/// Digest of everything that determines what a run measures and how. It is compared only with digests of the same
/// program.
fn digest(suite: &Suite, args: &RunArgs) -> String {
    let mut hasher = DefaultHasher::new();
    (format!("{suite:?}"), &args.backend, args.threads, args.queues, args.busy_host).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The results of the run in `dir` so far, and its records.
///
/// # Errors
/// The error has been printed.
fn earlier(
    dir: &Path,
    suite: &Suite,
    kept: &Kept,
    digest: &str,
    environment: &Environment,
) -> Result<(Earlier, Vec<Record>), Exit> {
    let records = RunReader::records(dir).map_err(|e| fail(Exit::Usage, e))?;
    let refused = |e: Refusal| {
        let remedy = if e == Refusal::Suite { resume::how(dir, &records, kept) } else { String::new() };
        fail(Exit::Usage, format!("--resume {}: {e}{remedy}", dir.display()))
    };
    let earlier = Earlier::of(suite, digest, environment, &records).map_err(refused)?;
    let kept = earlier.keep.iter().flat_map(|range| records[range.clone()].iter().cloned()).collect();
    Ok((earlier, kept))
}

/// Checks that `threads` threads of the tester can share `ports` ports with `queues` queues each.
pub fn threads_fit(threads: usize, ports: usize, queues: u32, simulated: bool) -> Result<(), String> {
    if threads > 1 && simulated {
        return Err(format!("simulated routers run in virtual time on one thread, not {threads}; omit --threads"));
    }
    let most = ports * queues as usize;
    if threads > most {
        let more = threads.div_ceil(ports);
        return Err(format!(
            "{threads} threads cannot share {most} queues of {ports} ports; say --threads {most} or less, or --queues {more}"
        ));
    }
    Ok(())
}

/// The backend of this name, if this process may use it. Besides the names of backends, the command line accepts only
/// the automatic choice.
///
/// # Errors
/// The error has been printed.
pub fn usable_backend(name: &str) -> Result<&'static Backend, Exit> {
    let backend: &Backend = INTERFACE_BACKENDS.iter().find(|b| b.spec.name == name).unwrap_or(&AUTO);
    (backend.usable)().map(|()| backend).map_err(|e| fail(Exit::Environment, e))
}

/// Checks that `backend` can open this number of queues of an interface.
pub fn queues_fit(backend: &Backend, queues: u32) -> Result<(), String> {
    if queues <= backend.most_queues {
        return Ok(());
    }
    let (name, most) = (backend.spec.name, backend.most_queues);
    let able: Vec<_> = INTERFACE_BACKENDS
        .iter()
        .filter(|b| b.most_queues >= queues)
        .map(|b| format!("--backend {}", b.spec.name))
        .collect();
    let remedy = if able.is_empty() { String::new() } else { format!(", or {}", able.join(" or ")) };
    Err(format!("the backend {name} opens up to {most} queues of a port, not {queues}; say --queues {most}{remedy}"))
}

/// `drophammer run`.
pub fn run(args: &RunArgs) -> Exit {
    if args.detach && !args.detached {
        return detach::start(args);
    }
    // Comes first: the lab moves the process into namespaces, and raises the priority of its session.
    let detached = match args.detached.then(Detached::leave).transpose() {
        Ok(detached) => detached,
        Err(e) => return fail(Exit::Environment, format!("--detach: the terminal cannot be left: {e}")),
    };
    let (mut suite, kept_texts) = match load(&args.suite) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    // Done before the lab covers folders of the host.
    if let Err(exit) = refuse_impossible(&suite).and_then(|()| baseline::read(&mut suite, args.baseline.as_deref())) {
        return exit;
    }
    // Printed before any measurement, and all at once.
    let specs =
        suite.tests.iter().filter_map(|test| Some((drophammer_methods::find(&test.test)?.spec(), &test.params)));
    let needs: Vec<Need> = specs.flat_map(|(spec, params)| spec.needs_of(params)).collect();
    let missing = suite.duts.iter().flat_map(|dut| drophammer_lab::missing(dut, &needs));
    let mut missing: Vec<String> = missing.map(|e| e.to_string()).collect();
    missing.sort();
    missing.dedup();
    if !missing.is_empty() {
        return fail(Exit::Environment, missing.join("\nerror: "));
    }
    if let Err(e) = drophammer_lab::refuse_host(&suite) {
        return fail(Exit::Environment, e);
    }
    // Besides the names of backends, the command line accepts only the automatic choice.
    let backend = INTERFACE_BACKENDS.iter().find(|b| b.spec.name == args.backend).unwrap_or(&AUTO);
    let simulated = suite.duts.iter().all(is_virtual);
    if !simulated && let Err(e) = (backend.usable)() {
        return fail(Exit::Environment, e);
    }
    let threads = usize::from(args.threads);
    let queues = u32::from(args.queues);
    let fit = threads_fit(threads, suite.ports.len(), queues, simulated);
    if let Err(e) = fit.and_then(|()| if simulated { Ok(()) } else { queues_fit(backend, queues) }) {
        return fail(Exit::Usage, e);
    }
    for left in drophammer_lab::sweep() {
        err!("left by an earlier run: {left}");
    }
    let folder = match &args.resume {
        None => parent(args.out.as_deref()),
        Some(dir) => existing(dir),
    };
    let folder = match folder {
        Ok(folder) => folder,
        Err(exit) => return exit,
    };
    // Bound here, in the host's namespace, where the browser runs: the lab has its own loopback.
    let waiting = match args.live.map(Waiting::on).transpose() {
        Ok(waiting) => waiting,
        Err(e) => return fail(Exit::Environment, format!("--live: no page can be served on loopback: {e}")),
    };
    // The lab moves the process into its own namespaces, which works only while it has a single thread.
    let mut lab = if simulated {
        None
    } else {
        match Lab::enter(&LabOptions { keep: vec![folder.clone()], queues, input_queue: suite.input_queue }) {
            Ok(lab) => Some(lab),
            Err(e) => return fail(Exit::Environment, e),
        }
    };
    let processors = match lab.as_ref().map(|lab| lab.cpus().for_threads(threads)) {
        Some(Ok(processors)) => processors.to_vec(),
        Some(Err(e)) => return fail(Exit::Environment, e),
        None => Vec::new(),
    };
    let environment = match &lab {
        Some(lab) => lab.environment(threads),
        None => Environment { tester_threads: 1, ..Environment::default() },
    };
    let environment = Environment { drophammer: VERSION.into(), ..environment };
    let digest = digest(&suite, args);
    let (earlier, kept) =
        match args.resume.as_ref().map(|_| earlier(&folder, &suite, &kept_texts, &digest, &environment)).transpose() {
            Ok(Some((earlier, kept))) => (Some(earlier), kept),
            Ok(None) => (None, Vec::new()),
            Err(exit) => return exit,
        };
    let stop = match stop_flag() {
        Ok(stop) => stop,
        Err(e) => return fail(Exit::Environment, format!("cannot listen for Ctrl-C: {e}")),
    };
    let told = waiting.as_ref().map(|waiting| waiting.address(std::io::stderr().is_terminal()));
    // For a run in the background, the address is stored without its token.
    let kept_address = waiting.as_ref().map(|waiting| waiting.address(false));
    // Before this thread is bound to its processor: the page's thread may run on any processor.
    let live = match waiting.map(|waiting| waiting.serve(stop.clone())).transpose() {
        Ok(live) => live,
        Err(e) => return fail(Exit::Environment, format!("--live: {e}")),
    };
    let (page, json) = (live.clone(), args.json);
    let is_told = page.is_some() || json;
    let rates = match is_told.then(|| Rates::start(move |event| tell(page.as_ref(), json, event))).transpose() {
        Ok(rates) => rates,
        Err(e) => return fail(Exit::Environment, format!("no further thread can be started: {e}")),
    };
    if let Some(lab) = &lab
        && let Err(e) = lab.pin_current_thread(lab.cpus().tester)
    {
        return fail(Exit::Environment, e);
    }
    // After everything that may be refused, so that a refused run leaves no folder.
    let writer = match (&earlier, &args.out) {
        (Some(earlier), _) => RunWriter::resume(&folder, &earlier.keep),
        (None, Some(_)) => RunWriter::create_exact(&folder),
        (None, None) => RunWriter::create(&folder, &suite.name),
    };
    let keep = |writer: RunWriter| {
        kept_texts.texts.iter().try_for_each(|(name, text)| writer.save_text(name, text).map(drop)).map(|()| writer)
    };
    let writer = match writer.and_then(keep) {
        Ok(writer) => writer,
        Err(e) => return fail(Exit::Store, e),
    };
    let dir = writer.dir().to_owned();
    if let Some(address) = told {
        err!("live page: {address}");
    }
    let in_background = detached.is_some();
    let held = match detached {
        Some(detached) => detached.begin(&dir, args.json),
        None => Held::take(&dir, false).map(|held| (held, true)),
    };
    let (held, is_known) = match held {
        Ok(held) => held,
        Err(e) => return fail(Exit::Store, format!("cannot write into folder `{}`: {e}", dir.display())),
    };
    if in_background && let Some(address) = kept_address {
        err!("live page: {address}");
    }
    if !is_known {
        // The parent process was ended in the meantime, so its user never learned of this run.
        stop.store(true, Ordering::Relaxed);
    }
    let mask = mask(&suite);
    let mut watcher = Watcher { writer, display: Display::new(args.plain), live, rates, json: args.json, stop, mask };
    // The page begins with the results so far.
    kept.iter().for_each(|record| watcher.tell(of_record(record)));
    let work_dir = dir.join("duts");
    let run = Run {
        suite: &suite,
        lab: lab.as_mut(),
        backend,
        queues,
        processors: &processors,
        busy_host: args.busy_host,
        work_dir: &work_dir,
        capture: args.capture,
        command: command_line(&kept_texts.secret_variables),
        environment,
        secret: secret(),
        digest,
        earlier,
    };
    let result = run_suite(run, &mut watcher);
    watcher.display.finish();
    if let Some(live) = &watcher.live {
        live.finish();
    }
    drop(watcher);
    drop(lab);

    let exit = finish(result, &dir, args.json);
    held.end(exit);
    exit
}

/// Writes the report of a run that has ended, and returns the exit code.
pub fn finish(result: Result<Tally, RunError>, dir: &Path, json: bool) -> Exit {
    let report = write_report(dir, dir, json);
    match (result, report) {
        // The tally counts each round. A figure that some rounds have is known, so the report decides.
        (Ok(_), Ok((ending, _))) => match ending {
            Ending::Good | Ending::Open => Exit::Good,
            Ending::Undecided(_) => Exit::Undecided,
            Ending::Unmeasured(_) => Exit::Unfit,
            Ending::Missed(_) => Exit::Missed,
            Ending::Failed(_) => Exit::Failed,
        },
        (Ok(_), Err(e)) => fail(Exit::Store, e),
        (Err(why), report) => {
            let exit = match why {
                RunError::Interrupted => Exit::Interrupted,
                e @ RunError::Changed(_) => fail(Exit::Environment, e),
                e @ RunError::Store(_) => {
                    fail(Exit::Store, format!("{e}; the run ended here, what was stored before is kept"))
                }
            };
            if let Err(e) = report {
                let _ = fail(Exit::Store, e);
            }
            exit
        }
    }
}

/// Why there is no report.
enum Unreported {
    /// The folder of the run cannot be read.
    Unread(String),
    /// The report cannot be written.
    Unwritten(String),
}

impl std::fmt::Display for Unreported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Unreported::Unread(why) | Unreported::Unwritten(why)) = self;
        f.write_str(why)
    }
}

/// Writes the report of the run in `dir` into `out` and prints the summary, or the path of the page as an event.
/// Returns how the run ended, and the page.
fn write_report(dir: &Path, out: &Path, json: bool) -> Result<(Ending, Option<PathBuf>), Unreported> {
    let run = RunReader::open(dir).map_err(|e| Unreported::Unread(e.to_string()))?;
    // The files come first: nothing that happens to the output may cost them.
    let files = drophammer_report::write_all(&run, out).map_err(|e| Unreported::Unwritten(e.to_string()))?;
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if !json {
        out!("\n{}", drophammer_report::summary_text(&run, color).trim_end());
    }
    for warning in &run.warnings {
        err!("warning: {}", one_line(warning));
    }
    let html = files.into_iter().next();
    if let Some(html) = &html {
        match json {
            true => out!("{}", serde_json::json!({"event": "report", "path": from_here(html).display().to_string()})),
            false => out!("\nReport: {}", from_here(html).display()),
        }
    }
    Ok((drophammer_report::ending(&run), html))
}

/// The path relative to the current folder, if it is below that folder.
pub fn from_here(path: &Path) -> PathBuf {
    let below = std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    below.unwrap_or_else(|| path.to_owned())
}

/// `drophammer report`.
pub fn report(dir: &Path, out: Option<&Path>, pdf: bool) -> Exit {
    match write_report(dir, out.unwrap_or(dir), false) {
        Ok((_, Some(html))) if pdf => match crate::pdf::print(&html) {
            Ok(pdf) => {
                out!("PDF: {}", from_here(&pdf).display());
                Exit::Good
            }
            Err(e) => fail(Exit::Environment, e),
        },
        Ok(_) => Exit::Good,
        Err(e @ Unreported::Unread(_)) => fail(Exit::Usage, e),
        Err(e @ Unreported::Unwritten(_)) => fail(Exit::Store, e),
    }
}

/// The first process of a guest of kind `uml`.
pub fn uml_guest(arguments: &[OsString]) -> Exit {
    match drophammer_lab::kinds::uml::guest::run(arguments) {
        Ok(()) => Exit::Good,
        Err(e) => fail(Exit::Environment, e),
    }
}

/// The fast path of a router of kind `xdp`.
pub fn xdp_router(arguments: &[OsString]) -> Exit {
    match xdp_router::run(arguments) {
        Ok(()) => Exit::Good,
        Err(e) => fail(Exit::Environment, e),
    }
}

/// The device of kind `reference` in a separate process.
pub fn reference_device(arguments: &[OsString]) -> Exit {
    match device::run(arguments) {
        Ok(()) => Exit::Good,
        Err(e) => fail(Exit::Environment, e),
    }
}

/// `drophammer clean`.
pub fn clean() -> Exit {
    let left = drophammer_lab::sweep();
    if left.is_empty() {
        out!("nothing was left behind");
    }
    for what in left {
        out!("left by an earlier run: {what}");
    }
    Exit::Good
}

impl From<LabError> for Exit {
    fn from(_: LabError) -> Exit {
        Exit::Environment
    }
}
