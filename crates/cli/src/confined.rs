//! What the suite of a client of the API may name: files in one folder, and no commands.
//!
//! A suite names files as parameters (`ParamKind::File`, and the table of routes), by `include`, `md5_file` and `baseline`. It names
//! commands as parameters of kind `external` (`ParamKind::Command`). A variable of the environment (`md5_env`) is this user's.

use crate::key_file;
use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::suite::{Params, Suite};
use drophammer_model::visible::one_line;
use drophammer_suite::include::Refusal;
use drophammer_suite::keys::KeyPlace;
use drophammer_testbed::kinds::specs;
use std::path::{Path, PathBuf};

/// The remedy for what only the user of this machine may write.
const TRUST: &str = "start the server on loopback with --trust-suites";

/// The bounds of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    /// The folder with the files that it may name, without links; none of them without it.
    pub folder: Option<PathBuf>,
}

impl Confined {
    /// Refuses a file outside of the folder, and does not tell whether it exists.
    pub fn file(&self, path: &Path) -> Result<(), String> {
        let name = one_line(&path.display().to_string());
        let Some(folder) = &self.folder else {
            return Err(format!("`{name}` is a file, but the server was started without --suites; name no file"));
        };
        match path.canonicalize() {
            Ok(real) if real.starts_with(folder) => Ok(()),
            _ => Err(format!("the folder of --suites has no `{name}`; put the file there")),
        }
    }

    /// The key that a suite names, if it may.
    pub fn key(&self, place: &KeyPlace) -> Result<String, Refusal> {
        match place {
            KeyPlace::File(path) => self.file(path).map_err(refusal)?,
            KeyPlace::Env(name) => return Err(refusal(format!("`{name}` is a variable of the server; {TRUST}"))),
        }
        key_file::of_suite(place)
    }

    /// Everything that this suite names and must not.
    pub fn refuse(&self, suite: &Suite) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        let mut look = |owner: &str, specs: &[ParamSpec], params: &Params| {
            for spec in specs {
                let Some(value) = params.text(spec.key) else { continue };
                let refused = match named(spec, &value) {
                    Named::File => self.file(Path::new(&value)),
                    Named::Command => Err(format!("it is a command; {TRUST}")),
                    Named::Nothing => Ok(()),
                };
                wrong.extend(refused.err().map(|why| format!("`{}` of `{owner}`: {why}", spec.key)));
            }
        };
        for dut in &suite.duts {
            let spec = specs().into_iter().find(|spec| spec.name == dut.kind);
            look(&dut.name, spec.map_or(&[] as &[ParamSpec], |spec| spec.params), &dut.params);
        }
        for test in &suite.tests {
            let method = drophammer_methods::find(&test.test);
            look(&test.test, method.map_or(&[] as &[ParamSpec], |method| method.spec().params), &test.params);
        }
        if let Some(baseline) = &suite.baseline {
            wrong.extend(self.file(Path::new(&baseline.folder)).err().map(|why| format!("baseline: {why}")));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

fn refusal(why: String) -> Refusal {
    let (message, help) = why.rsplit_once("; ").unwrap_or((why.as_str(), ""));
    Refusal::new(message, help)
}

enum Named {
    Nothing,
    File,
    Command,
}

/// What a text names outside of the suite.
fn named(spec: &ParamSpec, value: &str) -> Named {
    match spec.kind {
        ParamKind::Command => Named::Command,
        ParamKind::File => Named::File,
        // Other words are the path of a file.
        ParamKind::Text if spec.key == drophammer_methods::route_tests::TABLE.spec().key => match value {
            "internet" | "uniform" => Named::Nothing,
            _ => Named::File,
        },
        _ => Named::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite_file::read_own;
    use drophammer_methods::METHODS;
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    const PORTS: &str = "ports: [{name: p1, speed: 1 Gbit/s}, {name: p2, speed: 1 Gbit/s}]\n";

    fn suite(dut: &str, rest: &str) -> Suite {
        let text = format!("suite: s\nduts: [{{name: d, {dut}}}]\n{PORTS}{rest}\n");
        read_own(&text, "suite.yaml").unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    #[test]
    fn files_are_in_the_folder_and_commands_nowhere() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("own.conf"), "").unwrap();
        symlink(outside.path(), path("link")).unwrap();
        let confined = Confined { folder: Some(folder.path().canonicalize().unwrap()) };
        let outer = outside.path().display().to_string();
        let throughput = "tests: [throughput]";
        let table = |path: &str| format!("bgp: {{}}\ntests: [{{bgp_table_dump: {{table: '{path}'}}}}]");
        let own = path("own.conf");
        let good = [
            ("kind: frr".to_owned(), throughput.to_owned()),
            (format!("kind: frr, config: '{own}'"), throughput.to_owned()),
            ("kind: frr".to_owned(), table("uniform")),
            ("kind: frr".to_owned(), table(&own)),
            ("kind: external, interfaces: [a, b]".to_owned(), throughput.to_owned()),
        ];
        for (dut, rest) in &good {
            assert_eq!(confined.refuse(&suite(dut, rest)), Ok(()), "{dut} {rest}");
        }
        let mut wrong: Vec<(String, String, &str)> = Vec::new();
        for file in [&outer, "/etc/passwd", &path("link"), &path("../x"), &path("none"), "none"] {
            wrong.push((format!("kind: frr, config: '{file}'"), throughput.into(), "`config` of `d`"));
            wrong.push((format!("kind: bird, template: '{file}'"), throughput.into(), "`template` of `d`"));
            wrong.push((format!("kind: linux, nftables: '{file}'"), throughput.into(), "`nftables` of `d`"));
            wrong.push(("kind: frr".into(), table(file), "`table` of `bgp_table_dump`"));
            wrong.push(("kind: frr".into(), format!("{throughput}\nbaseline: '{file}'"), "baseline"));
        }
        for key in ["setup", "teardown", "counters", "alive"] {
            let dut = format!("kind: external, interfaces: [a, b], {key}: 'touch /tmp/x'");
            wrong.push((dut, throughput.into(), "it is a command; start the server on loopback"));
        }
        for (dut, rest, text) in &wrong {
            let refused = confined.refuse(&suite(dut, rest)).unwrap_err();
            assert!(refused.len() == 1 && refused[0].contains(text), "{dut} {rest}: {refused:?}");
        }
        // Without a folder, none of them.
        let none = Confined { folder: None };
        let refused = none.refuse(&suite(&format!("kind: frr, config: '{own}'"), &table(&own))).unwrap_err();
        assert!(refused.len() == 2 && refused.iter().all(|why| why.contains("without --suites")), "{refused:?}");
        let key = |place: KeyPlace| confined.key(&place).map_err(|refusal| refusal.message);
        fs::write(path("key"), "sesame").unwrap();
        assert_eq!(key(KeyPlace::File(path("key").into())), Ok("sesame".into()));
        assert!(key(KeyPlace::File(outside.path().into())).unwrap_err().contains("has no"));
        assert!(key(KeyPlace::Env("PATH".into())).unwrap_err().contains("variable of the server"));
    }

    #[test]
    fn every_text_is_known_to_be_no_file_and_no_command() {
        let tests = METHODS.iter().flat_map(|method| method.spec().params);
        let all = specs().into_iter().flat_map(|spec| spec.params).chain(tests);
        let texts: BTreeSet<&str> = all.filter(|spec| spec.kind == ParamKind::Text).map(|spec| spec.key).collect();
        // A new one must be looked at: does it name something outside of the suite?
        assert_eq!(texts.into_iter().collect::<Vec<_>>(), ["dut_macs", "management", "table"]);
    }
}
