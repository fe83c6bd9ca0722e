//! The files of the web console in `console/`, compiled into the program.
//!
//! Invariant: the files are the same for every caller and hold no data; all data comes from the API. So they need
//! no token, and browsers may cache them if they revalidate.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::{
    Router,
    extract::{OriginalUri, Path},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{mount, problem::ApiProblem};

/// A file of the console.
struct ConsoleFile {
    name: &'static str,
    content: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(ConsoleFile { name: $name, content: include_str!(concat!("../console/", $name)) }),*]
    };
}

const INDEX: ConsoleFile =
    ConsoleFile { name: "index.html", content: include_str!("../console/index.html") };

static FILES: [ConsoleFile; 33] = files![
    "api.js",
    "app.js",
    "audit.js",
    "chart.js",
    "configuration.js",
    "dead_letters.js",
    "destinations.js",
    "dialog.js",
    "dom.js",
    "flow.js",
    "format.js",
    "grid.js",
    "hex.js",
    "icon.svg",
    "inbox.js",
    "json_text.js",
    "live.js",
    "login.js",
    "message.js",
    "outbox.js",
    "overview.js",
    "pages.css",
    "parked_keys.js",
    "parts.js",
    "processes.js",
    "repair.js",
    "shell.js",
    "sources.js",
    "state.js",
    "style.css",
    "table.js",
    "theme.js",
    "workers.js",
];

/// Returns the routes `/` and `/console/…`, which need no token.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(index)).route("/console/{name}", get(file))
}

async fn index(original: OriginalUri, headers: HeaderMap) -> Response {
    let prefix = mount::page_prefix(&original);
    let content = INDEX.content.replace("=\"console/", &format!("=\"{prefix}console/"));
    serve(INDEX.name, content, &headers)
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => serve(file.name, file.content, &headers),
        None => {
            ApiProblem::not_found(format_args!("the console has no file `{name}`")).into_response()
        }
    }
}

fn serve(name: &str, content: impl AsRef<str> + IntoResponse, asked: &HeaderMap) -> Response {
    let tag = tag(content.as_ref());
    // Cached but revalidated each time, so that a page never mixes old and new files after an upgrade.
    let kept = [(header::CACHE_CONTROL, "no-cache"), (header::ETAG, tag.as_str())];
    let known = asked.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag)) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    let content_type = [(header::CONTENT_TYPE, content_type(name))];
    (kept, content_type, content).into_response()
}

fn tag(content: &str) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Largest total size of the console's files.
    const WEIGHT_MAX: usize = 200_000;
    const LINES_MAX: usize = 300;

    fn all() -> impl Iterator<Item = &'static ConsoleFile> {
        FILES.iter().chain([&INDEX])
    }

    #[test]
    fn the_console_is_small() {
        let weight: usize = all().map(|file| file.content.len()).sum();
        assert!(weight <= WEIGHT_MAX, "{weight} bytes");
    }

    #[test]
    fn every_file_is_served_and_small() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let there: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let served: BTreeSet<String> = all().map(|file| file.name.to_owned()).collect();
        assert_eq!(there, served);
        for file in all().filter(|file| file.name.ends_with(".js")) {
            let lines = file.content.lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines", file.name);
        }
    }

    /// Forbids functions that turn text into markup, and everything that the content security policy forbids.
    #[test]
    fn no_file_can_turn_text_into_markup() {
        const NEVER: [&str; 13] = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "createContextualFragment",
            "DOMParser",
            "eval(",
            "new Function",
            "setHTML",
            "style=",
            "javascript:",
            "http://",
            "https://",
        ];
        for file in all() {
            // The name of a vocabulary, not an address.
            let content = file.content.replace("http://www.w3.org/2000/svg", "");
            for word in NEVER {
                assert!(!content.contains(word), "{} contains `{word}`", file.name);
            }
            assert!(!has_inline_handler(&content), "{} has an inline handler", file.name);
        }
    }

    /// `<a onclick=…` or the like.
    fn has_inline_handler(content: &str) -> bool {
        content.split('<').skip(1).any(|tag| {
            let tag = tag.split('>').next().unwrap_or_default();
            tag.split_whitespace().any(|word| word.starts_with("on") && word.contains('='))
        })
    }

    /// The console may be nested under a path of another service.
    #[test]
    fn no_file_asks_for_an_address_at_the_root() {
        const NEVER: [&str; 8] = [
            "fetch(\"/",
            "fetch(`/",
            "EventSource(\"/",
            "EventSource(`/",
            "src=\"/",
            "href=\"/",
            "from \"/",
            "url(/",
        ];
        for file in all() {
            for word in NEVER {
                assert!(!file.content.contains(word), "{} contains `{word}`", file.name);
            }
        }
    }

    #[test]
    fn elements_are_created_in_one_module_only() {
        for file in FILES.iter().filter(|file| file.name != "dom.js") {
            assert!(!file.content.contains("createElement"), "{}", file.name);
        }
    }

    #[test]
    fn an_inline_handler_is_detected() {
        assert!(has_inline_handler("<b><img src=x onerror=alert(1)>"));
        assert!(!has_inline_handler("if (a < b) { on = 1 } // on the way"));
    }

    #[test]
    fn a_cached_file_is_not_sent_again() {
        let first = serve(INDEX.name, INDEX.content, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]);
        let again = serve(INDEX.name, INDEX.content, &asked);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }
}
