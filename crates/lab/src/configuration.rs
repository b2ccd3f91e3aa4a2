//! Configuration files of routers: from our templates, or from the user's file or template.

use crate::router::{Names, family_of, prefix_of};
use crate::{LabError, bgp, label_edge};
use drophammer_model::label_work::label_work;
use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::role::{LabelRoute, Place, PushedRoute, RouterRole, StaticRoute};
use drophammer_model::suite::DutConfig;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value, context};
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Parameter: the user's file, used unchanged.
pub(crate) const CONFIG: ParamSpec = ParamSpec::optional(
    "config",
    ParamKind::File,
    "your own configuration file instead of ours; relative to the suite file",
);
/// Parameter: the user's template, rendered with the same variables as ours.
pub(crate) const TEMPLATE: ParamSpec = ParamSpec::optional(
    "template",
    ParamKind::File,
    "your own template instead of ours, with the same variables; relative to the suite file",
);

/// Maximum size in bytes of a file that a suite refers to.
const LONGEST: u64 = 16 << 20;

/// BGP identifier of a router that is not part of a system.
const ROUTER_ID: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// True if the user supplied the DUT's configuration. We then do not know its routes.
pub fn is_own(dut: &DutConfig) -> bool {
    dut.params.text(CONFIG.key).is_some() || dut.params.text(TEMPLATE.key).is_some()
}

/// The user's configuration of a DUT, if any.
pub(crate) fn own(dut: &DutConfig, role: &RouterRole) -> Result<Option<String>, LabError> {
    let path = |spec: &ParamSpec| dut.params.text(spec.key).map(PathBuf::from);
    match (path(&CONFIG), path(&TEMPLATE)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(LabError::unusable(format!("`{}` has both `config` and `template`", dut.name), "keep one of them"))
        }
        (Some(file), None) => read(dut, CONFIG.key, &file).map(Some),
        (None, Some(file)) => {
            let text = read(dut, TEMPLATE.key, &file)?;
            render_as(&file.display().to_string(), &text, variables(&dut.name, role, Names::Lab)).map(Some)
        }
    }
}

/// Writes the configuration files `shown`, `(name, text)`, to `work_dir`. If `whole` differs, writes it to `state`, which
/// is removed with the lab. Returns the folder with the complete files.
pub(crate) fn store(
    work_dir: &Path,
    state: &Path,
    shown: &[(String, String)],
    whole: &[(String, String)],
) -> Result<PathBuf, LabError> {
    for (name, text) in shown {
        let path = work_dir.join(name);
        std::fs::write(&path, text).map_err(LabError::file("write", &path))?;
    }
    if whole == shown {
        return Ok(work_dir.to_path_buf());
    }
    whole.iter().try_for_each(|(name, text)| write_private(&state.join(name), text))?;
    Ok(state.to_path_buf())
}

/// Writes a file that only this user can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), LabError> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(LabError::file("write", path))
}

/// Reads the text of a file that the parameter `key` of a DUT names.
pub(crate) fn read(dut: &DutConfig, key: &str, file: &Path) -> Result<String, LabError> {
    text_of(file).map_err(|e| {
        LabError::unusable(
            format!("`{key}` of `{}`: cannot read {}: {e}", dut.name, file.display()),
            "name a text file that this user can read; the path is relative to the folder of the suite file",
        )
    })
}

/// Reads the text of a file that a suite names. It must be a regular file of at most [`LONGEST`] bytes: reading any
/// other file might never end, or block.
pub(crate) fn text_of(file: &Path) -> io::Result<String> {
    let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(file)?;
    let metadata = opened.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut text = String::new();
    // The file may grow while we read it.
    if metadata.len() <= LONGEST {
        opened.take(LONGEST + 1).read_to_string(&mut text)?;
    }
    if metadata.len().max(text.len() as u64) > LONGEST {
        let why = format!("it is larger than {} MiB", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

/// Renders one of our templates.
pub(crate) fn render(template: &str, name: &str, role: &RouterRole) -> Result<String, LabError> {
    render_for(template, name, role, Names::Lab)
}

/// Like [`render`], for a router with other interface names.
pub(crate) fn render_for(template: &str, name: &str, role: &RouterRole, names: Names<'_>) -> Result<String, LabError> {
    render_as("our own template", template, variables(name, role, names))
}

/// Renders a template with [`variables`].
fn render_as(file: &str, template: &str, variables: Value) -> Result<String, LabError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // A line that contains only a block tag leaves no empty line.
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    let rendered = syntax.and_then(|syntax| {
        environment.set_syntax(syntax);
        environment.render_named_str(file, template, variables)
    });
    rendered.map_err(|e| {
        let line = e.line().map_or(String::new(), |line| format!(":{line}"));
        let detail = e.detail().map_or(String::new(), |detail| format!(": {detail}"));
        LabError::unusable(
            format!("{file}{line}: the template cannot be rendered: {}{detail}", e.kind()),
            "templates are written in Jinja2; they see `name`, `interfaces`, `routes`, `bgp`, `core` and `vrfs`, as \
             docs/duts/README.md lists them",
        )
    })
}

/// The netmask of an IPv4 prefix of this length, such as `255.255.255.0`.
fn mask(address: IpAddr, length: u8) -> Option<String> {
    let bits = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
    address.is_ipv4().then(|| Ipv4Addr::from(bits).to_string())
}

/// The variables of templates: `name`, `router_id`, `interfaces`, `routes`, their `ranks`, `labels`, `pushed`, `bgp`
/// ([`bgp::context`]; none if the role has no BGP), `core` ([`label_edge::core_context`]; none without core links), `vrfs`
/// ([`label_edge::vrfs_context`]), and `lab`: true if the lab runs the router and sets its addresses.
fn variables(name: &str, role: &RouterRole, names: Names<'_>) -> Value {
    let index = |at: Place| at.vlan.map(|i| i + 1);
    let route = |r: &StaticRoute| {
        context! {
            family => family_of(r.via), prefix => prefix_of(r), via => r.via.to_string(),
            network => r.prefix.0.to_string(), mask => mask(r.prefix.0, r.prefix.1),
            interface => names.at(role, r.at), rank => r.rank, parent => names.port(r.at.port), index => index(r.at),
        }
    };
    let label = |entry: &LabelRoute| {
        context! {
            label => entry.label, out => entry.out.clone(), work => label_work(true, &entry.out),
            via => entry.via.to_string(), family => family_of(entry.via), parent => names.port(entry.at.port),
        }
    };
    let labels: Vec<Value> = role.labels.iter().map(label).collect();
    let push = |route: &PushedRoute| {
        let prefix = format!("{}/{}", route.prefix.0, route.prefix.1);
        context! { prefix, work => label_work(false, &route.out), via => route.via.to_string() }
    };
    let pushed: Vec<Value> = role.pushed.iter().map(push).collect();
    let routes: Vec<Value> = role.routes.iter().map(route).collect();
    let interfaces = role.places().map(|(at, tags, addresses)| {
        let tpids: Vec<String> = tags.iter().map(|t| format!("{:#06x}", t.tpid)).collect();
        let tags: Vec<u16> = tags.iter().map(|t| t.vid).collect();
        let spelled = addresses.iter().map(|a| {
            context! { address => a.address.to_string(), length => a.prefix_len, mask => mask(a.address, a.prefix_len) }
        });
        let spelled: Vec<Value> = spelled.collect();
        let addresses: Vec<String> = addresses.iter().map(|a| format!("{}/{}", a.address, a.prefix_len)).collect();
        let (mtu, sub_interfaces) = (role.interfaces[at.port].mtu, role.interfaces[at.port].vlans.len());
        context! {
            name => names.at(role, at), port => at.port, mtu, tags, addresses, spelled, tpids, sub_interfaces,
            parent => names.port(at.port), index => index(at), core => label_edge::protocols(role, at.port),
            link_mtu => label_edge::link_mtu(role, at.port),
            customers => role.vrfs.iter().filter(|vrf| vrf.port == at.port).count(),
        }
    });
    let interfaces: Vec<Value> = interfaces.collect();
    let bgp = role.bgp.as_ref().map(bgp::context);
    let ranks = role.routes.iter().map(|r| r.rank).max().unwrap_or_default();
    let ranks: Vec<u32> = (0..=ranks).collect();
    let of_core = role.core.as_ref().map_or(ROUTER_ID, |core| core.loopback);
    let router_id = role.member.as_ref().map_or(of_core, |member| member.router_id).to_string();
    let core = role.core.as_ref().map(|core| label_edge::core_context(core, names));
    let vrfs = label_edge::vrfs_context(role, names);
    let lab = matches!(names, Names::Lab);
    context! { name, router_id, interfaces, routes, ranks, labels, pushed, bgp, core, vrfs, lab }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{self, two_ports, two_ports_with_bgp, with_vlans};
    use drophammer_model::suite::{FecConfig, LabelConfig, ParamValue, Params};

    fn role() -> RouterRole {
        RouterRole::of(&two_ports_with_bgp(2))
    }

    fn dut(folder: &Path, params: &[(&str, &str, &str)]) -> DutConfig {
        let value = |(key, file, text): &(&str, &str, &str)| {
            let path = folder.join(file);
            std::fs::write(&path, text).unwrap();
            ((*key).to_owned(), ParamValue::Text(path.display().to_string()))
        };
        tests_support::dut("mine", "frr", Params(params.iter().map(value).collect()))
    }

    #[test]
    fn an_unknown_variable_is_an_error_with_its_line() {
        let error = render("one\n{{ nme }}", "a", &role()).unwrap_err().to_string();
        assert!(error.contains(":2:") && error.contains("undefined"), "{error}");
    }

    #[test]
    fn the_users_file_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        assert!(own(&dut(folder.path(), &[]), &role()).unwrap().is_none());
        let with = dut(folder.path(), &[("config", "my.conf", "route {{ x }}\n")]);
        assert!(is_own(&with));
        assert_eq!(own(&with, &role()).unwrap().as_deref(), Some("route {{ x }}\n"));
    }

    #[test]
    fn the_users_template_sees_the_same_variables() {
        let folder = tempfile::tempdir().unwrap();
        let text = "{{ name }}\n{% for r in routes if r.family == 'ipv6' %}\n{{ r.prefix }} {{ r.via }} {{ r.interface }}\n{% endfor %}\n\
                    {% for i in interfaces %}\n{{ i.name }} {{ i.mtu }} {{ i.tags|join(',') }} {{ i.addresses[0] }}\n{% endfor %}\n\
                    {{ bgp.dut_as if bgp else 'none' }}\n";
        let dut = dut(folder.path(), &[("template", "my.j2", text)]);
        let rendered = own(&dut, &RouterRole::of(&with_vlans(two_ports()))).unwrap().unwrap();
        let lines: Vec<_> = rendered.lines().collect();
        assert_eq!(lines.len(), 1 + 2 + 5 + 1, "{rendered}");
        assert_eq!(lines[1], "2001:2:0:8000::/50 2001:2::2 d0");
        assert!(rendered.contains("d0.s100.200 1500 100,200 198.18.32.33/27"), "{rendered}");
        assert_eq!((lines[0], lines[8]), ("mine", "none"));
        assert_eq!(own(&dut, &role()).unwrap().unwrap().lines().last(), Some("65000"));
    }

    #[test]
    fn labels_that_a_language_cannot_express_are_told() {
        let mut ports = two_ports();
        ports[1].labels = vec![LabelConfig { label: 100, out: vec![200, 300] }];
        ports[1].pushed = vec![FecConfig { to: "10.99.0.0/24".parse().unwrap(), out: vec![400] }];
        let role = RouterRole::of(&ports);
        for template in ["iosxr", "junos", "sros", "vyos", "eos", "iosxe", "routeros"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("templates/{template}.conf.j2"));
            let text = render(&std::fs::read_to_string(path).unwrap(), "a", &role).unwrap();
            for line in ["By hand: label 100: swap to 300, push 200, to ", "By hand: 10.99.0.0/24: push 400, to "] {
                assert!(text.contains(line), "{template}: {text}");
            }
        }
    }

    #[test]
    fn files_that_never_end_or_never_come_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, hole) = (folder.path().join("pipe"), folder.path().join("hole"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::fs::File::create(&hole).unwrap().set_len(1 << 40).unwrap();
        let why = |path: &Path| text_of(path).unwrap_err().to_string();
        assert_eq!(why(&pipe), "it is not a regular file");
        assert_eq!(why(Path::new("/dev/zero")), "it is not a regular file");
        assert_eq!(why(&hole), "it is larger than 16 MiB");
    }

    #[test]
    fn what_cannot_be_used_is_told_with_file_line_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let error = |dut: &DutConfig| own(dut, &role()).unwrap_err().to_string();
        let bad = error(&dut(folder.path(), &[("template", "my.j2", "a\nb\n{% for x in %}\n")]));
        assert!(bad.contains("my.j2:3: ") && bad.contains("syntax error") && bad.contains("help: "), "{bad}");
        let bad = error(&dut(folder.path(), &[("template", "my.j2", "{{ routes.first.next }}\n")]));
        assert!(bad.contains("my.j2:1: ") && bad.contains("undefined"), "{bad}");
        let both = error(&dut(folder.path(), &[("template", "my.j2", ""), ("config", "my.conf", "")]));
        assert!(both.contains("both `config` and `template`"), "{both}");
        let gone = dut(folder.path(), &[("config", "my.conf", "")]);
        std::fs::remove_file(folder.path().join("my.conf")).unwrap();
        let gone = error(&gone);
        assert!(gone.contains("`config` of `mine`: cannot read") && gone.contains("my.conf"), "{gone}");
    }
}
