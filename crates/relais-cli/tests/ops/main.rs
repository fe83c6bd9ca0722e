//! The files in `ops/`: what can be known of them without the systems they are for.

// Helpers of tests may unwrap, like the tests themselves.
#![allow(clippy::unwrap_used)]

// Some helpers are made for other tests of the program.
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;

mod kubernetes;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use support::Site;
use yaml_rust2::{Yaml, YamlLoader};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The metrics of `docs/metrics.md`, which a test of `relais-admin` compares with the page.
fn metrics() -> BTreeSet<String> {
    let docs = read("docs/metrics.md");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Every metric of ours an expression names.
fn named(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| word.starts_with("relais_") || word.starts_with("process_");
    let metric = |word: &str| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|s| word.strip_suffix(s));
        histogram.unwrap_or(word).to_owned()
    };
    words.filter(ours).map(metric).collect()
}

fn assert_exist(expression: &str, metrics: &BTreeSet<String>) {
    let named = named(expression);
    assert!(!named.is_empty(), "no metric in `{expression}`");
    for metric in named {
        assert!(metrics.contains(&metric), "{metric} does not exist: {expression}");
    }
}

/// The anchor a heading gets.
fn anchors(name: &str) -> BTreeSet<String> {
    let page = read(name);
    let titles = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |title: &str| {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    titles.map(anchor).collect()
}

#[test]
fn alerts_ask_for_metrics_that_exist_and_lead_into_the_runbook() {
    let (metrics, anchors) = (metrics(), anchors("docs/observability.md"));
    let page = &yaml("ops/prometheus/alerts.yml")[0];
    let mut names = BTreeSet::new();
    for group in page["groups"].as_vec().unwrap() {
        for rule in group["rules"].as_vec().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} twice");
            assert_exist(rule["expr"].as_str().unwrap(), &metrics);
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["warning", "critical"].contains(&severity), "{name}: {severity}");
            for text in ["summary", "description"] {
                assert!(
                    rule["annotations"][text].as_str().is_some_and(|t| !t.is_empty()),
                    "{name}"
                );
            }
            let runbook = rule["annotations"]["runbook"].as_str().unwrap();
            let anchor = runbook.strip_prefix("docs/observability.md#").unwrap();
            assert!(anchors.contains(anchor), "{name}: no {runbook}");
        }
    }
    assert!(names.len() >= 15, "{names:?}");
}

#[test]
fn the_table_of_metrics_leads_to_places_that_exist() {
    let anchors = anchors("docs/observability.md");
    let page = read("docs/metrics.md");
    for rest in page.split("observability.md#").skip(1) {
        let anchor = rest.split(')').next().unwrap();
        assert!(anchors.contains(anchor), "{anchor}");
    }
}

#[test]
fn promtool_takes_the_rules_and_the_settings() {
    let Ok(promtool) = std::env::var("RELAIS_TEST_PROMTOOL") else {
        assert!(std::env::var_os("CI").is_none(), "CI must set RELAIS_TEST_PROMTOOL");
        eprintln!("NOT TESTED: alerts with promtool; set RELAIS_TEST_PROMTOOL");
        return;
    };
    for args in [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let done = Command::new(&promtool)
            .args(args)
            .current_dir(root().join("ops/prometheus"))
            .output()
            .expect("promtool runs");
        let said = String::from_utf8_lossy(&done.stdout).into_owned()
            + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{args:?}: {said}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist_and_places_each_panel_once() {
    let metrics = metrics();
    let page: serde_json::Value = serde_json::from_str(&read("ops/grafana/relais.json")).unwrap();
    let mut ids = BTreeSet::new();
    let mut taken: Vec<[i64; 4]> = Vec::new();
    let mut shown = BTreeSet::new();
    for panel in page["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{panel}");
        let at = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_i64().unwrap());
        let [x, y, w, h] = at;
        assert!(x + w <= 24, "{panel}");
        let overlaps =
            |[ox, oy, ow, oh]: &[i64; 4]| x < ox + ow && *ox < x + w && y < oy + oh && *oy < y + h;
        assert!(!taken.iter().any(overlaps), "{panel}");
        taken.push(at);
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            assert_exist(expression, &metrics);
            shown.extend(named(expression));
        }
    }
    let missing: Vec<_> = metrics.difference(&shown).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
    for variable in page["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["definition"].as_str() {
            assert_exist(query, &metrics);
        }
    }
}

/// The documents of the manifests, by kind.
fn manifests(kind: &str) -> Vec<Yaml> {
    let all = yaml("ops/kubernetes/relais.yaml");
    all.into_iter().filter(|one| one["kind"].as_str() == Some(kind)).collect()
}

#[test]
fn the_manifests_fit_together() {
    let deployment = &manifests("Deployment")[0];
    let spec = &deployment["spec"];
    assert!(spec["replicas"].as_i64().unwrap() > 1);
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(&spec["selector"]["matchLabels"], labels);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > 30, "longer than a call");
    let container = &pod["containers"][0];
    for each in [container, &pod["initContainers"][0]] {
        let rights = &each["securityContext"];
        assert_eq!(rights["readOnlyRootFilesystem"].as_bool(), Some(true));
        assert_eq!(rights["allowPrivilegeEscalation"].as_bool(), Some(false));
        assert_eq!(rights["capabilities"]["drop"][0].as_str(), Some("ALL"));
    }
    let ports: BTreeSet<&str> =
        container["ports"].as_vec().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    for (probe, path) in
        [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")]
    {
        assert_eq!(container[probe]["httpGet"]["path"].as_str(), Some(path));
        assert!(ports.contains(container[probe]["httpGet"]["port"].as_str().unwrap()));
    }
    for service in manifests("Service") {
        assert_eq!(&service["spec"]["selector"], labels);
        for port in service["spec"]["ports"].as_vec().unwrap() {
            assert!(ports.contains(port["targetPort"].as_str().unwrap()));
        }
    }
    let budget = &manifests("PodDisruptionBudget")[0];
    assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(budget["spec"]["maxUnavailable"].as_i64(), Some(1));
}

#[test]
fn the_settings_in_the_manifests_are_settings_and_listen_where_the_ports_are() {
    let config = manifests("ConfigMap")[0]["data"]["relais.toml"].as_str().unwrap().to_owned();
    let container = &manifests("Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    for port in container["ports"].as_vec().unwrap() {
        let listen = format!("listen = \"0.0.0.0:{}\"", port["containerPort"].as_i64().unwrap());
        assert!(config.contains(&listen), "{listen}");
    }
    // Only the database is another one: none is reached from here.
    let site = Site::with(&config.replace("${DATABASE_URL}", "sqlite:relais.db"));
    assert_eq!(site.relais(&["migrate"]).code, 2, "the secrets are not set");
    let with_secrets = |args: &[&str]| {
        site.command(args)
            .env("RELAIS_TOKEN", "0123456789abcdef0123456789abcdef")
            .env("HOOK_SECRET", "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU=")
            .env("SHOP_SECRET", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
            .output()
            .unwrap()
    };
    assert!(with_secrets(&["migrate"]).status.success());
    let check = with_secrets(&["check"]);
    let said = String::from_utf8_lossy(&check.stdout).into_owned()
        + &String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "{said}");
}

/// Scrapes without a token, as the annotations and `prometheus.yml` do.
#[test]
fn metrics_are_scraped_as_the_manifests_say() {
    let deployment = &manifests("Deployment")[0];
    let annotation = |name: &str| {
        let all = &deployment["spec"]["template"]["metadata"]["annotations"];
        all[format!("prometheus.io/{name}").as_str()].as_str().unwrap().to_owned()
    };
    assert_eq!(annotation("scrape"), "true");
    let (port, path) = (annotation("port"), annotation("path"));
    let config = manifests("ConfigMap")[0]["data"]["relais.toml"].as_str().unwrap().to_owned();
    let admin = format!("listen = \"0.0.0.0:{port}\"");
    assert!(config.contains(&admin), "{config}");
    // Another database, no collector, and ports that are free here.
    let config = config
        .replace("${DATABASE_URL}", "sqlite:relais.db")
        .replace("migrate = false", "migrate = true")
        .replace(&admin, "listen = \"127.0.0.1:0\"")
        .replace("listen = \"0.0.0.0:7071\"", "listen = \"127.0.0.1:0\"");
    let config: String =
        config.lines().filter(|line| !line.starts_with("otlp")).map(|l| format!("{l}\n")).collect();
    let secrets = [
        ("RELAIS_TOKEN", "0123456789abcdef0123456789abcdef"),
        ("HOOK_SECRET", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
        ("SHOP_SECRET", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
    ];
    let site = Site::with(&config);
    let running = site.run_with(&secrets);
    let address = running.logged("admin http://");
    let (status, page) = support::get(address, &path);
    assert!(status == 200 && page.contains("relais_"), "{status} {page}");
    for closed in ["/api/v1/overview", "/api/openapi.json"] {
        assert_eq!(support::get(address, closed).0, 401, "{closed}");
    }
    let scrape = &yaml("ops/prometheus/prometheus.yml")[0]["scrape_configs"][0];
    assert_eq!(scrape["metrics_path"].as_str(), Some(path.as_str()));
    let target = scrape["static_configs"][0]["targets"][0].as_str().unwrap();
    assert!(target.ends_with(&format!(":{port}")), "{target}");
    drop(running);
}

#[test]
fn the_other_files_have_their_documented_content() {
    let collector = &yaml("ops/opentelemetry/collector.yaml")[0];
    let endpoint = &collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"];
    assert_eq!(endpoint.as_str(), Some("0.0.0.0:4318"));
    for (name, pipeline) in collector["service"]["pipelines"].as_hash().unwrap() {
        for part in ["receivers", "processors", "exporters"] {
            for used in pipeline[part].as_vec().unwrap() {
                let used = used.as_str().unwrap();
                assert!(!collector[part][used].is_badvalue(), "{name:?}: no {part}.{used}");
            }
        }
    }
    let image = read("ops/docker/Dockerfile");
    let containers = &manifests("Deployment")[0]["spec"]["template"]["spec"];
    let wanted = containers["containers"][0]["image"].as_str().unwrap().to_owned();
    assert!(image.contains(&format!("-t {wanted} ")), "the manifest wants {wanted}");
    let stages = image.lines().filter(|line| line.starts_with("FROM ")).count();
    assert_eq!(stages, 2, "what builds is not what runs");
    let last = image.rfind("USER ").unwrap();
    assert!(image[last..].contains("ENTRYPOINT"), "it does not run as root");
    let channel = read("rust-toolchain.toml");
    let version = channel.split('"').nth(1).unwrap();
    let minor = version.rsplit_once('.').unwrap().0;
    assert!(image.contains(&format!("FROM rust:{minor}-")), "the compiler is {version}");
    for line in [
        &format!("ENV RUSTUP_TOOLCHAIN={version}\n"),
        concat!("image.version=\"", env!("CARGO_PKG_VERSION"), "\""),
        concat!("-t relais:", env!("CARGO_PKG_VERSION"), " ."),
        "CMD [\"/usr/bin/relais\", \"health\"]\n",
    ] {
        assert!(image.contains(line), "{line}");
    }
}

/// Checks the unit; the path of the program is checked with the installed Debian package
/// (`xtask/tests/packages.rs`).
#[test]
fn systemd_takes_the_unit() {
    let unit = read("ops/systemd/relais.service");
    for line in ["NoNewPrivileges=yes", "ProtectSystem=strict", "User=relais", "Type=notify"] {
        assert!(unit.contains(line), "{line}");
    }
    let site = Site::new();
    let unit = unit.replace("/usr/bin/relais", env!("CARGO_BIN_EXE_relais"));
    site.write("relais.service", &unit.replace("Documentation=man:relais(1)\n", ""));
    let file = site.path("relais.service");
    let Ok(done) = Command::new("systemd-analyze").arg("verify").arg(&file).output() else {
        eprintln!("NOT TESTED: the unit; there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&done.stderr);
    let about_us: Vec<&str> = said.lines().filter(|line| line.contains("relais")).collect();
    assert!(done.status.success() && about_us.is_empty(), "{said}");
}
