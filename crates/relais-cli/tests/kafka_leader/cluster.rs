//! A cluster of two brokers, each in a directory of its own, made from the program that the environment names.
//! Its topics have two partitions: the first broker leads partition 0, the second leads partition 1.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
};
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// Both brokers. The first is the controller too.
pub(crate) struct Cluster {
    first: Node,
    second: Node,
    runtime: tokio::runtime::Runtime,
}

impl Cluster {
    /// Starts the first broker, or returns `None` where there is no Kafka.
    pub(crate) fn from_environment() -> Option<Self> {
        let Ok(program) = std::env::var("RELAIS_TEST_KAFKA_RESTART") else {
            assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_KAFKA_RESTART");
            eprintln!("NOT TESTED: a cluster of two brokers; set RELAIS_TEST_KAFKA_RESTART");
            return None;
        };
        let model = Path::new(&program).parent().unwrap();
        let controller = free_port();
        let cluster = uuid::Uuid::new_v4().simple().to_string();
        let first = Node::new(model, 1, controller, &cluster);
        let second = Node::new(model, 2, controller, &cluster);
        first.call("start");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Some(Self { first, second, runtime })
    }

    pub(crate) fn addresses(&self) -> String {
        format!("127.0.0.1:{},127.0.0.1:{}", self.first.port, self.second.port)
    }

    pub(crate) fn start_second(&self) {
        self.second.call("start");
    }

    /// Kills it.
    pub(crate) fn stop_second(&self) {
        self.second.call("stop");
    }

    /// Makes a topic with one partition on each broker and no copies.
    pub(crate) fn topic(&self) -> String {
        let name = format!("relais-leader-{}", uuid::Uuid::new_v4().simple());
        let admin: AdminClient<DefaultClientContext> = self.client().create().unwrap();
        let leaders: [&[i32]; 2] = [&[1], &[2]];
        let topic = NewTopic::new(&name, 2, TopicReplication::Variable(&leaders));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let made = self.runtime.block_on(admin.create_topics([&topic], &options));
        assert!(made.as_ref().is_ok_and(|topics| topics[0].is_ok()), "{made:?}");
        name
    }

    /// Returns the key of every record of a partition and its `n`, in the order of the partition.
    pub(crate) fn read(&self, topic: &str, partition: i32) -> Vec<(String, u64)> {
        let client: BaseConsumer = self.client().set("group.id", "none").create().unwrap();
        let (_, end) = client.fetch_watermarks(topic, partition, PATIENCE).unwrap();
        let mut place = TopicPartitionList::new();
        place.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        client.assign(&place).unwrap();
        let mut records = Vec::new();
        let until = Instant::now() + PATIENCE;
        while i64::try_from(records.len()).unwrap() < end {
            // A poll ends early, without a record, when the client has handled another event.
            let Some(record) = client.poll(until.saturating_duration_since(Instant::now())) else {
                assert!(Instant::now() < until, "no record came in time");
                continue;
            };
            let record = record.unwrap();
            let key = String::from_utf8(record.key().unwrap().to_vec()).unwrap();
            let payload: Value = serde_json::from_slice(record.payload().unwrap()).unwrap();
            records.push((key, payload["n"].as_u64().unwrap()));
        }
        records
    }

    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.addresses());
        client
    }
}

struct Node {
    directory: TempDir,
    port: u16,
}

impl Node {
    fn new(model: &Path, id: u8, controller: u16, cluster: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["java", "jars"] {
            let original: PathBuf = fs::canonicalize(model.join(name)).unwrap();
            symlink(original, directory.path().join(name)).unwrap();
        }
        for name in ["broker", "arguments", "ready", "log4j2.properties"] {
            fs::copy(model.join(name), directory.path().join(name)).unwrap();
        }
        let port = free_port();
        fs::write(directory.path().join("server.properties"), properties(id, port, controller))
            .unwrap();
        let mut format = Command::new(directory.path().join("java"));
        format.current_dir(directory.path()).args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        format.args(["-cp", "jars/*", "kafka.tools.StorageTool", "format"]);
        format.args(["--config", "server.properties", "--cluster-id", cluster]);
        let said = format.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        Self { directory, port }
    }

    fn call(&self, verb: &str) {
        let mut script = Command::new("sh");
        let said = script.arg(self.directory.path().join("broker")).arg(verb).output().unwrap();
        assert!(said.status.success(), "{verb}: {said:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.call("stop");
    }
}

fn properties(id: u8, port: u16, controller: u16) -> String {
    let (roles, listeners) = match id {
        1 => ("broker,controller", format!(",CONTROLLER://127.0.0.1:{controller}")),
        _ => ("broker", String::new()),
    };
    format!(
        "process.roles={roles}\nnode.id={id}\nlog.dirs=data\n\
         listeners=BROKER://127.0.0.1:{port}{listeners}\n\
         controller.listener.names=CONTROLLER\ninter.broker.listener.name=BROKER\n\
         listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
         broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500\n\
         log.cleaner.dedupe.buffer.size=16777216\n"
    )
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
