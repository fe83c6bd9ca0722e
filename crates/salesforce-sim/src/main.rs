//! The command line program of the simulator.

use std::{fs, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use salesforce_sim::{Simulator, SimulatorConfig, TlsConfig};

/// A simulator of the Salesforce API, for tests. Do not use it for data that must be kept or
/// secret.
#[derive(Parser)]
#[command(version)]
struct SimulatorArgs {
    /// Address to listen on, e.g. 127.0.0.1:8080
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address to listen on with TLS
    #[arg(long, requires = "tls_cert")]
    tls_listen: Option<SocketAddr>,
    /// A PEM file with the certificate chain and its private key
    #[arg(long, requires = "tls_listen")]
    tls_cert: Option<PathBuf>,
    /// A TOML file with objects, and optionally [auth] and [faults]
    #[arg(long)]
    schema: Option<PathBuf>,
    /// A TOML or JSON file with faults, as for PUT /sim/faults
    #[arg(long)]
    faults: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let sim = Simulator::start(config(SimulatorArgs::parse())?).await.context("cannot listen")?;
    println!("listening on {}", sim.url());
    if let Some(url) = sim.tls_url() {
        println!("listening on {url}");
    }
    tokio::signal::ctrl_c().await?;
    sim.stop().await;
    Ok(())
}

fn config(args: SimulatorArgs) -> Result<SimulatorConfig> {
    let read = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut config = SimulatorConfig { listen: args.listen, ..SimulatorConfig::default() };
    if let Some(path) = &args.schema {
        let text = read(path)?;
        config = config.with_schema_file(&text).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &args.faults {
        let text = read(path)?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        config.faults = if is_json {
            serde_json::from_str(&text).with_context(|| path.display().to_string())?
        } else {
            toml::from_str(&text).with_context(|| path.display().to_string())?
        };
    }
    if let (Some(listen), Some(path)) = (args.tls_listen, &args.tls_cert) {
        config.tls = Some(TlsConfig { listen, pem: read(path)? });
    }
    Ok(config)
}
