//! Completions and manual pages, made from the same definitions as the help.

use crate::Exit;
use crate::args::commands;
use crate::output::out;
use crate::run::fail;
use clap_complete::Shell;
use std::path::Path;

/// `drophammer completions`.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut commands(), "drophammer", &mut script);
    out!("{}", String::from_utf8_lossy(&script).trim_end());
    Exit::Good
}

/// `drophammer man`.
pub fn pages(folder: &Path) -> Exit {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(commands(), folder));
    match written {
        Ok(()) => Exit::Good,
        Err(e) => fail(Exit::Store, format!("cannot write manual pages to `{}`: {e}", folder.display())),
    }
}
