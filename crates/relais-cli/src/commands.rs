//! One file a command. Each reads its arguments, asks the store, prints.

mod audit;
mod bench;
mod check;
mod cleanup;
mod control;
mod dead_letter;
#[cfg(feature = "demo")]
mod demo;
mod explain;
mod health;
mod ids;
mod init;
mod man;
mod migrate;
mod process;
mod repair;
mod rows;
mod run;
mod status;
mod supervisor;
mod token;
mod top;

use std::{path::PathBuf, sync::Arc};

use relais_core::store::{Store, StoreError};

use crate::{
    WrapStore,
    args::{Cli, Command},
    failure::{Done, Failure},
    output::Output,
    settings::{self, Finding, Settings, StoreUrl},
    wire::Database,
};

/// What every command needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: PathBuf,
    pub(crate) output: Output,
    pub(crate) wrap_store: WrapStore,
}

/// Carries out the command line.
pub(crate) async fn dispatch(cli: Cli, wrap_store: WrapStore) -> Done {
    let output = Output::new(cli.json, cli.color);
    let context = Context { config: cli.config, output, wrap_store };
    match cli.command {
        Command::Run(args) => run::run(&context, &args, cli.color).await,
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(output, args).await,
        Command::Init(args) => init::init(&context, &args),
        Command::Check(args) => check::check(&context, &args).await,
        Command::Migrate(args) => migrate::migrate(&context, &args).await,
        Command::Status(args) => status::status(&context, &args).await,
        Command::Health(args) => health::health(&context, &args).await,
        Command::Inbox(command) => rows::inbox(&context, command).await,
        Command::Outbox(command) => rows::outbox(&context, command).await,
        Command::DeadLetter(command) => dead_letter::dead_letter(&context, command).await,
        Command::Process(command) => process::process(&context, command).await,
        Command::Destination(command) => control::destination(&context, command).await,
        Command::Source(command) => control::source(&context, command).await,
        Command::Repair(args) => repair::repair(&context, *args).await,
        Command::Explain(args) => explain::run(&context, &args).await,
        Command::Audit(command) => audit::audit(&context, command).await,
        Command::Top(args) => top::top(&context, &args).await,
        Command::Bench(args) => bench::bench(&context, &args).await,
        Command::Cleanup(args) => cleanup::cleanup(&context, &args).await,
        Command::Token(args) => token::token(&context, &args),
        Command::Completions(args) => man::completions(&context, args.shell),
        Command::Man(args) => man::man(&context, args.out.as_deref()),
    }
}

/// Names the place of a database that does not answer; other errors name their setting.
fn unreachable(settings: &Settings, error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => format!(
            "store: cannot reach the database at {}: {why}; start it, or check `store.url`",
            settings.store.url.place()
        ),
        other => format!("store: {other}"),
    }
}

impl Context {
    /// The settings and their warnings.
    pub(crate) fn settings(&self) -> Result<(Settings, Vec<Finding>), Failure> {
        if !self.config.exists() {
            return Err(Failure::Usage(self.no_settings()));
        }
        Ok(settings::load(&self.config)?)
    }

    pub(crate) fn no_settings(&self) -> String {
        let file = self.config.display();
        format!("no {file} here; run `relais init` or pass --config FILE")
    }

    /// The store, for commands that look at what is there already.
    pub(crate) async fn store(&self) -> Result<(Settings, Arc<dyn Store>), Failure> {
        let (settings, _) = self.settings()?;
        if let StoreUrl::Sqlite(path) = &settings.store.url
            && !path.exists()
        {
            let path = path.display();
            let message =
                format!("no database at {path}; `relais migrate` or `relais run` makes it");
            return Err(Failure::failed(message));
        }
        let connected = Database::connect(&settings).await;
        let database =
            connected.map_err(|error| Failure::failed(unreachable(&settings, &error)))?;
        Ok((settings, database.store()))
    }
}
