//! The question of `drophammer init`: which interfaces of this machine lead to the router.

use super::reported_speed;
use drophammer_model::visible::visible;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

/// Folder in which the kernel lists interfaces.
const CLASS: &str = "/sys/class/net";
/// Type of a loopback interface (ARPHRD_LOOPBACK).
const LOOPBACK: &str = "772";
/// The remedy if there is no answer.
const REMEDY: &str = "name the interfaces that lead to the router, as in --ports eth1,eth2";

/// An interface that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    /// Its state and speed.
    about: String,
    /// True if a default route of this machine uses the interface.
    is_default: bool,
}

/// Asks on the terminal. Fails without a terminal, and if the user gives no answer.
pub fn on_terminal() -> Result<Vec<String>, String> {
    if !io::stdin().is_terminal() {
        return Err(REMEDY.into());
    }
    let routes = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let defaults = default_routes(&routes("/proc/net/route"), &routes("/proc/net/ipv6_route"));
    // Standard output may go into a file.
    ask(&mut io::stdin().lock(), &mut io::stderr().lock(), &interfaces(Path::new(CLASS), &defaults))
}

/// Shows `here`, and asks until the answer is valid.
fn ask(input: &mut impl BufRead, to: &mut impl Write, here: &[Interface]) -> Result<Vec<String>, String> {
    let failed = |e: io::Error| format!("{e}; {REMEDY}");
    // Without two such interfaces, any answer would be refused.
    if here.iter().filter(|interface| !interface.is_default).count() < 2 {
        return Err(format!(
            "fewer than two interfaces of this machine can lead to a router; for another machine, {REMEDY}"
        ));
    }
    let width = here.iter().map(|interface| interface.name.len()).max().unwrap_or(0);
    let mut text = "Interfaces of this machine:\n".to_owned();
    for Interface { name, about, is_default } in here {
        let used = if *is_default { "; carries this machine's default route" } else { "" };
        text += &format!("  {name:width$}  {about}{used}\n");
    }
    text += "\nWhich of them lead to the router? Name an even number, separated by commas.\n\
             Traffic runs between the first and the second, the third and the fourth, and so on.\n";
    write!(to, "{text}").map_err(failed)?;
    loop {
        write!(to, "> ").and_then(|()| to.flush()).map_err(failed)?;
        let mut line = String::new();
        if input.read_line(&mut line).map_err(failed)? == 0 {
            // At the end of the input, the cursor is still on the line of the question.
            let _ = writeln!(to);
            return Err(REMEDY.into());
        }
        let words = line.split(|c: char| c == ',' || c.is_whitespace());
        let names: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        match refused(&names, here) {
            None => return Ok(names),
            Some(why) => writeln!(to, "{}", visible(&why, &[])).map_err(failed)?,
        }
    }
}

/// The reason why these interfaces are not a valid answer.
fn refused(names: &[String], here: &[Interface]) -> Option<String> {
    for (number, name) in names.iter().enumerate() {
        let Some(interface) = here.iter().find(|interface| interface.name == *name) else {
            return Some(format!("`{name}` is not in the list; for another machine, use --ports"));
        };
        if interface.is_default {
            return Some(format!(
                "this machine reaches other machines through `{name}`; Drophammer sends no test traffic there"
            ));
        }
        if names[..number].contains(name) {
            return Some(format!("`{name}` is listed twice"));
        }
    }
    match names.len() {
        0 => Some("name two interfaces or more".into()),
        1 => {
            Some("one interface is not enough: frames enter the router through one and leave it through another".into())
        }
        odd if odd % 2 == 1 => Some(format!("{odd} interfaces make no pairs; name an even number")),
        _ => None,
    }
}

/// The interfaces below `class`, by name, without loopback.
fn interfaces(class: &Path, defaults: &BTreeSet<String>) -> Vec<Interface> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).map(|text| text.trim().to_owned());
        // The bonding driver has a file in this folder, which has no type.
        if read("type").ok()? == LOOPBACK {
            return None;
        }
        let name = entry.file_name().into_string().ok()?;
        let state = read("operstate").unwrap_or_else(|_| "unknown".into());
        let speed = reported_speed(&name).map_or("speed unknown".into(), |speed| speed.to_string());
        let is_default = defaults.contains(&name);
        Some(Interface { name, about: format!("{state}, {speed}"), is_default })
    };
    let mut found: Vec<Interface> = entries.filter_map(of).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Interfaces of default routes, from `/proc/net/route` and `/proc/net/ipv6_route`.
fn default_routes(ipv4: &str, ipv6: &str) -> BTreeSet<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let four = ipv4.lines().map(words).filter(|w| w.len() > 7 && w[1] == "00000000" && w[7] == "00000000");
    let six = ipv6.lines().map(words).filter(|w| w.len() > 9 && w[0] == "0".repeat(32) && w[1] == "00");
    four.map(|w| w[0].clone()).chain(six.map(|w| w[9].clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Vec<Interface> {
        let of = |name: &str, is_default| Interface { name: name.into(), about: "up, 1 Gbit/s".into(), is_default };
        vec![of("eth0", true), of("eth1", false), of("eth2", false), of("enp3s0f1", false)]
    }

    /// The result of a prompt with these input lines, and the printed text.
    fn answer(lines: &str, here: &[Interface]) -> (Result<Vec<String>, String>, String) {
        let mut said = Vec::new();
        let answer = ask(&mut lines.as_bytes(), &mut said, here);
        (answer, String::from_utf8(said).unwrap())
    }

    #[test]
    fn an_answer_that_cannot_be_used_is_explained_and_asked_for_again() {
        let (names, said) =
            answer("\neth1\neth1,eth9\neth1, eth1\neth0,eth1\neth1 eth2 enp3s0f1\n\x1b[A\neth1, eth2\n", &here());
        assert_eq!(names.unwrap(), ["eth1", "eth2"]);
        assert!(said.contains("  eth0      up, 1 Gbit/s; carries this machine's default route\n"), "{said}");
        let told: Vec<&str> = said.split("> ").skip(1).collect();
        let words = [
            "two interfaces or more",
            "one interface is not enough",
            "`eth9` is not in the list",
            "twice",
            "reaches other machines through `eth0`",
            "even number",
            "\\u{1b}[A",
            "",
        ];
        assert_eq!(told.len(), words.len(), "{said}");
        for (told, word) in told.iter().zip(words) {
            assert!(told.contains(word), "{word}: {told}");
        }
    }

    #[test]
    fn the_end_of_the_input_is_no_answer() {
        let (names, said) = answer("eth1", &here());
        assert!(names.unwrap_err().contains("--ports") && said.ends_with("> \n"), "{said}");
        let (names, said) = answer("eth0,eth1\n", &here()[..2]);
        assert!(names.unwrap_err().contains("fewer than two") && said.is_empty());
    }

    #[test]
    fn interfaces_are_those_of_the_kernel_without_loopback() {
        let class = tempfile::tempdir().unwrap();
        for (name, kind, state) in [("zz9", "1", "down"), ("lo", "772", "unknown"), ("aa0", "1", "up")] {
            let folder = class.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("type"), format!("{kind}\n")).unwrap();
            fs::write(folder.join("operstate"), format!("{state}\n")).unwrap();
        }
        fs::write(class.path().join("bonding_masters"), "").unwrap();
        let found = interfaces(class.path(), &BTreeSet::from(["aa0".to_owned()]));
        let of = |name: &str, about: &str, is_default| Interface { name: name.into(), about: about.into(), is_default };
        assert_eq!(found, [of("aa0", "up, speed unknown", true), of("zz9", "down, speed unknown", false)]);
    }

    #[test]
    fn default_routes_of_the_kernel_are_read() {
        let ipv4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let zero = "0".repeat(32);
        let ipv6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth3\n\
             fe800000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     eth4\n"
        );
        assert_eq!(default_routes(ipv4, &ipv6).into_iter().collect::<Vec<_>>(), ["eth0", "eth3"]);
        assert_eq!(default_routes("", "\n"), BTreeSet::new());
    }
}
