//! The commands, one per file: each parses its arguments, calls the store and prints the result.

mod adopt;
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
mod schema;
mod status;
mod supervisor;
mod token;
mod top;

use std::{path::PathBuf, sync::Arc};

use relais_core::store::{StoreDriver, StoreError};

use crate::{
    WrapStore,
    args::{Cli, RelaisCommand},
    failure::{CommandError, Done},
    output::Output,
    settings::{self, ConfigFinding, Settings, StoreUrl},
    wire::Database,
};

/// The context of every command.
#[derive(Debug)]
pub(crate) struct CommandContext {
    pub(crate) config: PathBuf,
    pub(crate) output: Output,
    pub(crate) wrap_store: WrapStore,
}

/// Runs the command.
pub(crate) async fn dispatch(cli: Cli, wrap_store: WrapStore) -> Done {
    let output = Output::new(cli.json, cli.color);
    let context = CommandContext { config: cli.config, output, wrap_store };
    match cli.command {
        RelaisCommand::Run(args) => run::run(&context, &args, cli.color).await,
        #[cfg(feature = "demo")]
        RelaisCommand::Demo(args) => demo::run(output, args).await,
        RelaisCommand::Init(args) => init::init(&context, &args),
        RelaisCommand::Check(args) => check::check(&context, &args).await,
        RelaisCommand::Schema => schema::schema_json(&context),
        RelaisCommand::Migrate(args) => migrate::migrate(&context, &args).await,
        RelaisCommand::Adopt(command) => adopt::adopt(&context, command).await,
        RelaisCommand::Status(args) => status::status(&context, &args).await,
        RelaisCommand::Health(args) => health::health(&context, &args).await,
        RelaisCommand::Inbox(command) => rows::inbox(&context, command).await,
        RelaisCommand::Outbox(command) => rows::outbox(&context, command).await,
        RelaisCommand::DeadLetter(command) => dead_letter::dead_letter(&context, command).await,
        RelaisCommand::Process(command) => process::process(&context, command).await,
        RelaisCommand::Destination(command) => control::destination(&context, command).await,
        RelaisCommand::Source(command) => control::source(&context, command).await,
        RelaisCommand::Reprocess(args) => repair::reprocess(&context, *args).await,
        RelaisCommand::Explain(args) => explain::run(&context, &args).await,
        RelaisCommand::Audit(command) => audit::audit(&context, command).await,
        RelaisCommand::Top(args) => top::top(&context, &args).await,
        RelaisCommand::Bench(args) => bench::bench(&context, &args).await,
        RelaisCommand::Cleanup(args) => cleanup::cleanup(&context, &args).await,
        RelaisCommand::Token(args) => token::token(&context, &args),
        RelaisCommand::Completions(args) => man::completions(&context, args.shell),
        RelaisCommand::Man(args) => man::man(&context, args.out.as_deref()),
    }
}

/// Returns the error of a database with its address or its setting.
fn unreachable(settings: &Settings, error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => format!(
            "store: cannot reach the database at {}: {why}; start it, or check `store.url`",
            settings.store.url.place()
        ),
        other => format!("store: {other}"),
    }
}

impl CommandContext {
    /// Loads the configuration with its warnings.
    pub(crate) fn settings(&self) -> Result<(Settings, Vec<ConfigFinding>), CommandError> {
        if !self.config.exists() {
            return Err(CommandError::Usage(self.no_settings()));
        }
        Ok(settings::load(&self.config)?)
    }

    pub(crate) fn no_settings(&self) -> String {
        let file = self.config.display();
        format!("cannot find {file}; run `relais init` or pass --config FILE")
    }

    /// Connects to an existing store.
    pub(crate) async fn store(&self) -> Result<(Settings, Arc<dyn StoreDriver>), CommandError> {
        let (settings, database) = self.database().await?;
        // Decisions about copies of adopted rows are written back too.
        database.adopt(&settings).await?;
        Ok((settings, database.store()))
    }

    /// Connects to an existing database.
    pub(crate) async fn database(&self) -> Result<(Settings, Database), CommandError> {
        let (settings, _) = self.settings()?;
        if let StoreUrl::Sqlite(path) = &settings.store.url
            && !path.exists()
        {
            let path = path.display();
            let message =
                format!("cannot find a database at {path}; run `relais migrate` or `relais run`");
            return Err(CommandError::failed(message));
        }
        let connected = Database::connect(&settings).await;
        let database =
            connected.map_err(|error| CommandError::failed(unreachable(&settings, &error)))?;
        Ok((settings, database))
    }
}
