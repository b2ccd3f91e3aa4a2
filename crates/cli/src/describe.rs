//! Descriptions of the program itself: `drophammer list`, `schema`, `completions` and `man`.

use crate::args::{Listing, commands};
use crate::output::out;
use crate::suite_file::with_registry;
use crate::{Ended, Exit, Failure};
use clap_complete::Shell;
use drophammer_methods::METHODS;
use drophammer_model::registry::ParamSpec;
use drophammer_port::backends;
use std::path::Path;

fn params(params: &[ParamSpec]) {
    for p in params {
        let default = match (p.quick, p.conformant) {
            (Some(quick), Some(conformant)) if quick == conformant => format!(" [{quick}]"),
            (Some(quick), Some(conformant)) => format!(" [quick {quick}; conformant {conformant}]"),
            _ if p.required => " (required)".into(),
            _ => String::new(),
        };
        out!("      {:<22} {}{default}", p.key, p.help);
    }
}

/// `drophammer list`.
pub fn list(what: Listing) -> Ended {
    match what {
        Listing::Tests => {
            for method in METHODS {
                let spec = method.spec();
                out!("{}\n    {}\n    {}", spec.name, spec.summary, spec.source);
                params(spec.params);
                if !spec.figures.is_empty() {
                    out!("    figures for `expect`:");
                }
                for figure in spec.figures {
                    out!("      {:<32} {}", figure.key, figure.help);
                }
                if !spec.tables.is_empty() {
                    out!("    tables for `expect`, and their columns:");
                }
                for table in spec.tables {
                    out!("      {:<32} {}", table.key, table.columns.join(", "));
                }
            }
        }
        Listing::Duts => {
            for spec in drophammer_testbed::kinds::specs() {
                out!("{}\n    {}", spec.name, spec.summary);
                out!("    roles: {}", spec.capabilities.words().join(", "));
                if !spec.needs.is_empty() {
                    let needs: Vec<_> =
                        spec.needs.iter().map(|(program, package)| format!("{program} ({package})")).collect();
                    out!("    needs: {}", needs.join(", "));
                }
                params(spec.params);
            }
        }
        Listing::Backends => {
            for spec in backends() {
                out!("{}\n    {}", spec.name, spec.summary);
            }
        }
    }
    Ok(Exit::Good)
}

/// `drophammer schema`.
pub fn schema() -> Ended {
    let schema = with_registry(drophammer_suite::schema::schema);
    let text = serde_json::to_string_pretty(&schema);
    out!("{}", text.map_err(|e| Failure::store(format!("cannot print the schema: {e}")))?);
    Ok(Exit::Good)
}

/// `drophammer completions`.
pub fn completions(shell: Shell) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands(), "drophammer", &mut script);
    out!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Good)
}

/// `drophammer man`.
pub fn manual(folder: &Path) -> Ended {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(commands(), folder));
    let failed = |e| Failure::store(format!("cannot write manual pages to `{}`: {e}", folder.display()));
    written.map(|()| Exit::Good).map_err(failed)
}
