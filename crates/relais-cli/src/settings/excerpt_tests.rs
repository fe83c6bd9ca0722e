//! The source lines below errors: the marked part, and no secret.

use std::path::Path;

use super::*;

fn rendered(text: &str) -> String {
    let environment = |name: &str| (name == "KEY").then(|| "CANARY-variable".to_owned());
    match read(Path::new("relais.toml"), text, &environment) {
        Ok((_, warnings)) => SettingsError { findings: warnings }.render(false),
        Err(error) => error.render(false),
    }
}

#[test]
fn a_caret_marks_the_key_or_the_value() {
    assert_eq!(
        rendered("[store]\nurll = \"sqlite:x\"\n[lanes]\nlease = \"1h30m\"  # long\n"),
        "error: relais.toml:2:1: store.urll: unknown key; did you mean `url`?\n\
         \x20 |\n\
         2 | urll = \"…\"\n\
         \x20 | ^^^^\n\
         error: relais.toml:4:9: lanes.lease: `1h30m` must be from 2s to 1h\n\
         \x20 |\n\
         4 | lease = \"1h30m\"\n\
         \x20 |         ^^^^^^^"
    );
    let missing = rendered("\n\n\n\n\n\n\n\n\n[[destination]]\nkind = \"log\"\n");
    assert!(missing.contains("10 | [[destination]]\n   | ^^^^^^^^^^^^^^^"), "{missing}");
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let error = read(Path::new("relais.toml"), "[store]\nurll = 1\n", &|_| None).unwrap_err();
    assert!(!error.render(false).contains('\u{1b}'));
    let colored = error.render(true);
    assert!(colored.starts_with("\u{1b}[1;31merror\u{1b}[0m: relais.toml:2:1"), "{colored}");
    assert!(colored.ends_with("\u{1b}[1;31m^^^^\u{1b}[0m"), "{colored}");
}

#[test]
fn a_warning_has_its_line_too() {
    let warning = rendered("[store]\nunsafe_durability = true\n");
    assert!(
        warning.starts_with("warning: relais.toml:2:21: store.unsafe_durability: "),
        "{warning}"
    );
    assert!(warning.contains("2 | unsafe_durability = true\n"), "{warning}");
}

#[test]
fn no_line_shows_a_secret_whatever_is_wrong_with_it() {
    let wrong = [
        // Hidden keys with a wrong value, type or variable.
        "[admin]\ntoken = [\"CANARY\"]\n",
        "[admin]\ntoken = \"${NOPE}CANARY\"\n",
        "[admin]\nsession_key = \"\" # CANARY\n",
        "[store]\nurl = \"mysql://root:CANARY@db/x\"\n",
        "[telemetry]\notlp = \"http://me:CANARY@c\"\n",
        "[telemetry]\nheaders = { \"x y\" = \"CANARY\" }\n",
        "[[admin.tokens]]\nname = \"a\"\nrole = \"admin\"\nsha256 = \"CANARY\"\n",
        // Keys that relais does not know.
        "[admin]\ntokne = \"CANARY\"\n",
        "[admin]\npin = 0xCA11A12 # CANARY\nlisten = \"x\" # CANARY\n",
        "admin = { tokne = \"CANARY\", listen = 5 }\n",
        "[[source]]\nname = \"s\"\nkind = \"htpp\"\ntoken = \"CANARY\"\n",
        "source = [{ name = \"s\", kind = \"htpp\", token = \"CANARY\" }]\n",
        "destination = [{ name = \"d\", kind = \"http\", url = \"ftp://x/CANARY\", secrets = [\"CANARY\", 5] }]\n",
        "destination = [{ name = \"d\", kind = \"nats\", password = \"CANARY\" }]\n",
        "[[destination]]\nname = \"d\"\nkind = \"kafka\"\nbrokers = \"k\"\noptions = { sasl.password = \"CANARY\", x = [1] }\n",
        "[[destination]]\nname = \"d\"\nkind = \"salesforce\"\nlogin_url = \"https://u:CANARY@x\"\nclient_id = 5\n",
        "[[destination]]\nname = \"d\"\nkind = \"salesforce\"\nprivate_key = '''\nCANARY\n'''\nobject = 1\n",
        // No TOML.
        "[admin]\ntoken = \"CANARY\nlisten = 5",
        "[admin]\ntoken \"CANARY\"\n",
        "[admin]\ntoken = CANARY\n",
        "[admin]\ntoken =\n  CANARY\n",
        "[admin]\ntoken = \n  CANARY==\n",
        "[admin]\ntoken = '''\nCANARY = 1\n",
        "[admin]\nsecrets = [\n  \"CANARY\n",
        "[admin\ntoken = \"CANARY\"\n",
        "[admin] token = \"CANARY\"\n",
        "[\"CANARY\n",
    ];
    for text in wrong {
        let shown = rendered(text);
        assert!(shown.starts_with("error: "), "accepted: {text}");
        assert!(!shown.contains("CANARY"), "{text}\n{shown}");
    }
}

#[test]
fn a_syntax_error_shows_the_header_or_the_key_alone() {
    let header = rendered("[store\nurl = \"x\"\n");
    assert!(header.contains("1 | [store\n"), "{header}");
    let value = rendered("[store]\nurl = x y\n");
    assert!(value.contains("2 | url = …\n"), "{value}");
}

#[test]
fn a_line_does_not_act_on_the_terminal() {
    let text = "[lanes]\nlease = \"\u{7f}\u{202e}1s\" # \u{202e}\n\"\\u001b[2J\" = 1\n";
    let shown = rendered(text);
    assert!(!shown.contains(['\u{7f}', '\u{202e}', '\u{1b}']), "{shown:?}");
}
