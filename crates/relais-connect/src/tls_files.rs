//! The check of the TLS files of a broker's settings.

use std::path::PathBuf;

/// Reports files that need TLS if the URL has none, and a certificate or key without the other. `scheme`
/// is that of URLs with TLS.
pub(crate) fn check_tls_files(
    (is_tls, scheme): (bool, &str),
    [ca, certificate, key]: [&Option<PathBuf>; 3],
    report: &mut dyn FnMut(&str, String),
) {
    let names = [("tls_ca", ca), ("tls_certificate", certificate), ("tls_key", key)];
    for (name, _) in names.into_iter().filter(|(_, file)| file.is_some() && !is_tls) {
        report(name, format!("needs a `url` that starts with {scheme}://"));
    }
    match (certificate, key) {
        (Some(_), None) => report("tls_key", "is missing beside `tls_certificate`".to_owned()),
        (None, Some(_)) => report("tls_certificate", "is missing beside `tls_key`".to_owned()),
        _ => {}
    }
}
