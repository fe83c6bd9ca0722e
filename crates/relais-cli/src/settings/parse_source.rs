//! `[[source]]`: what every kind has, and the kind `http`.

use std::{collections::HashSet, net::SocketAddr, path::Path};

use relais_core::{
    decode::Decoder,
    extract::{Mapping, Pick},
    inbox::INBOX_SEPARATOR,
};

use super::{
    encryption::tls,
    parse::listen_address,
    parse_kafka,
    quantity::{show_size, size},
    reader::Section,
    types::{HttpOrigin, Invalid, Origin, SourceSettings},
};

/// Largest body an HTTP source may be set to take.
const BODY_MAX: usize = 256 << 20;
const BODY_DEFAULT: usize = 8 << 20;

/// Every source that can be read.
pub(super) fn sources(sections: Vec<Section<'_>>, folder: &Path) -> Vec<SourceSettings> {
    let mut names = HashSet::new();
    sections.into_iter().filter_map(|section| source(section, &mut names, folder)).collect()
}

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Kafka,
    Later,
}

fn source(
    section: Section<'_>,
    names: &mut HashSet<String>,
    folder: &Path,
) -> Option<SourceSettings> {
    let name = section.required_name("name");
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        section.error("name", format_args!("another source is named `{name}`; names are unique"));
    }
    let (mapping, origin) = match kind(&section)? {
        Kind::Http => {
            let name = name.as_ref().filter(|name| fits_a_path(&section, name));
            (mapping(&section, name, &HTTP), Some(Origin::Http(http(&section, folder))))
        }
        Kind::Kafka => {
            let origin = parse_kafka::origin(&section).map(Origin::Kafka);
            (mapping(&section, name.as_ref(), &KAFKA), origin)
        }
        // Which keys are known depends on the kind.
        Kind::Later => return None,
    };
    let place = section.place();
    section.finish(where_it_belongs);
    Some(SourceSettings { place, name: name?, mapping, origin: origin? })
}

fn kind(section: &Section<'_>) -> Option<Kind> {
    const KINDS: [(&str, Kind); 4] = [
        ("http", Kind::Http),
        ("kafka", Kind::Kafka),
        ("rabbitmq", Kind::Later),
        ("nats", Kind::Later),
    ];
    if !section.has("kind") {
        section.error("kind", "is missing; this version has: http, kafka");
        return None;
    }
    let kind = section.choice("kind", &KINDS)?;
    if matches!(kind, Kind::Later) {
        let written = section.text("kind").map(|text| text.value).unwrap_or_default();
        let message = format!("{written} is not in this build yet; this version has: http, kafka");
        section.error("kind", message);
    }
    Some(kind)
}

fn where_it_belongs(key: &str) -> Option<String> {
    let kind = match key {
        "listen" | "invalid" | "body_max" | "token" | "secret" | "secrets" | "tls_certificate"
        | "tls_key" => "http",
        "brokers" | "group" | "topics" | "start" | "options" => "kafka",
        _ => return None,
    };
    Some(format!("it is for kind `{kind}`"))
}

/// What the messages of a kind have unless the file says otherwise, and what they cannot have.
struct Nature {
    message_id: fn() -> Pick,
    has_position: bool,
    decoders: &'static [Decoder],
}

const HTTP: Nature = Nature {
    message_id: || Pick::Header("message-id".to_owned()),
    has_position: false,
    // Its bodies are JSON by their content type.
    decoders: &[Decoder::Json, Decoder::JsonLatin1],
};

const KAFKA: Nature =
    Nature { message_id: || Pick::Position, has_position: true, decoders: &Decoder::ALL };

fn mapping(section: &Section<'_>, name: Option<&String>, nature: &Nature) -> Mapping {
    let message_id = pick(section, "message_id", nature);
    let decoders: Vec<_> = nature.decoders.iter().map(|d| (d.as_str(), *d)).collect();
    let event_type = pick(section, "event_type", nature);
    let source_system = section.name("source_system").or_else(|| name.cloned()).unwrap_or_default();
    if source_system.contains(INBOX_SEPARATOR) {
        let text = format_args!("must not contain `{INBOX_SEPARATOR}`, which names an inbox");
        section.error("source_system", text);
    }
    Mapping::json(&source_system)
        .decoder(section.choice("decoder", &decoders).unwrap_or_default())
        .message_id(message_id.unwrap_or_else(nature.message_id))
        .event_type(event_type.unwrap_or_else(|| Pick::Payload("/type".to_owned())))
        .aggregate_id(pick(section, "aggregate_id", nature))
}

fn pick(section: &Section<'_>, key: &'static str, nature: &Nature) -> Option<Pick> {
    let pick = section.parsed(key, |text| {
        text.parse().map_err(|_| {
            "is not a place in a message; use `header:NAME`, `payload:/JSON/POINTER` or `key`"
                .to_owned()
        })
    })?;
    if pick == Pick::Position && !nature.has_position {
        section.error(
            key,
            "an http message has no position; use `header:NAME` or `payload:/JSON/POINTER`",
        );
    }
    Some(pick)
}

/// The name is the path the messages are posted to.
fn fits_a_path(section: &Section<'_>, name: &str) -> bool {
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !fits {
        section.error("name", "is a path of the url too; use letters, digits, `-`, `_` and `.`");
    }
    fits
}

fn http(section: &Section<'_>, folder: &Path) -> HttpOrigin {
    let body_max = section.parsed("body_max", size).unwrap_or(BODY_DEFAULT);
    if body_max == 0 || body_max > BODY_MAX {
        section.error("body_max", format_args!("must be from 1B to {}", show_size(BODY_MAX)));
    }
    let invalid =
        section.choice("invalid", &[("store", Invalid::Store), ("reject", Invalid::Reject)]);
    let origin = HttpOrigin {
        listen: section
            .parsed("listen", listen_address)
            .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7071))),
        invalid: invalid.unwrap_or(Invalid::Store),
        body_max,
        token: section.secret("token"),
        secrets: section.secrets(),
        tls: tls(section, folder),
    };
    let open = origin.token.is_none() && origin.secrets.is_empty();
    if open && !origin.listen.ip().is_loopback() {
        section.warn("listen", "is not a loopback address and anybody may post; set a `token`");
    }
    origin
}
