//! The private servers of a run: installed where that is possible, started side by side, and removed
//! with this process.

use std::{
    path::Path,
    process::{Command, ExitCode},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, ensure};

use crate::{
    amqp, apicurio, axe, chromium, faketime, kafka, languages, nats, nats_current, pgbouncer,
    postgres, promtool, rabbitmq, scratch::Scratch, workspace::Workspace,
};

/// All variables about servers.
const VARIABLES: [&str; 34] = [
    postgres::ADDRESS_VARIABLE,
    kafka::ADDRESS_VARIABLE,
    kafka::RESTART_VARIABLE,
    kafka::SECURE_VARIABLE,
    kafka::CERTIFICATE_VARIABLE,
    chromium::DRIVER_VARIABLE,
    promtool::VARIABLE,
    pgbouncer::VARIABLE,
    postgres::RESTART_VARIABLE,
    faketime::VARIABLE,
    axe::VARIABLE,
    rabbitmq::ADDRESS_VARIABLE,
    rabbitmq::RESTART_VARIABLE,
    rabbitmq::SECURE_VARIABLE,
    rabbitmq::CERTIFICATES_VARIABLE,
    nats::ADDRESS_VARIABLE,
    nats::RESTART_VARIABLE,
    nats::PROGRAM_VARIABLE,
    nats_current::VARIABLES[0],
    nats_current::VARIABLES[1],
    nats_current::VARIABLES[2],
    amqp::ARTEMIS.variables[0],
    amqp::ARTEMIS.variables[1],
    amqp::ARTEMIS.variables[2],
    amqp::ARTEMIS.variables[3],
    amqp::QPID.variables[0],
    amqp::QPID.variables[1],
    amqp::QPID.variables[2],
    amqp::QPID.variables[3],
    amqp::OPEN_VARIABLE,
    apicurio::ADDRESS_VARIABLE,
    apicurio::RESTART_VARIABLE,
    apicurio::SECURE_VARIABLE,
    apicurio::CERTIFICATES_VARIABLE,
];

/// A running private server; it ends with its directory.
#[derive(Debug)]
pub(crate) struct PrivateServer {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) port: u16,
    /// Variables for the tests.
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) scratch: Scratch,
}

/// A program that tests start themselves.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// Variables for the tests.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// The result of starting one kind of server.
#[derive(Debug)]
pub(crate) enum ServerOutcome {
    Running(PrivateServer),
    Found(Tool),
    /// It cannot be had here; `why` says what to install.
    Missing {
        name: &'static str,
        why: String,
    },
}

/// One of each kind.
#[derive(Debug)]
pub(crate) struct Servers {
    all: Vec<ServerOutcome>,
}

impl Servers {
    /// Installs what is missing now and starts in the background: a JVM takes its time.
    pub(crate) fn starting(workspace: &Workspace) -> Result<Starting> {
        postgres::install_if_missing()?;
        kafka::install_if_missing(&workspace.target)?;
        rabbitmq::install_if_missing(&workspace.target)?;
        nats::install_if_missing(&workspace.target)?;
        amqp::install_if_missing(&workspace.target)?;
        apicurio::install_if_missing(&workspace.target)?;
        chromium::install_if_missing()?;
        promtool::install_if_missing(&workspace.target)?;
        pgbouncer::install_if_missing(&workspace.target)?;
        faketime::install_if_missing(&workspace.target)?;
        languages::install_if_missing()?;
        // With the Go of the line above.
        nats_current::install_if_missing(&workspace.target)?;
        axe::install_if_missing(&workspace.target)?;
        let target = workspace.target.clone();
        Ok(Starting { thread: thread::spawn(move || Self::start(&target)) })
    }

    /// Only what crash loops use.
    pub(crate) fn starting_for_torture(workspace: &Workspace) -> Result<Starting> {
        rabbitmq::install_if_missing(&workspace.target)?;
        nats::install_if_missing(&workspace.target)?;
        let (others, target) =
            (Self::starting_postgres_and_kafka(workspace)?, workspace.target.clone());
        let start = move || {
            let (rabbitmq, nats) = (rabbitmq::start(&target)?, nats::start(&target)?);
            let mut servers = others.ready()?;
            servers.all.extend([rabbitmq, nats]);
            Ok(servers)
        };
        Ok(Starting { thread: thread::spawn(start) })
    }

    /// Only what benchmarks use: an idle JVM costs them processor time.
    pub(crate) fn starting_for_bench(
        workspace: &Workspace,
        brokers: &[BenchBroker],
    ) -> Result<Starting> {
        postgres::install_if_missing()?;
        let target = workspace.target.clone();
        for broker in brokers {
            broker.install_if_missing(&target)?;
        }
        let brokers = brokers.to_vec();
        let start = move || {
            let started = brokers.iter().map(|broker| broker.start(&target));
            let mut all = started.collect::<Result<Vec<_>>>()?;
            all.push(postgres::start()?);
            Ok(Self { all })
        };
        Ok(Starting { thread: thread::spawn(start) })
    }

    fn starting_postgres_and_kafka(workspace: &Workspace) -> Result<Starting> {
        postgres::install_if_missing()?;
        kafka::install_if_missing(&workspace.target)?;
        faketime::install_if_missing(&workspace.target)?;
        let target = workspace.target.clone();
        let start = move || {
            let kafka = kafka::start(&target)?;
            Ok(Self { all: vec![postgres::start()?, kafka, faketime::look(&target)] })
        };
        Ok(Starting { thread: thread::spawn(start) })
    }

    fn start(target: &Path) -> Result<Self> {
        thread::scope(|scope| {
            let kafka = scope.spawn(|| kafka::start(target));
            let rabbitmq = scope.spawn(|| rabbitmq::start(target));
            let registry = scope.spawn(|| apicurio::start(target));
            let amqp = amqp::ALL.map(|broker| scope.spawn(move || amqp::start(broker, target)));
            let postgres = postgres::start()?;
            let tools = [
                chromium::look(),
                axe::look(target),
                promtool::look(target),
                pgbouncer::look(target),
                faketime::look(target),
            ];
            let nats = [nats::start(target)?, nats_current::start(target)?];
            let mut brokers = vec![joined(kafka.join())?, joined(rabbitmq.join())?];
            brokers.extend(nats);
            for broker in amqp.into_iter().chain([registry]) {
                brokers.push(joined(broker.join())?);
            }
            Ok(Self { all: [postgres].into_iter().chain(brokers).chain(tools).collect() })
        })
    }

    /// Says what is there and what is not. Continuous integration must not pass without what it is
    /// there to test.
    pub(crate) fn announce(&self) -> Result<()> {
        for outcome in &self.all {
            match outcome {
                ServerOutcome::Running(server) => {
                    println!("{} {} is ready (private)", server.name, server.version);
                    for (variable, value) in &server.variables {
                        println!("export {variable}={value}");
                    }
                }
                ServerOutcome::Found(Tool { name, version, variables }) => {
                    println!("{name} {version} is there");
                    for (variable, value) in variables {
                        println!("export {variable}={value}");
                    }
                }
                ServerOutcome::Missing { name, why } => {
                    ensure!(
                        std::env::var_os("CI").is_none(),
                        "CI is set and {name} is not to be had; {why}"
                    );
                    println!("NOT TESTED: {name}; {why}");
                }
            }
        }
        Ok(())
    }

    /// Sets the variables of these servers for a program, and removes those of others.
    pub(crate) fn set_variables(&self, program: &mut Command) {
        for variable in VARIABLES {
            program.env_remove(variable);
        }
        let variables = self.all.iter().flat_map(|outcome| match outcome {
            ServerOutcome::Running(PrivateServer { variables, .. })
            | ServerOutcome::Found(Tool { variables, .. }) => variables.as_slice(),
            ServerOutcome::Missing { .. } => &[],
        });
        program.envs(variables.map(|(variable, value)| (variable, value)));
    }

    /// Names and versions, for the last line of a run.
    pub(crate) fn summary(&self) -> String {
        let words = self.all.iter().map(|outcome| match outcome {
            ServerOutcome::Running(PrivateServer { name, version, port, .. }) => {
                format!("{name} {version} (private, port {port})")
            }
            ServerOutcome::Found(Tool { name, version, .. }) => format!("{name} {version}"),
            ServerOutcome::Missing { name, .. } => format!("{name} NOT TESTED"),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// Leaves them running and says how to get rid of them.
    pub(crate) fn keep(self) {
        for outcome in self.all {
            if let ServerOutcome::Running(server) = outcome {
                for (variable, value) in &server.variables {
                    println!("kept: {variable}={value}");
                }
                println!("to remove {}: {}", server.name, server.scratch.keep());
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &PrivateServer> {
        self.all.iter().filter_map(|outcome| match outcome {
            ServerOutcome::Running(server) => Some(server),
            ServerOutcome::Found(_) | ServerOutcome::Missing { .. } => None,
        })
    }
}

/// A broker that is measured, with the start of the names of its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchBroker {
    Kafka,
    RabbitMq,
    Nats,
    Artemis,
}

impl BenchBroker {
    pub(crate) const ALL: [Self; 4] = [Self::Kafka, Self::RabbitMq, Self::Nats, Self::Artemis];

    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Kafka => "kafka-",
            Self::RabbitMq => "rabbitmq-",
            Self::Nats => "nats-",
            Self::Artemis => "amqp-",
        }
    }

    fn install_if_missing(self, target: &Path) -> Result<()> {
        match self {
            Self::Kafka => kafka::install_if_missing(target),
            Self::RabbitMq => rabbitmq::install_if_missing(target),
            Self::Nats => nats::install_if_missing(target),
            Self::Artemis => amqp::ARTEMIS.jars.install_if_missing(target),
        }
    }

    fn start(self, target: &Path) -> Result<ServerOutcome> {
        match self {
            Self::Kafka => kafka::start(target),
            Self::RabbitMq => rabbitmq::start(target),
            Self::Nats => nats::start(target),
            Self::Artemis => amqp::start(amqp::ARTEMIS, target),
        }
    }
}

/// Servers on their way.
#[derive(Debug)]
pub(crate) struct Starting {
    thread: JoinHandle<Result<Servers>>,
}

impl Starting {
    /// Waits until they serve.
    pub(crate) fn ready(self) -> Result<Servers> {
        joined(self.thread.join())
    }
}

/// `cargo xtask server`: until Ctrl-C, which ends us; the keepers then stop the servers.
pub(crate) fn serve() -> Result<ExitCode> {
    let servers = Servers::starting(&Workspace::load()?)?.ready()?;
    servers.announce()?;
    ensure!(servers.running().next().is_some(), "no server to wait for");
    println!("Ctrl-C stops and removes all of it");
    loop {
        thread::park();
    }
}

fn joined<T>(result: thread::Result<Result<T>>) -> Result<T> {
    // The panic has printed itself.
    result.ok().context("starting the servers failed")?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Servers {
        let running = PrivateServer {
            name: "One",
            version: "1.2".to_owned(),
            port: 20_000,
            variables: vec![(VARIABLES[0], "here".to_owned())],
            scratch: Scratch::new().unwrap(),
        };
        let missing = ServerOutcome::Missing { name: "Two", why: "install it".to_owned() };
        let variables = vec![(VARIABLES[5], "there".to_owned())];
        let found =
            ServerOutcome::Found(Tool { name: "Three", version: "3".to_owned(), variables });
        Servers { all: vec![ServerOutcome::Running(running), missing, found] }
    }

    #[test]
    fn the_summary_names_what_was_not_tested() {
        assert_eq!(servers().summary(), "One 1.2 (private, port 20000), Two NOT TESTED, Three 3");
    }

    #[test]
    fn a_program_gets_the_variables_of_running_servers_only() {
        let mut program = Command::new("true");
        program.env(VARIABLES[1], "a server of the machine");
        servers().set_variables(&mut program);
        let mut variables: Vec<_> =
            program.get_envs().filter_map(|(name, value)| Some((name, value?))).collect();
        variables.sort_unstable();
        assert_eq!(
            variables,
            [(VARIABLES[5].as_ref(), "there".as_ref()), (VARIABLES[0].as_ref(), "here".as_ref())]
        );
    }
}
