//! The house rules of ARCHITECTURE.md, checked against the sources: which crate may use which, which crates do no I/O,
//! where `unsafe` is, how long a file may be, and that nothing depends on the machine on which it was written.

mod source;

use source::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that do no I/O, read no clock and start no thread.
const PURE: &[&str] = &["wire", "emulation", "reference", "methods", "suite", "judge", "model"];

/// Paths that these crates must not name, with everything below them.
#[rustfmt::skip]
const IMPURE: &[&str] = &[
    "std::env", "std::fs", "std::io::stderr", "std::io::stdin", "std::io::stdout", "std::net::TcpListener", "std::net::TcpStream",
    "std::net::ToSocketAddrs", "std::net::UdpSocket", "std::os", "std::process", "std::thread", "std::time::Instant", "std::time::SystemTime",
];
/// Macros that write to a terminal.
const IMPURE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];
/// Dependencies that access the system.
const IMPURE_CRATES: &[&str] = &["libc", "nix", "rustix", "signal-hook", "socket2", "tempfile", "tokio"];

/// The crate in which `unsafe` is allowed.
const UNSAFE: &str = "port";

/// Maximum number of lines: a longer file has more than one concept.
const LONGEST: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Each crate and the crates that it may use, in the order of the table in ARCHITECTURE.md.
fn table() -> Vec<(String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|l| !l.starts_with("| crate | its one job | uses |"));
    let word = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let uses = cells[2].split(',').map(word).filter(|u| u != "–").collect();
        (word(cells[0]), uses)
    };
    let table: Vec<_> = rows.skip(2).take_while(|l| l.starts_with('|')).map(row).collect();
    assert!(table.len() > 10, "no table of crates in ARCHITECTURE.md");
    table
}

fn metadata() -> serde_json::Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--offline", "--no-deps", "--format-version", "1"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Crate → dependencies other than dev-dependencies, without the prefix `drophammer-`.
fn dependencies(metadata: &serde_json::Value) -> BTreeMap<String, BTreeSet<String>> {
    let short = |name: &serde_json::Value| name.as_str().unwrap().trim_start_matches("drophammer-").to_owned();
    let of = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|d| d["kind"] != "dev").map(|d| short(&d["name"])).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|p| (short(&p["name"]), of(p))).collect()
}

/// Violations in the dependencies between our crates.
fn wrong_dependencies(found: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let table = table();
    let ours: BTreeSet<String> = table.iter().map(|(name, _)| name.clone()).collect();
    wrong.extend(found.keys().filter(|n| !ours.contains(*n)).map(|n| format!("crate {n} is not in the table")));
    for (name, may) in &table {
        let Some(uses) = found.get(name) else {
            wrong.push(format!("crate {name} of the table does not exist"));
            continue;
        };
        let uses: BTreeSet<String> = uses & &ours;
        wrong.extend((&uses - may).iter().map(|u| format!("{name} uses {u}, which the table does not allow")));
        wrong.extend((may - &uses).iter().map(|u| format!("{name} does not use {u}, as the table says")));
    }
    for name in PURE {
        let uses = found.get(*name).into_iter().flatten();
        wrong.extend(uses.filter(|u| IMPURE_CRATES.contains(&u.as_str())).map(|u| format!("{name} uses {u}")));
    }
    wrong
}

/// Violations in a file of a pure crate.
fn impurities(code: &Code) -> Vec<String> {
    let bad = |path: &str| {
        let path = path.replacen("core::", "std::", 1);
        let open = path
            .strip_suffix('*')
            .or_else(|| ["std", "std::io", "std::net", "std::time"].contains(&&*path).then_some(&*path));
        IMPURE
            .iter()
            .any(|i| path == *i || path.starts_with(&format!("{i}::")) || open.is_some_and(|o| i.starts_with(o)))
    };
    let mut found: Vec<String> = code.std_paths().into_iter().filter(|p| bad(p)).collect();
    found.extend(IMPURE_MACROS.iter().filter(|m| code.has_macro(m)).map(|m| format!("{m}!")));
    found
}

/// All files under `folder`, sorted; build products and stored runs left out.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let left_out = ["target", ".git", "drophammer-runs"].iter().any(|name| path.ends_with(name));
        match path.is_dir() {
            _ if left_out => {}
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The Rust files under a folder of a crate.
fn rust_files(name: &str, below: &str) -> Vec<(PathBuf, Code)> {
    let mut files = files(&root().join("crates").join(name).join(below));
    files.retain(|f| f.extension().is_some_and(|e| e == "rs"));
    assert!(!files.is_empty(), "crate {name} has no sources");
    let read = |f: PathBuf| (f.clone(), Code::read(&std::fs::read_to_string(f).unwrap()));
    files.into_iter().map(read).collect()
}

/// The product code of a crate: its `src` without the files that are compiled for tests only.
fn product_code(name: &str) -> Vec<(PathBuf, Code)> {
    let mut code = rust_files(name, "src");
    let mut tests = BTreeSet::new();
    for (file, code) in &code {
        let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
        let folder = if is_root { file.parent().unwrap().to_owned() } else { file.with_extension("") };
        for module in &code.test_modules {
            tests.extend([folder.join(module).with_extension("rs"), folder.join(module).join("mod.rs")]);
        }
    }
    code.retain(|(file, _)| !tests.contains(file));
    code
}

/// Files of the project: the files that git tracks, or without git all files except build products.
fn project_files() -> Vec<String> {
    let git = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let tracked = git.ok().filter(|output| output.status.success()).map(|o| String::from_utf8(o.stdout).unwrap());
    let all = match tracked {
        Some(names) => names.split_terminator('\0').map(|n| root().join(n)).filter(|f| f.is_file()).collect(),
        None => files(&root()),
    };
    all.iter().map(|f| f.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect()
}

/// A folder of a particular machine that `line` names.
fn machine_path(line: &str) -> Option<&'static str> {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    folders.into_iter().find(|folder| {
        line.match_indices(folder).any(|(i, _)| {
            line[..i].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-' | '}'))
        })
    })
}

#[test]
fn crates_use_what_the_table_allows() {
    assert_eq!(wrong_dependencies(&dependencies(&metadata())), Vec::<String>::new());
}

#[test]
fn a_wrong_dependency_is_found() {
    let mut found: BTreeMap<_, _> = table().into_iter().collect();
    assert_eq!(wrong_dependencies(&found), Vec::<String>::new());
    found.get_mut("model").unwrap().insert("wire".into());
    found.get_mut("wire").unwrap().insert("nix".into());
    found.get_mut("report").unwrap().remove("store");
    found.insert("extra".into(), BTreeSet::new());
    let wrong = wrong_dependencies(&found).join("\n");
    for part in ["model uses wire", "wire uses nix", "report does not use store", "extra is not in the table"] {
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
}

#[test]
fn a_crate_uses_only_crates_below_it() {
    let table = table();
    for (i, (name, may)) in table.iter().enumerate() {
        let below: Vec<_> = table[i + 1..].iter().map(|(n, _)| n).collect();
        assert!(may.iter().all(|m| below.contains(&m)), "{name} uses a crate above it");
    }
}

#[test]
fn pure_crates_do_no_io() {
    for name in PURE {
        for (file, code) in product_code(name) {
            assert_eq!(impurities(&code), Vec::<String>::new(), "{}", file.display());
        }
    }
}

#[test]
fn an_impurity_is_found_however_it_is_written() {
    let found = |text: &str| impurities(&Code::read(text));
    for bad in [
        "use std::fs;",
        "use std::{collections::BTreeMap, time::{Duration, Instant}};",
        "use std::time::*;",
        "use std::time;",
        "use std::net::{self, IpAddr};",
        "use ::std::thread::spawn;",
        "use std::{fmt as f, process as p};",
        "fn f() { let x = std :: time :: SystemTime::now(); }",
        "fn f() { std::env::var(\"X\"); }",
        "fn f(x: u8) { println!(\"{x}\"); }",
        "#[cfg(test)] mod tests { } use std::fs;",
        "const Q: char = '\"'; use std::fs; const P: char = '\"';",
    ] {
        assert!(!found(bad).is_empty(), "not found: {bad}");
    }
    for good in [
        "use std::net::{IpAddr, Ipv4Addr};",
        "use std::time::Duration;",
        "use std::{collections::{BTreeMap, btree_map::Entry}, fmt};",
        "// std::fs\n/* std::thread /* nested */ std::fs */ fn f() -> &'static str { \"use std::fs;\" }",
        "fn f() -> &'static str { r#\"std::fs \" std::thread\"# }",
        "#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn f() { { std::thread::spawn(g); } }\n}\nuse std::fmt;",
        "use model::Instant;",
        "impl std::error::Error for E {}",
    ] {
        assert_eq!(found(good), Vec::<String>::new(), "{good}");
    }
    assert_eq!(Code::read("#[cfg(test)]\nmod tests;\nfn f() {}").test_modules, ["tests"]);
}

#[test]
fn unsafe_stands_in_one_crate_only() {
    for (name, _) in table().iter().filter(|(n, _)| n != UNSAFE) {
        for (file, code) in rust_files(name, "") {
            assert!(!code.has_word("unsafe"), "{} has unsafe code", file.display());
        }
        // The compiler then forbids it as well.
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the lints of the workspace");
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    assert!(Code::read("fn f() { unsafe { g() } }").has_word("unsafe"));
    assert!(!Code::read("#![forbid(unsafe_code)] // unsafe").has_word("unsafe"));
}

/// The numbers of the lines that begin a doc test.
fn doc_tests(text: &str) -> Vec<usize> {
    let (mut found, mut inside) = (Vec::new(), false);
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(fence) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else { continue };
        inside = !inside;
        let words = ["", "rust", "should_panic", "no_run", "compile_fail"];
        if inside && words.contains(&fence.split(',').next().unwrap_or_default().trim()) {
            found.push(i + 1);
        }
    }
    found
}

#[test]
fn every_doc_test_is_run() {
    let metadata = metadata();
    let mut with = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap().trim_start_matches("drophammer-");
        let run = package["targets"].as_array().unwrap().iter().any(|target| target["doctest"] == true);
        for file in files(&root().join("crates").join(name).join("src")) {
            let found = doc_tests(&std::fs::read_to_string(&file).unwrap_or_default());
            assert!(run || found.is_empty(), "{}:{} is in a crate with `doctest = false`", file.display(), found[0]);
            with += found.len();
        }
    }
    assert!(with > 0, "no doc test is found");
    assert_eq!(
        doc_tests("/// ```\n/// let x = 1;\n/// ```\n    //! ```text\n    //! x\n    //! ```\n/// ```no_run\n"),
        [1, 7]
    );
}

#[test]
fn files_are_short_and_name_no_machine() {
    let mut wrong = Vec::new();
    let files = project_files();
    for name in &files {
        // A picture is not text.
        let Ok(text) = std::fs::read_to_string(root().join(name)) else { continue };
        let lines = text.lines().count();
        if name.ends_with(".rs") && lines > LONGEST {
            wrong.push(format!("{name} has {lines} lines; at most {LONGEST}"));
        }
        for (i, line) in text.lines().enumerate() {
            if let Some(folder) = machine_path(line) {
                wrong.push(format!("{name}:{} names {folder}", i + 1));
            }
        }
    }
    assert!(files.len() > 100, "only {} files found", files.len());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_path_of_a_machine_is_found() {
    assert!(machine_path(concat!("see /wo", "rk/notes.md")).is_some());
    assert!(machine_path(concat!("\"/ro", "ot/.cargo\"")).is_some());
    assert!(machine_path("the frame/work/flow of https://example.net/").is_none());
}
