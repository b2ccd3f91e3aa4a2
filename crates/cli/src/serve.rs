//! `drophammer serve`: the Open Traffic Generator API.

use crate::args::ServeArgs;
use crate::clock::secret;
use crate::hosts;
use crate::key_file;
use crate::observer::stop_flag;
use crate::output::{err, say};
use crate::run::{RUNS, usable_backend};
use crate::served::Served;
use crate::{Ended, Exit, Failure};
use drophammer_lab::kinds::external::refuse_in_use;
use drophammer_rig::Lender;
use drophammer_server::server::{Listening, Options, serve};
use drophammer_server::token::{LONGEST, Token};
use nix::net::if_::if_nametoindex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Shortest token in bytes: nobody guesses 16 random ones.
const SHORTEST: usize = 16;

/// The interface of each location.
fn interfaces(ports: &[(String, String)]) -> Result<HashMap<String, String>, Failure> {
    let mut all = HashMap::new();
    for (location, interface) in ports {
        // Agents know the interfaces of other hosts.
        if !interface.contains('/') && if_nametoindex(interface.as_str()).is_err() {
            let text = format!("this machine has no interface {interface}; `ip link` lists them");
            return Err(Failure::environment(text));
        }
        if all.insert(location.clone(), interface.clone()).is_some() {
            return Err(Failure::usage(format!("--port gives `{location}` two interfaces; a location stands for one")));
        }
    }
    Ok(all)
}

/// The token in a file to which only its owner has access.
fn token(file: &Path) -> Result<Token, Failure> {
    let bytes = key_file::private_line("--token-file", file, SHORTEST..=LONGEST).map_err(Failure::usage)?;
    Token::new(&bytes).map_err(|e| Failure::usage(format!("--token-file: `{}`: {e}", file.display())))
}

/// A warning for each address to which clients on other machines send the token without TLS.
fn in_clear_text(listening: &Listening) -> Vec<String> {
    let all = [("--http", listening.rest, listening.tls), ("--grpc-plaintext", listening.grpc, listening.grpc_tls)];
    let is_exposed = |(_, address, tls): &(&str, SocketAddr, bool)| !tls && !address.ip().to_canonical().is_loopback();
    let exposed = all.into_iter().filter(|each| listening.token.is_some() && is_exposed(each));
    let text = |(option, address, _): (&str, SocketAddr, bool)| {
        format!("with {option}, clients send the token to {address} in clear text; leave the option out")
    };
    exposed.map(text).collect()
}

/// True for gRPC over TLS. Clients on this machine expect none.
fn grpc_tls(args: &ServeArgs) -> bool {
    args.grpc_tls || !args.grpc_plaintext && !args.grpc.ip().to_canonical().is_loopback()
}

/// `drophammer serve`.
pub fn run(args: &ServeArgs) -> Ended {
    let stop = stop_flag()?;
    let interfaces = interfaces(&args.ports)?;
    let controller = hosts::controller(hosts::settings(&args.hosts, args.silence, true)?, None)?;
    let options = Options {
        backend: usable_backend(&args.backend)?,
        lender: controller.map(|controller| Arc::new(controller) as Arc<dyn Lender + Send + Sync>),
        interfaces,
        idle_stop: Some(args.idle_stop).filter(|time| !time.is_zero()),
        may_use: |name| refuse_in_use(name).map_err(|e| e.to_string()),
        warn: |text| err!("warning: {text}"),
    };
    if args.trust_suites && !args.listen.ip().is_loopback() {
        let text = "--trust-suites lets clients run commands; listen on loopback, such as 127.0.0.1, or leave it out";
        return Err(Failure::usage(text));
    }
    let folder = |path: &Path| {
        path.canonicalize()
            .map_err(|e| Failure::usage(format!("--suites: cannot read folder `{}`: {e}", path.display())))
    };
    let suites = args.suites.as_deref().map(folder).transpose()?;
    let runs = args.runs.clone().unwrap_or_else(|| RUNS.into());
    let starter = Box::new(Served { suites, runs, trusted: args.trust_suites });
    let token = args.token_file.as_deref().map(token).transpose()?;
    let grpc_tls = grpc_tls(args);
    let listening = Listening { rest: args.listen, tls: !args.http, grpc: args.grpc, grpc_tls, token };
    let (scheme, over) = (if args.http { "http" } else { "https" }, if grpc_tls { " over TLS" } else { "" });
    in_clear_text(&listening).iter().for_each(|text| err!("warning: {text}"));
    let needs = if grpc_tls && !args.grpc_tls { "; clients without TLS need --grpc-plaintext" } else { "" };
    // The server works even if nobody reads standard output.
    let ready = |rest, grpc| {
        let addresses = format!("{scheme}://{rest}, gRPC on {grpc}{over}{needs}");
        _ = say(format!("serving the Open Traffic Generator API on {addresses}; Ctrl-C ends it"));
    };
    serve(options, listening, starter, secret(), &stop, ready).map_err(Failure::environment)?;
    Ok(Exit::Good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_is_in_a_file_of_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let read = |text: &str, mode: u32| {
            // A file that is read-only cannot be written again.
            let _ = fs::remove_file(&file);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            token(&file).map(|_| ()).map_err(|failure| failure.text)
        };
        let long = "0123456789abcdef";
        assert_eq!((read(&format!("{long}\n"), 0o600), read(long, 0o400)), (Ok(()), Ok(())));
        for (text, mode, why) in [
            (long, 0o640, "others have access to it; run `chmod 600 "),
            (long, 0o604, "others have access to it"),
            (long, 0o602, "others have access to it"),
            ("", 0o600, "must be one line of 16 to 1024 bytes"),
            ("\n", 0o600, "must be one line of 16 to 1024 bytes"),
            (&long[1..], 0o600, "must be one line of 16 to 1024 bytes"),
            ("0123456789\nabcdef", 0o600, "must be one line of 16 to 1024 bytes"),
            ("0123456789 abcdef", 0o600, "without spaces"),
        ] {
            let refused = read(text, mode).unwrap_err();
            assert!(refused.starts_with("--token-file: ") && refused.contains(why), "{text:?} {mode:o}: {refused}");
        }
        assert!(token(&folder.path().join("none")).unwrap_err().text.contains("No such file"));
    }

    #[test]
    fn a_token_in_clear_text_is_told() {
        let (here, there) = ("127.0.0.1:1", "192.0.2.1:2");
        for (addresses, tls, has_token, options) in [
            ([there, here], [false, false], true, &["--http"][..]),
            ([there, there], [true, true], true, &[]),
            ([here, here], [false, false], true, &[]),
            (["[::ffff:127.0.0.1]:1", "[::1]:1"], [false, false], true, &[]),
            ([there, there], [false, false], false, &[]),
            ([here, "[::]:2"], [true, false], true, &["--grpc-plaintext"]),
            ([there, there], [false, false], true, &["--http", "--grpc-plaintext"]),
        ] {
            let [rest, grpc] = addresses.map(|address| address.parse().unwrap());
            let token = has_token.then(|| Token::new(b"sesame").unwrap());
            let told = in_clear_text(&Listening { rest, tls: tls[0], grpc, grpc_tls: tls[1], token });
            assert_eq!(told.len(), options.len(), "{told:?}");
            let is_told = |(text, option): (&String, &&str)| text.starts_with(&format!("with {option}, "));
            assert!(told.iter().zip(options).all(is_told), "{told:?}");
        }
    }
}
