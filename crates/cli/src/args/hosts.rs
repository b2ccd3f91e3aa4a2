//! Arguments of runs over several hosts.

use super::choices;
use clap::{Args, Subcommand};
use drophammer_port::auto::AUTO;
use std::path::PathBuf;

/// The server that joins hosts.
#[derive(Clone, Debug, Args)]
pub struct AccessArgs {
    /// NATS server that joins the hosts: nats://127.0.0.1:4222, or tls://HOST:4222 on another machine
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// User of the NATS server
    #[arg(long, value_name = "NAME", requires = "nats", requires = "password_file")]
    pub user: Option<String>,
    /// File with the password of the user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// File with the seed of an NKey, instead of user and password
    #[arg(long, value_name = "FILE", requires = "nats", conflicts_with = "user")]
    pub nkey_file: Option<PathBuf>,
    /// File with the certificate of the authority that signed the server's certificate, if the system does not trust it
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub ca: Option<PathBuf>,
}

/// An agent.
#[derive(Debug, Args)]
pub struct AgentArgs {
    #[command(flatten)]
    pub access: AccessArgs,
    /// Name of this machine in suites: letters, digits and `-`
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Interfaces that runs may use
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    pub ports: Vec<String>,
    /// Backend that drives the interfaces; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = AUTO.spec.name)]
    pub backend: String,
    /// Queues of each interface
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), default_value_t = 1)]
    pub queues: u16,
    /// Processors of the threads that drive the interfaces, one thread each [default: one thread on any processor]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub processors: Vec<usize>,
    /// Name of the steady clock of this machine; hosts with the same name have the same clock [default: the running kernel]
    #[arg(long, value_name = "NAME")]
    pub clock: Option<String>,
}

/// What to do with the server.
#[derive(Debug, Subcommand)]
pub enum BedCommand {
    /// Start a server in a folder of its own
    Up {
        #[command(flatten)]
        bed: BedArgs,
        /// Address on which it listens [default: 127.0.0.1, port 4222]
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4222")]
        listen: String,
        /// Certificate of the server; required if other machines can reach it
        #[arg(long, value_name = "FILE", requires = "key")]
        cert: Option<PathBuf>,
        /// Key of the certificate
        #[arg(long, value_name = "FILE", requires = "cert")]
        key: Option<PathBuf>,
    },
    /// End the server
    Down {
        #[command(flatten)]
        bed: BedArgs,
    },
    /// Show agents, ports and leases
    Status {
        #[command(flatten)]
        access: AccessArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// The folder of a server.
#[derive(Debug, Args)]
pub struct BedArgs {
    /// Folder with its configuration, log and storage
    #[arg(long, value_name = "DIR", default_value = "drophammer-bed")]
    pub folder: PathBuf,
}
