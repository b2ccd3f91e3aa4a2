//! `drophammer run`, `report` and `clean`.

use crate::args::RunArgs;
use crate::clock::secret;
use crate::detach::{self, Detached, command_line, quoted};
use crate::hosts::{self, refuse_unreachable};
use crate::live::{Rates, Waiting, of_record};
use crate::observer::{Watcher, stop_flag, tell};
use crate::output::{err, is_colored, out};
use crate::progress::Display;
use crate::resume;
use crate::running::Held;
use crate::suite_file::{Kept, load, load_order, mask, read_baseline, refuse_impossible};
use crate::{Ended, Exit, Failure};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::capabilities::Need;
use drophammer_model::environment::Environment;
use drophammer_model::record::Record;
use drophammer_model::suite::{DutConfig, Suite};
use drophammer_model::visible::one_line;
use drophammer_port::auto::AUTO;
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use drophammer_report::ending::Ending;
use drophammer_rig::Lender;
use drophammer_server::claims::Claims;
use drophammer_store::{RunReader, RunWriter};
use drophammer_suite::SuiteErrors;
use drophammer_testbed::kinds::is_virtual;
use drophammer_testbed::runner::Tally;
use drophammer_testbed::{Earlier, Refusal, Run, RunError, run_suite};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// Version and commit.
pub const VERSION: &str = env!("DROPHAMMER_VERSION");
/// Default folder of runs.
pub const RUNS: &str = "drophammer-runs";

/// The absolute path of the folder in which the run will make its own folder: the lab covers some folders of the host,
/// but not this one.
pub fn parent(out: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = out.map_or_else(|| PathBuf::from(RUNS), Path::to_path_buf);
    std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize()).map_err(|e| {
        Failure::store(format!("cannot create folder `{}`: {e}; choose another one with --out", folder.display()))
    })
}

/// The absolute path of the folder of an existing run.
fn existing(dir: &Path) -> Result<PathBuf, Failure> {
    let failed = |e| format!("cannot read folder `{}`: {e}; name the folder of a run with --resume", dir.display());
    dir.canonicalize().map_err(|e| Failure::usage(failed(e)))
}

/// Digest of everything that determines what a run measures and how. Only digests of the same program are compared.
fn digest(suite: &Suite, args: &RunArgs) -> String {
    let mut hasher = DefaultHasher::new();
    (format!("{suite:?}"), &args.backend, args.threads, args.queues, args.busy_host).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The results of the run in `dir` so far, and its records.
fn earlier(
    dir: &Path,
    suite: &Suite,
    kept: &Kept,
    digest: &str,
    environment: &Environment,
) -> Result<(Earlier, Vec<Record>), Failure> {
    let records = RunReader::records(dir).map_err(Failure::usage)?;
    let refused = |e: Refusal| {
        let remedy = match e {
            Refusal::Suite => resume::how(dir, &records, kept),
            Refusal::Program(..) => "; use that version, or begin a new run without --resume".to_owned(),
            Refusal::Machine(_) => "; resume it there, or begin a new run without --resume".to_owned(),
            Refusal::Complete => format!("; `drophammer report {}` writes its report again", quoted(dir)),
        };
        Failure::usage(format!("--resume {}: {e}{remedy}", dir.display()))
    };
    let earlier = Earlier::of(suite, digest, environment, &records).map_err(refused)?;
    let kept = earlier.keep.iter().flat_map(|range| records[range.clone()].iter().cloned()).collect();
    Ok((earlier, kept))
}

/// Refuses routers for which this machine lacks something.
pub fn refuse_missing<'d>(duts: impl IntoIterator<Item = &'d DutConfig>, needs: &[Need]) -> Result<(), Failure> {
    let missing = duts.into_iter().flat_map(|dut| drophammer_lab::missing(dut, needs));
    let mut missing: Vec<String> = missing.map(|e| e.to_string()).collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() { Ok(()) } else { Err(Failure::environment(missing.join("\nerror: "))) }
}

/// Claims these interfaces of this machine, so that no other command uses them at the same time. `owner` is how error messages of
/// other commands name this one.
pub fn claim(owner: &str, names: &[String]) -> Result<Claims, Failure> {
    // Agents claim the interfaces of other hosts. The name of an interface has at most 15 bytes.
    let is_own = |name: &&str| !name.contains('/') && name.len() < 16;
    let names: Vec<&str> = names.iter().map(String::as_str).filter(is_own).collect();
    let mut claims = Claims::new(owner);
    claims.add(&names).map_err(|(_, why)| Failure::environment(why))?;
    Ok(claims)
}

/// Removes what killed processes left behind, and returns one line about each thing.
fn remove_left() -> Vec<String> {
    [drophammer_lab::sweep(), drophammer_port::unplugged::sweep()].concat()
}

/// Removes what killed runs left behind, and says so.
pub fn sweep() {
    for left in remove_left() {
        err!("left by an earlier run: {left}");
    }
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
            "{threads} threads cannot share {most} queues of {ports} ports; use --threads {most} or less, or --queues {more}"
        ));
    }
    Ok(())
}

/// The backend with this name. In addition to the names of backends, the command line accepts only the automatic
/// choice.
fn backend(name: &str) -> &'static Backend {
    INTERFACE_BACKENDS.iter().find(|b| b.spec.name == name).unwrap_or(&AUTO)
}

/// The backend with this name, if this process may use it.
pub fn usable_backend(name: &str) -> Result<&'static Backend, Failure> {
    let backend = backend(name);
    (backend.usable)().map(|()| backend).map_err(Failure::environment)
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
    Err(format!("the backend {name} opens up to {most} queues of a port, not {queues}; use --queues {most}{remedy}"))
}

/// `drophammer run`.
pub fn run(args: &RunArgs) -> Ended {
    if args.detach && !args.detached {
        return detach::start(args);
    }
    // This must come first: the lab moves the process into namespaces, and raises the priority of its session.
    let detached = (args.detached || args.served).then(Detached::leave).transpose();
    let detached = detached.map_err(|e| Failure::environment(format!("--detach: the terminal cannot be left: {e}")))?;
    let order = detached.as_ref().filter(|_| args.served).map(Detached::order).transpose()?;
    let refuse = |errors: &SuiteErrors| detached.iter().for_each(|detached| detached.refuse(errors));
    let (mut suite, kept_texts) = match &order {
        Some(order) => load_order(&args.suite, order, &refuse)?,
        None => load(&args.suite)?,
    };
    // Check this before the lab covers folders of the host.
    refuse_impossible(&suite)?;
    read_baseline(&mut suite, args.baseline.as_deref())?;
    // All obstacles are reported together, before any measurement.
    let specs =
        suite.tests.iter().filter_map(|test| Some((drophammer_methods::find(&test.test)?.spec(), &test.params)));
    let needs: Vec<Need> = specs.flat_map(|(spec, params)| spec.needs_of(params)).collect();
    refuse_missing(&suite.duts, &needs)?;
    refuse_unreachable(&suite, &args.hosts)?;
    // The files are read here, before the lab covers folders of the host.
    let far = hosts::settings(&args.hosts, args.silence, false)?;
    // A link that is down would be refused.
    sweep();
    drophammer_lab::refuse_host(&suite).map_err(Failure::environment)?;
    // The names of claims belong to the host's network namespace.
    let to_routers = suite.duts.iter().flat_map(|dut| dut.params.texts("interfaces").unwrap_or_default());
    let _claims = claim(&format!("a run of {:.24}", suite.name), &to_routers.collect::<Vec<String>>())?;
    let simulated = suite.duts.iter().all(is_virtual);
    let backend = if simulated { backend(&args.backend) } else { usable_backend(&args.backend)? };
    let (threads, queues) = (usize::from(args.threads), u32::from(args.queues));
    threads_fit(threads, suite.ports.len(), queues, simulated).map_err(Failure::usage)?;
    if !simulated {
        queues_fit(backend, queues).map_err(Failure::usage)?;
    }
    let folder = match &args.resume {
        None => parent(args.out.as_deref()),
        Some(dir) => existing(dir),
    }?;
    // It is bound here, in the host's namespace, where the browser runs: the lab has its own loopback interface.
    let waiting = args.live.map(Waiting::on).transpose();
    let waiting =
        waiting.map_err(|e| Failure::environment(format!("--live: no page can be served on loopback: {e}")))?;
    // The lab moves the process into its own namespaces, which works only while the process has a single thread.
    let options = || LabOptions { keep: vec![folder.clone()], queues, input_queue: suite.input_queue };
    let lab = (!simulated).then(|| Lab::enter(&options())).transpose();
    let mut lab = lab.map_err(Failure::environment)?;
    let controller = hosts::controller(far, lab.as_ref())?;
    let processors = lab.as_ref().map(|lab| lab.cpus().for_threads(threads)).transpose();
    let processors = processors.map_err(Failure::environment)?.map_or(Vec::new(), <[usize]>::to_vec);
    let environment = match &lab {
        Some(lab) => lab.environment(threads),
        None => Environment { tester_threads: 1, ..Environment::default() },
    };
    let environment = Environment { drophammer: VERSION.into(), ..environment };
    let digest = digest(&suite, args);
    let resumed = args.resume.as_ref().map(|_| earlier(&folder, &suite, &kept_texts, &digest, &environment));
    let (earlier, kept) = resumed.transpose()?.map_or((None, Vec::new()), |(earlier, kept)| (Some(earlier), kept));
    let stop = stop_flag()?;
    let told = waiting.as_ref().map(|waiting| waiting.address(std::io::stderr().is_terminal()));
    // The output of a background run is stored, so it must not show the token.
    let kept_address = waiting.as_ref().map(|waiting| waiting.address(false));
    // Do this before this thread is bound to its processor: the page's thread may run on any processor.
    let live = waiting.map(|waiting| waiting.serve(stop.clone())).transpose();
    let live = live.map_err(|e| Failure::environment(format!("--live: {e}")))?;
    let (page, json) = (live.clone(), args.json);
    let is_told = page.is_some() || json;
    let rates = is_told.then(|| Rates::start(move |event| tell(page.as_ref(), json, event))).transpose();
    let rates = rates.map_err(|e| Failure::environment(format!("cannot start another thread: {e}")))?;
    if let Some(lab) = &lab {
        lab.pin_current_thread(lab.cpus().tester).map_err(Failure::environment)?;
    }
    // This comes after everything that may refuse the run, so that a refused run leaves no folder.
    let writer = match (&earlier, &args.out) {
        (Some(earlier), _) => RunWriter::resume(&folder, &earlier.keep),
        (None, Some(_)) => RunWriter::create_exact(&folder),
        (None, None) => RunWriter::create(&folder, &suite.name),
    };
    let keep = |writer: RunWriter| {
        kept_texts.texts.iter().try_for_each(|(name, text)| writer.save_text(name, text).map(drop)).map(|()| writer)
    };
    let writer = writer.and_then(keep).map_err(Failure::store)?;
    let dir = writer.dir().to_owned();
    if let Some(address) = told {
        err!("live page: {address}");
    }
    let in_background = detached.is_some();
    let held = match detached {
        Some(detached) => detached.begin(&dir, args.json, args.served, &stop),
        None => Held::take(&dir, false),
    };
    let held = held.map_err(|e| Failure::store(format!("cannot write into folder `{}`: {e}", dir.display())))?;
    if in_background && let Some(address) = kept_address {
        err!("live page: {address}");
    }
    let mask = mask(&suite);
    let mut watcher = Watcher { writer, display: Display::new(args.plain), live, rates, json: args.json, stop, mask };
    // The page of a resumed run begins with the results so far.
    kept.iter().for_each(|record| watcher.tell(of_record(record)));
    let work_dir = dir.join("duts");
    let run = Run {
        suite: &suite,
        lab: lab.as_mut(),
        backend,
        queues,
        processors: &processors,
        lender: controller.as_ref().map(|controller| controller as &dyn Lender),
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
    Ok(exit)
}

/// The message of a run that could not be stored. The remedy stays at the end.
fn not_stored(why: &RunError) -> String {
    format!("the run ended here, what was stored so far is kept: {why}")
}

/// Writes the report of a run that has ended, and returns the exit code.
pub fn finish(result: Result<Tally, RunError>, dir: &Path, json: bool) -> Exit {
    let report = write_report(dir, dir, json);
    match (result, report) {
        // The report decides, not the tally of rounds, because a figure is known even if only some rounds have it.
        (Ok(_), Ok((ending, _))) => match ending {
            Ending::Good | Ending::Open => Exit::Good,
            Ending::Undecided(_) => Exit::Undecided,
            Ending::Unmeasured(_) => Exit::Unfit,
            Ending::Missed(_) => Exit::Missed,
            Ending::Failed(_) => Exit::Failed,
        },
        (Ok(_), Err(e)) => Failure { exit: Exit::Store, ..e }.print(),
        (Err(why), report) => {
            let exit = match why {
                RunError::Interrupted => Exit::Interrupted,
                e @ RunError::Changed(_) => Failure::environment(e).print(),
                e @ RunError::Store(_) => Failure::store(not_stored(&e)).print(),
            };
            report.err().map(Failure::print);
            exit
        }
    }
}

/// Writes the report of the run in `dir` into `out`, and prints the summary, or with `json` the path of the page as an event. Returns how the run ended,
/// and the page.
fn write_report(dir: &Path, out: &Path, json: bool) -> Result<(Ending, Option<PathBuf>), Failure> {
    let run = RunReader::open(dir).map_err(Failure::usage)?;
    // Write the files first, so that failing output cannot prevent that.
    let files = drophammer_report::write_all(&run, out).map_err(Failure::store)?;
    if !json {
        out!("\n{}", drophammer_report::summary_text(&run, is_colored(&io::stdout())).trim_end());
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
pub fn report(dir: &Path, out: Option<&Path>, pdf: bool) -> Ended {
    if let (_, Some(html)) = write_report(dir, out.unwrap_or(dir), false)?
        && pdf
    {
        let pdf = crate::pdf::print(&html).map_err(Failure::environment)?;
        out!("PDF: {}", from_here(&pdf).display());
    }
    Ok(Exit::Good)
}

/// `drophammer clean`.
pub fn clean() -> Ended {
    let left = remove_left();
    if left.is_empty() {
        out!("nothing was left behind");
    }
    for what in left {
        out!("left by an earlier run: {what}");
    }
    Ok(Exit::Good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::with_help;

    #[test]
    fn a_full_disk_has_its_remedy() {
        let why = RunError::Store("cannot write x/run.jsonl: the disk is full; free some space".into());
        let shown = "the run ended here, what was stored so far is kept: cannot write x/run.jsonl: the disk is full\n  help: free some space";
        assert_eq!(with_help(&not_stored(&why)), shown);
    }
}
