//! `[[source]]` and `[[route]]`.

use std::{collections::HashSet, net::SocketAddr};

use relais_core::{
    extract::Pick,
    json::{self, JsonError},
    route::Route,
};

use super::{
    parse::listen_address,
    quantity::{show_size, size},
    reader::Section,
    types::{Invalid, RouteSettings, SourceSettings},
};

/// Largest body an HTTP source may be set to take.
const BODY_MAX: usize = 256 << 20;
const BODY_DEFAULT: usize = 8 << 20;

/// Every source that can be read.
pub(super) fn sources(sections: Vec<Section<'_>>) -> Vec<SourceSettings> {
    let mut names = HashSet::new();
    sections.into_iter().filter_map(|section| source(section, &mut names)).collect()
}

fn source(section: Section<'_>, names: &mut HashSet<String>) -> Option<SourceSettings> {
    let name = section.required_name("name");
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        section.error("name", format_args!("another source is named `{name}`; names are unique"));
    }
    if !is_http(&section) {
        return None;
    }
    let name = name.filter(|name| fits_a_path(&section, name));
    let settings = http(&section, name.clone().unwrap_or_default());
    section.finish(|_| None);
    name.map(|_| settings)
}

/// Whether the kind is there and in this build; everything else is noted.
fn is_http(section: &Section<'_>) -> bool {
    const KINDS: [(&str, bool); 4] =
        [("http", true), ("kafka", false), ("rabbitmq", false), ("nats", false)];
    if !section.has("kind") {
        section.error("kind", "is missing; this version has: http");
        return false;
    }
    match section.choice("kind", &KINDS) {
        Some(true) => true,
        Some(false) => {
            let kind = section.text("kind").map(|text| text.value).unwrap_or_default();
            let message = format!("{kind} is not in this build yet; this version has: http");
            section.error("kind", message);
            false
        }
        None => false,
    }
}

/// The name is the path the messages are posted to.
fn fits_a_path(section: &Section<'_>, name: &str) -> bool {
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !fits {
        section.error("name", "is a path of the url too; use letters, digits, `-`, `_` and `.`");
    }
    fits
}

fn http(section: &Section<'_>, name: String) -> SourceSettings {
    let message_id = pick(section, "message_id");
    if message_id == Some(Pick::Position) {
        section.error(
            "message_id",
            "an http message has no position; use `header:NAME` or `payload:/JSON/POINTER`",
        );
    }
    let body_max = section.parsed("body_max", size).unwrap_or(BODY_DEFAULT);
    if body_max == 0 || body_max > BODY_MAX {
        section.error("body_max", format_args!("must be from 1B to {}", show_size(BODY_MAX)));
    }
    let invalid =
        section.choice("invalid", &[("store", Invalid::Store), ("reject", Invalid::Reject)]);
    let settings = SourceSettings {
        place: section.place(),
        listen: section
            .parsed("listen", listen_address)
            .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7071))),
        source_system: section.name("source_system").unwrap_or_else(|| name.clone()),
        message_id: message_id.unwrap_or_else(|| Pick::Header("message-id".to_owned())),
        event_type: Some(
            pick(section, "event_type").unwrap_or_else(|| Pick::Payload("/type".to_owned())),
        ),
        aggregate_id: pick(section, "aggregate_id"),
        invalid: invalid.unwrap_or(Invalid::Store),
        body_max,
        token: section.secret("token"),
        secrets: section.secrets(),
        name,
    };
    let open = settings.token.is_none() && settings.secrets.is_empty();
    if open && !settings.listen.ip().is_loopback() {
        section.warn("listen", "is not a loopback address and anybody may post; set a `token`");
    }
    settings
}

fn pick(section: &Section<'_>, key: &'static str) -> Option<Pick> {
    section.parsed(key, |text| {
        text.parse().map_err(|_| {
            "is not a place in a message; use `header:NAME`, `payload:/JSON/POINTER` or `key`"
                .to_owned()
        })
    })
}

/// Every route that can be read.
pub(super) fn routes(sections: Vec<Section<'_>>) -> Vec<RouteSettings> {
    let mut identities = HashSet::new();
    let mut routes = Vec::new();
    for section in sections {
        let Some(route) = route(&section) else {
            section.finish(|_| None);
            continue;
        };
        // What the ids of its messages are made of: an equal route would make the same messages.
        let Route { on, destination, event_type, aggregate_type, each, .. } = route.route.clone();
        if !identities.insert((on, destination, event_type, aggregate_type, each)) {
            section.error("", "an earlier route makes the same messages; remove one of the two");
        }
        section.finish(|_| None);
        routes.push(route);
    }
    routes
}

fn route(section: &Section<'_>) -> Option<RouteSettings> {
    let (on, destination) = (section.required_name("on"), section.required_name("destination"));
    let each = section.parsed("each", pointer);
    let route = Route {
        on: on.clone().unwrap_or_default(),
        destination: destination.clone().unwrap_or_default(),
        event_type: section.name("event_type"),
        aggregate_type: section.name("aggregate_type"),
        version: section.parsed("version", pointer),
        payload: section.text("payload").map(|text| text.value),
        each,
    };
    if let Some(template) = &route.payload
        && let Err(error) = check_template(template, route.each.is_some())
    {
        section.error("payload", error);
    }
    on.and(destination).map(|_| RouteSettings { place: section.place(), route })
}

/// The pointer of `payload:/pointer`.
fn pointer(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(Pick::Payload(pointer)) => Ok(pointer),
        _ => Err("is not a place in the payload; write `payload:/JSON/POINTER`".to_owned()),
    }
}

/// Fills the template with `null` everywhere: it must be JSON then, as it must be later.
fn check_template(template: &str, has_each: bool) -> Result<(), String> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or("has `{{` without `}}`")?;
        match name.trim() {
            "each" if !has_each => {
                return Err("uses `{{each}}`, but the route has no `each`".into());
            }
            "each" | "" => {}
            pointer if pointer.starts_with('/') => {}
            other => return Err(format!("`{{{{{other}}}}}` is not `{{{{each}}}}` or a pointer")),
        }
        filled.push_str(before);
        filled.push_str("null");
        rest = after;
    }
    filled.push_str(rest);
    json::check(filled.as_bytes()).map(drop).map_err(|error| match error {
        JsonError::Syntax(_) => "is not JSON once `{{…}}` is filled in".to_owned(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_checked_before_they_are_used() {
        assert_eq!(check_template(r#"{"a":{{/x}},"b":{{each}}}"#, true), Ok(()));
        for (template, each) in [
            ("{{each}}", false),
            ("{{/x", false),
            ("[{{/x}}", false),
            ("{{x}}", false),
            ("", false),
        ] {
            assert!(check_template(template, each).is_err(), "{template}");
        }
    }
}
