//! `drophammer selftest`.

use crate::Exit;
use crate::args::SelftestArgs;
use crate::clock::secret;
use crate::observer::{Watcher, stop_flag};
use crate::output::err;
use crate::progress::Display;
use crate::run::{VERSION, fail, finish, parent};
use crate::suite_file::with_registry;
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::environment::Environment;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{Mask, Suite};
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use drophammer_store::RunWriter;
use drophammer_suite::read::{self, Overrides};
use drophammer_testbed::selftest::{NAME, SelfTest, run_self_test};
use std::time::Duration;

/// A suite of two ports with default addresses, and the user's interfaces if given.
fn suite(args: &SelftestArgs) -> Result<Suite, Exit> {
    let dut = match args.interfaces.as_slice() {
        [] => "{name: loop, kind: linux}".into(),
        [a, b] => format!("{{name: cable, kind: external, interfaces: [{a:?}, {b:?}]}}"),
        other => {
            let text = format!("--interfaces takes two, joined by a cable, as in `eth1,eth2`; not {}", other.len());
            return Err(fail(Exit::Usage, text));
        }
    };
    let speed = &args.speed;
    let text = format!(
        "suite: {NAME}\nprofile: quick\nduts: [{dut}]\nports:\n  - {{name: p1, speed: {speed:?}}}\n  - {{name: p2, speed: \
         {speed:?}}}\ntests:\n  - tester_ceiling\n"
    );
    let read = with_registry(|registry| read::read(&text, "the command line", registry, &Overrides::default()));
    read.map_err(|errors| {
        // The user gave only the interfaces and the speed of this suite; the message says which one is wrong.
        for error in &errors.errors {
            err!("error: {}\n  help: {}", error.message, error.help);
        }
        Exit::Usage
    })
}

/// The backends to test: those requested, or all that this user may use.
fn backends(args: &SelftestArgs) -> Result<Vec<&'static Backend>, Exit> {
    if args.backends.is_empty() {
        let (usable, not): (Vec<_>, Vec<_>) = INTERFACE_BACKENDS.iter().partition(|b| (b.usable)().is_ok());
        for backend in not {
            err!("backend {} is left out: {}", backend.spec.name, (backend.usable)().err().unwrap_or_default());
        }
        return Ok(usable);
    }
    // The command line accepts no other names.
    let asked: Vec<_> = INTERFACE_BACKENDS.iter().filter(|b| args.backends.iter().any(|n| n == b.spec.name)).collect();
    match asked.iter().find_map(|b| (b.usable)().err()) {
        Some(why) => Err(fail(Exit::Environment, why)),
        None => Ok(asked),
    }
}

/// `drophammer selftest`.
pub fn run(args: &SelftestArgs) -> Exit {
    let prepared = suite(args).and_then(|suite| {
        let sizes: Result<Vec<PacketSize>, _> = args.frame_sizes.iter().map(|s| s.parse()).collect();
        let sizes = sizes.map_err(|e| fail(Exit::Usage, format!("--frame-sizes: {e}")))?;
        Ok((suite, sizes, backends(args)?))
    });
    let (mut suite, sizes, backends) = match prepared {
        Ok(prepared) => prepared,
        Err(exit) => return exit,
    };
    for left in drophammer_lab::sweep() {
        err!("left by an earlier run: {left}");
    }
    let folder = match parent(args.out.as_deref()) {
        Ok(folder) => folder,
        Err(exit) => return exit,
    };
    let mut lab = match Lab::enter(&LabOptions { keep: vec![folder.clone()], ..LabOptions::default() }) {
        Ok(lab) => lab,
        Err(e) => return fail(Exit::Environment, e),
    };
    let writer = match &args.out {
        Some(_) => RunWriter::create_exact(&folder),
        None => RunWriter::create(&folder, NAME),
    };
    let writer = match writer {
        Ok(writer) => writer,
        Err(e) => return fail(Exit::Store, e),
    };
    if let Err(e) = lab.pin_current_thread(lab.cpus().tester) {
        return fail(Exit::Environment, e);
    }
    let environment = Environment { drophammer: VERSION.into(), ..lab.environment(1) };
    let stop = match stop_flag() {
        Ok(stop) => stop,
        Err(e) => return fail(Exit::Environment, format!("cannot listen for Ctrl-C: {e}")),
    };
    let dir = writer.dir().to_owned();
    let work_dir = dir.join("duts");
    let mut watcher = Watcher {
        writer,
        display: Display::new(args.plain),
        live: None,
        rates: None,
        json: false,
        stop,
        mask: Mask::default(),
    };
    let test = SelfTest {
        lab: &mut lab,
        backends,
        cabled: (!args.interfaces.is_empty()).then(|| suite.duts.remove(0)),
        ports: suite.ports,
        sizes,
        trial: Duration::from_secs(if args.long { 10 } else { 1 }),
        repeats: if args.long { 5 } else { 3 },
        seed: suite.seed,
        work_dir: &work_dir,
        command: std::env::args().collect(),
        environment,
        secret: secret(),
    };
    let result = run_self_test(test, &mut watcher);
    watcher.display.finish();
    drop(watcher);
    drop(lab);
    match finish(result, &dir, false) {
        // Missed criteria are those of the self-test, not of a suite.
        Exit::Missed => Exit::Failed,
        exit => exit,
    }
}
