//! The optional manifests: that they fit those in `relais.yaml`. No cluster is needed.

use std::{collections::BTreeSet, fs, process::Command};

use yaml_rust2::{Yaml, YamlLoader};

use super::{Site, manifests, read, root, yaml};

const LABEL: &str = "app.kubernetes.io/name";

/// The ports of the deployment, by name.
fn ports() -> BTreeSet<String> {
    let container = &manifests("Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    let ports = container["ports"].as_vec().unwrap().iter();
    ports.map(|port| port["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_optional_manifests_fit_the_others() {
    let base = &yaml("ops/kubernetes/kustomization.yaml")[0];
    for file in base["resources"].as_vec().unwrap() {
        yaml(&format!("ops/kubernetes/{}", file.as_str().unwrap()));
    }
    assert_eq!(base["images"][0]["newTag"].as_str(), Some(env!("CARGO_PKG_VERSION")));

    let policy = &yaml("ops/kubernetes/network-policy.yaml")[0];
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"][LABEL].as_str(), Some("relais"));
    let rules = policy["spec"]["ingress"].as_vec().unwrap().iter();
    let open: BTreeSet<String> =
        rules.map(|rule| rule["ports"][0]["port"].as_str().unwrap().to_owned()).collect();
    assert_eq!(open, ports());
    let admin = policy["spec"]["ingress"].as_vec().unwrap();
    let admin = admin.iter().find(|rule| rule["ports"][0]["port"].as_str() == Some("admin"));
    assert!(!admin.unwrap()["from"].is_badvalue(), "access to the console is restricted");

    let path = &yaml("ops/kubernetes/ingress.yaml")[0]["spec"]["rules"][0]["http"]["paths"][0];
    let service = &path["backend"]["service"];
    let names = manifests("Service");
    let hook = names.iter().find(|one| one["metadata"]["name"] == service["name"]).unwrap();
    assert_eq!(hook["spec"]["ports"][0]["name"], service["port"]["name"]);
    assert_eq!(service["port"]["name"].as_str(), Some("hook"), "the console is not published");

    let endpoint = &yaml("ops/kubernetes/monitoring.yaml")[0]["spec"]["podMetricsEndpoints"][0];
    assert!(ports().contains(endpoint["port"].as_str().unwrap()));
    let key = endpoint["authorization"]["credentials"]["key"].as_str().unwrap();
    assert!(read("ops/kubernetes/relais.yaml").contains(&format!("--from-literal={key}=")));
}

#[test]
fn the_line_for_the_prometheus_operator_makes_a_rule_of_the_alerts() {
    let page = read("ops/kubernetes/monitoring.yaml");
    let line = page.lines().find_map(|line| line.strip_prefix("#   { printf")).unwrap();
    let (line, apply) = line.rsplit_once(" | ").unwrap();
    assert_eq!(apply, "kubectl apply -f -");
    let script = format!("{{ printf{line}");
    let said = Command::new("sh").args(["-ec", &script]).current_dir(root()).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let rule: &Yaml =
        &YamlLoader::load_from_str(&String::from_utf8(said.stdout).unwrap()).unwrap()[0];
    assert_eq!(rule["kind"].as_str(), Some("PrometheusRule"));
    assert_eq!(rule["spec"], yaml("ops/prometheus/alerts.yml")[0]);
}

#[test]
fn the_manifest_for_sqlite_has_one_replica_and_a_configuration_that_works() {
    let all = yaml("ops/kubernetes/sqlite.yaml");
    let kind = |kind: &str| all.iter().find(|one| one["kind"].as_str() == Some(kind)).unwrap();
    let set = &kind("StatefulSet")["spec"];
    assert_eq!(set["replicas"].as_i64(), Some(1), "SQLite has one writer");
    let pod = &set["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    let mounts: BTreeSet<&str> = pod["containers"][0]["volumeMounts"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    let config = kind("ConfigMap")["data"]["relais.toml"].as_str().unwrap();
    assert!(config.contains("sqlite:/var/lib/relais/") && mounts.contains("/var/lib/relais"));
    let site = Site::with(&config.replace("/var/lib/relais/relais.db", "relais.db"));
    let token = ("RELAIS_TOKEN", "0123456789abcdef0123456789abcdef");
    let check = site.command(&["check"]).env(token.0, token.1).output().unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn every_file_for_kubernetes_is_named_on_the_install_page() {
    let page = read("docs/install.md");
    for file in fs::read_dir(root().join("ops/kubernetes")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("ops/kubernetes/{name}")), "{name}");
    }
}
