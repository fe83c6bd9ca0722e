//! Measures how fast rows become the upload of a bulk job, and result files become deliveries,
//! compared with the plain `csv` crate.
//!
//! Invariant: both sides process the same rows, alternately, in one run; the median of the rounds
//! is printed and no time is asserted. Results are read over loopback HTTP, like by the connector.
//!
//! `cargo bench -p relais-connect --features salesforce --bench salesforce`

use std::{
    collections::HashMap,
    hint::black_box,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    routing::{get, post},
};
use relais_connect::{
    SecretString,
    salesforce::{Auth, SalesforceBulk, SalesforceSettings},
};
use relais_core::{
    async_trait,
    bulk::BulkTarget,
    delivery::Delivery,
    hydrate::{HydratedRecords, Hydrator, Record},
    outbox::OutboxRow,
    store::StoreError,
};
use serde_json::json;

#[path = "../src/testing.rs"]
mod testing;

const ROWS: usize = 100_000;
const ROUNDS: usize = 7;
const JOB: &str = "750000000000000AAA";
const COLUMNS: [(&str, &str); 4] = [
    ("FirstName", "first_name"),
    ("LastName", "last_name"),
    ("Email", "email"),
    ("Family__c", "family_id"),
];

fn main() {
    // `cargo test --all-targets` runs this program too, without the argument that `cargo bench`
    // adds.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("not measured: use `cargo bench -p relais-connect --features salesforce`");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    println!("{ROWS} rows of {} columns, median of {ROUNDS} rounds", COLUMNS.len() + 1);
    let rows: Vec<OutboxRow> = (0..ROWS).map(row).collect();
    let records: HashMap<String, Record> = (0..ROWS).map(record).collect();
    let external_ids: Vec<String> = rows.iter().map(|row| row.aggregate_id.clone()).collect();
    let (success, failed) = files();
    let url = serve(success.clone(), failed.clone()).await;
    let from_payload = bulk(&url, None);
    let table = Arc::new(Table::default());
    let from_rows = bulk(&url, Some(Arc::clone(&table) as Arc<dyn Hydrator>));

    let mut plain = Vec::new();
    let (mut payload, mut fresh) = (Vec::new(), Vec::new());
    let (mut read, mut matched) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(timed(|| black_box(write_plain(&rows, &records))));
        let start = Instant::now();
        let encoded = from_payload.encode(&rows, 0).await.expect("the rows can be sent");
        payload.push(start.elapsed());
        assert_eq!(encoded.count, ROWS as u64);
        table.fill(&records);
        let start = Instant::now();
        let encoded = from_rows.encode(&rows, 0).await.expect("the rows can be sent");
        fresh.push(start.elapsed());
        assert_eq!(encoded.body, write_plain(&rows, &records));
        read.push(timed(|| black_box(read_plain(&success) + read_plain(&failed))));
        let start = Instant::now();
        let answers =
            from_payload.results(JOB, &external_ids).await.expect("the results can be read");
        matched.push(start.elapsed());
        let accepted = answers.iter().filter(|answer| **answer == Delivery::Accepted).count();
        assert_eq!(accepted, ROWS - ROWS / 10);
    }
    let written = show("csv crate: write cells that are at hand", plain, None);
    show("relais: encode, values from JSON payloads", payload, Some(written));
    show("relais: encode, values from fresh rows", fresh, Some(written));
    let read = show("csv crate: read both results from memory", read, None);
    show("relais: fetch, read, match, classify", matched, Some(read));
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Prints the median in rows per second, and as a share of the comparison.
fn show(what: &str, mut rounds: Vec<Duration>, beside: Option<f64>) -> f64 {
    rounds.sort();
    let rate = ROWS as f64 / rounds[rounds.len() / 2].as_secs_f64();
    let share = beside.map_or(String::new(), |beside| format!("   x {:.2}", rate / beside));
    println!("{what:<46} {rate:>12.0} rows/s{share}");
    rate
}

fn values(n: usize) -> [String; 4] {
    [
        format!("Jane {n}"),
        format!("Doe, \"{n}\""),
        format!("jane.{n}@example.org"),
        format!("F-{}", n / 4),
    ]
}

fn id(n: usize) -> String {
    format!("M-{n:08}")
}

fn row(n: usize) -> OutboxRow {
    let [first, last, email, family] = values(n);
    let payload = json!({
        "first_name": first, "last_name": last, "email": email, "family_id": family, "version": 7,
    });
    OutboxRow { id: n as i64, aggregate_id: id(n), ..testing::row(&payload.to_string()) }
}

fn record(n: usize) -> (String, Record) {
    let fields = COLUMNS.iter().zip(values(n));
    let record = fields.map(|((_, field), value)| ((*field).to_owned(), value.into())).collect();
    (id(n), record)
}

fn write_plain(rows: &[OutboxRow], records: &HashMap<String, Record>) -> Vec<u8> {
    let mut writer =
        csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).from_writer(Vec::new());
    let header = ["ExternalId__c"].into_iter().chain(COLUMNS.iter().map(|(column, _)| *column));
    writer.write_record(header).expect("memory takes it");
    for row in rows {
        let record = &records[&row.aggregate_id];
        let cells = COLUMNS.iter().map(|(_, field)| record[*field].as_str().unwrap_or_default());
        let line = [row.aggregate_id.as_str()].into_iter().chain(cells);
        writer.write_record(line).expect("memory takes it");
    }
    writer.into_inner().expect("memory takes it")
}

fn read_plain(file: &str) -> usize {
    let mut reader = csv::Reader::from_reader(file.as_bytes());
    let mut record = csv::ByteRecord::new();
    let mut cells = 0;
    while reader.read_byte_record(&mut record).expect("it is CSV") {
        cells += record.len();
    }
    cells
}

/// Every tenth row failed; the order is that of the org.
fn files() -> (String, String) {
    let mut success = String::from("\"sf__Id\",\"sf__Created\",ExternalId__c,FirstName,Email\n");
    let mut failed = String::from("\"sf__Id\",\"sf__Error\",ExternalId__c,FirstName,Email\n");
    for n in (0..ROWS).rev() {
        let [first, _, email, _] = values(n);
        let (file, second) = match n % 10 {
            0 => {
                (&mut failed, "REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --")
            }
            _ => (&mut success, "true"),
        };
        let line =
            [&format!("003{n:015}"), second, &id(n), &first, &email].map(|v| format!("\"{v}\""));
        file.push_str(&line.join(","));
        file.push('\n');
    }
    (success, failed)
}

fn bulk(url: &str, hydrator: Option<Arc<dyn Hydrator>>) -> SalesforceBulk {
    let auth =
        Auth::ClientCredentials { client_id: "app".into(), client_secret: SecretString::from("x") };
    let mut settings = SalesforceSettings::new(url, auth, "Contact", "ExternalId__c");
    settings.columns = COLUMNS.map(|(column, field)| (column.to_owned(), field.to_owned())).into();
    SalesforceBulk::new(settings, hydrator).expect("the settings are right")
}

/// Fresh data that was read before: only the work of relais is measured.
#[derive(Default)]
struct Table(Mutex<HashMap<String, Record>>);

impl Table {
    fn fill(&self, records: &HashMap<String, Record>) {
        *self.0.lock().expect("no thread panicked") = records.clone();
    }
}

#[async_trait]
impl Hydrator for Table {
    async fn hydrate(&self, _ids: Vec<String>) -> Result<HydratedRecords, StoreError> {
        let records = std::mem::take(&mut *self.0.lock().expect("no thread panicked"));
        Ok(HydratedRecords { records, ..HydratedRecords::default() })
    }
}

/// The part of an org that is needed to read results.
async fn serve(success: String, failed: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    let token = json!({ "access_token": "token", "instance_url": url });
    let job = json!({
        "id": JOB, "state": "JobComplete", "numberRecordsProcessed": ROWS,
        "numberRecordsFailed": ROWS / 10,
    });
    let path = |end: &str| format!("/services/data/v66.0/jobs/ingest/{JOB}{end}");
    let (success, failed) = (bytes::Bytes::from(success), bytes::Bytes::from(failed));
    let router = Router::new()
        .route("/services/oauth2/token", post(async move || Json(token)))
        .route(&path(""), get(async move || Json(job)))
        .route(&path("/successfulResults"), get(async move || success))
        .route(&path("/failedResults"), get(async move || failed))
        .route(&path("/unprocessedrecords"), get(async || ""));
    tokio::spawn(async { axum::serve(listener, router).await });
    url
}
