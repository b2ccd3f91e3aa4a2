//! Keys of BGP sessions that a suite names and does not contain.
use crate::common::REGISTRY;
use drophammer_suite::SuiteErrors;
use drophammer_suite::include::Refusal;
use drophammer_suite::keys::KeyPlace;
use drophammer_suite::read::{Loaded, Outside, Overrides, read, read_with};
use std::path::Path;

const REST: &str = "
suite: s
ports:
  - {name: p1, speed: 1 Gbit/s}
  - {name: p2, speed: 1 Gbit/s}
duts:
  - {name: box, kind: frr}
tests: [throughput]
";

/// Reads `lab/suite.yaml`, which begins with this line. `lab/key` and `$KEY` have a key.
fn load(line: &str) -> Result<Loaded, SuiteErrors> {
    let none = |_: &Path| Err(Refusal::new("there is no such file", "name another one"));
    let key = |place: &KeyPlace| match place {
        KeyPlace::File(path) if path == Path::new("lab/key") => Ok("sesame\r\n".to_owned()),
        KeyPlace::File(path) if path == Path::new("lab/long") => Ok("x".repeat(81)),
        KeyPlace::File(path) if path == Path::new("/lines") => Ok("one\ntwo\n".to_owned()),
        KeyPlace::Env(name) if name == "KEY" => Ok("sesame".to_owned()),
        KeyPlace::Env(name) if name == "EMPTY" => Ok(String::new()),
        _ => Err(Refusal::new(format!("there is no {place:?}"), "name another one")),
    };
    let outside = Outside { include: &none, key: &key };
    read_with(&format!("{line}{REST}"), "lab/suite.yaml", outside, &REGISTRY, &Overrides::default())
}

#[test]
fn a_key_comes_from_a_file_or_from_the_environment() {
    for line in ["bgp: {md5_file: key}", "bgp: {md5_file: ./key, gtsm: true}", "bgp: {md5_env: KEY}"] {
        let loaded = load(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let protection = &loaded.suite.ports[1].bgp.as_ref().unwrap().protection;
        assert_eq!(protection.md5.as_ref().map(|key| key.expose()), Some("sesame"), "{line}");
        assert_eq!(protection.gtsm, line.contains("gtsm"));
        assert_eq!(loaded.text, format!("{line}{REST}"));
        assert!(!format!("{loaded:?}").contains("sesame"));
    }
    let line = "variables: {where: key}\nbgp: {md5_file: \"${where}\"}\ntitle: not sesame # sesame";
    let loaded = load(line).unwrap();
    assert!(loaded.text.starts_with(&line.replace("sesame", "<secret>")), "{}", loaded.text);
    // Nothing outside of the text is read where no one can read it.
    let errors = read(&format!("bgp: {{md5_env: KEY}}{REST}"), "s.yaml", &REGISTRY, &Overrides::default());
    assert!(errors.unwrap_err().errors[0].message.contains("no key can be read here"));
}

#[test]
fn mistakes_are_told_where_the_key_is_named() {
    for (line, column, message) in [
        ("bgp: {md5: sesame, md5_file: key}", 20, "`bgp` has both `md5` and `md5_file`"),
        ("bgp: {md5_env: KEY, md5_file: key}", 21, "`bgp` has both `md5_env` and `md5_file`"),
        ("bgp: {md5_file: none}", 17, "there is no File(\"lab/none\")"),
        (
            "bgp: {md5_file: long}",
            17,
            "the text of `lab/long` cannot be a key of TCP MD5: a key has 1 to 80 characters",
        ),
        (
            "bgp: {md5_file: /lines}",
            17,
            "the text of `/lines` cannot be a key of TCP MD5: a key has only ASCII characters, without spaces",
        ),
        ("bgp: {md5_env: EMPTY}", 16, "the variable `EMPTY` cannot be a key of TCP MD5: a key has 1 to 80"),
        ("bgp: {md5_env: NONE}", 16, "there is no Env(\"NONE\")"),
        ("bgp: {md5_env: 1 KEY}", 16, "`md5_env` is the name of an environment variable, not `1 KEY`"),
        ("bgp: {md5_file: [key]}", 17, "`md5_file` is a text, not a list"),
        ("bgp: {md5_env: ~}", 16, "`md5_env` has no value"),
    ] {
        let errors = load(line).unwrap_err();
        let error = &errors.errors[0];
        assert_eq!((errors.errors.len(), error.line, error.column), (1, 1, column), "{errors}");
        assert!(error.message.starts_with(message) && !error.help.is_empty(), "{errors}");
    }
}

#[test]
fn errors_show_no_key_even_as_a_part_of_a_longer_text() {
    let long = format!("{}sesame", "x".repeat(55));
    for line in [
        "bgp: {md5_file: key}\nprofile: my-sesame-profile".to_owned(),
        "bgp: {md5_env: KEY}\nprofile: sesame".to_owned(),
        format!("bgp: {{md5_file: key}}\nprofile: {long}"),
        "variables: {a: ses, b: ame}\nbgp: {md5: \"${a}${b}\"}\nprofile: \"x${a}${b}y\"".to_owned(),
    ] {
        let errors = load(&line).unwrap_err();
        assert_eq!(errors.errors[0].line, line.lines().count(), "{errors}");
        let shown = format!("{errors} {errors:?}");
        assert!(!shown.contains("sesa") && shown.contains("<secret>"), "{shown}");
    }
}
